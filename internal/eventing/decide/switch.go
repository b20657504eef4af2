package decide

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
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
	// awaitController and awaitSubscriptions are how long a switch waits before it says that it is
	// blocked.
	awaitController, awaitSubscriptions = 2 * time.Minute, 5 * time.Minute
	// drainLimit is how long the backend that is left may hold events before that is a warning.
	drainLimit = 30 * time.Minute
	// lingering is how long a pod may need to end beyond the time that it was given.
	lingering = 30 * time.Second
)

// turn is one look at both backends: the one that is wanted, and the other one, which may still be
// there. Nothing of a switch is stored: the first rule that does not hold is the step.
type turn struct {
	*Rules
	w             *World
	o             *Decision
	target, other operatorv1alpha1.BackendType
	// ready: nothing of others is missing.
	ready bool
	// contract is what publisher and controller follow.
	contract backend.Backends
}

// run makes the wanted backend take events, moves the publisher to it, and removes the other one
// when it holds nothing more.
func (t *turn) run() {
	w, o := t.w, t.o
	if !t.exists(w, t.other) {
		o.Condition(operatorv1alpha1.ConditionSwitching, false, operatorv1alpha1.ReasonIdle, "")
	}
	if len(w.Foreign) > 0 {
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonForeignObject,
			"%s was not created by this operator. Delete it, or start the operator with another --resource-prefix.", strings.Join(w.Foreign, ", "))
		o.unapplied = true
		o.look(downLimit / 2) // objects of others are not watched
		return
	}
	if other := unfit(w); t.target == operatorv1alpha1.NATS && len(other) > 0 {
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonNATSUnavailable,
			"Volumes are left of another number of servers, or too small. Delete them if you need no event in them: kubectl -n %s delete pvc %s", t.Namespace, strings.Join(other, " "))
		o.unapplied = true
		return
	}
	var err error
	if t.contract, err = backend.ParseBackends(contractData(w.Object("ConfigMap", t.Names.Backends()))); err != nil {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.do(t.Rules.contract(w, t.fresh(), "begin an epoch"))
		return
	}
	o.Serving = t.contract.Serving
	if !t.installed() {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		if problem := meta.FindStatusCondition(o.Conditions, operatorv1alpha1.ConditionBackendAvailable); problem == nil {
			t.unavailable("The backend is being installed.")
		}
		if !t.contract.Accept.Has(t.target) { // later this is a repair, and the step is the one of the look before
			t.step(operatorv1alpha1.ReasonProvisioning, "The backend %s is being installed.", t.target)
		}
		return
	}
	prepared := t.prepareNATS
	if t.target == operatorv1alpha1.EventMesh {
		prepared = t.prepareMesh
	}
	if !prepared() {
		t.step(operatorv1alpha1.ReasonProvisioning, "The backend %s is not available yet.", t.target)
		return
	}
	if t.serve() && t.open() && t.moved() {
		t.leave()
	}
}

// fresh is the contract when there is none, or when the stream or the Broker is another one: what
// is there of the other backend goes on.
func (t *turn) fresh() backend.Backends {
	b := backend.Backends{Epoch: t.w.NewEpoch}
	b.NATS, b.Mesh = t.addresses()
	if !t.finished(t.w, t.other) {
		b.Serving = backend.Set{t.other}
		if t.published(t.w, t.other) != "" {
			b.Accept = backend.Set{t.other}
		}
	}
	return b
}

// addresses are where the backends are that are wanted, or that still hold events. A program that
// is given no address does not connect.
func (t *turn) addresses() (nats *backend.NATSAddress, mesh *backend.MeshAddress) {
	if t.target == operatorv1alpha1.NATS || !t.finished(t.w, operatorv1alpha1.NATS) {
		nats = &backend.NATSAddress{URL: t.NATSURL, Stream: backend.Stream, CA: t.Names.NATSCA()}
	}
	broker := t.w.Object("Broker", t.Names.Broker())
	if url, _ := brokerURL(broker); url != "" {
		mesh = &backend.MeshAddress{Broker: t.Names.Broker(), URL: url}
	} else if broker != nil {
		mesh = t.contract.Mesh // it is not ready now
	}
	return nats, mesh
}

