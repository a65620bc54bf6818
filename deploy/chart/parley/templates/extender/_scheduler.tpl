{{/* The second scheduler's KubeSchedulerConfiguration; docs/extender.md says what each line is for. */}}
{{- define "parley.schedulerConfiguration" -}}
{{- $address := "http://127.0.0.1:8090" -}}
{{- if include "parley.service" . }}{{ $address = printf "https://parley-extender.%s.svc:8443" .Release.Namespace }}{{ end -}}
# The second scheduler: pods that name it are placed by a stock kube-scheduler that asks Parley. docs/extender.md says what
# each line is for.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 500
  burst: 1000
leaderElection:
  leaderElect: true
  resourceNamespace: {{ .Release.Namespace }}
  resourceName: parley-scheduler
# all nodes that fit are candidates, not a sample of them
percentageOfNodesToScore: 100
# what a failed attempt costs at most, in seconds
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
  - schedulerName: {{ .Values.secondScheduler.name }}
    plugins:
      multiPoint:
        # claims are Parley's to allocate here
        disabled:
          - name: DynamicResources
# the same door twice: its answers come from memory, and a binding takes as long as an allocation does
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
# read once: the scheduler has to start again when they are renewed
tlsConfig:
  caFile: /etc/parley-extender/ca.crt
  certFile: /etc/parley-extender/tls.crt
  keyFile: /etc/parley-extender/tls.key
{{- end }}
{{- end -}}

{{/* Its container, without the mounts. */}}
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
