{{/* The Serve config file: keys of docs/configuration.md. */}}
{{- define "foredraft.serve" -}}
proxy_location: EveryNode
http_options: {host: 0.0.0.0, port: 8000}
applications:
  - name: foredraft
    route_prefix: /
    import_path: deployments.app:build
    {{- if .Values.autoscaling.policy }}
    autoscaling_policy:
      policy_function: deployments.autoscaling.serve_policy:ScalingPolicy
      policy_kwargs:
        policy: {{ .Values.autoscaling.policy }}
        {{- with .Values.autoscaling.parameters }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
    args:
      {{- with .Values.models.name }}
      model_name: {{ . | quote }}
      {{- end }}
      {{- with .Values.models.tokenizer }}
      tokenizer: {{ . | quote }}
      {{- end }}
      {{- if .Values.certificates.secretName }}
      mtls: /etc/foredraft-certificates
      {{- end }}
      {{- with .Values.orchestrator }}
      orchestrator:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ingress:
        num_replicas: {{ .Values.ingress.replicas }}
        num_cpus: {{ .Values.ingress.cpus }}
        node_labels: {foredraft: ingress}
        {{- if .Values.keys.secretName }}
        keys_file: /etc/foredraft/{{ .Values.keys.fileName }}
        {{- end }}
        {{- with .Values.ingress.settings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      drafter:
        {{- include "foredraft.count" .Values.drafter | nindent 8 }}
        num_cpus: {{ .Values.drafter.cpus }}
        num_gpus: {{ .Values.drafter.gpus }}
        node_labels: {foredraft: drafter}
        {{- with .Values.drafter.settings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        service:
          model: {{ .Values.models.drafter | quote }}
          {{- toYaml .Values.drafter.service | nindent 10 }}
      verifier:
        {{- include "foredraft.count" .Values.verifier | nindent 8 }}
        num_cpus: {{ .Values.verifier.cpus }}
        num_gpus: {{ .Values.verifier.gpus }}
        node_labels: {foredraft: verifier}
        {{- with .Values.verifier.settings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        service:
          model: {{ .Values.models.target | quote }}
          {{- toYaml .Values.verifier.service | nindent 10 }}
{{- end -}}
