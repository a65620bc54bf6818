{{/* A hook that runs `parley uninstall` with an account of its own: (dict "root" $ "name" ... "when" ... "rules" ... "args" ...). */}}
{{- define "parley.uninstallHook" -}}
{{- $metadata := dict "name" .name "annotations" (dict "helm.sh/hook" .when "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded") }}
{{- $here := merge (dict "namespace" .root.Release.Namespace) $metadata }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- toYaml (include "parley.weighted" (dict "metadata" $here "weight" "-3") | fromYaml) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- toYaml (include "parley.weighted" (dict "metadata" $metadata "weight" "-2") | fromYaml) | nindent 2 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- toYaml (include "parley.weighted" (dict "metadata" $metadata "weight" "-1") | fromYaml) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- if .root.Values.openshift.enabled }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  {{- toYaml (include "parley.weighted" (dict "metadata" $here "weight" "-1") | fromYaml) | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: system:openshift:scc:nonroot-v2
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  annotations:
    helm.sh/hook: {{ .when }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    # so that `helm uninstall` shows which claims are in use
    helm.sh/hook-output-log-policy: hook-failed
spec:
  backoffLimit: 0
  activeDeadlineSeconds: {{ max .root.Values.uninstall.timeout (add 30 (include "parley.leaseEnds" .root)) }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .name }}
    spec:
      serviceAccountName: {{ .name }}
      restartPolicy: Never
      # no priority class: if it requires a quota (priorityClassQuota), that quota is gone when the last hook runs
      {{- with include "parley.given" (dict "imagePullSecrets" .root.Values.imagePullSecrets "nodeSelector" .root.Values.controller.nodeSelector "tolerations" .root.Values.controller.tolerations "affinity" .root.Values.controller.affinity) }}{{ . | trim | nindent 6 }}{{ end }}
      securityContext:
        {{- include "parley.nobody" . | nindent 8 }}
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: uninstall
          image: {{ include "parley.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          command: [parley, uninstall]
          args: {{ toJson .args }}
          securityContext:
            {{- include "parley.unprivileged" . | nindent 12 }}
{{- end -}}

{{/* Seconds after which a lease that nobody renews has certainly expired. */}}
{{- define "parley.leaseEnds" -}}
{{ add 45 (.Values.controller.options.leaseDuration | default 15) }}
{{- end -}}

{{- define "parley.weighted" -}}
{{- toYaml (mergeOverwrite (deepCopy .metadata) (dict "annotations" (dict "helm.sh/hook-weight" .weight))) }}
{{- end -}}
