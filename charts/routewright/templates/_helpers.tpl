{{- define "routewright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "routewright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "routewright.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "routewright.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects: two releases of one name may live in two namespaces. */}}
{{- define "routewright.clusterName" -}}
{{- printf "%s.%s" (include "routewright.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "routewright.serviceAccountName" -}}
{{- default (include "routewright.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "routewright.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "routewright.selectorLabels" -}}
app.kubernetes.io/name: {{ include "routewright.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "routewright.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "routewright.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* A controller that needs rights on objects besides reading is on. */}}
{{- define "routewright.anything" -}}
{{- if or .Values.ingress.enabled .Values.gatewayAPI.enabled .Values.garageBuckets.enabled }}true{{ end }}
{{- end }}

{{/*
Whose a CRD in the cluster is: "absent", "ours" (this release installed it) or "other". Without a cluster, as in
`helm template`, it is absent.
*/}}
{{- define "routewright.whose" -}}
{{- $there := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" .name }}
{{- $owner := dig "metadata" "annotations" dict (default dict $there) }}
{{- $release := .context.Release }}
{{- if not $there }}absent
{{- else if and (eq (get $owner "meta.helm.sh/release-name") $release.Name) (eq (get $owner "meta.helm.sh/release-namespace") $release.Namespace) }}ours
{{- else }}other
{{- end }}
{{- end }}

{{/* The rules of the CRD of GarageBuckets are in force, because this release installs it. */}}
{{- define "routewright.ownBuckets" -}}
{{- if and .Values.crds.garage.enabled (ne (include "routewright.whose" (dict "context" . "name" "garagebuckets.garage.rajsingh.info")) "other") }}true{{ end }}
{{- end }}

{{/* The release that is there manages buckets in Garage: its role may patch them. */}}
{{- define "routewright.managedBuckets" -}}
{{- $name := include "routewright.clusterName" . }}
{{- $roles := list (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $name) }}
{{- range .Values.watchNamespaces }}
{{- $roles = append $roles (lookup "rbac.authorization.k8s.io/v1" "Role" . $name) }}
{{- end }}
{{- $managed := false }}
{{- range $roles }}
{{- range (dig "rules" list (default dict .)) }}
{{- if and (has "garagebuckets" (default list .resources)) (has "patch" (default list .verbs)) }}
{{- $managed = true }}
{{- end }}
{{- end }}
{{- end }}
{{- if $managed }}true{{ end }}
{{- end }}

{{/* Rights on namespaced objects: in every namespace, or in the watched ones. */}}
{{- define "routewright.rules" -}}
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets, garageclusters, garagereferencegrants]
  verbs: [list, watch]
# The exposure controllers state their condition even while they are switched off.
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if .Values.ingress.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.gatewayAPI.enabled }}
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if .Values.garageBuckets.enabled }}
# Finalizers and annotations of a bucket, and what is said about clusters.
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets, garageclusters/status]
  verbs: [patch]
# Admin tokens, each read by its name.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get]
{{- end }}
{{- end }}

{{/* Traces: the standard's variables, and none without an endpoint. */}}
{{- define "routewright.otelEnv" -}}
{{- with .Values.otel }}
{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
{{- if .headersSecret.name }}
- name: OTEL_EXPORTER_OTLP_HEADERS
  valueFrom:
    secretKeyRef: {name: {{ .headersSecret.name | quote }}, key: {{ .headersSecret.key | quote }}}
{{- end }}
{{- with .sampler }}
- name: OTEL_TRACES_SAMPLER
  value: {{ . | quote }}
{{- end }}
{{- with .samplerArg }}
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ . | quote }}
{{- end }}
{{- with .serviceName }}
- name: OTEL_SERVICE_NAME
  value: {{ . | quote }}
{{- end }}
{{- with .resourceAttributes }}
{{- $pairs := list }}
{{- range $key, $value := . }}
{{- $pairs = append $pairs (printf "%s=%s" $key $value) }}
{{- end }}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: {{ join "," $pairs | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The port that an OTLP endpoint names; that of its scheme when it names none. */}}
{{- define "routewright.otelPort" -}}
{{- $scheme := ternary "443" "80" (hasPrefix "https:" .Values.otel.endpoint) }}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+(/|$)" .Values.otel.endpoint | trimSuffix "/") | default $scheme }}
{{- end }}
