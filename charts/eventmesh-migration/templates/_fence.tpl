{{/*
A cluster-scoped name: releases in two namespaces may be called the same, and one's
"before-hook-creation" would delete the other's ClusterRole while that runs.
Arguments: root, account.
*/}}
{{- define "eventmesh-migration.clusterName" -}}
{{ printf "%s-%s" .account (.root.Release.Namespace | sha256sum | trunc 8) }}
{{- end -}}

{{/*
What an account may not do although its Roles allow it, and where its pods may not
go. It is created and deleted with the account. Arguments: root, account, tables (names of
jobs), labels, and hook (the annotations of the account).
*/}}
{{- define "eventmesh-migration.fence" -}}
{{- $root := .root -}}
{{- $hook := .hook -}}
{{- $labels := .labels -}}
{{- $name := include "eventmesh-migration.clusterName" . -}}
{{- if $root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ .account | quote }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels:
{{ $labels | indent 4 }}
{{- $hook }}
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: eventmesh-migration
      app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
  policyTypes: [Ingress, Egress]
  egress:
{{- with $root.Values.networkPolicy.ports }}
  - ports:
{{- range . }}
    - {protocol: TCP, port: {{ int . }}}
{{- end }}
{{- end }}
{{- with $root.Values.networkPolicy.egress }}
{{ toYaml . | indent 2 }}
{{- end }}
{{- end }}
{{- if and $root.Values.admissionPolicy.enabled (include "eventmesh-migration.patchesNamespaces" .tables) }}
{{- if lt (include "eventmesh-migration.minor" $root | int) 30 }}
{{- fail "admissionPolicy.enabled: Kubernetes has ValidatingAdmissionPolicies from 1.30 on, and this cluster is older" }}
{{- end }}
---
# RBAC cannot say which field of a Namespace may be patched.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name | quote }}
  labels:
{{ $labels | indent 4 }}
{{- $hook }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [UPDATE]
      resources: [namespaces]
  matchConditions:
  - name: by-the-account
    expression: {{ printf "request.userInfo.username == 'system:serviceaccount:%s:%s'" $root.Release.Namespace .account | quote }}
  variables:
  - name: labels
    expression: "has(object.metadata.labels) ? object.metadata.labels : {}"
  - name: former
    expression: "has(oldObject.metadata.labels) ? oldObject.metadata.labels : {}"
  validations:
  - expression: >-
      variables.labels.all(k, k == 'knative-eventing-injection' || k in variables.former && variables.former[k] == variables.labels[k]) &&
      variables.former.all(k, k == 'knative-eventing-injection' || k in variables.labels)
    message: this account may change no label of a Namespace but knative-eventing-injection
  - expression: >-
      (has(object.metadata.annotations) ? object.metadata.annotations : {}) == (has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}) &&
      (has(object.metadata.finalizers) ? object.metadata.finalizers : []) == (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) &&
      (has(object.metadata.ownerReferences) ? object.metadata.ownerReferences : []) == (has(oldObject.metadata.ownerReferences) ? oldObject.metadata.ownerReferences : []) &&
      (has(object.spec) ? object.spec : {}) == (has(oldObject.spec) ? oldObject.spec : {})
    message: this account may change nothing of a Namespace but its label knative-eventing-injection
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name | quote }}
  labels:
{{ $labels | indent 4 }}
{{- $hook }}
spec:
  policyName: {{ $name | quote }}
  validationActions: [Deny]
{{- end }}
{{- end -}}
