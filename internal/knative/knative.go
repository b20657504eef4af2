// Package knative holds the facts about Knative Eventing that the migration and eventing share.
package knative

import "k8s.io/apimachinery/pkg/runtime/schema"

// Component is the component of Kyma that installs Knative Eventing.
const Component = "knative-eventing"

// The kinds of the event path, of whatever version is served: the fields that are read are the same
// in all of them.
var (
	Broker  = schema.GroupKind{Group: "eventing.knative.dev", Kind: "Broker"}
	Trigger = schema.GroupKind{Group: "eventing.knative.dev", Kind: "Trigger"}
)

// The attributes of an event that a Kyma Subscription selects by, as they are
// called in the filter of a Trigger. EventTypeVersionAttribute is an extension.
const (
	SourceAttribute           = "source"
	TypeAttribute             = "type"
	EventTypeVersionAttribute = "eventtypeversion"
)
