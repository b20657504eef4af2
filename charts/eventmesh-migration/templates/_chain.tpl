{{/*
Nothing here is newer than Helm 2.16: no lookup, no get, dig or ternary over nil,
and "and"/"or" evaluate all of their arguments.
*/}}

{{/* The chain of one phase, without what is switched off. Arguments: root, phase. */}}
{{- define "eventmesh-migration.chain" -}}
{{- $root := .root -}}
{{- $chains := include "eventmesh-migration.chains" $root | fromYaml -}}
{{- if not (hasKey $chains $root.Values.component) -}}
{{- fail (printf "component is %v, whose chart has no hooks (valid: %s)" $root.Values.component (keys $chains | sortAlpha | join ", ")) -}}
{{- end -}}
steps:
{{- range index $chains $root.Values.component .phase }}
{{- $settings := index $root.Values.jobs .job }}
{{- if or (hasKey . "always") (index $settings "enabled") }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The phases that this rendering has. */}}
{{- define "eventmesh-migration.phases" -}}
{{- if .Values.hooks.enabled -}}
pre post{{ if .Values.hooks.rollback }} rollback{{ end }}
{{- else -}}
{{ .Values.phase }}
{{- end -}}
{{- end -}}

{{/* The Helm events of a phase. Arguments: root, phase. */}}
{{- define "eventmesh-migration.events" -}}
{{- if eq .phase "rollback" -}}
pre-rollback
{{- else -}}
{{ .phase }}-upgrade{{ if .root.Values.standalone }},{{ .phase }}-install{{ end }}
{{- end -}}
{{- end -}}

{{/* A name that starts with the release's and fits a label. Arguments: root, suffix. */}}
{{- define "eventmesh-migration.name" -}}
{{- $release := .root.Release.Name -}}
{{- if gt (len $release) 26 -}}
{{- $release = printf "%s-%s" ($release | trunc 19 | trimSuffix "-" | trimSuffix ".") ($release | sha256sum | trunc 6) -}}
{{- end -}}
{{ printf "%s-%s" $release .suffix | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "eventmesh-migration.labels" -}}
app.kubernetes.io/name: eventmesh-migration
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: kyma
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/*
The labels of an object that belongs to a job in one or more phases, so that one
command deletes what is left. Arguments: root, job (optional), phase (several
are joined by "_").
*/}}
{{- define "eventmesh-migration.labelsOf" -}}
{{ include "eventmesh-migration.labels" .root }}
{{- if hasKey . "job" }}
eventmesh-migration.kyma-project.io/job: {{ .job }}
{{- end }}
eventmesh-migration.kyma-project.io/phase: {{ .phase }}
{{- end -}}

{{/* The weight of a Job: what comes before are accounts. Arguments: root, index (in its chain). */}}
{{- define "eventmesh-migration.jobWeight" -}}
{{ add .root.Values.hooks.firstWeight 5 (mul 5 .index) }}
{{- end -}}

{{/* The minor version of Kubernetes, as a number: clouds say "16+". */}}
{{- define "eventmesh-migration.minor" -}}
{{- $major := regexReplaceAll "[^0-9]" .Capabilities.KubeVersion.Major "" | int -}}
{{- $minor := regexReplaceAll "[^0-9]" .Capabilities.KubeVersion.Minor "" | int -}}
{{- if gt $major 1 }}999{{ else }}{{ $minor }}{{ end -}}
{{- end -}}

{{/* How long a Job may take at most, in seconds. Arguments: root, job. */}}
{{- define "eventmesh-migration.deadline" -}}
{{- $settings := index .root.Values.jobs .job -}}
{{ add .root.Values.lockWaitSeconds $settings.timeoutSeconds $settings.rollbackTimeoutSeconds .root.Values.image.pullReserveSeconds }}
{{- end -}}

{{/* How long Helm has to wait for a hook at least, in seconds: the Job's deadline, and the grace period of its pod. Arguments: root, job. */}}
{{- define "eventmesh-migration.helmTimeout" -}}
{{ add (include "eventmesh-migration.deadline" . | int) .root.Values.terminationGracePeriodSeconds }}
{{- end -}}
