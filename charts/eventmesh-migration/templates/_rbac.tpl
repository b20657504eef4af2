{{/*
A ServiceAccount for some jobs, with its Roles in each namespace, made from the
tables in _access.tpl. Arguments: root, account (its name, and that of the Roles),
tables (names of jobs), events (of the hook, "" for none), weight.
*/}}
{{- define "eventmesh-migration.rbac" -}}
{{- $root := .root -}}
{{- $account := .account -}}
{{- $events := .events -}}
{{- $weight := .weight -}}
{{- $tables := include "eventmesh-migration.access" $root | fromYaml -}}
{{- $modern := $root.Capabilities.APIVersions.Has "eventing.knative.dev/v1" -}}
{{- $knative := ternary "v1" "v1alpha1" $modern -}}
{{- /* Rules by namespace, "" for the whole cluster. */ -}}
{{- $scopes := dict -}}
{{- range .tables }}
{{- range index $tables . }}
{{- $wanted := true }}
{{- if hasKey . "knative" }}{{ $wanted = eq .knative $knative }}{{ end }}
{{- $key := "ns:" }}
{{- if hasKey . "namespace" }}{{ $key = printf "ns:%s" .namespace }}{{ $wanted = and $wanted .namespace }}{{ end }}
{{- if $wanted }}
{{- $rule := toJson (omit . "namespace" "knative") }}
{{- $known := list }}
{{- if hasKey $scopes $key }}{{ $known = index $scopes $key }}{{ end }}
{{- if not (has $rule $known) }}
{{- $ignored := set $scopes $key (append $known $rule) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $account | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
{{ include "eventmesh-migration.labels" $root | indent 4 }}
{{- include "eventmesh-migration.hook" (dict "events" $events "weight" $weight) }}
automountServiceAccountToken: false
{{- range $key, $rules := $scopes }}
{{- $namespace := trimPrefix "ns:" $key }}
{{- $name := ternary $account (include "eventmesh-migration.clusterName" (dict "root" $root "account" $account)) (ne $namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if $namespace }}Role{{ else }}ClusterRole{{ end }}
metadata:
  name: {{ $name | quote }}
  {{- if $namespace }}
  namespace: {{ $namespace | quote }}
  {{- end }}
  labels:
{{ include "eventmesh-migration.labels" $root | indent 4 }}
{{- include "eventmesh-migration.hook" (dict "events" $events "weight" $weight) }}
rules:
{{- range $rules }}
- {{ . }}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if $namespace }}RoleBinding{{ else }}ClusterRoleBinding{{ end }}
metadata:
  name: {{ $name | quote }}
  {{- if $namespace }}
  namespace: {{ $namespace | quote }}
  {{- end }}
  labels:
{{ include "eventmesh-migration.labels" $root | indent 4 }}
{{- include "eventmesh-migration.hook" (dict "events" $events "weight" $weight) }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if $namespace }}Role{{ else }}ClusterRole{{ end }}
  name: {{ $name | quote }}
subjects:
- kind: ServiceAccount
  name: {{ $account | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- $hook := include "eventmesh-migration.hook" (dict "events" $events "weight" $weight) }}
{{- include "eventmesh-migration.fence" (dict "root" $root "account" $account "tables" .tables "labels" (include "eventmesh-migration.labels" $root) "hook" $hook) }}
{{- end -}}

{{/* The annotations of a hook; nothing without events. A failed Job stays, and its log. */}}
{{- define "eventmesh-migration.hook" -}}
{{- if .events }}
  annotations:
    helm.sh/hook: {{ .events }}
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
    {{- if hasKey . "log" }}
    helm.sh/hook-output-log-policy: hook-failed
    {{- else }}
    {{- /* RBAC is gone as soon as it is deleted. Helm 2 would wait two seconds for each object. */}}
    helm.sh/hook-delete-timeout: "0"
    {{- end }}
{{- end }}
{{- end -}}
