{{- define "routewright.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "routewright.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains .Chart.Name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects: two releases of one name may live in two namespaces. */}}
{{- define "routewright.clusterName" -}}
{{- printf "%s.%s" (include "routewright.fullname" .) .Release.Namespace }}
{{- end }}

{{- define "routewright.serviceAccountName" -}}
{{- default (include "routewright.fullname" .) .Values.serviceAccount.name }}
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

{{/* Rights on namespaced objects: in every namespace, or in the watched ones. */}}
{{- define "routewright.rules" -}}
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets, garageclusters, garagereferencegrants]
  verbs: [get, list, watch]
# The exposure controllers state their condition even while they are switched off.
- apiGroups: [garage.rajsingh.info]
  resources: [garagebuckets/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
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
