{{- define "rerankd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Cut to 50 characters: the chart appends up to "-headless", and StatefulSets append "-NUMBER" to pod names and a hash to a label (at most 63 characters). */}}
{{- define "rerankd.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "rerankd.selector" -}}
app.kubernetes.io/name: {{ include "rerankd.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end }}

{{- define "rerankd.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "rerankd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "rerankd.serviceAccount" -}}
{{- default (ternary (include "rerankd.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name }}
{{- end }}

{{- define "rerankd.tag" -}}
{{- default (printf "%s%s" .Chart.AppVersion (ternary "-cuda" "" .Values.gpu.enabled)) .Values.image.tag }}
{{- end }}

{{- define "rerankd.image" -}}
{{- $image := .Values.image }}
{{- if $image.digest }}{{ $image.repository }}@{{ $image.digest }}{{ else }}{{ $image.repository }}:{{ include "rerankd.tag" . }}{{ end }}
{{- end }}

{{- define "rerankd.pullImage" -}}
{{- $image := .Values.models.image }}
{{- $repository := default .Values.image.repository $image.repository }}
{{- if $image.digest }}{{ $repository }}@{{ $image.digest }}
{{- else }}{{ $repository }}:{{ default (printf "%s-pull" (include "rerankd.tag" .)) $image.tag }}{{ end }}
{{- end }}

{{- define "rerankd.securityContext" -}}
{{- toYaml .Values.securityContext }}
{{- end }}

{{- define "rerankd.resources" -}}
{{- $resources := deepCopy .Values.resources }}
{{- if .Values.gpu.enabled }}
{{- $gpu := dict .Values.gpu.resource .Values.gpu.count }}
{{- $resources = mustMergeOverwrite $resources (dict "limits" $gpu) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{/* The readiness and startup probe. It succeeds while the generator is ready. */}}
{{- define "rerankd.readyProbe" -}}
{{- if .Values.tls.enabled }}
httpGet: {path: /readyz, port: metrics}
{{- else }}
grpc: {port: {{ .Values.service.grpcPort }}, service: rerankd.v1.RerankService}
{{- end }}
{{- end }}

{{/* Seconds from the removal of a pod to SIGKILL: the sum of all phases, plus ten. */}}
{{- define "rerankd.grace" -}}
{{- $server := default dict .Values.config.server }}
{{- $drain := ternary $server.drain_seconds 20 (hasKey $server "drain_seconds") }}
{{- add .Values.preStopSeconds (default 0 $server.lame_duck_seconds) $drain 10 }}
{{- end }}
