{{/* The command line of one step. Arguments: root, step. */}}
{{- define "eventmesh-migration.args" -}}
{{- $values := .root.Values -}}
{{- $settings := index $values.jobs .step.job -}}
- {{ .step.command }}
- {{ printf "--state-namespace=%s" $values.namespaces.state | quote }}
{{- include "eventmesh-migration.namespaceFlags" (dict "root" .root "job" .step.job) }}
{{- with $values.namespaces.exclude }}
- {{ printf "--exclude-namespaces=%s" (join "," .) | quote }}
{{- end }}
- --timeout={{ int $settings.timeoutSeconds }}s
- --rollback-timeout={{ int $settings.rollbackTimeoutSeconds }}s
- --lease-duration={{ int $values.leaseSeconds }}s
- --lock-wait={{ int $values.lockWaitSeconds }}s
{{- /* The account is as old as the Job. An API server refuses until it has seen its Role. */}}
- --permission-wait=10s
- --helm-timeout={{ include "eventmesh-migration.helmTimeout" (dict "root" .root "job" .step.job) }}s
- {{ printf "--log-level=%s" $values.log.level | quote }}
- {{ printf "--log-format=%s" $values.log.format | quote }}
{{- range .step.flags }}
- {{ . }}
{{- end }}
{{- range $settings.args }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{/*
The image of a program. A digest says what runs; a tag only what it is called, and
one that is not in the registry lets a hook wait for its image until its deadline.
Arguments: root, program.
*/}}
{{- define "eventmesh-migration.image" -}}
{{- $image := .root.Values.image -}}
{{- $digest := index $image.digests .program -}}
{{- $tag := default .root.Chart.AppVersion $image.tag -}}
{{- if $digest -}}
{{ printf "%s/%s@%s" $image.repository .program $digest | quote }}
{{- else -}}
{{- if and (has $tag (list "" "devel")) (not $image.allowDevel) -}}
{{- fail (printf "image.tag is %q, and nobody has pushed %s/%s:%s: name a tag (make overlay TAG=..., or --set-string image.tag=...) or the digest (image.digests.%s); image.allowDevel=true is for tests" $tag $image.repository .program $tag .program) -}}
{{- end -}}
{{ printf "%s/%s:%s" $image.repository .program $tag | quote }}
{{- end -}}
{{- end -}}

{{/*
The container of one step. Arguments: root, step, and program: the job, or
eventmesh-migrate, which is every job.
*/}}
{{- define "eventmesh-migration.container" -}}
{{- $values := .root.Values -}}
- name: {{ .step.job }}
  image: {{ include "eventmesh-migration.image" . }}
  imagePullPolicy: {{ $values.image.pullPolicy | quote }}
  args:
{{- if ne .program .step.job }}
  - job
  - {{ .step.job }}
{{- end }}
{{ include "eventmesh-migration.args" . | indent 2 }}
{{- with $values.securityContext }}
  securityContext:
{{ toYaml . | indent 4 }}
{{- end }}
  resources:
{{ toYaml $values.resources | indent 4 }}
{{- end -}}

{{/* What all pods have in common. Arguments: root, account. */}}
{{- define "eventmesh-migration.podSpec" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ .account | quote }}
# The account does not mount its token: only the jobs' own pods have it.
automountServiceAccountToken: true
restartPolicy: Never
terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
{{- /* Helm 2 cannot remove a default from a sub-chart's values: what is empty is left out. */}}
{{- $context := dict }}
{{- range $key, $value := $values.podSecurityContext }}
{{- if not (or (kindIs "invalid" $value) (eq (toString $value) "")) }}{{ $ignored := set $context $key $value }}{{ end }}
{{- end }}
{{- if and (ge (include "eventmesh-migration.minor" .root | int) 19) (not (hasKey $context "seccompProfile")) }}
{{- $ignored := set $context "seccompProfile" (dict "type" "RuntimeDefault") }}
{{- end }}
{{- with $context }}
securityContext:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
{{ toYaml . | indent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
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
  {{ $key | quote }}: {{ $value | quote }}
{{- end }}
annotations:
  sidecar.istio.io/inject: "false"
{{- if lt (include "eventmesh-migration.minor" . | int) 19 }}
  seccomp.security.alpha.kubernetes.io/pod: runtime/default
{{- end }}
{{- range $key, $value := .Values.podAnnotations }}
  {{ $key | quote }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/*
What happens to a Job that has ended. An eviction is not a failure of the job: its
pod starts again and continues from the journal. What the job decided stays decided.
*/}}
{{- define "eventmesh-migration.failurePolicy" -}}
{{- with (int .Values.ttlSecondsAfterFinished) }}
ttlSecondsAfterFinished: {{ . }}
{{- end }}
{{- if ge (include "eventmesh-migration.minor" . | int) 26 }}
podFailurePolicy:
  rules:
  - action: Ignore
    onPodConditions:
    - type: DisruptionTarget
      status: "True"
  # failed, usage, partly restored, refused, locked, timed out: docs/migration/runbook.md
  - action: FailJob
    onExitCodes:
      operator: In
      values: {{ include "eventmesh-migration.finalExitCodes" . }}
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
