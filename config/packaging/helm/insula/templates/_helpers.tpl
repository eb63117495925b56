{{- define "insula.name" -}}
{{- if contains "insula" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-insula{{ end -}}
{{- end }}

{{- define "insula.selector" -}}
app.kubernetes.io/name: insula
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "insula.labels" -}}
{{ include "insula.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Refuses values that no server would start with. */}}
{{- define "insula.check" -}}
{{- if and (gt (int .Values.replicas) 1) (ne .Values.store.kind "etcd") }}
{{- fail "replicas: more than one needs store.kind etcd; the embedded store has one server" }}
{{- end }}
{{- if and (gt (int .Values.replicas) 1) (not .Values.certificates.sharedKeysSecret) }}
{{- fail "certificates.sharedKeysSecret: more than one replica needs keys that all of them share" }}
{{- end }}
{{- if and (eq .Values.store.kind "etcd") (not .Values.store.etcd.endpoints) }}
{{- fail "store.etcd.endpoints: name the HOST:PORT of every member" }}
{{- end }}
{{- if and .Values.certificates.servingCa (not .Values.certificates.servingSecret) }}
{{- fail "certificates.servingSecret: servingCa is a key of this Secret" }}
{{- end }}
{{- if and .Values.store.etcd.clientCertificate (not .Values.store.etcd.secret) }}
{{- fail "store.etcd.secret: clientCertificate needs a Secret with tls.crt and tls.key" }}
{{- end }}
{{- end }}

{{- define "insula.store" -}}
{{- if eq .Values.store.kind "etcd" -}}
{{ ternary "etcds" "etcd" (ne .Values.store.etcd.secret "") }}://{{ join "," .Values.store.etcd.endpoints }}
{{- else -}}
embedded
{{- end }}
{{- end }}

{{- define "insula.url" -}}
{{- $port := int .Values.service.port -}}
{{- $host := printf "%s.%s.svc" (include "insula.name" .) .Release.Namespace -}}
{{- .Values.externalUrl | default (printf "https://%s%s" $host (ternary "" (printf ":%d" $port) (eq $port 443))) -}}
{{- end }}

{{/* Names of the Service, and those of the values. */}}
{{- define "insula.names" -}}
{{- $name := include "insula.name" . -}}
{{- $all := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $all = append $all (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) -}}
{{- join "," (concat $all .Values.certificates.names) -}}
{{- end }}
