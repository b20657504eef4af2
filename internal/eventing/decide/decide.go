package decide

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// drainedAnnotation is on a volume claim: the epoch of which no event is left in it.
	drainedAnnotation = "eventing.kyma-project.io/drained-at"
	// downLimit is how long NATS may be away before that is an error.
	downLimit = time.Minute
	// silence is how long NATS that is to be removed, or one of its servers, may be away before a
	// command is shown that removes it with what it holds: an operator that starts connects first,
	// and servers start again by themselves.
	silence = 20 * time.Second
	// askAgain is when NATS is asked again for what no watch tells: which certificate it has, what
	// is in its streams.
	askAgain = 10 * time.Second
	// FullPercent is how full the stream may be before that is a warning.
	FullPercent = 80
)

// Renderer is a chart.Chart, or one that remembers its renderings.
type Renderer interface {
	Render(chart.Release, map[string]any) ([]*unstructured.Unstructured, error)
}

// Rules decides. It has no client.
type Rules struct {
	Identities
	Chart Renderer
	// Version is that of the operator.
	Version string
	// The images, with their digests.
	NATSImage, PublisherImage, ControllerImage string
	// PullSecrets are names of Secrets for pulling them.
	PullSecrets []string
	// NATSURL is where the publisher and the controller connect to NATS.
	NATSURL string
	// DependencyTimeout is how long a missing API of others is awaited; BackendTimeout how long a
	// backend may take to start.
	DependencyTimeout, BackendTimeout time.Duration
	// DrainDelay is how long after its close a stream may still store what was published before;
	// DrainWatch is how long it has to be empty after that.
	DrainDelay, DrainWatch time.Duration
	// MeshDelay is how long events may be on their way in Channels that cannot be looked into.
	MeshDelay time.Duration
}

// Decision is what follows from a World.
type Decision struct {
	Actions []Action
	// Conditions are those of the Eventing from now on; State is their sum.
	Conditions []metav1.Condition
	State      operatorv1alpha1.State
	Active     operatorv1alpha1.BackendType
	Serving    backend.Set
	// After is when to look again at the latest, if no watch says so before; 0 is never.
	After time.Duration
	// Values are those with which the chart was rendered; nil if it was not.
	Values map[string]any
	NATS   *operatorv1alpha1.NATSStatus
	// PublisherService is <name>.<namespace> of the Service that takes events; "" if there is none.
	PublisherService string
	// Switch is the change of the backend that is under way; nil if there is none.
	Switch *operatorv1alpha1.Switch

	world *World
	// unapplied: what the spec asks for is not applied, and a condition says why.
	unapplied bool
}

// States are all states of an Eventing, the one that wins first.
var States = []operatorv1alpha1.State{
	operatorv1alpha1.StateDeleting, operatorv1alpha1.StateWarning, operatorv1alpha1.StateError, operatorv1alpha1.StateProcessing, operatorv1alpha1.StateReady,
}

// Steps are all steps of a switch, as the reasons of the condition Switching: Idle without a
// switch, Blocked when it waits for too long.
var Steps = []string{
	operatorv1alpha1.ReasonIdle, operatorv1alpha1.ReasonProvisioning, operatorv1alpha1.ReasonAwaiting, operatorv1alpha1.ReasonRollingOut,
	operatorv1alpha1.ReasonClosing, operatorv1alpha1.ReasonDraining, operatorv1alpha1.ReasonDangling, operatorv1alpha1.ReasonRemoving, operatorv1alpha1.ReasonBlocked,
}

func (o *Decision) do(actions ...Action) { o.Actions = append(o.Actions, actions...) }

// AtLeast makes the state at least as grave as s.
func (o *Decision) AtLeast(s operatorv1alpha1.State) {
	if o.State == "" || slices.Index(States, s) < slices.Index(States, o.State) {
		o.State = s
	}
}

// look asks for another look after a time, if none is asked for earlier.
func (o *Decision) look(after time.Duration) {
	if after = max(after, time.Millisecond); o.After == 0 || after < o.After {
		o.After = after
	}
}

// Condition sets a condition. Its time changes only with its status.
func (o *Decision) Condition(kind string, ok bool, reason, format string, args ...any) {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&o.Conditions, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...), ObservedGeneration: o.world.Eventing.Generation,
		LastTransitionTime: metav1.NewTime(o.world.Now),
	})
}

