package decide

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// third is a backend that no product has. It shows that no rule of a switch, of a deletion or of
// the guard knows how many backends there are. What a real one needs in addition is in
// docs/eventing/backends.md.
const third operatorv1alpha1.BackendType = "Memory"

func init() { operatorv1alpha1.BackendTypes = append(operatorv1alpha1.BackendTypes, third) }

// The keys of its ConfigMap, in addition to observed.OpenedKey and observed.DrainedKey.
const (
	memoryState = "state" // "ready", when it answers
	memoryDoor  = "door"  // "open", when it takes events
	memoryHolds = "holds" // a number of events
)

// memory is that backend: a ConfigMap, whose data is all that it knows. As NATS, it stores what it
// takes, delivers to those who were subscribed before, and refuses all when its door is closed.
type memory struct{ plain }

// three are the backends that there are, and that one between them.
var three = []*carrier{
	carriers[0],
	{is: third, section: "memory", record: memory{}.record, unavailable: "MemoryUnavailable", refusesLate: true, answers: memory{}},
	carriers[1],
}

func (m memory) object(d *Rules, w *observed.World) *unstructured.Unstructured {
	return w.Ours[m.record(d.Names)]
}

func (m memory) planned(n backend.Names, _ operatorv1alpha1.BackendConfig) []observed.Key {
	return []observed.Key{m.record(n)}
}

func (m memory) again(t *reconciliation) Action {
	is := m.object(t.Rules, t.w)
	switch {
	case is == nil && (t.backends.Serving.Has(third) || t.backends.Accept.Has(third)):
		return t.Rules.backends(t.w, t.fresh(), "begin an epoch")
	case observed.Data(is)[observed.DrainedKey] != "":
		return m.write(is, "remove the mark that Memory is drained", observed.DrainedKey, nil)
	}
	return nil
}

func (memory) values(_ *Rules, spec *operatorv1alpha1.EventingSpec, _ map[string]string, _ []byte) (map[string]any, error) {
	return map[string]any{"size": spec.Backend.Config.NATSStreamMaxSize.String()}, nil
}

func (memory) record(n backend.Names) observed.Key {
	return observed.Key{Kind: "ConfigMap", Name: string(n) + "-memory"}
}

func (memory) write(is *unstructured.Unstructured, why, key string, value any) Action {
	return Patch{is, map[string]any{"data": map[string]any{key: value}}, why}
}

func (m memory) answers(d *Rules, w *observed.World) bool {
	is := m.object(d, w)
	return is != nil && is.GetDeletionTimestamp() == nil && observed.Data(is)[memoryState] == "ready"
}

func (m memory) prepared(t *reconciliation) bool {
	if !m.answers(t.Rules, t.w) {
		t.down(downLimit)
		return false
	}
	return true
}

func (m memory) takes(d *Rules, w *observed.World) bool {
	return m.answers(d, w) && observed.Data(m.object(d, w))[memoryDoor] == "open"
}

func (m memory) marks(t *reconciliation) []Action {
	is := m.object(t.Rules, t.w)
	if observed.Data(is)[observed.OpenedKey] == t.backends.Epoch {
		return nil
	}
	return []Action{m.write(is, "write that the door was opened", observed.OpenedKey, t.backends.Epoch)}
}

func (m memory) open(t *reconciliation) Action {
	return m.write(m.object(t.Rules, t.w), "open the door", memoryDoor, "open")
}

func (memory) report(t *reconciliation) {
	t.o.Condition(operatorv1alpha1.ConditionBackendAvailable, true, "MemoryAvailable", "")
	meta.RemoveStatusCondition(&t.o.Conditions, operatorv1alpha1.ConditionStreamSize)
}

func (memory) address(*reconciliation, *backend.Backends) {}
func (memory) problem(*Rules, *observed.World) string     { return "Memory does not answer." }

func (m memory) exists(d *Rules, w *observed.World) bool { return w.Exists(d.Names, third) }