// exists tells whether there is any object of a backend but volume claims.
func (d *Rules) exists(w *World, b operatorv1alpha1.BackendType) bool {
	plane := string(backend.PlaneOf(b))
	if b == operatorv1alpha1.EventMesh && len(w.Triggers) > 0 {
		return true
	}
	return slices.ContainsFunc(w.keys(), func(k Key) bool { return w.Ours[k].GetLabels()[backend.PlaneLabel] == plane && !d.Lasting(k) })
}

// Lasting tells whether an object of NATS stays while the backend is EventMesh. These are the
// Secrets that the controller's pods have as volumes. A kubelet needs up to 90 s until it has
// written a new Secret into a running pod, and a switch to NATS would wait for that. An older
// version has given them the label of NATS.
func (d *Rules) Lasting(k Key) bool {
	return k == Key{"Secret", d.Names.NATSUsers()} || k == Key{"Secret", d.Names.NATSCA()}
}

// finished tells whether a backend holds no event, and takes none any more.
func (d *Rules) finished(w *World, b operatorv1alpha1.BackendType) bool {
	if b == operatorv1alpha1.EventMesh {
		// It is deleted when the last pod that publishes to it is gone. One that was never opened
		// has nothing in it.
		broker := w.Object("Broker", d.Names.Broker())
		return broker == nil || broker.GetAnnotations()[openedAnnotation] == ""
	}
	// One that was never opened has nothing in it, either: a part of it may be all there is, and
	// nothing of it may answer.
	return !d.exists(w, b) || d.drained(w)
}

// installed adds the actions that make all objects as they are wanted. It is true if there are
// none.
func (t *turn) installed() bool {
	w, o := t.w, t.o
	before := len(o.Actions)
	if o.do(t.relabel(w)...); len(o.Actions) > before {
		return false
	}
	if config := w.Object("ConfigMap", t.Names.NATSConfig()); t.target == operatorv1alpha1.NATS && data(config, drainedKey) != "" {
		// From now on, events may come in again.
		o.do(Patch{config, map[string]any{"data": map[string]any{drainedKey: nil}}, "remove the mark that NATS is drained"})
		return false
	}
	if broker := w.Object("Broker", t.Names.Broker()); t.target == operatorv1alpha1.EventMesh {
		if broker == nil && t.contract.Serving.Has(t.target) {
			// A new Broker has no Triggers that are ready, whatever was said about the former one.
			o.do(t.Rules.contract(w, t.fresh(), "begin an epoch"))
			return false
		}
		if broker != nil && broker.GetAnnotations()[leftAnnotation] != "" {
			o.do(Patch{broker, annotations(map[string]any{leftAnnotation: nil}), "remove the mark that nobody publishes"})
			return false
		}
	}
	keys := t.Keys(w)
	if len(keys) < len(Users) {
		o.do(Credentials{t.Names.NATSUsers()})
	}
	for _, name := range t.pki(w) {
		if t.Lasting(Key{"Secret", name}) || t.target == operatorv1alpha1.NATS || w.Has("StatefulSet") {
			o.do(Credentials{name})
		}
	}
	if len(o.Actions) > before {
		return false
	}
	wanted, err := t.render(keys)
	if err != nil {
		// What is installed is not what fails: it goes on.
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionSpecApplied, false, operatorv1alpha1.ReasonSpecInvalid, "Cannot render the chart: %v", err)
		o.unapplied = true
		return false
	}
	want := map[Key]bool{}
	for _, u := range wanted {
		key := Key{u.GetKind(), u.GetName()}
		want[key] = true
		is := w.Ours[key]
		epoch := t.contract.Epoch
		if left := t.left(u); left {
			// What it was left with says whether it was drained, so it keeps its epoch. What is
			// gone of it stays so.
			if is == nil {
				continue
			}
			epoch = is.GetAnnotations()[backend.EpochAnnotation]
		}
		drift.Seal(u, epoch)
		switch {
		case is == nil:
			o.do(Create{u})
		case is.GetDeletionTimestamp() != nil:
			// It is on its way out. Its end is watched.
		case len(unchangeable(u, is, w.Now)) > 0:
			// It is created again when it is gone, and takes the pods over. Its template is the
			// same or not, which says whether they restart.
			o.do(Orphan{is, strings.Join(unchangeable(u, is, w.Now), ", ")})
		case drift.Drifted(u, is):
			o.do(Apply{u, is})
		}
	}
	o.do(t.prune(want)...)
	return len(o.Actions) == before
}