// wrongFor is how long a condition that is now False has been so.
func (o *Decision) wrongFor(kind string) time.Duration {
	if c := meta.FindStatusCondition(o.world.Eventing.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionFalse {
		return o.world.Now.Sub(c.LastTransitionTime.Time)
	}
	return 0
}

// Decide is a pure function of the world.
func (d *Rules) Decide(w *World) *Decision {
	e := w.Eventing
	o := &Decision{world: w, Conditions: slices.Clone(e.Status.Conditions), Active: e.Status.ActiveBackend}
	if w.NATS.Stream != nil {
		o.NATS = natsStatus(w)
	}
	o.Condition(operatorv1alpha1.ConditionServed, true, operatorv1alpha1.ReasonServed, "")
	if e.DeletionTimestamp != nil {
		d.teardown(w, o)
		d.guard(w, o)
		return o
	}
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) {
		o.do(Finalize{})
	}
	target := operatorv1alpha1.BackendType("")
	if e.Spec.Backend != nil {
		target = e.Spec.Backend.Type.Canonical()
	}
	dependencies := d.dependencies(w, o, target)
	switch {
	case target == "":
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNoBackend, "No backend is set. Set spec.backend.type to NATS or EventMesh.")
	case target == operatorv1alpha1.EventMesh && e.Spec.Backend.Config.EventMeshSecret != "":
		// What carries events stays: nothing else would take them.
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNotSupported,
			"SAP Event Mesh is not supported. What is installed is left as it is. Remove spec.backend.config.eventMeshSecret, or set spec.backend.type to NATS.")
	case !dependencies && !d.exists(w, target):
		// Nothing is installed, and nothing is begun. What is there of the other backend goes on.
		o.unapplied = true
		d.programs(w, o, target)
	default:
		t := &turn{Rules: d, w: w, o: o, target: target, other: target.Other(), ready: dependencies}
		t.run()
		if last := e.Status.Switch; o.Switch == nil && last != nil && last.From == t.other && last.To == target && d.exists(w, t.other) {
			// A look that has something to do may have nothing to say. Without the last report, the
			// next one would give the switch another beginning, from which its limits count, and
			// which the annotation names that was printed for people.
			o.Switch = last.DeepCopy()
		}
		d.programs(w, o, target)
	}
	d.guard(w, o)
	if len(o.Actions) == 0 && !o.unapplied {
		o.Condition(operatorv1alpha1.ConditionSpecApplied, true, operatorv1alpha1.ReasonApplied, "")
	}
	o.degraded(d.Namespace, d.Names)
	o.AtLeast(operatorv1alpha1.StateReady)
	return o
}

// dependencies sets the conditions about APIs of others, and tells whether all that are required
// are there.
func (d *Rules) dependencies(w *World, o *Decision, target operatorv1alpha1.BackendType) bool {
	var skipped []string
	var wrong *dependency.Dependency
	for i, dep := range w.Dependencies {
		switch {
		case dep.Presence == dependency.Served:
		case dep.Presence == dependency.Soon:
			o.look(dependency.DiscoveryRetry)
			if dep.Feature == "" && wrong == nil {
				wrong = &w.Dependencies[i]
			}
		case dep.Feature != "":
			skipped = append(skipped, fmt.Sprintf("%s is missing, so %s", dep.Name, dep.Feature))
		case wrong == nil || wrong.Presence == dependency.Soon:
			wrong = &w.Dependencies[i]
		}
	}
	if len(skipped) > 0 {
		o.Condition(operatorv1alpha1.ConditionOptionalFeatures, false, operatorv1alpha1.ReasonSkipped, "%s.", strings.Join(skipped, ". "))
	} else {
		o.Condition(operatorv1alpha1.ConditionOptionalFeatures, true, operatorv1alpha1.ReasonAllApplied, "")
	}
	if wrong == nil {
		o.Condition(operatorv1alpha1.ConditionDependenciesAvailable, true, operatorv1alpha1.ReasonAvailable, "")
		return true
	}
	const kind = operatorv1alpha1.ConditionDependenciesAvailable
	left := d.DependencyTimeout - o.wrongFor(kind)
	waiting := left > 0 && !wrong.AtOnce && w.Eventing.Status.ActiveBackend.Canonical() != target
	if wrong.Presence == dependency.Conflict {
		waiting = false
	}
	if waiting || wrong.Presence == dependency.Soon {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.look(left)
	} else if active := w.Eventing.Status.ActiveBackend.Canonical(); active != "" && active != target {
		o.AtLeast(operatorv1alpha1.StateWarning) // the other backend goes on
	} else {
		o.AtLeast(operatorv1alpha1.StateError)
	}
	switch {
	case wrong.Presence == dependency.Conflict:
		o.Condition(kind, false, operatorv1alpha1.ReasonCRDConflict, "%s", wrong.Message())
	case wrong.Presence == dependency.WrongVersion:
		o.Condition(kind, false, operatorv1alpha1.ReasonWrongVersion, "%s", wrong.Message())
	case waiting || wrong.Presence == dependency.Soon:
		o.Condition(kind, false, operatorv1alpha1.ReasonWaiting, "%s", wrong.Message())
	default:
		o.Condition(kind, false, operatorv1alpha1.ReasonMissing, "%s", wrong.Message())
	}
	return false
}

// report sets the condition of a backend that takes events.
func (d *Rules) report(w *World, o *Decision) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	d.size(w, o)
	reason, message := room(d, w, o)
	if w.NATS.StaleCertificate {
		o.do(Reload{})
		o.look(askAgain)
	}
	if at, err := d.renewal(w); err == nil {
		o.look(at.Sub(w.Now))
	}
	o.Condition(condition, reason == operatorv1alpha1.ReasonNATSAvailable, reason, "%s", message)
}