func (m memory) finished(d *Rules, w *observed.World) bool {
	is := m.object(d, w)
	if epoch := observed.Data(is)[observed.DrainedKey]; epoch != "" {
		return epoch == is.GetAnnotations()[backend.EpochAnnotation]
	}
	return is == nil || observed.Data(is)[observed.OpenedKey] == ""
}

func (memory) pending(w *observed.World) (n int64) {
	for key, u := range w.Ours {
		if strings.HasSuffix(key.Name, "-memory") {
			n, _ = strconv.ParseInt(observed.Data(u)[memoryHolds], 10, 64)
		}
	}
	return n
}

func (m memory) leave(t *reconciliation) {
	is := m.object(t.Rules, t.w)
	if t.forced() {
		t.step(operatorv1alpha1.ReasonRemoving, "Memory is being removed by force.")
		t.o.delete(is)
		return
	}
	reason := operatorv1alpha1.ReasonDraining
	if observed.Data(is)[memoryDoor] == "open" {
		reason = operatorv1alpha1.ReasonClosing
	}
	t.step(reason, "Memory holds %d events.", m.pending(t.w))
	m.emptied(t.Rules, t.w, t.o)
}

// emptied closes the door, and marks that nothing is left when nothing is.
func (m memory) emptied(d *Rules, w *observed.World, o *Decision) {
	switch is := m.object(d, w); {
	case !m.answers(d, w):
	case observed.Data(is)[memoryDoor] == "open":
		o.do(m.write(is, "close the door", memoryDoor, "closed"))
	case m.pending(w) > 0:
	default:
		o.do(m.write(is, "write that Memory is drained", observed.DrainedKey, is.GetAnnotations()[backend.EpochAnnotation]))
	}
}

func (m memory) remove(t *reconciliation) {
	t.step(operatorv1alpha1.ReasonRemoving, "Memory is being removed.")
	m.removed(t.Rules, t.w, t.o, false)
}

func (m memory) drain(d *Rules, w *observed.World, o *Decision, hinders blocked) bool {
	switch {
	case m.finished(d, w):
		return true
	case !m.answers(d, w):
		hinders(operatorv1alpha1.ReasonStreamNotEmpty, "Memory does not answer.")
		return false
	case d.stopped(w, o, d.Names.Publisher(), observed.Publisher):
		m.emptied(d, w, o)
	}
	o.AtLeast(operatorv1alpha1.StateDeleting)
	return false
}

func (m memory) removed(d *Rules, w *observed.World, o *Decision, _ bool) bool {
	is := m.object(d, w)
	if is != nil {
		o.delete(is)
	}
	return is == nil
}

func (m memory) breaks(d *Rules, w *observed.World, a Action) string {
	key := m.record(d.Names)
	switch a := a.(type) {
	case Patch:
		values, _ := a.Merge["data"].(map[string]any)
		if a.Observed.GetName() == key.Name && values[memoryDoor] == "closed" {
			return d.published(w, third)
		}
	case Remove:
		if a.Observed.GetKind() == key.Kind && a.Observed.GetName() == key.Name && !d.permitted(w, third) && !m.finished(d, w) {
			return "Memory may hold events"
		}
	}
	return ""
}

// withMemory renders the third backend, which is in no chart.
type withMemory struct {
	Renderer
	names backend.Names
}

func (r withMemory) Render(release chart.Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	known := maps.Clone(values)
	delete(known, "memory")
	objects, err := r.Renderer.Render(release, known)
	if of, _ := values["memory"].(map[string]any); of["enabled"] == true {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		u.SetNamespace(release.Namespace)
		u.SetName(memory{}.record(r.names).Name)
		u.SetLabels(r.names.Labels(backend.PlaneOf(third), "memory", "1.2.3", nil))
		u.SetAnnotations(map[string]string{"size": fmt.Sprint(of["size"])})
		objects = append(objects, u)
	}
	return objects, err
}

// exists tells whether there is anything of a backend but volume claims.
func (d *Rules) exists(w *observed.World, b operatorv1alpha1.BackendType) bool {
	c := d.carrier(b)
	return c != nil && c.exists(d, w)
}

