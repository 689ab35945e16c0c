{{- define "foldlog.labels" -}}
app.kubernetes.io/name: foldlog
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "foldlog.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* The environment of every container: where the log is, and what the user has set. */}}
{{- define "foldlog.env" -}}
- {name: FOLDLOG_NAMESPACE, value: {{ .Values.namespace | quote }}}
{{- if .Values.nats.url }}
- {name: NATS_URL, value: {{ .Values.nats.url | quote }}}
{{- end }}
{{- if .Values.nats.credsSecret }}
- {name: NATS_CREDS, value: /etc/foldlog/creds/user.creds}
{{- end }}
{{- if .Values.nats.caSecret }}
- {name: NATS_CA, value: /etc/foldlog/ca/ca.pem}
{{- end }}
- {name: FOLDLOG_LOG_FORMAT, value: json}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end -}}

{{- define "foldlog.mounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.nats.credsSecret }}
- {name: creds, mountPath: /etc/foldlog/creds, readOnly: true}
{{- end }}
{{- if .Values.nats.caSecret }}
- {name: ca, mountPath: /etc/foldlog/ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "foldlog.volumes" -}}
- {name: tmp, emptyDir: {}}
{{- if .Values.nats.credsSecret }}
- {name: creds, secret: {secretName: {{ .Values.nats.credsSecret }}}}
{{- end }}
{{- if .Values.nats.caSecret }}
- {name: ca, secret: {secretName: {{ .Values.nats.caSecret }}}}
{{- end }}
{{- end -}}

{{- define "foldlog.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "foldlog.probes" -}}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 5
{{- end -}}
