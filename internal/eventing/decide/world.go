package decide

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// World is what one reconcile has read, live. decide sees nothing else.
type World struct {
	Now time.Time
	// NewEpoch is one that was never used.
	NewEpoch string
	// Eventing is the one that is served.
	Eventing *operatorv1alpha1.Eventing
	// Ours are all objects with our labels but Pods and volume claims, by kind and name.
	Ours map[Key]*unstructured.Unstructured
	// Kept is what something makes of Ours at each write.
	Kept drift.Kept
	// Claims are the volume claims of NATS, sorted by name.
	Claims []corev1.PersistentVolumeClaim
	// Pods are those with our labels, terminating ones included.
	Pods []corev1.Pod
	// Accounts are the ServiceAccounts of the programs, by name.
	Accounts map[string]*metav1.PartialObjectMetadata
	// Triggers are names of those that the controller has created.
	Triggers []string
	// Foreign are objects that have a name of ours without our labels.
	Foreign []string
	// Dependencies say which APIs and objects of others are there.
	Dependencies []dependency.Dependency
	// Subscriptions are all in the cluster; nil if the kind is not served.
	Subscriptions []Subscription
	NATS          NATS
}

// Key names an object in the operator's namespace.
type Key struct {
	Kind, Name string
}

// Subscription is what decisions need of one.
type Subscription struct {
	// Version is the resource version.
	Namespace, Name, Version string
	Generation               int64
	Deleting                 bool
	// Finalizer: it has the finalizer of the controller.
	Finalizer bool
	// Valid: the controller has not found its spec invalid in this generation.
	Valid bool
	// Skipped: an administrator has taken it out of a switch.
	Skipped bool
	// Refused: its sink does not take events now.
	Refused bool
	// Epochs are those in which the controller found it ready in this generation, by backend.
	Epochs map[operatorv1alpha1.BackendType]string
}

// String is <namespace>/<name>.
func (s Subscription) String() string { return s.Namespace + "/" + s.Name }

// NATS is what the servers say.
type NATS struct {
	// Connected: a server answers the operator. Problem says why none does.
	Connected bool
	Problem   string
	// Away is for how long no server has answered, since the operator started.
	Away time.Duration
	// Behind are the servers whose copy of the stream is not up to date; BehindFor is for how long
	// there have been some.
	Behind    []string
	BehindFor time.Duration
	// Stream is nil if there is none.
	Stream *jetstream.StreamInfo
	// DeadLetters is the stream of events that were given up; nil if there is none.
	DeadLetters *jetstream.StreamInfo
	// Volume is what the server says of its volume.
	Volume stream.Volume
	// Full are the subjects of which the stream takes no more events, and since when that was seen.
	Full map[string]time.Time
	// Counts are how many events the stream holds of each subject, and Sizes about how large one is
	// of those that have the most. Both are read only if there is little room.
	Counts, Sizes map[string]uint64
	// Consumers are all of the stream, read only where a decision needs them.
	Consumers []*jetstream.ConsumerInfo
	// OtherStreams are names of streams that are not ours.
	OtherStreams []string
	// Quiet: the closed stream is empty, and stays so. One server has stored a barrier last.
	// Several servers were empty in two reads far apart, with no event in between.
	Quiet bool
	// Dangling: for minutes, the stream has held events that no consumer has to deliver.
	Dangling bool
	// StaleCertificate: a server presents a certificate that is not the newest.
	StaleCertificate bool
}

// Holders are the Subscriptions for which events wait, of one subject if that is not empty.
func (n NATS) Holders(subject string) []stream.Holder {
	return stream.Holders(n.Stream.State, n.Consumers, subject, n.Counts, n.Sizes)
}

// Keys are those of Ours, sorted.
func (w *World) keys() []Key {
	return slices.SortedFunc(maps.Keys(w.Ours), func(a, b Key) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
}

func (w *World) Object(kind, name string) *unstructured.Unstructured {
	return w.Ours[Key{kind, name}]
}

// startedWith is an object that pods need when they start; nil if there is none.
func (w *World) startedWith(kind, name string) metav1.Object {
	if account := w.Accounts[name]; kind == "ServiceAccount" && account != nil {
		return account
	}
	if u := w.Object(kind, name); u != nil {
		return u
	}
	return nil
}

// Available tells whether events can be published.
func (w *World) Available() bool {
	return w.NATS.Connected && w.NATS.Stream != nil && stream.Open(w.NATS.Stream.Config)
}

// Has tells whether there is an object of ours of a kind.
func (w *World) Has(kind string) bool {
	return slices.ContainsFunc(w.keys(), func(k Key) bool { return k.Kind == kind })
}

// data is a value of a ConfigMap; "" if there is none.
func data(u *unstructured.Unstructured, key string) string { return contractData(u)[key] }

// undrained are the claims that may hold events: an epoch was written to them before the stream was
// opened, and no mark says that nothing of this epoch is left.
func (w *World) undrained() []string {
	var names []string
	for _, c := range w.Claims {
		if epoch := c.Annotations[backend.EpochAnnotation]; epoch != "" && c.Annotations[drainedAnnotation] != epoch {
			names = append(names, c.Name)
		}
	}
	return names
}

// refused are the Subscriptions whose sinks do not take events now.
func (w *World) refused() []Subscription {
	return slices.DeleteFunc(slices.Clone(w.Subscriptions), func(s Subscription) bool { return !s.Refused || s.Deleting || !s.Valid })
}

func names(subscriptions []Subscription) string {
	const most = 5
	var all []string
	for _, s := range subscriptions {
		all = append(all, s.String())
	}
	slices.Sort(all)
	if len(all) > most {
		return strings.Join(all[:most], ", ") + " and others"
	}
	return strings.Join(all, ", ")
}

// Orphans are pods of NATS without a StatefulSet: it was to be replaced, and the next one was not
// created yet.
func (w *World) Orphans() (pods []corev1.Pod) {
	for _, p := range w.podsOf(natsComponent) {
		if p.DeletionTimestamp == nil && metav1.GetControllerOf(&p) == nil {
			pods = append(pods, p)
		}
	}
	return pods
}

func contractData(u *unstructured.Unstructured) map[string]string {
	if u == nil {
		return nil
	}
	content, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return content
}

func claim(c *corev1.PersistentVolumeClaim) *unstructured.Unstructured {
	return observed("PersistentVolumeClaim", c)
}

func pod(p *corev1.Pod) *unstructured.Unstructured { return observed("Pod", p) }

// observed names an object, and the version that was read.
func observed(kind string, is metav1.Object) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	u.SetNamespace(is.GetNamespace())
	u.SetName(is.GetName())
	u.SetUID(is.GetUID())
	u.SetResourceVersion(is.GetResourceVersion())
	return u
}

func annotations(values map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": values}}
}
