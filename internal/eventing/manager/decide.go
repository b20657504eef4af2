package manager

import (
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
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

const (
	// drainedAnnotation is on a volume claim: the epoch of which no event is left in it.
	drainedAnnotation = "eventing.kyma-project.io/drained-at"
	// downLimit is how long NATS may be away before that is an error.
	downLimit = time.Minute
	// askAgain is when NATS is asked again for what no watch tells: which certificate it has, what is in its streams.
	askAgain = 10 * time.Second
	// fullPercent is how full the stream may be before that is a warning.
	fullPercent = 80
)

// decider decides. It has no client.
type decider struct {
	chart     *chart.Chart
	names     backend.Names
	namespace string
	version   string
	natsImage string
	// natsURL is where clients inside of the cluster connect.
	natsURL                           string
	dependencyTimeout, backendTimeout time.Duration
	// drainDelay is how long after its close a stream may still store what was published before; drainWatch is how long it has to be
	// empty after that.
	drainDelay, drainWatch time.Duration
}

// Decision is what follows from a World.
type Decision struct {
	Actions []action
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

	world *World
}

// order is that of states, the one that wins first.
var order = []operatorv1alpha1.State{
	operatorv1alpha1.StateDeleting, operatorv1alpha1.StateWarning, operatorv1alpha1.StateError, operatorv1alpha1.StateProcessing, operatorv1alpha1.StateReady,
}

func (o *Decision) do(actions ...action) { o.Actions = append(o.Actions, actions...) }

// state makes the state at least as grave as s.
func (o *Decision) state(s operatorv1alpha1.State) {
	if o.State == "" || slices.Index(order, s) < slices.Index(order, o.State) {
		o.State = s
	}
}

// look asks for another look after a time, if none is asked for earlier.
func (o *Decision) look(after time.Duration) {
	if after = max(after, time.Millisecond); o.After == 0 || after < o.After {
		o.After = after
	}
}

// condition sets a condition. Its time changes only with its status.
func (o *Decision) condition(kind string, ok bool, reason, format string, args ...any) {
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

// decide is a pure function of the world.
func (d *decider) decide(w *World) *Decision {
	e := w.Eventing
	o := &Decision{world: w, Conditions: slices.Clone(e.Status.Conditions), Active: e.Status.ActiveBackend}
	if w.NATS.Stream != nil {
		o.NATS = natsStatus(w)
	}
	o.condition(operatorv1alpha1.ConditionServed, true, operatorv1alpha1.ReasonServed, "")
	if e.DeletionTimestamp != nil {
		d.teardown(w, o)
		return o
	}
	if !slices.Contains(e.Finalizers, operatorv1alpha1.Finalizer) {
		o.do(finalize{})
	}
	target := operatorv1alpha1.BackendType("")
	if e.Spec.Backend != nil {
		target = e.Spec.Backend.Type.Canonical()
	}
	dependencies := d.dependencies(w, o, target)
	switch {
	case target == "":
		o.state(operatorv1alpha1.StateWarning)
		o.condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNoBackend, "No backend is set. Set spec.backend.type to NATS.")
	case target == operatorv1alpha1.EventMesh:
		// What carries events stays: nothing else would take them.
		o.state(operatorv1alpha1.StateWarning)
		why := "This version of the operator has no backend EventMesh."
		if e.Spec.Backend.Config.EventMeshSecret != "" {
			why = "SAP Event Mesh is not supported."
		}
		o.condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNotSupported, "%s What is installed is left as it is. Set spec.backend.type to NATS.", why)
	case !dependencies && w.object("StatefulSet", d.names.NATS()) == nil:
		// Nothing is installed, and nothing is begun.
	default:
		d.nats(w, o, dependencies)
	}
	o.state(operatorv1alpha1.StateReady)
	return o
}

