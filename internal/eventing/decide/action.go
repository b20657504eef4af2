package decide

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// An Action is one thing to do. Actions are done in order, and none after one that failed.
type Action interface {
	String() string
}

type (
	// Finalize adds the finalizer to the Eventing.
	Finalize struct{}
	// Release removes the finalizer from the Eventing.
	Release struct{}
	// Credentials creates or completes the Secret of this name. What is in it and can be used
	// stays.
	Credentials struct{ Name string }
	// Create creates an object that was not there.
	Create struct{ Object *unstructured.Unstructured }
	// Apply applies an object over the one that was observed, if nobody has changed that since.
	Apply struct{ Object, Observed *unstructured.Unstructured }
	// Patch merges values into the observed object, if nobody has changed it since. A nil value
	// removes a key.
	Patch struct {
		Observed *unstructured.Unstructured
		Merge    map[string]any
		Why      string
	}
	// Remove deletes the observed object, if nobody has changed it since.
	Remove struct{ Observed *unstructured.Unstructured }
	// Orphan deletes the observed StatefulSet, if nobody has changed it since, and leaves its pods
	// and volumes to the next one.
	Orphan struct {
		Observed *unstructured.Unstructured
		Why      string
	}
	// RemoveTrigger deletes a Trigger of a controller that is gone, if it is still one of ours.
	RemoveTrigger struct{ Name string }
	// CreateStream creates the stream.
	CreateStream struct{ Config jetstream.StreamConfig }
	// UpdateStream changes the stream that was observed.
	UpdateStream struct {
		Observed *jetstream.StreamInfo
		Config   jetstream.StreamConfig
		Why      string
	}
	// DeleteStream deletes the stream that was observed, if it is closed and holds nothing. That it
	// cannot is no reason not to remove NATS.
	DeleteStream struct{ Observed *jetstream.StreamInfo }
	// Reload makes servers read a certificate that has changed.
	Reload struct{}
	// Abandon removes the controller's finalizer from a Subscription: the controller is gone.
	Abandon struct{ Subscription observed.Subscription }
	// Tell records an Event about the Eventing. Kind is Normal or Warning.
	Tell struct{ Kind, Reason, Message string }
)

func (Finalize) String() string      { return "add the finalizer" }
func (Release) String() string       { return "remove the finalizer" }
func (a Credentials) String() string { return "create what Secret " + a.Name + " lacks" }
func (a Create) String() string      { return "create " + title(a.Object) }
func (a Apply) String() string       { return "apply " + title(a.Object) }
func (a Patch) String() string       { return a.Why + " on " + title(a.Observed) }
func (a Remove) String() string      { return "delete " + title(a.Observed) }
func (a Orphan) String() string {
	return "delete " + title(a.Observed) + " without its pods, to change " + a.Why
}
func (a RemoveTrigger) String() string { return "delete Trigger " + a.Name }
func (a CreateStream) String() string  { return "create stream " + a.Config.Name }
func (a UpdateStream) String() string  { return a.Why + " stream " + a.Config.Name }
func (a DeleteStream) String() string  { return "delete stream " + a.Observed.Config.Name }
func (Reload) String() string          { return "reload certificates of NATS servers" }
func (a Abandon) String() string {
	return fmt.Sprintf("remove the finalizer of Subscription %s", a.Subscription)
}
func (a Tell) String() string { return "tell: " + a.Reason }

func title(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }

// annotations is what Patch merges to set annotations.
func annotations(values map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": values}}
}
