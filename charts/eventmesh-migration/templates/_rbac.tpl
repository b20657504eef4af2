{{/*
A ServiceAccount for some jobs, with its Roles in each namespace, made from the
tables in _access.tpl. Arguments: root, account (its name, and that of the Roles),
labels, tables (names of jobs), events (of the hook, "" for none), weight (of the
first objects), and last (true for the objects that remove the others; see below).

A hook that fails must keep its account: Helm 3.18 and later delete what is
hook-succeeded also when a hook fails or runs out of time, while the Job still
runs. So the accounts are before-hook-creation only, and come once more after the
last Job: empty, and hook-succeeded. Helm gets there only when all Jobs have
succeeded. Then it deletes the account, creates the empty one, and deletes that.

The ServiceAccount comes first: the next attempt replaces it, and a Job of the last
one that still runs is refused from then on, before its Roles change. Bindings come
after all Roles, and what is of the whole cluster comes last: in a namespace that
does not exist no Role can be created, and what is left then has no power.
*/}}
{{- define "eventmesh-migration.rbac" -}}
{{- $root := .root -}}
{{- $account := .account -}}
{{- $labels := .labels -}}
{{- $events := .events -}}
{{- $weight := int .weight -}}
{{- $last := .last -}}
{{- $policy := "before-hook-creation" -}}
{{- if or $last $root.Values.hooks.accountsOnce }}{{ $policy = "before-hook-creation,hook-succeeded" }}{{ end -}}
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
{{- $narrow := without (keys $scopes | sortAlpha) "ns:" }}
{{- $wide := list }}
{{- if hasKey $scopes "ns:" }}{{ $wide = list "ns:" }}{{ end }}
{{- $own := list (printf "ns:%s" $root.Release.Namespace) }}
{{- $where := dict "Role" $narrow "RoleBinding" $narrow "ClusterRole" $wide "ClusterRoleBinding" $wide "ServiceAccount" $own }}
{{- range $step, $kind := list "ServiceAccount" "Role" "RoleBinding" "ClusterRole" "ClusterRoleBinding" }}
{{- $at := add $weight $step }}
{{- if $last }}{{ $at = add $weight (ternary 0 1 (eq $kind "ServiceAccount")) }}{{ end }}
{{- range $key := index $where $kind }}
{{- $namespace := trimPrefix "ns:" $key }}
{{- $name := ternary $account (include "eventmesh-migration.clusterName" (dict "root" $root "account" $account)) (ne $namespace "") }}
---
apiVersion: {{ if eq $kind "ServiceAccount" }}v1{{ else }}rbac.authorization.k8s.io/v1{{ end }}
kind: {{ $kind }}
metadata:
  name: {{ $name | quote }}
  {{- if $namespace }}
  namespace: {{ $namespace | quote }}
  {{- end }}
  labels:
{{ $labels | indent 4 }}
{{- include "eventmesh-migration.hook" (dict "events" $events "weight" $at "policy" $policy) }}
{{- if eq $kind "ServiceAccount" }}
automountServiceAccountToken: false
{{- else if hasSuffix "Role" $kind }}
{{- if $last }}
rules: []
{{- else }}
rules:
{{- range index $scopes $key }}
- {{ . }}
{{- end }}
{{- end }}
{{- else if hasSuffix "Binding" $kind }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ trimSuffix "Binding" $kind }}
  name: {{ $name | quote }}
{{- if not $last }}
subjects:
- kind: ServiceAccount
  name: {{ $account | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $hook := include "eventmesh-migration.hook" (dict "events" $events "weight" (add $weight (ternary 1 4 $last)) "policy" $policy) }}
{{- include "eventmesh-migration.fence" (dict "root" $root "account" $account "tables" .tables "labels" $labels "hook" $hook) }}
{{- end -}}

{{/*
The annotations of a hook; nothing without events. Arguments: events, weight,
policy (of deletion), and log: true for a Job, whose log is shown when it fails.
*/}}
{{- define "eventmesh-migration.hook" -}}
{{- if .events }}
  annotations:
    helm.sh/hook: {{ .events }}
    helm.sh/hook-weight: {{ .weight | quote }}
    helm.sh/hook-delete-policy: {{ .policy }}
    {{- if hasKey . "log" }}
    helm.sh/hook-output-log-policy: hook-failed
    {{- else }}
    {{- /* RBAC is gone as soon as it is deleted. Helm 2 would wait two seconds for each object. */}}
    helm.sh/hook-delete-timeout: "0"
    {{- end }}
{{- end }}
{{- end -}}