// dependencies sets the conditions about APIs of others, and tells whether all that are required are there.
func (d *decider) dependencies(w *World, o *Decision, target operatorv1alpha1.BackendType) bool {
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
		o.condition(operatorv1alpha1.ConditionOptionalFeatures, false, operatorv1alpha1.ReasonSkipped, "%s.", strings.Join(skipped, ". "))
	} else {
		o.condition(operatorv1alpha1.ConditionOptionalFeatures, true, operatorv1alpha1.ReasonAllApplied, "")
	}
	if wrong == nil {
		o.condition(operatorv1alpha1.ConditionDependenciesAvailable, true, operatorv1alpha1.ReasonAvailable, "")
		return true
	}
	const kind = operatorv1alpha1.ConditionDependenciesAvailable
	left := d.dependencyTimeout - o.wrongFor(kind)
	waiting := left > 0 && !wrong.AtOnce && w.Eventing.Status.ActiveBackend.Canonical() != target
	if wrong.Presence == dependency.Conflict {
		waiting = false
	}
	if waiting || wrong.Presence == dependency.Soon {
		o.state(operatorv1alpha1.StateProcessing)
		o.look(left)
	} else {
		o.state(operatorv1alpha1.StateError)
	}
	switch {
	case wrong.Presence == dependency.Conflict:
		o.condition(kind, false, operatorv1alpha1.ReasonCRDConflict, "%s", wrong.Message())
	case wrong.Presence == dependency.WrongVersion:
		o.condition(kind, false, operatorv1alpha1.ReasonWrongVersion, "%s", wrong.Message())
	case waiting || wrong.Presence == dependency.Soon:
		o.condition(kind, false, operatorv1alpha1.ReasonWaiting, "%s", wrong.Message())
	default:
		o.condition(kind, false, operatorv1alpha1.ReasonMissing, "%s", wrong.Message())
	}
	return false
}

// nats makes NATS take events: objects first, then the stream, closed, and at last the stream open. ready says that nothing of others
// is missing; without that, what is there is repaired, and nothing is opened.
func (d *decider) nats(w *World, o *Decision, ready bool) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	if len(w.Foreign) > 0 {
		o.state(operatorv1alpha1.StateWarning)
		o.condition(condition, false, operatorv1alpha1.ReasonForeignObject,
			"%s was not created by this operator. Delete it, or start the operator with another --resource-prefix.", strings.Join(w.Foreign, ", "))
		o.look(downLimit / 2) // objects of others are not watched
		return
	}
	if other := unfit(w); len(other) > 0 {
		o.state(operatorv1alpha1.StateWarning)
		o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable,
			"Volumes are left of another number of servers, or too small. Delete them if you need no event in them: kubectl -n %s delete pvc %s", d.namespace, strings.Join(other, " "))
		return
	}
	contract, err := backend.ParseBackends(contractData(w.object("ConfigMap", d.names.Backends())))
	if err != nil {
		o.state(operatorv1alpha1.StateProcessing)
		fresh := backend.Backends{Epoch: w.NewEpoch, NATS: d.address()}
		o.do(d.contract(w, fresh, "begin an epoch"))
		return
	}
	o.Serving = contract.Serving
	if !d.installed(w, o, contract.Epoch) {
		o.state(operatorv1alpha1.StateProcessing)
		if problem := meta.FindStatusCondition(o.Conditions, condition); problem == nil {
			o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable, "NATS is being installed.")
		}
		return
	}
	d.opened(w, o, contract, ready)
}