// relabel moves the prefix to the label that no tool for deployments claims: on what an earlier
// version has created, and on volume claims, which a StatefulSet creates with the labels by which
// it selects pods.
func (d *Identities) relabel(w *World) (actions []Action) {
	const why = "remove the label that tools for deployments claim"
	labels := map[string]any{"metadata": map[string]any{"labels": map[string]any{backend.PodInstanceLabel: nil, backend.InstanceLabel: string(d.Names)}}}
	for _, key := range w.keys() {
		if u := w.Ours[key]; d.Names.Former(u.GetLabels()) && u.GetDeletionTimestamp() == nil {
			actions = append(actions, Patch{u, runtime.DeepCopyJSON(labels), why})
		}
	}
	for i := range w.Claims {
		if c := &w.Claims[i]; d.Names.Former(c.Labels) && c.DeletionTimestamp == nil {
			actions = append(actions, Patch{claim(c), runtime.DeepCopyJSON(labels), why})
		}
	}
	return actions
}

// left tells whether an object is one of the backend that is left.
func (t *turn) left(u *unstructured.Unstructured) bool {
	return u.GetLabels()[backend.PlaneLabel] == string(backend.PlaneOf(t.other))
}

// prune are the deletions of objects that an older version, or other values, have left. The other
// backend has rules of its own.
func (t *turn) prune(want map[Key]bool) (actions []Action) {
	stay := map[Key]bool{
		{"ConfigMap", t.Names.Backends()}: true, {"ConfigMap", t.Names.ControllerState()}: true,
		{"Secret", t.Names.NATSUsers()}: true, {"Secret", t.Names.NATSCA()}: true, {"Secret", t.Names.NATSTLS()}: true,
	}
	for _, key := range t.w.keys() {
		if u := t.w.Ours[key]; !want[key] && !stay[key] && u.GetDeletionTimestamp() == nil && !t.left(u) {
			actions = append(actions, Remove{u})
		}
	}
	return actions
}

// render renders everything: the backend that is wanted from the spec, and the other one, while it
// is there, from the values that it was last rendered with.
func (t *turn) render(keys map[string]string) ([]*unstructured.Unstructured, error) {
	optional := map[string]bool{}
	for _, dep := range t.w.Dependencies {
		if dep.Feature != "" {
			optional[dep.Kind.Kind] = dep.Presence == dependency.Served
		}
	}
	values, err := t.values(&t.w.Eventing.Spec, keys, Secret(t.w.Object("Secret", t.Names.NATSCA()), CACertificate), optional, t.publishes())
	if err != nil {
		return nil, err
	}
	record := map[string]Key{"nats": {"ConfigMap", t.Names.NATSConfig()}, "mesh": {"Broker", t.Names.Broker()}}
	plane := map[operatorv1alpha1.BackendType]string{operatorv1alpha1.NATS: "nats", operatorv1alpha1.EventMesh: "mesh"}
	if values[plane[t.other]], err = recorded(t.w.Ours[record[plane[t.other]]]); err != nil {
		return nil, err
	}
	t.o.Values = values
	objects, err := t.Chart.Render(chart.Release{Name: string(t.Names), Namespace: t.Namespace}, values)
	for _, u := range objects {
		for name, key := range record {
			if (Key{u.GetKind(), u.GetName()}) == key {
				if err := keep(u, values[name]); err != nil {
					return nil, err
				}
			}
		}
	}
	return objects, err
}

// publishes is the backend that the publisher is rendered for; "" if it is not rendered. It is
// created when the backend takes events and each Subscription is ready there. It moves to another
// backend under the same conditions, and stays otherwise: its pods refuse what cannot be stored.
func (t *turn) publishes() operatorv1alpha1.BackendType {
	w := t.w
	is := sendsTo(w.Object("Deployment", t.Names.Publisher()))
	accepted := t.contract.Accept.Has(t.target)
	switch {
	case is == t.target:
		return is
	case accepted && t.taking() && w.followed(t.Names) && len(t.waiting()) == 0:
		return t.target
	case is != "":
		return is
	case t.target == operatorv1alpha1.NATS && accepted && !w.NATS.Connected && data(w.Object("ConfigMap", t.Names.NATSConfig()), openedKey) == t.contract.Epoch:
		return t.target // somebody deleted it while NATS is away
	}
	return ""
}

