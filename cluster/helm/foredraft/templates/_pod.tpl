{{/*
A pod of Ray: root, pool (a part of the values), container, and the role whose certificate it has,
empty for the head. Its labels do not change with the chart's
version: a changed pod is a new cluster. Probes and /dev/shm are KubeRay's own.
*/}}
{{- define "foredraft.pod" -}}
metadata:
  labels:
    {{- include "foredraft.selector" .root | nindent 4 }}
spec:
  terminationGracePeriodSeconds: {{ .root.Values.terminationGracePeriodSeconds }}
  {{- /* Kubernetes' API is for the head alone, where KubeRay gives Ray's autoscaler an account. */}}
  {{- if ne .container "ray-head" }}
  automountServiceAccountToken: false
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 1000
    fsGroup: 1000
    seccompProfile: {type: RuntimeDefault}
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pool.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pool.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .pool.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      securityContext:
        allowPrivilegeEscalation: false
        capabilities: {drop: [ALL]}
      {{- with .pool.env }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      resources:
        {{- toYaml .pool.resources | nindent 8 }}
      ports:
        {{- if eq .container "ray-head" }}
        - {containerPort: 6379, name: gcs-server}
        - {containerPort: 8265, name: dashboard}
        - {containerPort: 44217, name: as-metrics}
        - {containerPort: 44227, name: dash-metrics}
        {{- end }}
        - {containerPort: 8000, name: serve}
        - {containerPort: 8080, name: metrics}
      {{- $certificates := and .role .root.Values.certificates.secretName }}
      {{- if or .root.Values.models.volume .root.Values.keys.secretName $certificates }}
      volumeMounts:
        {{- if .root.Values.models.volume }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
        {{- if .root.Values.keys.secretName }}
        - {name: keys, mountPath: /etc/foredraft, readOnly: true}
        {{- end }}
        {{- if $certificates }}
        - {name: certificates, mountPath: /etc/foredraft-certificates, readOnly: true}
        {{- end }}
      {{- end }}
  {{- if or .root.Values.models.volume .root.Values.keys.secretName $certificates }}
  volumes:
    {{- with .root.Values.models.volume }}
    - name: models
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with .root.Values.keys.secretName }}
    - {name: keys, secret: {secretName: {{ . }}}}
    {{- end }}
    {{- with $certificates }}
    - name: certificates
      secret:
        secretName: {{ . }}
        items:
          - {key: ca.crt, path: ca.crt}
          - {key: {{ $.role }}.crt, path: {{ $.role }}.crt}
          - {key: {{ $.role }}.key, path: {{ $.role }}.key}
    {{- end }}
  {{- end }}
{{- end -}}
