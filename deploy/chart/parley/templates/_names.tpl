{{/* The image of controller, node plugin and drivers. */}}
{{- define "parley.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The second scheduler has to have the API server's version, without a vendor's suffix. */}}
{{- define "parley.schedulerImage" -}}
{{- $version := regexFind "^v[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version -}}
{{ .Values.secondScheduler.image.repository }}:{{ .Values.secondScheduler.image.tag | default $version }}
{{- end -}}

{{/* Lines of a pod's spec, left out if their value is empty: (dict "key" value ...). */}}
{{- define "parley.given" -}}
{{- range $key, $value := . }}
{{- if $value }}
{{ $key }}:
  {{- toYaml $value | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The security context of a container that needs no privileges. */}}
{{- define "parley.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The security context of a pod that does not run as root. */}}
{{- define "parley.nobody" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
{{- end -}}

{{/* The suffix of `parley-kubelet` and `parley-devices` in the names of a pool's objects. */}}
{{- define "parley.poolSuffix" -}}
{{- if ne .name "default" }}-{{ .name }}{{ end -}}
{{- end -}}

{{/* Whether the second scheduler runs in the controller's pods ("true") or not (""). */}}
{{- define "parley.sidecar" -}}
{{- if and .Values.secondScheduler.enabled (eq .Values.secondScheduler.mode "Sidecar") }}true{{ end -}}
{{- end -}}

{{- define "parley.service" -}}
{{- if and .Values.secondScheduler.enabled (eq .Values.secondScheduler.mode "Service") }}true{{ end -}}
{{- end -}}

{{/* The second scheduler's account: the controller's if they share a pod, which has only one. */}}
{{- define "parley.schedulerAccount" -}}
{{- if include "parley.sidecar" . }}parley-controller{{ else }}parley-scheduler{{ end -}}
{{- end -}}