// taking tells whether the wanted backend takes events.
func (t *turn) taking() bool {
	if t.target == operatorv1alpha1.EventMesh {
		url, _ := brokerURL(t.w.Object("Broker", t.Names.Broker()))
		return url != ""
	}
	return t.w.Available()
}

// waiting are the Subscriptions that are not ready on the wanted backend in this epoch. Whether
// they are on the other one does not matter.
func (t *turn) waiting() (all []Subscription) {
	for _, s := range t.w.Subscriptions {
		if s.Valid && !s.Deleting && !s.Skipped && s.Epochs[t.target] != t.contract.Epoch {
			all = append(all, s)
		}
	}
	return all
}

// prepareNATS makes the stream as it is wanted: closed if it is new.
func (t *turn) prepareNATS() bool {
	w, o := t.w, t.o
	info := w.NATS.Stream
	const serves = operatorv1alpha1.NATS
	switch {
	case !w.NATS.Connected, info == nil && !rolledOut(convert[appsv1.StatefulSet](w.Object("StatefulSet", t.Names.NATS()))):
		t.down(data(w.Object("ConfigMap", t.Names.NATSConfig()), openedKey) != "")
		return false
	case info == nil && (t.contract.Serving.Has(serves) || t.contract.Accept.Has(serves)):
		// A stream that is gone had consumers, and the new one has none. A report about the old one
		// must not open it.
		o.do(t.Rules.contract(w, t.fresh(), "begin an epoch"))
	case info == nil:
		o.do(CreateStream{wantedStream(w, t.contract.Epoch, false)})
	case stream.Epoch(info.Config) == "":
		o.AtLeast(operatorv1alpha1.StateWarning)
		o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, operatorv1alpha1.ReasonForeignObject,
			"Stream %s in NATS was not created by this operator, and is left as it is. Delete the volumes of NATS if you need no event in them.", info.Config.Name)
		return false
	case stream.Differs(info.Config, streamConfig(w, t.contract.Epoch)):
		o.do(UpdateStream{info, streamConfig(w, t.contract.Epoch), "update"})
	default:
		return true
	}
	o.AtLeast(operatorv1alpha1.StateProcessing)
	if !w.Available() {
		t.unavailable("The stream of NATS is being created.")
	}
	return false
}

// serve makes the controller follow the wanted backend, and the other one until that is finished.
func (t *turn) serve() bool {
	serving := backend.Set{t.target}
	if !t.finished(t.w, t.other) {
		serving = append(serving, t.other)
	}
	next, why := t.contract, ""
	if next.NATS, next.Mesh = t.addresses(); !maps.Equal(next.Data(), t.contract.Data()) {
		why = "write the address of " + string(t.target)
	}
	// What was not served, or is not any more, is not accepted: a Broker that somebody deleted
	// comes back without Triggers.
	next.Accept = slices.DeleteFunc(slices.Clone(next.Accept), func(b operatorv1alpha1.BackendType) bool { return !t.contract.Serving.Has(b) || !serving.Has(b) })
	if next.Accept.String() != t.contract.Accept.String() {
		why = "accept no more events for what is not served"
	}
	if next.Serving.String() != serving.String() {
		if len(next.Serving) > 0 { // what was said about another set does not hold for this one
			next.Epoch = t.w.NewEpoch
		}
		next.Serving, why = serving, "serve "+serving.String()
	}
	if why == "" {
		return true
	}
	t.o.do(t.Rules.contract(t.w, next, why))
	t.o.AtLeast(operatorv1alpha1.StateProcessing)
	reason := operatorv1alpha1.ReasonProvisioning
	if len(serving) == 1 {
		reason = operatorv1alpha1.ReasonRemoving // the other backend holds nothing more
	}
	t.step(reason, "The controller is asked to serve %s.", serving)
	if !next.Accept.Has(t.target) {
		t.unavailable("The controller is asked to serve it.")
	}
	return false
}