// finished tells whether a backend holds no event, and takes none any more.
func (d *Rules) finished(w *observed.World, b operatorv1alpha1.BackendType) bool {
	c := d.carrier(b)
	return c == nil || c.finished(d, w)
}

// members are backends between which a test switches.
type members []operatorv1alpha1.BackendType

// The sets of backends for which the properties of random worlds and schedules hold.
var (
	thePair   = members{operatorv1alpha1.NATS, operatorv1alpha1.EventMesh}
	withThird = []members{{third, operatorv1alpha1.NATS}, {operatorv1alpha1.EventMesh, third}, {third, operatorv1alpha1.NATS, operatorv1alpha1.EventMesh}}
)

func (m members) names() (all []string) {
	for _, b := range m {
		all = append(all, string(b))
	}
	return all
}

// of are all of them in one scene, which knows the third backend if that is one of them.
func (s *scene) of(m members) *scene {
	s.members = m
	if slices.Contains(m, third) {
		s.d.carriers = three
		s.d.Chart = withMemory{s.d.Chart, s.d.Names}
	}
	return s
}

// on installs the first of the backends of a scene.
func (s *scene) on(t *testing.T) *scene {
	t.Helper()
	if s.w.Eventing.Spec.Backend.Type.Canonical() != s.members[0] {
		s.want(s.members[0])
	}
	s.play()
	if s.members[0] == operatorv1alpha1.NATS {
		s.ready()
	}
	if _, last := s.play(); last.State != operatorv1alpha1.StateReady || last.Active != s.members[0] {
		t.Fatalf("%s, active %s: %+v", last.State, last.Active, last.Conditions)
	}
	return s
}

// change is a switch from one backend to another.
type change struct{ from, to operatorv1alpha1.BackendType }

// The switches between the two backends that there are, and those with the third one.
var (
	toMesh  = change{operatorv1alpha1.NATS, operatorv1alpha1.EventMesh}
	toNATS  = toMesh.back()
	changes = []change{toMesh, toNATS}
	more    = []change{{operatorv1alpha1.NATS, third}, {third, operatorv1alpha1.NATS}, {operatorv1alpha1.EventMesh, third}, {third, operatorv1alpha1.EventMesh}}
)

func (c change) back() change { return change{c.to, c.from} }

// unserved says which backend may hold events that nobody delivers; "" if none does.
func (s *scene) unserved(t *testing.T) string {
	t.Helper()
	for _, c := range s.d.known() {
		if !c.finished(s.d, s.w) && !s.backends(t).Serving.Has(c.is) {
			return string(c.is) + " is not served"
		}
	}
	return s.lost
}

// TestThreeBackends: a switch that is changed to a third backend, at each step. Both others hold
// what they took until it is delivered; they go one after the other, in one order, and the report
// names the one that goes now. In each state, all that may hold events is served.
func TestThreeBackends(t *testing.T) {
	t.Parallel() // its worlds are its own
	both := 0
	for _, c := range append(slices.Clone(changes), more...) {
		to := operatorv1alpha1.NATS
		for _, b := range withThird[2] {
			if b != c.from && b != c.to {
				to = b
			}
		}
		atEach(t, begin(t, c, third), 4, func(t *testing.T, s *scene, done []string) {
			s.want(to)
			var left []operatorv1alpha1.BackendType
			for n := 0; s.works(); n++ {
				if why := s.unserved(t); why != "" || n > mostActions {
					t.Fatalf("%v, then %s, after %v: %s", c, to, done, why)
				}
				report := s.d.Decide(s.w).Switch
				if report == nil {
					continue
				}
				if !s.d.exists(s.w, report.From) || report.To != to {
					t.Fatalf("%v, then %s, after %v: the report is %+v", c, to, done, report)
				}
				if len(left) == 0 || left[len(left)-1] != report.From {
					left = append(left, report.From)
				}
			}
			s.ended(t, to, done)
			if !slices.IsSorted(left) { // the order of the table is that of the names
				t.Errorf("%v, then %s, after %v: left in the order %v", c, to, done, left)
			}
			if len(left) == 2 {
				both++
			}
		})
	}
	if both < 6 {
		t.Errorf("two backends were outgoing in %d switches only", both)
	}
}