// installed adds the actions that make the objects of NATS as the spec wants them. It is true if there are none.
func (d *decider) installed(w *World, o *Decision, epoch string) bool {
	before := len(o.Actions)
	if config := w.object("ConfigMap", d.names.NATSConfig()); data(config, drainedKey) != "" {
		// From now on, events may come in again.
		o.do(patch{config, map[string]any{"data": map[string]any{drainedKey: nil}}, "remove the mark that NATS is drained"})
		return false
	}
	keys, pki := d.keys(w), d.pki(w)
	for _, name := range []string{d.names.NATSUsers(), d.names.NATSCA(), d.names.NATSTLS()} {
		if name == d.names.NATSUsers() && len(keys) < len(users) || name != d.names.NATSUsers() && slices.Contains(pki, name) {
			o.do(credentials{name})
		}
	}
	if len(o.Actions) > before {
		return false
	}
	wanted, err := d.render(w, o, keys)
	if err != nil {
		o.state(operatorv1alpha1.StateError)
		o.condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonDeployFailed, "Cannot render the chart: %v", err)
		return false
	}
	want := map[Key]bool{}
	for _, u := range wanted {
		key := Key{u.GetKind(), u.GetName()}
		want[key] = true
		drift.Seal(u, epoch)
		switch is := w.Ours[key]; {
		case is == nil:
			o.do(create{u})
		case is.GetDeletionTimestamp() != nil:
			// It is on its way out. Its end is watched.
		case drift.Drifted(u, is):
			o.do(apply{u, is})
		}
	}
	o.do(d.prune(w, want)...)
	return len(o.Actions) == before
}

// prune are the deletions of objects that an older version, or other values, have left.
func (d *decider) prune(w *World, want map[Key]bool) (actions []action) {
	stay := map[Key]bool{
		{"ConfigMap", d.names.Backends()}: true, {"ConfigMap", d.names.ControllerState()}: true,
		{"Secret", d.names.NATSUsers()}: true, {"Secret", d.names.NATSCA()}: true, {"Secret", d.names.NATSTLS()}: true,
	}
	for _, key := range w.keys() {
		if u := w.Ours[key]; !want[key] && !stay[key] && u.GetDeletionTimestamp() == nil {
			actions = append(actions, remove{u})
		}
	}
	return actions
}

func (d *decider) render(w *World, o *Decision, keys map[string]string) ([]*unstructured.Unstructured, error) {
	optional := map[string]bool{}
	for _, dep := range w.Dependencies {
		if dep.Feature != "" {
			optional[dep.Kind.Kind] = dep.Presence == dependency.Served
		}
	}
	values, err := d.values(&w.Eventing.Spec, keys, secret(w.object("Secret", d.names.NATSCA()), caCertificate), optional)
	if err != nil {
		return nil, err
	}
	o.Values = values
	return d.chart.Render(chart.Release{Name: string(d.names), Namespace: d.namespace}, values)
}

// opened brings the stream into being, closed, waits for Subscriptions, and opens it.
func (d *decider) opened(w *World, o *Decision, contract backend.Backends, ready bool) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	config := w.object("ConfigMap", d.names.NATSConfig())
	sts := statefulSet(w.object("StatefulSet", d.names.NATS()))
	info := w.NATS.Stream
	switch {
	case !w.NATS.Connected, info == nil && !rolledOut(sts):
		d.unavailable(w, o, data(config, openedKey) != "")
		return
	case info == nil && (contract.Serving.Has(operatorv1alpha1.NATS) || contract.Accept.Has(operatorv1alpha1.NATS)):
		// A stream that is gone had consumers, and the new one has none. A report about the old one must not open it.
		o.do(d.contract(w, backend.Backends{Epoch: w.NewEpoch, NATS: d.address()}, "begin an epoch"))
	case info == nil:
		o.do(createStream{stream.Config(w.Eventing.Spec.Backend.Config, contract.Epoch, false)})
	case stream.Epoch(info.Config) == "":
		o.state(operatorv1alpha1.StateWarning)
		o.condition(condition, false, operatorv1alpha1.ReasonForeignObject,
			"Stream %s in NATS was not created by this operator, and is left as it is. Delete the volumes of NATS if you need no event in them.", info.Config.Name)
		return
	case stream.Differs(info.Config, streamConfig(w, contract.Epoch)):
		o.do(updateStream{info, streamConfig(w, contract.Epoch), "update"})
	case contract.Serving.String() != (backend.Set{operatorv1alpha1.NATS}).String():
		contract.Serving = backend.Set{operatorv1alpha1.NATS}
		o.do(d.contract(w, contract, "serve NATS"))
	default:
		d.open(w, o, contract, ready)
		return
	}
	o.state(operatorv1alpha1.StateProcessing)
	if !w.available() {
		o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable, "The stream of NATS is being created.")
	}
}