// open lets the wanted backend take events, when each Subscription is ready there. What it intends
// is written before.
func (t *turn) open() bool {
	w, o := t.w, t.o
	marks := t.marks()
	accepted := t.contract.Accept.Has(t.target)
	if accepted && t.taking() {
		o.do(marks...)
		if t.target == operatorv1alpha1.NATS {
			t.report(w, o)
		} else {
			o.Condition(operatorv1alpha1.ConditionBackendAvailable, true, operatorv1alpha1.ReasonMeshAvailable, "")
			meta.RemoveStatusCondition(&o.Conditions, operatorv1alpha1.ConditionStreamSize)
		}
		return len(marks) == 0
	}
	o.AtLeast(operatorv1alpha1.StateProcessing)
	blocked := func(after time.Duration, format string, args ...any) {
		t.unavailable(format, args...)
		t.await(operatorv1alpha1.ReasonAwaiting, after, format, args...)
	}
	switch waiting := t.waiting(); {
	case !t.ready:
		t.unavailable("%s takes no events until all dependencies are available.", t.target)
		t.step(operatorv1alpha1.ReasonProvisioning, "A dependency is missing.")
	case !w.followed(t.Names):
		blocked(awaitController, "%s takes events when the controller has read ConfigMap %s.", t.target, t.Names.Backends())
	case len(waiting) > 0:
		blocked(awaitSubscriptions, "%s takes events when each Subscription is ready there. Waiting for %s.", t.target, names(waiting))
	case len(marks) > 0:
		o.do(marks...)
	case !accepted:
		next := t.contract
		next.Accept = backend.Set{t.target}
		if t.contract.Accept.Has(t.other) {
			next.Accept = append(next.Accept, t.other)
		}
		if refused := w.refused(); t.target == operatorv1alpha1.EventMesh && len(refused) > 0 {
			o.do(Tell{"Warning", "SinksRefuse", "The sinks of these Subscriptions do not take events now: " + names(refused) + ". On EventMesh clients cannot publish events of their types until they do."})
		}
		o.do(t.Rules.contract(w, next, "accept events"))
	case t.target == operatorv1alpha1.NATS:
		o.do(UpdateStream{w.NATS.Stream, wantedStream(w, t.contract.Epoch, true), "open"})
	}
	return false
}

// marks say that a backend may hold events, before it can. For NATS, the volumes do, and the
// ConfigMap, which is all there is with storage in memory.
func (t *turn) marks() (marks []Action) {
	if t.target == operatorv1alpha1.EventMesh {
		if broker := t.w.Object("Broker", t.Names.Broker()); broker.GetAnnotations()[openedAnnotation] == "" {
			marks = append(marks, Patch{broker, annotations(map[string]any{openedAnnotation: t.contract.Epoch}), "write that events are published"})
		}
		return marks
	}
	for i := range t.w.Claims {
		c := &t.w.Claims[i]
		if c.Annotations[backend.EpochAnnotation] != t.contract.Epoch || c.Annotations[drainedAnnotation] != "" {
			marks = append(marks, Patch{claim(c), annotations(map[string]any{backend.EpochAnnotation: t.contract.Epoch, drainedAnnotation: nil}), "write the epoch"})
		}
	}
	if config := t.w.Object("ConfigMap", t.Names.NATSConfig()); data(config, openedKey) != t.contract.Epoch {
		marks = append(marks, Patch{config, map[string]any{"data": map[string]any{openedKey: t.contract.Epoch}}, "write that the stream was opened"})
	}
	return marks
}

// moved is true when each pod of the publisher sends to the wanted backend. After that, no other
// backend is accepted.
func (t *turn) moved() bool {
	publisher := convert[appsv1.Deployment](t.w.Object("Deployment", t.Names.Publisher()))
	if publisher == nil {
		return false // it is rendered now
	}
	elsewhere := t.w.sendElsewhere(t.target)
	if t.other == operatorv1alpha1.NATS {
		// NATS itself refuses what a pod sends that hangs on a dead node.
		elsewhere = slices.DeleteFunc(elsewhere, t.w.lingers)
	}
	r := rolloutOf(publisher)
	if sendsTo(t.w.Object("Deployment", t.Names.Publisher())) != t.target || !r.updated || r.available < r.wanted && t.exists(t.w, t.other) || len(elsewhere) > 0 {
		message := fmt.Sprintf("%d of %d pods of the publisher are available.", r.available, r.wanted)
		if len(elsewhere) > 0 {
			message = "These pods still send to " + string(t.other) + ": " + strings.Join(elsewhere, ", ") + "."
		}
		if t.exists(t.w, t.other) {
			t.step(operatorv1alpha1.ReasonRollingOut, "%s", message)
			return false
		}
	}
	if t.contract.Accept.String() != (backend.Set{t.target}).String() {
		next := t.contract
		next.Accept = backend.Set{t.target}
		t.o.do(t.Rules.contract(t.w, next, "accept events for "+string(t.target)+" alone"))
		return false
	}
	return true
}

