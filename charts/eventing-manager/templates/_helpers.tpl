{{/* The name of the operator's objects. */}}
{{- define "eventing-manager.name" -}}
{{- $prefix := .Values.resourcePrefix -}}
{{- if gt (len $prefix) 30 -}}
{{- fail (printf "resourcePrefix %q has %d characters: use at most 30, because it begins the names of other objects" $prefix (len $prefix)) -}}
{{- end -}}
{{- .Values.fullnameOverride | default (printf "%s-manager" $prefix) -}}
{{- end -}}

{{/* The labels by which the operator's pods are selected. They never change. */}}
{{- define "eventing-manager.selector" -}}
app.kubernetes.io/name: eventing-manager
app.kubernetes.io/instance: {{ .Values.resourcePrefix | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{/* The labels of the pods of NATS, as the chart "eventing" has them. */}}
{{- define "eventing-manager.nats" -}}
app.kubernetes.io/name: nats
app.kubernetes.io/instance: {{ .Values.resourcePrefix | quote }}
eventing.kyma-project.io/plane: nats
{{- end -}}

{{/* The labels of the pods of the publisher and of the controller, as the chart "eventing" has them. Arguments: root, name. */}}
{{- define "eventing-manager.program" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Values.resourcePrefix | quote }}
eventing.kyma-project.io/plane: shared
{{- end -}}

{{/* The labels of all objects. None of them has the label of a plane: by that the operator knows what it may delete. */}}
{{- define "eventing-manager.labels" -}}
{{ include "eventing-manager.selector" . }}
eventing.kyma-project.io/instance: {{ .Values.resourcePrefix | quote }}
app.kubernetes.io/part-of: eventing-manager
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
kyma-project.io/dashboard: eventing
{{- end -}}

{{/* The image of a program. Arguments: root, program. */}}
{{- define "eventing-manager.image" -}}
{{- $image := .root.Values.image -}}
{{- $digest := index $image.digests .program -}}
{{- $tag := $image.tag | default .root.Chart.AppVersion -}}
{{- if $digest -}}
{{- $tagged := printf "%s/%s" $image.repository .program -}}
{{- with $image.tag }}{{ $tagged = printf "%s:%s" $tagged . }}{{ end -}}
{{ printf "%s@%s" $tagged $digest }}
{{- else -}}
{{- if and (eq $tag "devel") (not $image.allowDevel) -}}
{{- fail (printf "image.tag is %q, and nobody has pushed %s/%s:%s: name a tag (--set-string image.tag=...) or the digest (image.digests.%s); image.allowDevel=true is for tests" $tag $image.repository .program $tag .program) -}}
{{- end -}}
{{ printf "%s/%s:%s" $image.repository .program $tag }}
{{- end -}}
{{- end -}}
