{{- define "binlog-dispatcher.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "binlog-dispatcher.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "binlog-dispatcher.labels" -}}
{{ include "binlog-dispatcher.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The daemon's labels, which its Service, its policy and its disruption budget select by. */}}
{{- define "binlog-dispatcher.daemon" -}}
{{ include "binlog-dispatcher.selector" . }}
app.kubernetes.io/component: daemon
{{- end -}}

{{- define "binlog-dispatcher.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .version }}
{{- end -}}
{{- end -}}

{{/* A size such as 64MiB, 1 GB or 1048576 in bytes. */}}
{{- define "binlog-dispatcher.bytes" -}}
{{- if kindIs "string" . -}}
{{- $text := . | lower | replace " " "" | replace "_" "" -}}
{{- $units := dict "" 1 "b" 1 "k" 1000 "kb" 1000 "kib" 1024 "m" 1000000 "mb" 1000000 "mib" 1048576 "g" 1000000000 "gb" 1000000000 "gib" 1073741824 -}}
{{- $unit := regexFind "[a-z]*$" $text -}}
{{- if not (hasKey $units $unit) -}}
{{- fail (printf "%q is no size: write 64MiB or 1GiB" .) -}}
{{- end -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $units $unit | float64) | int64 -}}
{{- else -}}
{{- int64 . -}}
{{- end -}}
{{- end -}}

{{/* The memory limit: the base, and for each consumer 1.25 times the sum of its queue's limit and 4 MiB. The 4 MiB are for the
last batches and a segment. The quarter is added because a queue that is filled again after a restart may be larger. */}}
{{- define "binlog-dispatcher.memory" -}}
{{- if .Values.resources.memory -}}
{{- .Values.resources.memory -}}
{{- else -}}
{{- $default := .Values.defaults.max_bytes_in_binlog_queue | default "64MiB" -}}
{{- $mib := 0 -}}
{{- range .Values.consumers -}}
{{- $bytes := include "binlog-dispatcher.bytes" (.max_bytes_in_binlog_queue | default $default) | int64 -}}
{{- $mib = add $mib (div (add $bytes 1048575) 1048576) 4 -}}
{{- end -}}
{{- printf "%dMi" (add .Values.resources.memoryBaseMiB (div (mul $mib 5) 4)) -}}
{{- end -}}
{{- end -}}

{{/* "true" for several daemons. */}}
{{- define "binlog-dispatcher.several" -}}
{{- if gt (int .Values.replicas) 1 -}}true{{- end -}}
{{- end -}}

{{/* The Service that gives each pod of several a name of its own. */}}
{{- define "binlog-dispatcher.pods" -}}
{{ include "binlog-dispatcher.name" . }}-pods
{{- end -}}

{{/* The address of a pod, ready or not. */}}
{{- define "binlog-dispatcher.address" -}}
{{- $root := .root -}}
{{ include "binlog-dispatcher.scheme" $root }}://{{ .pod }}.{{ include "binlog-dispatcher.pods" $root }}.{{ $root.Release.Namespace }}:8085
{{- end -}}

{{/* The scheme of the API, for URLs and Prometheus; a probe takes it in capital letters. */}}
{{- define "binlog-dispatcher.scheme" -}}
{{ ternary "https" "http" (ne .Values.apiTlsSecret "") }}
{{- end -}}

{{/* The `url` for readers in the cluster: the Service, or the addresses of all pods, so that they find a new leader at once. */}}
{{- define "binlog-dispatcher.url" -}}
{{- if include "binlog-dispatcher.several" . -}}
{{- $addresses := list -}}
{{- range until (int .Values.replicas) -}}
{{- $pod := printf "%s-%d" (include "binlog-dispatcher.name" $) . -}}
{{- $addresses = append $addresses (include "binlog-dispatcher.address" (dict "root" $ "pod" $pod)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- else -}}
{{- printf "%s://%s.%s:%v" (include "binlog-dispatcher.scheme" .) (include "binlog-dispatcher.name" .) .Release.Namespace .Values.service.port -}}
{{- end -}}
{{- end -}}

{{/* The files of the Secret that is mounted for `api` or `front`. */}}
{{- define "binlog-dispatcher.certificate" -}}
{{- $folder := printf "/run/secrets/binlog-dispatcher-%s" . -}}
{cert: {{ $folder }}/tls.crt, key: {{ $folder }}/tls.key}
{{- end -}}

{{- define "binlog-dispatcher.settings" -}}
{{- $api := merge (dict "listen" "0.0.0.0:8085") .Values.api -}}
{{- if include "binlog-dispatcher.several" . -}}
{{- $own := include "binlog-dispatcher.address" (dict "root" . "pod" "${POD_NAME}") -}}
{{- $api = merge $api (dict "advertise" $own) -}}
{{- end -}}
{{- if .Values.apiTlsSecret -}}
{{- $api = merge (dict "tls" (include "binlog-dispatcher.certificate" "api" | fromYaml)) $api -}}
{{- end -}}
{{- $state := .Values.state -}}
{{- if not $state.mysql -}}
{{- $state = merge (dict "path" "/var/lib/binlog-dispatcher/state.db") $state -}}
{{- end -}}
{{- $settings := dict "consumers" .Values.consumers "api" $api "state" $state "log" .Values.log -}}
{{- if .Values.front.enabled -}}
{{- $tls := include "binlog-dispatcher.certificate" "front" | fromYaml -}}
{{- $front := merge (dict "listen" "0.0.0.0:3307" "tls" $tls) .Values.front.settings -}}
{{- $settings = merge $settings (dict "front" $front) -}}
{{- end -}}
{{- if .Values.defaults -}}
{{- $settings = merge $settings (dict "defaults" .Values.defaults) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}

{{/* The ports of the servers, each once; that of the state's database, too. */}}
{{- define "binlog-dispatcher.mysqlPorts" -}}
{{- $ports := list -}}
{{- with .Values.state.mysql -}}
{{- $port := regexFind ":[0-9]+/" . | trimPrefix ":" | trimSuffix "/" | default "3306" | int -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- range .Values.consumers -}}
{{- if .mysql -}}
{{- range splitList "," (.mysql | toString) -}}
{{- $port := regexFind ":[0-9]+$" . | trimPrefix ":" | default "3306" | int -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ports | uniq | toJson -}}
{{- end -}}

{{- define "binlog-dispatcher.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "binlog-dispatcher.podSecurity" -}}
runAsNonRoot: true
runAsUser: 8085
runAsGroup: 8085
fsGroup: 8085
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}
