{{/* The command line of one step. Arguments: root, step. */}}
{{- define "eventmesh-migration.args" -}}
{{- $values := .root.Values -}}
{{- $settings := index $values.jobs .step.job -}}
- {{ .step.command }}
- --state-namespace={{ $values.namespaces.state }}
{{- if ne .step.job "eventbus-purge" }}
- --integration-namespace={{ $values.namespaces.integration }}
{{- end }}
{{- if has .step.job (list "eventbus-scaledown" "eventbus-purge") }}
- --event-bus-namespace={{ $values.namespaces.eventBus }}
{{- end }}
{{- if has .step.job (list "httpsource-sync" "eventbus-purge") }}
- --tiller-namespace={{ $values.namespaces.tiller }}
{{- end }}
{{- with $values.namespaces.exclude }}
- --exclude-namespaces={{ join "," . }}
{{- end }}
- --timeout={{ int $settings.timeoutSeconds }}s
- --rollback-timeout={{ int $settings.rollbackTimeoutSeconds }}s
- --lease-duration={{ int $values.leaseSeconds }}s
- --lock-wait={{ int $values.lockWaitSeconds }}s
- --helm-timeout={{ include "eventmesh-migration.helmTimeout" (dict "root" .root "job" .step.job) }}s
- --log-level={{ $values.log.level }}
- --log-format={{ $values.log.format }}
{{- range .step.flags }}
- {{ . }}
{{- end }}
{{- range $settings.args }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/*
The container of one step. Arguments: root, step, and program: the job, or
eventmesh-migrate, which is every job.
*/}}
{{- define "eventmesh-migration.container" -}}
{{- $values := .root.Values -}}
- name: {{ .step.job }}
  image: {{ printf "%s/%s:%s" $values.image.repository .program (default .root.Chart.AppVersion $values.image.tag) | quote }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  args:
{{- if ne .program .step.job }}
  - job
  - {{ .step.job }}
{{- end }}
{{ include "eventmesh-migration.args" . | indent 2 }}
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  resources:
{{ toYaml $values.resources | indent 4 }}
{{- end -}}

{{/* What all pods have in common. Arguments: root, account. */}}
{{- define "eventmesh-migration.podSpec" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .account }}
restartPolicy: Never
terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
{{- if ge (include "eventmesh-migration.minor" .root | int) 19 }}
  seccompProfile:
    type: RuntimeDefault
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The labels and annotations of all pods. */}}
{{- define "eventmesh-migration.podMetadata" -}}
labels:
{{ include "eventmesh-migration.labels" . | indent 2 }}
  sidecar.istio.io/inject: "false"
{{- range $key, $value := .Values.podLabels }}
  {{ $key }}: {{ $value | quote }}
{{- end }}
annotations:
  sidecar.istio.io/inject: "false"
{{- if lt (include "eventmesh-migration.minor" . | int) 19 }}
  seccomp.security.alpha.kubernetes.io/pod: runtime/default
{{- end }}
{{- range $key, $value := .Values.podAnnotations }}
  {{ $key }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/*
An eviction is none of the job's failures: its pod starts again and goes on from
the journal. What the job decided stays decided.
*/}}
{{- define "eventmesh-migration.failurePolicy" -}}
{{- if ge (include "eventmesh-migration.minor" . | int) 26 }}
podFailurePolicy:
  rules:
  - action: Ignore
    onPodConditions:
    - type: DisruptionTarget
      status: "True"
  # failed, usage, partly restored, refused, locked, timed out: docs/runbook.md
  - action: FailJob
    onExitCodes:
      operator: In
      values: [1, 2, 3, 4, 5, 124]
{{- end }}
{{- end -}}

{{/* The Job without hooks: the chain as init containers. Arguments: root, account, steps, deadline. */}}
{{- define "eventmesh-migration.plainSpec" -}}
{{- $root := .root -}}
backoffLimit: 0
activeDeadlineSeconds: {{ .deadline }}
{{- with (include "eventmesh-migration.failurePolicy" $root) }}{{ . }}{{ end }}
template:
  metadata:
{{ include "eventmesh-migration.podMetadata" $root | indent 4 }}
  spec:
{{ include "eventmesh-migration.podSpec" . | indent 4 }}
{{- if gt (len .steps) 1 }}
    initContainers:
{{- range initial .steps }}
{{ include "eventmesh-migration.container" (dict "root" $root "step" . "program" "eventmesh-migrate") | indent 4 }}
{{- end }}
{{- end }}
    containers:
{{ include "eventmesh-migration.container" (dict "root" $root "step" (last .steps) "program" "eventmesh-migrate") | indent 4 }}
{{- end -}}
