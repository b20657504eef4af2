package manager

import (
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// An action is one thing to do. Actions are done in order, and none after one that failed.
type action interface {
	String() string
}

type (
	// finalize adds the finalizer to the Eventing.
	finalize struct{}
	// release removes the finalizer from the Eventing.
	release struct{}
	// credentials creates or completes the Secret of this name. What is in it and can be used stays.
	credentials struct{ name string }
	// create creates an object that was not there.
	create struct{ object *unstructured.Unstructured }
	// apply applies an object over the one that was observed, if nobody has changed that since.
	apply struct{ object, observed *unstructured.Unstructured }
	// patch merges values into the observed object, if nobody has changed it since. A nil value removes a key.
	patch struct {
		observed *unstructured.Unstructured
		merge    map[string]any
		why      string
	}
	// remove deletes the observed object, if nobody has changed it since.
	remove struct{ observed *unstructured.Unstructured }
	// createStream creates the stream.
	createStream struct{ config jetstream.StreamConfig }
	// updateStream changes the stream that was observed.
	updateStream struct {
		observed *jetstream.StreamInfo
		config   jetstream.StreamConfig
		why      string
	}
	// reload makes servers read a certificate that has changed.
	reload struct{}
	// abandon removes the controller's finalizer from a Subscription: the controller is gone.
	abandon struct{ subscription Subscription }
	// tell records an Event about the Eventing.
	tell struct{ kind, reason, message string }
)

func (finalize) String() string       { return "add the finalizer" }
func (release) String() string        { return "remove the finalizer" }
func (a credentials) String() string  { return "create what Secret " + a.name + " lacks" }
func (a create) String() string       { return "create " + title(a.object) }
func (a apply) String() string        { return "apply " + title(a.object) }
func (a patch) String() string        { return a.why + " on " + title(a.observed) }
func (a remove) String() string       { return "delete " + title(a.observed) }
func (a createStream) String() string { return "create stream " + a.config.Name }
func (a updateStream) String() string { return a.why + " stream " + a.config.Name }
func (reload) String() string         { return "reload certificates of NATS servers" }
func (a abandon) String() string {
	return fmt.Sprintf("remove the finalizer of Subscription %s", a.subscription)
}
func (a tell) String() string { return "tell: " + a.reason }

func title(u *unstructured.Unstructured) string { return u.GetKind() + " " + u.GetName() }
