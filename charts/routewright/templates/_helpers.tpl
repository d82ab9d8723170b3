{{/*
Gives every value that is null or left out its default, since null in the values of a parent chart takes a key away. Each
template begins with it. Maps that users fill as they like (`labels`, `resources`, security contexts) stay as they are: null is
how a key of theirs is taken out. files/values.yaml is a copy of values.yaml, which templates cannot read (a test compares them).
*/}}
{{- define "routewright.defaults" -}}
{{- include "routewright.fill" (dict "values" .Values "defaults" (.Files.Get "files/values.yaml" | fromYaml)) }}
{{- end }}

{{- define "routewright.fill" -}}
{{- range $key, $default := .defaults }}
{{- $value := index $.values $key }}
{{- if has $key (list "labels" "resources" "podSecurityContext" "securityContext") }}
{{- else if kindIs "invalid" $value }}
{{- $_ := set $.values $key (deepCopy $default) }}
{{- else if and (kindIs "map" $value) (kindIs "map" $default) }}
{{- include "routewright.fill" (dict "values" $value "defaults" $default) }}
{{- end }}
{{- end }}
{{- end }}

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

{{/*
Labels of the chart (`.own`) and the user's (`.more`, of the value `.value`), each key once. The user's win, but for the keys that
objects are found by (`.fixed`).
*/}}
{{- define "routewright.withLabels" -}}
{{- $labels := deepCopy .own }}
{{- range $key, $label := .more }}
{{- if and (has $key $.fixed) (ne (toString $label) (get $.own $key)) }}
{{- fail (printf "%s: the label %s is the chart's own, objects are found by it; leave it out" $.value $key) }}
{{- end }}
{{- $_ := set $labels $key $label }}
{{- end }}
{{- toYaml $labels }}
{{- end }}