// lingers tells whether a pod has not ended in the time that it was given.
func (w *World) lingers(name string) bool {
	for _, p := range w.Pods {
		if p.Name == name && p.DeletionTimestamp != nil { // the time at which it is to be gone
			return w.Now.Sub(p.DeletionTimestamp.Time) > lingering
		}
	}
	return false
}

// leave closes the other backend, waits until it holds nothing, and removes it.
func (t *turn) leave() {
	switch {
	case !t.exists(t.w, t.other):
	case t.finished(t.w, t.other) && !t.w.followed(t.Names):
		t.await(operatorv1alpha1.ReasonRemoving, awaitController, "The controller has not read ConfigMap %s yet.", t.Names.Backends())
	case t.finished(t.w, t.other) && t.other == operatorv1alpha1.EventMesh:
		t.step(operatorv1alpha1.ReasonRemoving, "The controller deletes %d Triggers.", len(t.w.Triggers))
		for _, key := range t.w.keys() {
			if u := t.w.Ours[key]; t.left(u) {
				t.o.delete(u)
			}
		}
	case t.finished(t.w, t.other):
		t.step(operatorv1alpha1.ReasonRemoving, "NATS is drained, and is being removed.")
		t.natsRemoved(t.w, t.o, t.forced())
	case t.other == operatorv1alpha1.EventMesh:
		t.leaveMesh()
	default:
		t.leaveNATS()
	}
}

// leaveNATS closes the stream, and waits until it is empty.
func (t *turn) leaveNATS() {
	w := t.w
	info := w.NATS.Stream
	if t.forced() {
		t.step(operatorv1alpha1.ReasonRemoving, "NATS is being removed by force.")
		t.natsRemoved(w, t.o, true)
		return
	}
	if w.silent() {
		t.step(operatorv1alpha1.ReasonDraining, "NATS does not answer now.%s", w.problem())
		t.o.look(silence - w.NATS.Away)
		return
	}
	blocked := func(reason, format string, args ...any) {
		if reason != operatorv1alpha1.ReasonDangling {
			reason = operatorv1alpha1.ReasonDraining
		}
		t.o.AtLeast(operatorv1alpha1.StateWarning)
		t.step(reason, format+" To remove it nevertheless: kubectl -n %s annotate --overwrite eventings.operator.kyma-project.io %s %s=%s",
			append(args, w.Eventing.Namespace, w.Eventing.Name, operatorv1alpha1.ForceTeardownAnnotation, t.forceValue())...)
	}
	if info != nil && w.NATS.Connected && !stream.Open(info.Config) && info.State.Msgs > 0 && !w.NATS.Dangling {
		if at, ok := stream.ClosedAt(info.Config); ok && w.Now.Sub(at) <= drainLimit {
			t.step(operatorv1alpha1.ReasonDraining, "NATS holds %d events. %s", info.State.Msgs, backlogs(w))
			t.o.look(askAgain)
			return
		}
	}
	if t.emptied(w, t.o, blocked) {
		reason := operatorv1alpha1.ReasonDraining
		if info != nil && stream.Open(info.Config) {
			reason = operatorv1alpha1.ReasonClosing
		}
		t.step(reason, "The stream is closed, and is watched until it stays empty.")
	}
}

// forced tells whether somebody has asked to remove the other backend with what it holds, in this
// switch.
func (t *turn) forced() bool {
	asked := t.w.Eventing.Annotations[operatorv1alpha1.ForceTeardownAnnotation]
	return asked != "" && asked == t.forceValue()
}

func (t *turn) forceValue() string {
	return string(t.other) + "/" + t.w.since(t.other, t.target).UTC().Format(time.RFC3339)
}

