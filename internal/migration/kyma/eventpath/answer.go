// Package eventpath answers the questions on which events depend, once for all
// jobs and for the tool: whether the event-service of a source posts to the mesh
// (EventService), whether the mesh takes the events of a source (Source), whether
// exactly one right link brings them to a namespace (Link), and which Pods belong
// to an event-service or to the Event Bus. It reads nothing: everything is a
// function of objects that the caller has read.
//
// There are two directions, and they must not be mixed up. To delete the old path, a
// job needs a proof that the new one carries the events: EventService, Source and
// Link hold only if nothing is missing, and what is unknown does not hold. To
// protect the new path, a job needs everything that may carry events:
// MeshSources and Posters name one source too many rather than one too few.
package eventpath

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Kinds of Kubernetes itself.
var (
	Deployment = schema.GroupKind{Group: "apps", Kind: "Deployment"}
	Pod        = schema.GroupKind{Kind: "Pod"}
)

// Defect is what is wrong, in one word: the ID by which the command verify and the
// runbook know it.
type Defect string

// The defects of an HTTPSource and of what belongs to it.
const (
	HTTPSourceMissing     Defect = "httpsource-missing"
	HTTPSourceTerminating Defect = "httpsource-terminating"
	// HTTPSourceForeign is of another source than its name says: the event-service
	// posts to the adapter that has the name of the source.
	HTTPSourceForeign     Defect = "httpsource-foreign"
	HTTPSourceNotReady    Defect = "httpsource-not-ready"
	ChannelMissing        Defect = "channel-missing"
	ChannelFormer         Defect = "channel-former"
	ChannelNotReady       Defect = "channel-not-ready"
	ChannelNoAddress      Defect = "channel-no-address"
	AdapterMissing        Defect = "adapter-missing"
	AdapterWithoutChannel Defect = "adapter-without-channel"
	AdapterNotReady       Defect = "adapter-not-ready"
)

// The defects of an event-service.
const (
	EventServiceMissing     Defect = "eventservice-missing"
	EventServiceNotSwitched Defect = "eventservice-not-switched"
	EventServiceRollout     Defect = "eventservice-rollout"
	EventServiceFormerPod   Defect = "eventservice-former-pod"
)

// The defects of a link.
const (
	LinkMissing   Defect = "link-missing"
	LinkTwice     Defect = "link-twice"
	LinkNotReady  Defect = "link-not-ready"
	LinkElsewhere Defect = "link-elsewhere"
)

// Object names what an answer is about; the zero value names none.
type Object struct {
	Kind            schema.GroupKind
	Namespace, Name string
}

func of(kind schema.GroupKind, obj *unstructured.Unstructured) Object {
	return Object{kind, obj.GetNamespace(), obj.GetName()}
}

// String is the object as reports name it.
func (o Object) String() string { return o.Kind.Kind + " " + o.Namespace + "/" + o.Name }

// kubectl is a command of kubectl on the object.
func (o Object) kubectl(verb string, flags ...string) string {
	name := strings.ToLower(o.Kind.Kind)
	if o.Kind.Group != "" && o.Kind.Group != Deployment.Group {
		// Kyma's and Knative's kinds share their short names.
		name += "." + o.Kind.Group
	}
	return strings.Join(append([]string{"kubectl", "-n", o.Namespace, verb, name + "/" + o.Name}, flags...), " ")
}

// describe is the command that shows the object, and its Events.
func (o Object) describe() string { return o.kubectl("describe") }

// Answer says that something holds (the zero value), or why not.
type Answer struct {
	Defect Defect
	Object Object
	// Problem follows the object in a sentence, as in "is not ready". Without an
	// object, it is a whole sentence.
	Problem string
	// Note is what to do, or what the command is for. Command is one complete command. Either may
	// be empty.
	Note, Command string
}

// OK says that it holds.
func (a Answer) OK() bool { return a.Defect == "" }

// Sentence is the object and its problem; "" if it holds.
func (a Answer) Sentence() string {
	switch {
	case a.OK() || a.Object == Object{}:
		return a.Problem
	case a.Object.Kind == kyma.Service:
		return "adapter " + a.Object.String() + " " + a.Problem
	}
	return a.Object.String() + " " + a.Problem
}

// About is Sentence where the reader knows which object is talked about: it is
// called "it".
func (a Answer) About(kind schema.GroupKind, namespace, name string) string {
	if !a.OK() && a.Object == (Object{kind, namespace, name}) {
		return "it " + a.Problem
	}
	return a.Sentence()
}

// first is what a job reports: one thing at a time, the one to begin with.
func first(all []Answer) Answer {
	if len(all) == 0 {
		return Answer{}
	}
	return all[0]
}