{{/* Labels of an object that the user may add to: `.context`, `.more`, `.value`. */}}
{{- define "routewright.objectLabels" -}}
{{- include "routewright.withLabels" (dict
  "own" (include "routewright.labels" .context | fromYaml) "more" .more "value" .value
  "fixed" (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/managed-by")
) }}
{{- end }}

{{/*
Labels of the operator's Pods. Those of `routewright.dev` tell which feature a Pod has on: a clean-up looks at them, and waits
until the Pods that write to Tyk are gone.
*/}}
{{- define "routewright.podLabels" -}}
{{- $own := include "routewright.labels" . | fromYaml }}
{{- if .Values.garageBuckets.enabled }}
{{- $_ := set $own "routewright.dev/garage-buckets" "true" }}
{{- end }}
{{- if .Values.tyk.enabled }}
{{- $_ := set $own "routewright.dev/tyk" "true" }}
{{- end }}
{{- include "routewright.withLabels" (dict
  "own" $own "more" .Values.podLabels "value" "podLabels"
  "fixed" (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "routewright.dev/garage-buckets" "routewright.dev/tyk")
) }}
{{- end }}

{{/* A controller that needs rights on objects besides reading is on. */}}
{{- define "routewright.anything" -}}
{{- if or .Values.ingress.enabled .Values.gatewayAPI.enabled .Values.garageBuckets.enabled .Values.tyk.enabled }}true{{ end }}
{{- end }}

{{/* The half for Garage runs: a release for Tyk alone, or for its definitions, has no right on its kinds. */}}
{{- define "routewright.garage" -}}
{{- $tyk := or .Values.tyk.enabled (include "routewright.definitions" .) }}
{{- if or .Values.ingress.enabled .Values.gatewayAPI.enabled .Values.garageBuckets.enabled (not $tyk) }}true{{ end }}
{{- end }}

{{/* Name of the ConfigMap with the operator's record of the Tyks that its classes led to. The operator creates it. */}}
{{- define "routewright.tykPlaces" -}}
{{- .Release.Name }}-tyk-places
{{- end }}

{{/* TykOasApiDefinitions are looked at. */}}
{{- define "routewright.definitions" -}}
{{- $said := toString .Values.tyk.definitions }}
{{- if or (eq $said "true") (and (eq $said "") .Values.tyk.enabled) }}true{{ end }}
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

{{/*
The release that is there may patch a resource (`.resource`): what only one of its controllers does tells that it was on.
*/}}
{{- define "routewright.managed" -}}
{{- $name := include "routewright.clusterName" .context }}
{{- $roles := list (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $name) }}
{{- range .context.Values.watchNamespaces }}
{{- $roles = append $roles (lookup "rbac.authorization.k8s.io/v1" "Role" . $name) }}
{{- end }}
{{- $managed := false }}
{{- $resource := .resource }}
{{- range $roles }}
{{- range (dig "rules" list (default dict .)) }}
{{- if and (has $resource (default list .resources)) (has "patch" (default list .verbs)) }}
{{- $managed = true }}
{{- end }}
{{- end }}
{{- end }}
{{- if $managed }}true{{ end }}
{{- end }}

{{/* Helm renders for a cluster that it talks to: only then a list is an object, even an empty one. */}}
{{- define "routewright.live" -}}
{{- if lookup "batch/v1" "Job" .Release.Namespace "" }}true{{ end }}
{{- end }}

{{/*
When the Job `.job` cleans up what its controller (`.enabled`) left: `.uninstall`; or after an upgrade that switches the
controller off, and after each one that follows until it has succeeded (a Job that failed stays), and on uninstall in case it has
not. Empty: never.

A rendering without a cluster has no hook: `kubectl apply` would run it with the rest. Argo CD runs hooks as hooks, and has to be
named (`hooksRunBy`).
*/}}
{{- define "routewright.cleanupWhen" -}}
{{- $failed := lookup "batch/v1" "Job" .context.Release.Namespace .job }}
{{- if .enabled }}
{{- if or (include "routewright.live" .context) (eq .context.Values.hooksRunBy "argocd") }}{{ .uninstall }}{{ end }}
{{- else if or $failed (include "routewright.managed" .) }}post-upgrade,{{ .uninstall }}
{{- end }}
{{- end }}

{{/* Account, rights and Pod of a clean-up: what its two Jobs have in common. `.name`, `.when`, `.args`, `.env`, `.context`. */}}
{{- define "routewright.cleanupHook" -}}
"helm.sh/hook": {{ .when }}
"helm.sh/hook-delete-policy": {{ .policy }}
"helm.sh/hook-weight": {{ .weight | quote }}
{{- end }}

{{- define "routewright.cleanupJob" -}}
{{- $ := .context }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "routewright.labels" $ | nindent 4 }}
  annotations:
    {{- /* One that failed stays, so that its log can be read; the next one replaces it. */}}
    {{- include "routewright.cleanupHook" (dict "when" .when "weight" "0" "policy" "before-hook-creation,hook-succeeded") | nindent 4 }}
    "helm.sh/hook-output-log-policy": hook-failed
