{{/* A TOML value. Helm reads all numbers as floats; whole ones are written without a decimal point. */}}
{{- define "rerankd.tomlValue" -}}
{{- if kindIs "string" . }}{{ toJson . }}
{{- else if kindIs "slice" . }}[{{ range $index, $item := . }}{{ if $index }}, {{ end }}{{ include "rerankd.tomlValue" $item }}{{ end }}]
{{- else if and (kindIs "float64" .) (eq (float64 (int64 .)) .) }}{{ int64 . }}
{{- else }}{{ toString . }}
{{- end }}
{{- end }}

{{/* The keys of a TOML table, then its tables. Input: `path` (a list of names) and `table`. Keys without a value are omitted. */}}
{{- define "rerankd.toml" -}}
{{- $path := .path }}
{{- $keys := list }}
{{- $tables := list }}
{{- range $key, $value := .table }}
{{- if not (regexMatch "^[A-Za-z0-9_-]+$" $key) }}{{ fail (printf "config: %q is not a valid key" (join "." (append $path $key))) }}{{ end }}
{{- if kindIs "map" $value }}{{ $tables = append $tables $key }}
{{- else if not (kindIs "invalid" $value) }}{{ $keys = append $keys $key }}{{ end }}
{{- end }}
{{- if and $path $keys }}
[{{ join "." $path }}]
{{- end }}
{{- range $key := $keys }}
{{ $key }} = {{ include "rerankd.tomlValue" (get $.table $key) }}
{{- end }}
{{- range $key := $tables }}
{{ include "rerankd.toml" (dict "path" (append $path $key) "table" (get $.table $key)) | trim }}
{{ end }}
{{- end }}

{{/* The configuration: values.config and the keys that the chart sets itself. */}}
{{- define "rerankd.config" -}}
{{- $own := dict "server" (dict "listen" (printf "%s:%d" $.Values.listenAddress (int .Values.service.grpcPort)))
                 "models" (dict "store" (ternary "/usr/share/rerankd/models" "/var/lib/rerankd/models" .Values.models.inImage)) }}
{{- if .Values.catalog }}{{ $_ := set $own.models "catalog" "/etc/rerankd/catalog.toml" }}{{ end }}
{{- if .Values.metrics.enabled }}{{ $_ := set $own "metrics" (dict "listen" (printf "%s:%d" $.Values.listenAddress (int .Values.metrics.port))) }}{{ end }}
{{- $_ := set $own "http" (dict "listen" (ternary (printf "%s:%d" $.Values.listenAddress (int .Values.http.port)) "off" .Values.http.enabled)) }}
{{- if .Values.tls.enabled }}
{{- $tls := dict "certificate" "/run/rerankd/tls/tls.crt" "key" "/run/rerankd/tls/tls.key" }}
{{- if .Values.tls.clientAuth }}{{ $_ := set $tls "client_ca" (printf "/run/rerankd/tls/%s" .Values.tls.caKey) }}{{ end }}
{{- $_ := set $own "tls" $tls }}
{{- end }}
{{- if .Values.auth.enabled }}{{ $_ := set $own "auth" (dict "tokens_file" "/run/rerankd/auth/tokens") }}{{ end }}
{{- if not (or .Values.tls.enabled .Values.auth.enabled) }}{{ $_ := set $own.server "allow_insecure" true }}{{ end }}
{{- range $section, $keys := $own }}
{{- range $key, $_ := $keys }}
{{- if hasKey (default dict (get $.Values.config $section)) $key }}{{ fail (printf "config.%s.%s: is set by the chart" $section $key) }}{{ end }}
{{- end }}
{{- end }}
{{- $config := mustMergeOverwrite (deepCopy .Values.config) $own }}
{{- /* The store in the image is read-only, so the server cannot learn and save the position bias. */}}
{{- if .Values.models.inImage }}{{ $config = mustMergeOverwrite $config (dict "position_bias" (dict "learn" false)) }}{{ end }}
{{- include "rerankd.toml" (dict "path" list "table" $config) | trim }}
{{- end }}

{{/* Checks combinations of values that the schema cannot check. */}}
{{- define "rerankd.check" -}}
{{- $v := .Values }}
{{- if not (or $v.allowInsecure $v.tls.enabled $v.auth.enabled) }}{{ fail "set tls.enabled, auth.enabled or allowInsecure: the server would be open" }}{{ end }}
{{- if and (not $v.tls.enabled) (hasKey $v.config "tls") }}{{ fail "config.tls: set tls.enabled and tls.existingSecret instead: the probes would not speak TLS" }}{{ end }}
{{- if and (not $v.auth.enabled) (hasKey $v.config "auth") }}{{ fail "config.auth: set auth.enabled and auth.existingSecret instead" }}{{ end }}
{{- if and $v.tls.enabled (not $v.tls.existingSecret) }}{{ fail "tls.existingSecret: must be set if tls.enabled" }}{{ end }}
{{- if and $v.tls.enabled (not $v.metrics.enabled) }}{{ fail "metrics.enabled: must be true if tls.enabled, because probes use the metrics port" }}{{ end }}
{{- if and $v.auth.enabled (not $v.auth.existingSecret) }}{{ fail "auth.existingSecret: must be set if auth.enabled" }}{{ end }}
{{- if and $v.models.inImage $v.models.cache.existingClaim }}{{ fail "models.cache.existingClaim: must be empty if models.inImage" }}{{ end }}
{{- if and $v.autoscaling.enabled $v.keda.enabled }}{{ fail "autoscaling.enabled: must be false if keda.enabled" }}{{ end }}
{{- if and $v.autoscaling.enabled (not (or $v.autoscaling.targetCPU $v.autoscaling.targetRequestsWaiting)) }}{{ fail "autoscaling: set targetCPU or targetRequestsWaiting" }}{{ end }}
{{- if and $v.keda.enabled (eq (int $v.keda.minReplicas) 0) (not $v.keda.query) }}{{ fail "keda.minReplicas: must be 1 or more, because without pods no metric counts waiting calls; or set keda.query" }}{{ end }}
{{- if and (or $v.keda.enabled (and $v.autoscaling.enabled $v.autoscaling.targetRequestsWaiting)) (not $v.metrics.enabled) }}{{ fail "metrics.enabled: must be true to scale on waiting calls" }}{{ end }}
{{- if and $v.models.inImage $v.gpu.enabled }}{{ fail "models.inImage: must be false if gpu.enabled, because the image for GPUs has no models" }}{{ end }}
{{- range $name := list "autoscaling" "keda" }}
{{- $scaling := get $v $name }}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) }}{{ fail (printf "%s.minReplicas: must be at most maxReplicas" $name) }}{{ end }}
{{- end }}
{{- if or (hasPrefix "127." $v.listenAddress) (eq $v.listenAddress "::1") }}{{ fail "listenAddress: must be reachable from outside the pod, because probes and callers are" }}{{ end }}
{{- $ports := list (int $v.service.grpcPort) }}
{{- if $v.metrics.enabled }}{{ $ports = append $ports (int $v.metrics.port) }}{{ end }}
{{- if $v.http.enabled }}{{ $ports = append $ports (int $v.http.port) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}{{ fail "service.grpcPort, metrics.port and http.port: must differ" }}{{ end }}
{{- end }}