// open opens a stream whose consumers are there. What it intends is written before.
func (d *decider) open(w *World, o *Decision, contract backend.Backends, ready bool) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	config := w.object("ConfigMap", d.names.NATSConfig())
	accepted, open := contract.Accept.Has(operatorv1alpha1.NATS), w.available()
	// A volume says that it may hold events before it can. So does the ConfigMap, which is all there is with storage in memory.
	var marks []action
	for i := range w.Claims {
		c := &w.Claims[i]
		if c.Annotations[backend.EpochAnnotation] != contract.Epoch || c.Annotations[drainedAnnotation] != "" {
			marks = append(marks, patch{claim(c), annotations(map[string]any{backend.EpochAnnotation: contract.Epoch, drainedAnnotation: nil}), "write the epoch"})
		}
	}
	if data(config, openedKey) != contract.Epoch {
		marks = append(marks, patch{config, map[string]any{"data": map[string]any{openedKey: contract.Epoch}}, "write that the stream was opened"})
	}
	if !accepted || !open {
		o.state(operatorv1alpha1.StateProcessing)
		switch waiting := notReady(w, contract.Epoch); {
		case !ready:
			o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable, "The stream stays closed until all dependencies are available.")
		case len(waiting) > 0:
			o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable, "The stream opens when each Subscription has its consumer. Waiting for %s.", names(waiting))
		case len(marks) > 0:
			o.do(marks...)
		case !accepted:
			contract.Accept = backend.Set{operatorv1alpha1.NATS}
			o.do(d.contract(w, contract, "accept events"))
		default:
			o.do(updateStream{w.NATS.Stream, stream.Config(w.Eventing.Spec.Backend.Config, contract.Epoch, true), "open"})
		}
		return
	}
	o.do(marks...)
	o.Active = operatorv1alpha1.NATS
	d.report(w, o)
}

// report sets the condition of a backend that takes events.
func (d *decider) report(w *World, o *Decision) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	var messages []string
	if sts := statefulSet(w.object("StatefulSet", d.names.NATS())); sts.Status.ReadyReplicas < *sts.Spec.Replicas {
		messages = append(messages, fmt.Sprintf("%d of %d servers are ready. %s", sts.Status.ReadyReplicas, *sts.Spec.Replicas, podProblem(w)))
	}
	info := w.NATS.Stream
	if percent := full(info.State.Bytes, info.Config.MaxBytes); percent >= fullPercent {
		o.state(operatorv1alpha1.StateWarning)
		messages = append(messages, fmt.Sprintf("The stream is %d %% full, and refuses events when it is full. %s", percent, backlogs(w)))
	}
	if w.NATS.StaleCertificate {
		o.do(reload{})
		o.look(askAgain)
	}
	if at, err := d.renewal(w); err == nil {
		o.look(at.Sub(w.Now))
	}
	o.condition(condition, true, operatorv1alpha1.ReasonNATSAvailable, "%s", strings.TrimSpace(strings.Join(messages, " ")))
}

// unavailable says why NATS takes no event. active says that it did before.
func (d *decider) unavailable(w *World, o *Decision, active bool) {
	const condition = operatorv1alpha1.ConditionBackendAvailable
	limit := d.backendTimeout
	if active {
		limit = downLimit
	}
	if left := limit - o.wrongFor(condition); left > 0 {
		o.state(operatorv1alpha1.StateProcessing)
		o.look(left)
	} else {
		o.state(operatorv1alpha1.StateError)
	}
	problem := podProblem(w)
	if problem == "" {
		problem = w.NATS.Problem
	}
	if problem == "" {
		problem = "The servers are starting."
	}
	o.condition(condition, false, operatorv1alpha1.ReasonNATSUnavailable, "%s", problem)
}