// TestTwoOutgoingBackends: while two backends are outgoing, neither is removed with what it holds,
// the controller serves all three, and one that is stuck is removed by force alone.
func TestTwoOutgoingBackends(t *testing.T) {
	s := begin(t, change{third, operatorv1alpha1.NATS})
	s.until(t, "open stream sap")
	for _, b := range []operatorv1alpha1.BackendType{third, operatorv1alpha1.NATS} {
		if !s.backends(t).Accept.Has(b) {
			t.Fatalf("%s is not accepted: %s", b, s.backends(t).Accept)
		}
	}
	key := memory{}.record(s.d.Names)
	s.write(key, memoryHolds, "2")
	s.w.NATS.Stream.State.Msgs = 3
	s.want(operatorv1alpha1.EventMesh)
	s.rest(t, "both hold events")
	o := s.d.Decide(s.w)
	if o.Active != operatorv1alpha1.EventMesh || o.Switch == nil || o.Switch.From != third || o.Switch.Pending != 2 || s.backends(t).Serving.String() != "EventMesh,Memory,NATS" || s.backends(t).Accept.String() != "EventMesh" {
		t.Fatalf("active %s, %+v, %v", o.Active, o.Switch, s.backends(t))
	}
	for _, value := range []string{"NATS/" + o.Switch.Since.UTC().Format(time.RFC3339), "Memory/2026-01-01T00:00:00Z"} {
		s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceTeardownAnnotation: value}
		if actions := s.d.Decide(s.w).Actions; len(actions) > 0 {
			t.Errorf("force-teardown=%s: %v", value, actions)
		}
	}
	s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceTeardownAnnotation: "Memory/" + o.Switch.Since.UTC().Format(time.RFC3339)}
	s.until(t, "delete ConfigMap eventing-memory")
	s.lost = "" // as it was asked for
	s.rest(t, "one was removed by force")
	if o = s.d.Decide(s.w); o.Switch == nil || o.Switch.From != operatorv1alpha1.NATS || o.Switch.Pending != 3 || !s.w.Has("StatefulSet") || s.backends(t).Serving.String() != "EventMesh,NATS" {
		t.Fatalf("after that: %+v, %v", o.Switch, s.backends(t))
	}
	s.w.NATS.Stream.State.Msgs = 0
	s.ended(t, operatorv1alpha1.EventMesh, "NATS is empty")
}

// TestDeletionOfThree: an Eventing is deleted while all backends are there and two hold events.
func TestDeletionOfThree(t *testing.T) {
	s := begin(t, change{third, operatorv1alpha1.NATS})
	s.until(t, "open stream sap")
	s.want(operatorv1alpha1.EventMesh)
	s.until(t, "create Broker eventing")
	key := memory{}.record(s.d.Names)
	s.write(key, memoryHolds, "2")
	s.w.NATS.Stream.State.Msgs = 3
	now := metav1.NewTime(s.w.Now)
	s.w.Eventing.DeletionTimestamp, s.w.Subscriptions = &now, nil
	for _, empty := range []func(){func() { s.write(key, memoryHolds, "0") }, func() { s.w.NATS.Stream.State.Msgs = 0 }} {
		s.rest(t, "events are left")
		if !s.w.Has("StatefulSet") || len(s.w.Eventing.Finalizers) == 0 || s.w.Object("Deployment", "eventing-publisher-proxy") != nil || s.lost != "" {
			t.Fatalf("left are %v %s", s.w.Keys(), s.lost)
		}
		empty()
	}
	s.rest(t, "nothing is left in them")
	if len(s.w.Eventing.Finalizers) > 0 || len(s.w.Ours)+len(s.w.Triggers) > 0 || s.lost != "" {
		t.Errorf("left are %v, %+v", s.w.Keys(), s.d.Decide(s.w).Conditions)
	}
}
