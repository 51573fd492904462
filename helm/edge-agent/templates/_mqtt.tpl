{{/* The table [mqtt] of a service, without its head. */}}
{{- define "sparkfleet.mqtt" -}}
servers = {{ .Values.mqtt.servers | toJson }}
{{- $servers := toJson .Values.mqtt.servers }}
{{- if and .Values.mqtt.secretName (or (contains "mqtts://" $servers) (contains "wss://" $servers)) }}
ca_file = "/etc/sparkfleet/mqtt/ca.crt"
{{- end }}
{{- if .Values.mqtt.username }}
username = {{ .Values.mqtt.username | quote }}
password_file = "/etc/sparkfleet/mqtt/password"
{{- else if .Values.mqtt.secretName }}
cert_file = "/etc/sparkfleet/mqtt/tls.crt"
key_file = "/etc/sparkfleet/mqtt/tls.key"
{{- end }}
{{- end }}
