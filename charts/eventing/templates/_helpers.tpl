{{/* What every object has: labels of ours over the administrator's. Call it with a dict of root, plane and component. The dict may have
     more labels of ours in also. app.kubernetes.io/instance is none of them: tools for deployments delete what has it and no owner. */}}
{{- define "eventing.labels" -}}
{{- $global := .root.Values.global -}}
{{- $ours := dict
  "app.kubernetes.io/name" .component
  "eventing.kyma-project.io/instance" $global.prefix
  "app.kubernetes.io/component" .component
  "app.kubernetes.io/part-of" "eventing-manager"
  "app.kubernetes.io/managed-by" "eventing-manager"
  "app.kubernetes.io/created-by" "eventing-manager"
  "app.kubernetes.io/version" $global.version
  "kyma-project.io/dashboard" "eventing"
  "eventing.kyma-project.io/plane" .plane
-}}
{{- toYaml (merge $ours (get . "also" | default dict) ($global.labels | default dict)) -}}
{{- end -}}

{{/* The labels by which pods are selected. They never change. Pods have owners, so no tool for deployments claims them. */}}
{{- define "eventing.selector" -}}
app.kubernetes.io/name: {{ .component }}
app.kubernetes.io/instance: {{ .root.Values.global.prefix }}
eventing.kyma-project.io/plane: {{ .plane }}
{{- end -}}

{{/* The labels of pods: those of the administrator, and those that never change, so that an upgrade of the operator alone restarts no pod.
     The dict may have more of ours in pod. */}}
{{- define "eventing.podLabels" -}}
{{- $ours := include "eventing.selector" . | fromYaml -}}
{{- $_ := set $ours "app.kubernetes.io/part-of" "eventing-manager" -}}
{{- toYaml (merge $ours (get . "pod" | default dict) (.root.Values.global.labels | default dict)) -}}
{{- end -}}

{{- define "eventing.metadata" -}}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "eventing.labels" . | nindent 2 }}
{{- $annotations := merge (dict) (.root.Values.global.annotations | default dict) }}
{{- with index . "scrape" }}
{{- $annotations = merge $annotations (dict "prometheus.io/scrape" "true" "prometheus.io/scheme" "http" "prometheus.io/port" .) }}
{{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How pods are spread over nodes and zones, where that is possible, and their PriorityClass. Call it with what eventing.selector needs, and in
     settings the values of the program. */}}
{{- define "eventing.scheduling" -}}
{{- with .settings.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- if eq .settings.spread "Preferred" }}
topologySpreadConstraints:
{{- $of := . }}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "eventing.selector" $of | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What keeps the number of pods of a Deployment: its PodDisruptionBudget and its autoscaler, where it may have more than one pod, and where the number
     may change and nobody else decides it. Call it with what eventing.selector needs, the name, the replicas (min, max and scaled), and in targets what the autoscaler measures, by resource. */}}
{{- define "eventing.pods" -}}
{{- if or .replicas.scaled (gt (int .replicas.max) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  {{- include "eventing.metadata" . | nindent 2 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels:
      {{- include "eventing.selector" . | nindent 6 }}
{{- end }}
{{- if and (ne (int .replicas.min) (int .replicas.max)) (not .replicas.scaled) }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .name }}
  {{- include "eventing.metadata" . | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ .name }}}
  minReplicas: {{ int .replicas.min }}
  maxReplicas: {{ int .replicas.max }}
  metrics:
  {{- range $name, $target := .targets }}
  - type: Resource
    resource: {name: {{ $name }}, target: {{ toJson $target }}}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The Secrets with which images are pulled. */}}
{{- define "eventing.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets -}}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}
{{- end -}}
