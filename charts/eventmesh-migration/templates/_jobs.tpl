{{/* Generated from internal/migration/registry by "make charts": change it there. */}}

{{/* What runs when. A line is one job: its name, the command, and the flags that are added. */}}
{{- define "eventmesh-migration.chains" -}}
core:
  pre:
  - {job: httpsource-sync, command: run, flags: []}
  - {job: serviceinstance-recreate, command: run, flags: []}
  - {job: trigger-sync, command: run, flags: []}
  post:
  - {job: trigger-sync, command: run, flags: []}
  - {job: eventbus-scaledown, command: run, flags: []}
  rollback:
  - {job: eventbus-scaledown, command: undo, flags: []}
  - {job: trigger-sync, command: undo, flags: []}
application-connector:
  pre:
  - {job: httpsource-sync, command: run, flags: []}
  - {job: serviceinstance-recreate, command: run, flags: [--defer=fail]}
  - {job: trigger-sync, command: run, flags: [--require-triggers]}
  post:
  - {job: eventservice-verify, command: run, flags: [--defer=fail]}
  - {job: trigger-sync, command: run, flags: [--defer=fail]}
  - {job: eventbus-scaledown, command: run, flags: [--defer=fail]}
  rollback:
  - {job: eventbus-scaledown, command: undo, flags: []}
  - {job: trigger-sync, command: undo, flags: []}
cluster-essentials:
  pre:
  - {job: eventbus-purge, command: plan, flags: [--fail-if-in-use, --ignore-release], always: true}
  post: []
  rollback: []
{{- end -}}

{{/* The flags of a job that name a namespace. Arguments: root, job. */}}
{{- define "eventmesh-migration.namespaceFlags" -}}
{{- if has .job (list "httpsource-sync" "serviceinstance-recreate" "trigger-sync" "eventservice-verify" "eventbus-scaledown") }}
- {{ printf "--integration-namespace=%s" .root.Values.namespaces.integration | quote }}
{{- end }}
{{- if has .job (list "eventbus-scaledown" "eventbus-purge") }}
- {{ printf "--event-bus-namespace=%s" .root.Values.namespaces.eventBus | quote }}
{{- end }}
{{- if has .job (list "httpsource-sync" "eventbus-purge") }}
- {{ printf "--tiller-namespace=%s" .root.Values.namespaces.tiller | quote }}
{{- end }}
{{- end -}}

{{/* Yes, if one of the jobs may patch Namespaces. Argument: names of jobs. */}}
{{- define "eventmesh-migration.patchesNamespaces" -}}
{{- range . }}
{{- if has . (list "serviceinstance-recreate" "trigger-sync") }}
yes
{{- end }}
{{- end }}
{{- end -}}

{{/* Exit codes after which a pod of a Job is not started again: all failures but those by a signal. */}}
{{- define "eventmesh-migration.finalExitCodes" -}}
[1, 2, 3, 4, 5, 124]
{{- end -}}
