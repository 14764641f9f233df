{{/* The name of everything here. KubeRay takes at most 47 characters. */}}
{{- define "foredraft.name" -}}
{{- .Release.Name | trunc 47 | trimSuffix "-" -}}
{{- end -}}

{{- define "foredraft.selector" -}}
app.kubernetes.io/name: foredraft
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "foredraft.labels" -}}
{{ include "foredraft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* A replicas' key of Serve: pool, name of the pool. */}}
{{- define "foredraft.count" -}}
{{- with .autoscaling -}}
autoscaling: {min_replicas: {{ .min }}, max_replicas: {{ .max }}}
{{- else -}}
num_replicas: {{ .replicas }}
{{- end -}}
{{- end -}}
