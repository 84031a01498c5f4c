{{/* The fields that the server and the init containers share. Input: `root`, `env`, and `hub` if the container gets the Hub's token. */}}
{{- define "rerankd.container" -}}
{{- $v := .root.Values }}
env:
  - {name: RERANKD_CONFIG, value: /etc/rerankd/rerankd.toml}
  {{- if and .hub $v.hub.existingSecret }}
  - name: HF_TOKEN
    valueFrom:
      secretKeyRef: {name: {{ $v.hub.existingSecret | quote }}, key: {{ $v.hub.key | quote }}}
  {{- end }}
  {{- with .env }}{{ toYaml . | nindent 2 }}{{ end }}
resources: {{- include "rerankd.resources" .root | nindent 2 }}
securityContext: {{- include "rerankd.securityContext" .root | nindent 2 }}
volumeMounts:
  - {name: config, mountPath: /etc/rerankd, readOnly: true}
  {{- if not $v.models.inImage }}
  - {name: models, mountPath: /var/lib/rerankd}
  {{- end }}
  - {name: tmp, mountPath: /tmp}
  {{- if $v.tls.enabled }}
  - {name: tls, mountPath: /run/rerankd/tls, readOnly: true}
  {{- end }}
  {{- if $v.auth.enabled }}
  - {name: auth, mountPath: /run/rerankd/auth, readOnly: true}
  {{- end }}
  {{- with $v.volumeMounts }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
