{{/* Generated from the access.go of each job in internal/migration/jobs by "make charts": change it there. */}}
{{- define "eventmesh-migration.access" -}}
eventbus-purge:
# what the Event Bus left
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# what the Event Bus left
- {apiGroups: ["messaging.knative.dev"], resources: ["subscriptions"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# which have its finalizer
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["eventactivations"], verbs: ["list"]}
# whether one still needs the Event Bus
- {apiGroups: ["eventing.kyma-project.io"], resources: ["subscriptions"], verbs: ["list"]}
# whether the mesh delivers
- {apiGroups: ["eventing.knative.dev"], resources: ["triggers"], verbs: ["list"]}
# whether that of Kyma Subscriptions is there
- {apiGroups: ["apiextensions.k8s.io"], resources: ["customresourcedefinitions"], verbs: ["get"], resourceNames: ["subscriptions.eventing.kyma-project.io"]}
# whether the Event Bus runs
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether the Event Bus runs
- {apiGroups: ["apps"], resources: ["replicasets"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether the Event Bus runs
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether Kyma's own migration runs
- {apiGroups: ["batch"], resources: ["jobs"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether a run was interrupted
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get"], namespace: {{ .Values.namespaces.state | quote }}}
eventbus-scaledown:
# scaled to 0; the former number is kept in the same patch
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get","patch"], resourceNames: ["event-bus-event-publish-service","event-bus-subscription-controller"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether they are at 0
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# which pods are the Event Bus's
- {apiGroups: ["apps"], resources: ["replicasets"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# waits until none is left
- {apiGroups: [""], resources: ["pods"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether Kyma's own migration runs
- {apiGroups: ["batch"], resources: ["jobs"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# what may scale it up again
- {apiGroups: ["autoscaling"], resources: ["horizontalpodautoscalers"], verbs: ["list"], namespace: {{ .Values.namespaces.eventBus | quote }}}
# whether an event-service still posts to the Event Bus
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether an event-service still posts to the Event Bus
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# why an event-service has not switched
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applications"], verbs: ["get"]}
# whether one still needs the Event Bus
- {apiGroups: ["eventing.kyma-project.io"], resources: ["subscriptions"], verbs: ["list"]}
# which are left out
- {apiGroups: [""], resources: ["namespaces"], verbs: ["list"]}
# removes the finalizer of the subscription-controller
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["eventactivations"], verbs: ["get","list","patch"]}
# says in each namespace that was changed that it was
- {apiGroups: [""], resources: ["events"], verbs: ["create"]}
# the journal
- {apiGroups: [""], resources: ["secrets"], verbs: ["list","create","update","patch","delete"], namespace: {{ .Values.namespaces.state | quote }}}
# the report
- {apiGroups: [""], resources: ["configmaps"], verbs: ["get","create","update"], namespace: {{ .Values.namespaces.state | quote }}}
# the lock
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get","create","update","watch"], namespace: {{ .Values.namespaces.state | quote }}}
eventservice-verify:
# which are to have switched
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applications"], verbs: ["list","watch"]}
# their event-services
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether a former one is left
- {apiGroups: [""], resources: ["pods"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh takes the events
- {apiGroups: ["sources.kyma-project.io"], resources: ["httpsources"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh takes the events
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh takes the events
- {apiGroups: ["serving.knative.dev"], resources: ["services"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether Kyma's own migration runs
- {apiGroups: ["batch"], resources: ["jobs"], verbs: ["list"], namespace: "kyma-system"}
# the report
- {apiGroups: [""], resources: ["configmaps"], verbs: ["get","create","update"], namespace: {{ .Values.namespaces.state | quote }}}
httpsource-sync:
# which have no HTTPSource
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applications"], verbs: ["list"]}
# whether there is one to create in
- {apiGroups: [""], resources: ["namespaces"], verbs: ["get"], resourceNames: [{{ .Values.namespaces.integration | quote }}]}
# created; deleted again by rollback and undo
- {apiGroups: ["sources.kyma-project.io"], resources: ["httpsources"], verbs: ["get","list","watch","create","delete"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether an HTTPSource takes events
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether an HTTPSource takes events
- {apiGroups: ["serving.knative.dev"], resources: ["services"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the controller of HTTPSources runs, while one is awaited
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list","watch"], namespace: "kyma-system"}
# says in each namespace that was changed that it was
- {apiGroups: [""], resources: ["events"], verbs: ["create"], namespace: {{ .Values.namespaces.integration | quote }}}
# what carries live events stays in a rollback
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# what carries live events stays in a rollback
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether Tiller's release of an Application knows its HTTPSource
- {apiGroups: [""], resources: ["configmaps"], verbs: ["list"], namespace: {{ .Values.namespaces.tiller | quote }}}
# the journal
- {apiGroups: [""], resources: ["secrets"], verbs: ["list","create","update","patch","delete"], namespace: {{ .Values.namespaces.state | quote }}}
# the report
- {apiGroups: [""], resources: ["configmaps"], verbs: ["get","create","update"], namespace: {{ .Values.namespaces.state | quote }}}
# the lock
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get","create","update","watch"], namespace: {{ .Values.namespaces.state | quote }}}
serviceinstance-recreate:
# whether the event-services have switched
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the event-services have switched
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# deleted and created again, where no repair can help
- {apiGroups: ["servicecatalog.k8s.io"], resources: ["serviceinstances"], verbs: ["get","list","watch","create","delete","patch"]}
# deleted and created again, where no repair can help
- {apiGroups: ["servicecatalog.k8s.io"], resources: ["servicebindings"], verbs: ["get","list","watch","create","delete","patch"]}
# deleted and created again, where no repair can help
- {apiGroups: ["servicecatalog.kyma-project.io"], resources: ["servicebindingusages"], verbs: ["get","list","watch","create","delete","patch"]}
# which instances are of a service with events
- {apiGroups: ["servicecatalog.k8s.io"], resources: ["serviceclasses"], verbs: ["list","watch"]}
# which instances are of a service with events
- {apiGroups: ["servicecatalog.k8s.io"], resources: ["serviceplans"], verbs: ["list"]}
# whether what is deleted could come back
- {apiGroups: ["servicecatalog.k8s.io"], resources: ["servicebrokers"], verbs: ["list"]}
# which instances are of a service with events
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applications"], verbs: ["list"]}
# whether what is deleted could come back
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applicationmappings"], verbs: ["list"]}
# created, or given the right owner, where an instance lacks it
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["eventactivations"], verbs: ["get","list","watch","create","delete","patch"]}
# created where an instance lacks it
- {apiGroups: ["messaging.knative.dev"], resources: ["subscriptions"], verbs: ["get","list","watch","create","delete"], namespace: {{ .Values.namespaces.integration | quote }}}
# what a Knative Subscription subscribes to
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# created where a namespace has none; deleted again by rollback and undo
- {apiGroups: ["eventing.knative.dev"], resources: ["brokers"], verbs: ["get","list","watch","create","delete"], knative: v1}
# who uses a Broker that a rollback or undo would delete
- {apiGroups: ["eventing.knative.dev"], resources: ["triggers"], verbs: ["list"]}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["eventing.knative.dev"], resources: ["brokers"], verbs: ["list","watch","get","delete"], knative: v1alpha1}
{{- if .Capabilities.APIVersions.Has "authentication.istio.io/v1alpha1" }}
# created where application-broker of 1.11 would
- {apiGroups: ["authentication.istio.io"], resources: ["policies"], verbs: ["get","list","create","delete"]}
{{- end }}
# which are left out; labelled where an instance lacks that
- {apiGroups: [""], resources: ["namespaces"], verbs: ["get","list","watch","patch"]}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: [""], resources: ["serviceaccounts"], verbs: ["list","watch"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: [""], resources: ["serviceaccounts"], verbs: ["get","delete"], resourceNames: ["eventing-broker-ingress","eventing-broker-filter"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["list","watch"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["get","delete"], resourceNames: ["eventing-broker-ingress","eventing-broker-filter"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["get","delete"], namespace: "knative-eventing", knative: v1alpha1}
# restarts application-broker, where it would refuse an instance permanently
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# restarts application-broker, where it would refuse an instance permanently
- {apiGroups: [""], resources: ["pods"], verbs: ["get","watch","delete"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether an EventActivation could go
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get"], resourceNames: ["event-bus-subscription-controller"], namespace: "kyma-system"}
# says in each namespace that was changed that it was
- {apiGroups: [""], resources: ["events"], verbs: ["create"]}
# the journal
- {apiGroups: [""], resources: ["secrets"], verbs: ["list","create","update","patch","delete"], namespace: {{ .Values.namespaces.state | quote }}}
# the report
- {apiGroups: [""], resources: ["configmaps"], verbs: ["get","create","update"], namespace: {{ .Values.namespaces.state | quote }}}
# the lock
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get","create","update","watch"], namespace: {{ .Values.namespaces.state | quote }}}
trigger-sync:
# whether the event-services have switched
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the event-services have switched
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# which are left out, and which are labelled for a Broker
- {apiGroups: [""], resources: ["namespaces"], verbs: ["list"]}
# whether events of a source can come through the mesh
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["applications"], verbs: ["list"]}
# whether the mesh brings the events to a namespace
- {apiGroups: ["applicationconnector.kyma-project.io"], resources: ["eventactivations"], verbs: ["list","watch"]}
# deleted once their Trigger delivers; rollback and undo restore them
- {apiGroups: ["eventing.kyma-project.io"], resources: ["subscriptions"], verbs: ["get","list","watch","create","delete","patch"]}
# created, and changed if their Subscription is edited; deleted again by rollback and undo
- {apiGroups: ["eventing.knative.dev"], resources: ["triggers"], verbs: ["get","list","watch","create","delete","patch"]}
# created; deleted again by rollback and undo
- {apiGroups: ["eventing.knative.dev"], resources: ["brokers"], verbs: ["get","list","watch","create","delete"], knative: v1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["eventing.knative.dev"], resources: ["brokers"], verbs: ["list","watch","get","delete"], knative: v1alpha1}
# labels them, so that Knative makes a Broker
- {apiGroups: [""], resources: ["namespaces"], verbs: ["get","patch"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: [""], resources: ["serviceaccounts"], verbs: ["list","watch"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: [""], resources: ["serviceaccounts"], verbs: ["get","delete"], resourceNames: ["eventing-broker-ingress","eventing-broker-filter"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["list","watch"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["get","delete"], resourceNames: ["eventing-broker-ingress","eventing-broker-filter"], knative: v1alpha1}
# what Knative makes upon the label; a rollback removes it
- {apiGroups: ["rbac.authorization.k8s.io"], resources: ["rolebindings"], verbs: ["get","delete"], namespace: "knative-eventing", knative: v1alpha1}
# whether the mesh takes the events
- {apiGroups: ["sources.kyma-project.io"], resources: ["httpsources"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh takes the events
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh brings the events to a namespace
- {apiGroups: ["messaging.knative.dev"], resources: ["subscriptions"], verbs: ["list","watch"], namespace: {{ .Values.namespaces.integration | quote }}}
# whether the mesh takes the events
- {apiGroups: ["serving.knative.dev"], resources: ["services"], verbs: ["list"], namespace: {{ .Values.namespaces.integration | quote }}}
# scales the subscription-controller to 0 while it does its part, and back
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["get","patch"], resourceNames: ["event-bus-subscription-controller"], namespace: "kyma-system"}
# whether the subscription-controller runs
- {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list","watch"], namespace: "kyma-system"}
# whether the subscription-controller runs
- {apiGroups: ["apps"], resources: ["replicasets"], verbs: ["list","watch"], namespace: "kyma-system"}
# whether the subscription-controller runs
- {apiGroups: [""], resources: ["pods"], verbs: ["list","watch"], namespace: "kyma-system"}
# cleans up after a Subscription if the subscription-controller does not run
- {apiGroups: ["messaging.knative.dev"], resources: ["channels"], verbs: ["get","list","watch","create","delete","patch"], namespace: "kyma-system"}
# cleans up after a Subscription if the subscription-controller does not run
- {apiGroups: ["messaging.knative.dev"], resources: ["subscriptions"], verbs: ["get","list","watch","create","delete","patch"], namespace: "kyma-system"}
# what is in flight
- {apiGroups: [""], resources: ["pods"], verbs: ["list"], namespace: {{ .Values.namespaces.nats | quote }}}
{{- if .Values.nats.pods }}
# what is in flight
- {apiGroups: [""], resources: ["pods/proxy"], verbs: ["get"], resourceNames: [{{ range $i, $pod := .Values.nats.pods }}{{ if $i }}, {{ end }}{{ printf "%s:8222" $pod | quote }}{{ end }}], namespace: {{ .Values.namespaces.nats | quote }}}
{{- end }}
# says in each namespace that was changed that it was
- {apiGroups: [""], resources: ["events"], verbs: ["create"]}
# the journal
- {apiGroups: [""], resources: ["secrets"], verbs: ["list","create","update","patch","delete"], namespace: {{ .Values.namespaces.state | quote }}}
# the report
- {apiGroups: [""], resources: ["configmaps"], verbs: ["get","create","update"], namespace: {{ .Values.namespaces.state | quote }}}
# the lock
- {apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["get","create","update","watch"], namespace: {{ .Values.namespaces.state | quote }}}
{{- end -}}