// since is when a switch began, by the last report.
func (w *World) since(from, to operatorv1alpha1.BackendType) metav1.Time {
	if s := w.Eventing.Status.Switch; s != nil && s.From == from && s.To == to {
		return s.Since
	}
	return metav1.NewTime(w.Now)
}

// step reports how far a switch is, if there is one: while anything of the other backend is there.
func (t *turn) step(reason, format string, args ...any) {
	if !t.exists(t.w, t.other) {
		return
	}
	message := strings.TrimSpace(fmt.Sprintf(format, args...))
	t.o.Condition(operatorv1alpha1.ConditionSwitching, true, reason, "%s", message)
	t.o.Switch = &operatorv1alpha1.Switch{From: t.other, To: t.target, Step: reason, Since: t.w.since(t.other, t.target), Message: message}
	if t.w.NATS.Stream != nil && t.other == operatorv1alpha1.NATS {
		t.o.Switch.Pending = int64(t.w.NATS.Stream.State.Msgs) //nolint:gosec // it does not reach 2^63
	}
}

// await is step, and a warning if the switch has taken longer than a limit.
func (t *turn) await(reason string, limit time.Duration, format string, args ...any) {
	if !t.exists(t.w, t.other) {
		return
	}
	if left := limit - t.w.Now.Sub(t.w.since(t.other, t.target).Time); left > 0 {
		t.o.look(left)
	} else {
		reason = operatorv1alpha1.ReasonBlocked
		t.o.AtLeast(operatorv1alpha1.StateWarning)
	}
	t.step(reason, format, args...)
}

// unavailable says that the wanted backend takes no events yet.
func (t *turn) unavailable(format string, args ...any) {
	reason := operatorv1alpha1.ReasonNATSUnavailable
	if t.target == operatorv1alpha1.EventMesh {
		reason = operatorv1alpha1.ReasonMeshUnavailable
	}
	t.o.Condition(operatorv1alpha1.ConditionBackendAvailable, false, reason, format, args...)
}

// down says why the wanted backend takes no event. active says that it did before.
func (t *turn) down(active bool) {
	w, o := t.w, t.o
	limit := t.BackendTimeout
	if active || t.target == operatorv1alpha1.EventMesh {
		limit = downLimit
	}
	worst := operatorv1alpha1.StateError
	if t.exists(w, t.other) { // events are taken and delivered as before
		worst = operatorv1alpha1.StateWarning
	}
	if left := limit - o.wrongFor(operatorv1alpha1.ConditionBackendAvailable); left > 0 {
		o.AtLeast(operatorv1alpha1.StateProcessing)
		o.look(left)
	} else {
		o.AtLeast(worst)
	}
	var problem string
	if t.target == operatorv1alpha1.EventMesh {
		_, problem = brokerURL(w.Object("Broker", t.Names.Broker()))
	} else if problem = podProblem(w.podsOf(natsComponent)); problem == "" {
		problem = w.NATS.Problem
	}
	if problem == "" {
		problem = "The servers are starting."
	}
	t.unavailable("%s", problem)
}

// contract writes the ConfigMap that controller and publisher follow.
func (d *Rules) contract(w *World, b backend.Backends, why string) Action {
	content := map[string]any{}
	for key, value := range b.Data() {
		content[key] = value
	}
	is := w.Object("ConfigMap", d.Names.Backends())
	if is != nil {
		for key := range contractData(is) {
			if _, ok := content[key]; !ok {
				content[key] = nil
			}
		}
		return Patch{is, map[string]any{"data": content}, why}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": content}}
	u.SetNamespace(d.Namespace)
	u.SetName(d.Names.Backends())
	u.SetLabels(d.Names.Labels(backend.PlaneShared, "backends", d.Version, w.Eventing.Spec.Labels))
	u.SetAnnotations(w.Eventing.Spec.Annotations)
	return Create{u}
}

// streamConfig is the stream as the spec wants it, and as open as it is.
func streamConfig(w *World, epoch string) jetstream.StreamConfig {
	is := w.NATS.Stream.Config
	want := wantedStream(w, epoch, stream.Open(is))
	if at, ok := is.Metadata[stream.ClosedAtKey]; ok && !stream.Open(is) {
		want.Metadata[stream.ClosedAtKey] = at
	}
	return want
}
