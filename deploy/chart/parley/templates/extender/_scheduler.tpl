{{/* The second scheduler's KubeSchedulerConfiguration; docs/extender.md explains each line. */}}
{{- define "parley.schedulerConfiguration" -}}
{{- $address := "http://127.0.0.1:8090" -}}
{{- if include "parley.service" . }}{{ $address = printf "https://parley-extender.%s.svc:8443" .Release.Namespace }}{{ end -}}
# The second scheduler: a stock kube-scheduler that asks Parley places the pods that name it. docs/extender.md explains
# each line.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: parley-scheduler
# all nodes that fit are candidates, not only a sample
percentageOfNodesToScore: 100
# the longest time that a failed attempt costs, in seconds
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
  - schedulerName: {{ .Values.secondScheduler.name }}
    plugins:
      multiPoint:
        # here Parley allocates claims
        disabled:
          - name: DynamicResources
# The same extender twice: the first entry's answers come from memory, whereas a binding takes as long as an allocation
extenders:
  - urlPrefix: {{ $address }}
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: 1
    httpTimeout: 5s
    {{- include "parley.schedulersWay" . | nindent 4 }}
  - urlPrefix: {{ $address }}
    bindVerb: bind
    httpTimeout: 60s
    {{- include "parley.schedulersWay" . | nindent 4 }}
{{- end -}}

{{- define "parley.schedulersWay" -}}
nodeCacheCapable: true
ignorable: false
{{- if include "parley.service" . }}
enableHTTPS: true
# certificate and key are read again when they change; the authority is read once
tlsConfig:
  caFile: /etc/parley-extender/ca.crt
  certFile: /etc/parley-extender/tls.crt
  keyFile: /etc/parley-extender/tls.key
{{- end }}
{{- end -}}

{{/* The second scheduler's container, without volume mounts. */}}
{{- define "parley.schedulerContainer" -}}
- name: scheduler
  image: {{ include "parley.schedulerImage" . }}
  command: [kube-scheduler]
  args:
    - --config=/etc/parley-scheduler/scheduler.yaml
    - --secure-port=10259
    - --authentication-skip-lookup=true
  ports:
    - name: scheduler
      containerPort: 10259
  livenessProbe:
    httpGet:
      path: /livez
      port: scheduler
      scheme: HTTPS
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /readyz
      port: scheduler
      scheme: HTTPS
    periodSeconds: 5
    timeoutSeconds: 5
  resources:
    {{- toYaml .Values.secondScheduler.resources | nindent 4 }}
  securityContext:
    {{- include "parley.unprivileged" . | nindent 4 }}
{{- end -}}