spec:
  backoffLimit: {{ .backoffLimit }}
  activeDeadlineSeconds: 240
  template:
    metadata:
      # Not the labels that the Deployment's Pods are selected by.
      labels:
        app.kubernetes.io/name: {{ include "routewright.name" $ }}-cleanup
        app.kubernetes.io/instance: {{ $.Release.Name }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: true
      enableServiceLinks: false
      {{- with $.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: {{- toYaml $.Values.podSecurityContext | nindent 8 }}
      containers:
      - name: cleanup
        image: {{ include "routewright.image" $ | quote }}
        imagePullPolicy: {{ $.Values.image.pullPolicy }}
        args: {{ toJson .args }}
        env: {{- toYaml .env | nindent 8 }}
        resources: {{- toYaml $.Values.resources | nindent 10 }}
        securityContext: {{- toYaml $.Values.securityContext | nindent 10 }}
        {{- if and .ca (or $.Values.extraCA.secretName $.Values.extraCA.configMapName) }}
        volumeMounts:
        - {name: extra-ca, mountPath: /etc/routewright/extra-ca, readOnly: true}
        {{- end }}
      {{- if and .ca (or $.Values.extraCA.secretName $.Values.extraCA.configMapName) }}
      volumes:
      {{- include "routewright.caVolume" $ | nindent 6 }}
      {{- end }}
      {{- with $.Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{/* A hook that lets the Pods of a clean-up out, where a namespace lets none: `.name`, `.when`, `.policy`, `.context`;
`.tyk` when they speak to Tyk. */}}
{{- define "routewright.cleanupNetwork" -}}
{{- $ := .context }}
{{- if $.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .name }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "routewright.labels" $ | nindent 4 }}
  annotations: {{- include "routewright.cleanupHook" (dict "when" .when "weight" "-2" "policy" .policy) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: {{ include "routewright.name" $ }}-cleanup
      app.kubernetes.io/instance: {{ $.Release.Name }}
  policyTypes: [Ingress, Egress]
  egress: {{- include "routewright.egress" (dict "context" $ "garage" false "tyk" .tyk) | nindent 2 }}
{{- end }}
{{- end }}

{{/* What the Pods of the operator, and of its clean-up, may reach: `.context`; `.garage` and `.tyk` when they speak to these. */}}
{{- define "routewright.egress" -}}
{{- $values := .context.Values -}}
# DNS.
- ports:
  - {protocol: UDP, port: 53}
  - {protocol: TCP, port: 53}
# A rule without ports would let everything out, so no ports, no rule.
{{- with $values.networkPolicy.apiServerPorts }}
# The API server: its address is no Pod's, so only the port can be named.
- ports:
{{- range . }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}
{{- if and .garage $values.networkPolicy.garageAdminPorts }}
# Garage's Admin APIs.
- ports:
{{- range $values.networkPolicy.garageAdminPorts }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}
{{- if and .tyk $values.networkPolicy.tykPorts }}
# The APIs of Tyk.
- ports:
{{- range $values.networkPolicy.tykPorts }}
  - {protocol: TCP, port: {{ . }}}
{{- end }}
{{- end }}
{{- if $values.otel.endpoint }}
# The trace collector.
- ports:
  - {protocol: TCP, port: {{ include "routewright.otelPort" .context }}}
{{- end }}
{{- with $values.networkPolicy.extraEgress }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "routewright.caVolume" -}}
- name: extra-ca
  {{- if .Values.extraCA.secretName }}
  secret: {secretName: {{ .Values.extraCA.secretName | quote }}}
  {{- else }}
  configMap: {name: {{ .Values.extraCA.configMapName | quote }}}
  {{- end }}
{{- end }}

{{/* Rights on namespaced objects: in every namespace, or in the watched ones. */}}
{{- define "routewright.rules" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- if include "routewright.garage" . }}
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets, garageclusters, garagereferencegrants]
  verbs: [list, watch]
# The exposure controllers state their condition even while they are switched off.
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets/status]
  verbs: [patch]
{{- end }}
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

{{/* Gateway API on Tyk looks at all namespaces, so these rights are cluster-wide. */}}
{{- define "routewright.tykRules" -}}
{{- if .Values.tyk.enabled }}
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses, gateways, httproutes, referencegrants]
  verbs: [list, watch]
- apiGroups: [tyk.tyk.io]
  resources: [operatorcontexts]
  # Read again for the credential, which is kept nowhere.
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
# Of Secrets and ConfigMaps only names and versions are listed and watched; those that something refers to are read by name.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses/status, gateways/status, httproutes/status]
  verbs: [patch]
# Finalizers, and the annotation of a route that names its APIs.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses, httproutes]
  verbs: [patch]
{{- end }}
{{- if include "routewright.definitions" . }}
- apiGroups: [tyk.tyk.io]
  resources: [tykoasapidefinitions]
  verbs: [list, watch]
- apiGroups: [tyk.tyk.io]
  resources: [tykoasapidefinitions/status]
  verbs: [patch]
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