// podProblem is what keeps a pod of NATS from being ready, in the words of Kubernetes; "" if nothing is known.
func podProblem(w *World) string {
	for _, p := range w.Pods {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				return fmt.Sprintf("Pod %s is not scheduled: %s", p.Name, c.Message)
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			if waiting := c.State.Waiting; waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				return strings.TrimSpace(fmt.Sprintf("Pod %s does not start: %s %s", p.Name, waiting.Reason, waiting.Message))
			}
		}
	}
	return ""
}

// notReady are the Subscriptions whose consumers may be missing.
func notReady(w *World, epoch string) (waiting []Subscription) {
	for _, s := range w.Subscriptions {
		if s.Valid && !s.Deleting && s.Epochs[operatorv1alpha1.NATS] != epoch {
			waiting = append(waiting, s)
		}
	}
	return waiting
}

// unfit are claims that cannot be used: those of another number of servers, whose stream would not fit, and those that are too small.
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

// streamConfig is the stream as the spec wants it, and as open as it is.
func streamConfig(w *World, epoch string) jetstream.StreamConfig {
	is := w.NATS.Stream.Config
	want := stream.Config(w.Eventing.Spec.Backend.Config, epoch, stream.Open(is))
	if at, ok := is.Metadata[stream.ClosedAtKey]; ok && !stream.Open(is) {
		want.Metadata[stream.ClosedAtKey] = at
	}
	return want
}

func (d *decider) address() *backend.NATSAddress {
	return &backend.NATSAddress{URL: d.natsURL, Stream: backend.Stream, CA: d.names.NATSCA()}
}

// contract writes the ConfigMap that controller and publisher follow.
func (d *decider) contract(w *World, b backend.Backends, why string) action {
	content := map[string]any{}
	for key, value := range b.Data() {
		content[key] = value
	}
	is := w.object("ConfigMap", d.names.Backends())
	if is != nil {
		for key := range contractData(is) {
			if _, ok := content[key]; !ok {
				content[key] = nil
			}
		}
		return patch{is, map[string]any{"data": content}, why}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": content}}
	u.SetNamespace(d.namespace)
	u.SetName(d.names.Backends())
	u.SetLabels(d.names.Labels(backend.PlaneShared, "backends", d.version, w.Eventing.Spec.Labels))
	u.SetAnnotations(w.Eventing.Spec.Annotations)
	return create{u}
}

func contractData(u *unstructured.Unstructured) map[string]string {
	if u == nil {
		return nil
	}
	content, _, _ := unstructured.NestedStringMap(u.Object, "data")
	return content
}

// available tells whether events can be published.
func (w *World) available() bool {
	return w.NATS.Connected && w.NATS.Stream != nil && stream.Open(w.NATS.Stream.Config)
}

func statefulSet(u *unstructured.Unstructured) *appsv1.StatefulSet {
	if u == nil {
		return nil
	}
	sts := &appsv1.StatefulSet{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, sts); err != nil {
		return nil
	}
	return sts
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
		if sts := statefulSet(u); u.GetKind() == "StatefulSet" && sts != nil {
			status.Servers = sts.Status.ReadyReplicas
		}
	}
	return status
}

func full(bytes uint64, limit int64) int {
	if limit <= 0 {
		return 0
	}
	return int(float64(bytes) / float64(limit) * 100)
}

// backlogs names the three Subscriptions with the most events that wait.
func backlogs(w *World) string {
	type backlog struct {
		subscription string
		waiting      uint64
	}
	var all []backlog
	for _, c := range w.NATS.Consumers {
		if waiting := c.NumPending + uint64(max(c.NumAckPending, 0)); waiting > 0 {
			all = append(all, backlog{c.Config.Metadata[stream.SubscriptionKey], waiting})
		}
	}
	slices.SortFunc(all, func(a, b backlog) int { return int(int64(b.waiting) - int64(a.waiting)) }) //nolint:gosec // neither reaches 2^63
	var texts []string
	for _, b := range all[:min(3, len(all))] {
		texts = append(texts, fmt.Sprintf("%s (%d)", b.subscription, b.waiting))
	}
	if len(texts) == 0 {
		return ""
	}
	return "Most events wait for " + strings.Join(texts, ", ") + "."
}