// degraded says which pods are not ready. That is no problem of events at first, and has a
// condition of its own: it would be missed in the message of one that is true. Somebody has to act
// when it lasts.
func (o *Decision) degraded(namespace string, names backend.Names) {
	const condition = operatorv1alpha1.ConditionPodsReady
	w := o.world
	var messages []string
	add := func(of, what, component string, ready, wanted int32, refused string) {
		if ready < wanted {
			messages = append(messages, strings.TrimSpace(fmt.Sprintf("%s: %d of %d %s are ready. %s", of, ready, wanted, what, cmp.Or(refused, podProblem(w.podsOf(component))))))
		}
	}
	if sts := convert[appsv1.StatefulSet](w.Object("StatefulSet", names.NATS())); sts != nil && sts.Spec.Replicas != nil {
		add("NATS", "servers", natsComponent, sts.Status.ReadyReplicas, *sts.Spec.Replicas, "")
	}
	for _, p := range []struct{ of, name, component string }{{"Controller", names.Controller(), controllerName}, {"Publisher", names.Publisher(), publisherComponent}} {
		if dep := convert[appsv1.Deployment](w.Object("Deployment", p.name)); dep != nil {
			r := rolloutOf(dep)
			add(p.of, "pods", p.component, r.available, r.wanted, r.refused)
		}
	}
	if len(messages) == 0 {
		o.Condition(condition, true, operatorv1alpha1.ReasonAllReady, "")
		return
	}
	if left := downLimit - o.wrongFor(condition); left > 0 {
		o.look(left)
	} else if o.State == "" || o.State == operatorv1alpha1.StateReady {
		o.AtLeast(operatorv1alpha1.StateWarning)
		messages = append(messages, fmt.Sprintf("See why: kubectl -n %s get pods --selector=%s=%s", namespace, backend.PodInstanceLabel, names))
	}
	o.Condition(condition, false, operatorv1alpha1.ReasonDegraded, "%s", strings.Join(messages, " "))
}

// unfit are claims that cannot be used: those of another number of servers, whose stream would not
// fit, and those that are too small.
func unfit(w *World) (names []string) {
	config := w.Eventing.Spec.Backend.Config
	want := fmt.Sprint(config.NATSStreamReplicas)
	for _, c := range w.Claims {
		has, size := c.Annotations[backend.ServersAnnotation], c.Spec.Resources.Requests[corev1.ResourceStorage]
		if has != "" && has != want || !size.IsZero() && size.Cmp(config.NATSStorage.Size) < 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

func contractData(u *unstructured.Unstructured) map[string]string {
	if u == nil {
		return nil
	}
	content, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return content
}

// Available tells whether events can be published.
func (w *World) Available() bool {
	return w.NATS.Connected && w.NATS.Stream != nil && stream.Open(w.NATS.Stream.Config)
}

// convert is an object as its type; nil if there is none.
func convert[T any](u *unstructured.Unstructured) *T {
	if u == nil {
		return nil
	}
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
		return nil
	}
	return typed
}

func claim(c *corev1.PersistentVolumeClaim) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim"}}
	u.SetNamespace(c.Namespace)
	u.SetName(c.Name)
	u.SetUID(c.UID)
	u.SetResourceVersion(c.ResourceVersion)
	return u
}

func annotations(values map[string]any) map[string]any {
	return map[string]any{"metadata": map[string]any{"annotations": values}}
}

func natsStatus(w *World) *operatorv1alpha1.NATSStatus {
	info := w.NATS.Stream
	storage := operatorv1alpha1.StorageFile
	if info.Config.Storage == jetstream.MemoryStorage {
		storage = operatorv1alpha1.StorageMemory
	}
	status := &operatorv1alpha1.NATSStatus{Messages: int64(info.State.Msgs), Bytes: int64(info.State.Bytes), Storage: storage} //nolint:gosec // neither reaches 2^63
	for _, u := range w.Ours {
		if sts := convert[appsv1.StatefulSet](u); u.GetKind() == "StatefulSet" && sts != nil {
			status.Servers = sts.Status.ReadyReplicas
		}
	}
	return status
}

func Full(bytes uint64, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(float64(bytes) / float64(limit) * 100)
}

// backlog is a Subscription and how many events wait for it.
type backlog struct {
	subscription string
	waiting      uint64
}

// mostWaiting are the Subscriptions for which events wait, those with the most first.
func mostWaiting(w *World) (all []backlog) {
	for _, c := range w.NATS.Consumers {
		if waiting := c.NumPending + uint64(max(c.NumAckPending, 0)); waiting > 0 {
			all = append(all, backlog{c.Config.Metadata[stream.SubscriptionKey], waiting})
		}
	}
	slices.SortFunc(all, func(a, b backlog) int { return int(int64(b.waiting) - int64(a.waiting)) }) //nolint:gosec // neither reaches 2^63
	return all
}

// backlogs names the three Subscriptions with the most events that wait.
func backlogs(w *World) string {
	all := mostWaiting(w)
	var texts []string
	for _, b := range all[:min(3, len(all))] {
		texts = append(texts, fmt.Sprintf("%s (%d)", b.subscription, b.waiting))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Most events wait for " + strings.Join(texts, ", ") + "."
}
