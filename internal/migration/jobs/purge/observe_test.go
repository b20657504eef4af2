package purge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// TestWhoMindsTheRelease fails on the commit before: with --ignore-release the records
// were read, which are Secrets, and then ignored.
func TestWhoMindsTheRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		dryRun, ignore bool
		want           []string
	}{
		"Plan":          {"a plan tells of the release", true, false, []string{"configmaps", "secrets"}},
		"IgnoringPlan":  {"before an upgrade of Kyma the release is still there, which is no use of it", true, true, nil},
		"Run":           {"a run refuses while there is a release", false, false, []string{"configmaps", "secrets"}},
		"RunIgnoresNot": {"the flag is for plans", false, true, []string{"configmaps", "secrets"}},
	} {
		j := New()
		j.ignoreRelease = tc.ignore
		c := &stored{}
		if _, err := observe(t.Context(), c, j.options, nil, j.mindsRelease(tc.dryRun)); err != nil {
			t.Fatal(err)
		}
		slices.Sort(c.listed)
		records := slices.DeleteFunc(c.listed, func(kind string) bool { return kind != "secrets" && kind != "configmaps" })
		if diff := cmp.Diff(tc.want, slices.Clip(append([]string(nil), records...))); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// stored is a cluster that holds these objects and serves every kind but those in absent. Each
// list hands all objects over twice, as one that begins again does.
type stored struct {
	objects []*unstructured.Unstructured
	absent  []string
	// fails are the answers to lists, by kind.
	fails map[string]error

	mu sync.Mutex
	// listed are the resources that were listed.
	listed []string
}

func (s *stored) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	if err := s.fails["discovery of "+gk.Kind]; err != nil {
		return migration.Resource{}, false, err
	}
	return migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: gk.Group, Version: "v1"}, Kind: gk.Kind}, !slices.Contains(s.absent, gk.Kind), nil
}

func (s *stored) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, visit func(*unstructured.Unstructured) error) error {
	s.mu.Lock()
	s.listed = append(s.listed, r.GroupVersionResource.Resource)
	s.mu.Unlock()
	if err := s.fails[r.Kind]; err != nil {
		return err
	}
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return err
	}
	for _, obj := range slices.Concat(s.objects, s.objects) {
		gvk := obj.GroupVersionKind()
		if gvk.Kind != r.Kind || gvk.Group != r.Group || namespace != "" && obj.GetNamespace() != namespace || !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		obj = obj.DeepCopy()
		if opts.Trim != nil {
			opts.Trim(obj)
		}
		if err := visit(obj); err != nil {
			return err
		}
	}
	return nil
}

func (s *stored) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	for _, obj := range s.objects {
		if obj.GetKind() == ref.Kind && obj.GetName() == ref.Name {
			return obj, nil
		}
	}
	return nil, nil
}

func (s *stored) TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error {
	return errors.New("not asked for")
}

// in makes an object of a kind with that metadata, besides its name.
func in(t *testing.T, apiVersion, kind, namespace, name, more string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %s%s}}", apiVersion, kind, namespace, name, more))
}

const (
	ofSource = ", labels: {kyma-source-id: shop}"
	skipped  = `, labels: {kyma-source-id: shop, eventmesh-migration.kyma-project.io/skip: "true"}`
)

// TestObserve reads a cluster: what is taken and what is left, each once.
func TestObserve(t *testing.T) {
	const bus = "kyma-system"
	messaging, connector, eventing := "messaging.knative.dev/v1", "applicationconnector.kyma-project.io/v1alpha1", "eventing.kyma-project.io/v1alpha1"
	trigger := func(name, more, status string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: eventing.knative.dev/v1, kind: Trigger, metadata: {namespace: shop, name: %s%s}, status: {%s}}", name, more, status))
	}
	subscription := func(name, spec string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: %s, kind: Subscription, metadata: {namespace: shop, name: %s}, spec: {%s}}", eventing, name, spec))
	}
	names := func(all []found) []string {
		var out []string
		for _, f := range all {
			out = append(out, f.ref.String())
		}
		return out
	}
	for _, tc := range []struct {
		reason  string
		objects []*unstructured.Unstructured
		of      func(*snapshot) []found
		want    []string
	}{
		{
			"Channels of the Event Bus: in its namespace, of a source, and not opted out",
			[]*unstructured.Unstructured{in(t, messaging, "Channel", bus, "b", ofSource), in(t, messaging, "Channel", bus, "a", ofSource), in(t, messaging, "Channel", bus, "other", ""), in(t, messaging, "Channel", "shop", "user", ofSource), in(t, messaging, "Channel", bus, "skip", skipped)},
			func(s *snapshot) []found { return s.channels }, []string{"Channel kyma-system/a", "Channel kyma-system/b"},
		},
		{
			"its Knative Subscriptions, the same way",
			[]*unstructured.Unstructured{in(t, messaging, "Subscription", bus, "a", ofSource), in(t, messaging, "Subscription", bus, "other", ""), in(t, messaging, "Subscription", bus, "skip", skipped)},
			func(s *snapshot) []found { return s.channelSubscriptions }, []string{"Subscription kyma-system/a"},
		},
		{
			"EventActivations that have the finalizer, anywhere but in excluded namespaces",
			[]*unstructured.Unstructured{in(t, connector, "EventActivation", "shop", "a", eaFinalizer), in(t, connector, "EventActivation", "shop", "free", ", finalizers: [other]"), in(t, connector, "EventActivation", "left-out", "b", eaFinalizer)},
			func(s *snapshot) []found { return s.activations }, []string{"EventActivation shop/a"},
		},
		{
			"Triggers that are not ready, and are not being deleted or opted out",
			[]*unstructured.Unstructured{
				trigger("new", "", ""), trigger("ready", "", `conditions: [{type: Ready, status: "True"}]`), trigger("bad", "", `conditions: [{type: Ready, status: "False"}]`),
				trigger("going", beingDeleted, ""), trigger("skip", skipped, ""),
			},
			func(s *snapshot) []found { return s.triggers }, []string{"Trigger shop/bad", "Trigger shop/new"},
		},
		{
			"Kyma Subscriptions of the Event Bus",
			[]*unstructured.Unstructured{subscription("a", "source_id: shop"), subscription("newer", "sink: x")},
			func(s *snapshot) []found { return s.subscriptions }, []string{"Subscription shop/a"},
		},
		{
			"and those of a newer Kyma apart",
			[]*unstructured.Unstructured{subscription("a", "source_id: shop"), subscription("newer", "sink: x")},
			func(s *snapshot) []found { return s.foreign }, []string{"Subscription shop/newer"},
		},
	} {
		s, err := observe(t.Context(), &stored{objects: tc.objects}, New().options, []string{"left-out"}, true)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, names(tc.of(s))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestObserveWithout: a kind that is not served any more holds nothing; what cannot be read is
// an error.
func TestObserveWithout(t *testing.T) {
	gone := apierrors.NewNotFound(schema.GroupResource{Resource: "subscriptions"}, "")
	for _, tc := range []struct {
		reason  string
		cluster *stored
		fails   bool
	}{
		{"after an earlier run, nothing is served", &stored{absent: []string{"Subscription", "EventActivation", "Channel", "Trigger", "CustomResourceDefinition"}}, false},
		{"another run removes the definition between discovery and list", &stored{fails: map[string]error{"Subscription": gone}}, false},
		{"a list fails", &stored{fails: map[string]error{"Channel": errors.New("refused")}}, true},
		{"discovery fails", &stored{fails: map[string]error{"discovery of Trigger": errors.New("refused")}}, true},
		{"discovery of the definition fails", &stored{fails: map[string]error{"discovery of CustomResourceDefinition": errors.New("refused")}}, true},
		{"pods cannot be listed", &stored{fails: map[string]error{"Pod": errors.New("refused")}}, true},
		{"releases cannot be listed", &stored{fails: map[string]error{"Secret": errors.New("refused")}}, true},
	} {
		s, err := observe(t.Context(), tc.cluster, New().options, nil, true)
		if (err != nil) != tc.fails {
			t.Errorf("%s: %v", tc.reason, err)
		}
		if err == nil && (len(s.subscriptions)+len(s.channels) > 0 || s.definition != nil) {
			t.Errorf("%s: found %+v", tc.reason, s)
		}
	}
}

// TestObserveRunning finds what of the Event Bus runs, and Jobs of Kyma's own migration.
func TestObserveRunning(t *testing.T) {
	const pub, ctl = "event-bus-event-publish-service", "event-bus-subscription-controller"
	deployment := func(name, more, spec string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: %s%s}, spec: {%s}}", name, more, spec))
	}
	pod := func(name, container, owner, phase string) *unstructured.Unstructured {
		if owner != "" {
			owner = fmt.Sprintf(", ownerReferences: [{kind: ReplicaSet, name: %s, controller: true}]", owner)
		}
		return manifest.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-system, name: %s%s}, spec: {containers: [{name: %s}]}, status: {phase: %s}}", name, owner, container, phase))
	}
	set := manifest.Object(t, "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: kyma-system, name: set, ownerReferences: [{kind: Deployment, name: "+ctl+", controller: true}]}}")
	job := func(name, status string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: batch/v1, kind: Job, metadata: {namespace: kyma-system, name: %s}, status: {%s}}", name, status))
	}
	for _, tc := range []struct {
		reason  string
		objects []*unstructured.Unstructured
		want    []string
	}{
		{"at 0", []*unstructured.Unstructured{deployment(pub, "", "replicas: 0"), deployment(ctl, "", "replicas: 0")}, nil},
		{"one runs", []*unstructured.Unstructured{deployment(pub, "", "replicas: 2"), deployment(ctl, "", "replicas: 0")}, []string{"Deployment kyma-system/" + pub}},
		{"without a number it is 1", []*unstructured.Unstructured{deployment(ctl, "", "paused: false")}, []string{"Deployment kyma-system/" + ctl}},
		{"one that is being deleted counts by its pods", []*unstructured.Unstructured{deployment(ctl, beingDeleted, "replicas: 2")}, nil},
		{"others are none of it", []*unstructured.Unstructured{deployment("other", "", "replicas: 2"), pod("p", "other", "", "Running")}, nil},
		{"a pod by its ReplicaSet, whatever it is called", []*unstructured.Unstructured{set, pod("p", "renamed", "set", "Running")}, []string{"Pod kyma-system/p"}},
		{"a pod by its container, once its Deployment is gone", []*unstructured.Unstructured{pod("p", "event-publish-service", "", "Running")}, []string{"Pod kyma-system/p"}},
		{"one that has ended does nothing", []*unstructured.Unstructured{pod("p", "event-publish-service", "", "Failed")}, nil},
		{"Kyma's own migration, while it runs", []*unstructured.Unstructured{
			job("event-bus-mesh-namespaces-migration", ""), job("mesh-namespaces-migration-done", `conditions: [{type: Complete, status: "True"}]`), job("other", ""),
		}, []string{"Job event-bus-mesh-namespaces-migration"}},
	} {
		s, err := observe(t.Context(), &stored{objects: tc.objects}, New().options, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ref := range s.running {
			got = append(got, ref.String())
		}
		for _, name := range s.migrations {
			got = append(got, "Job "+name)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestObserveReleases reads the state of the newest revision, of Helm 2 and 3.
func TestObserveReleases(t *testing.T) {
	record := func(kind, namespace, name, labels string) *unstructured.Unstructured {
		return manifest.Object(t, fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {namespace: %s, name: %s, labels: {%s}}, data: {release: x}}", kind, namespace, name, labels))
	}
	helm2 := func(version, status string) *unstructured.Unstructured {
		return record("ConfigMap", "kube-system", "event-bus.v"+version, fmt.Sprintf("OWNER: TILLER, NAME: event-bus, VERSION: %q, STATUS: %s", version, status))
	}
	helm3 := func(version, status string) *unstructured.Unstructured {
		return record("Secret", "kyma-system", "sh.helm.release.v1.event-bus.v"+version, fmt.Sprintf("owner: helm, name: event-bus, version: %q, status: %s", version, status))
	}
	for _, tc := range []struct {
		reason       string
		objects      []*unstructured.Unstructured
		helm2, helm3 string
	}{
		{"none", nil, "", ""},
		{"the newest counts, by number", []*unstructured.Unstructured{helm2("10", "DEPLOYED"), helm2("9", "SUPERSEDED"), helm3("2", "deployed"), helm3("1", "superseded")}, "DEPLOYED", "deployed"},
		{"whatever comes last in the list", []*unstructured.Unstructured{helm3("9", "superseded"), helm3("10", "failed")}, "", "failed"},
		{"gone but for its history", []*unstructured.Unstructured{helm2("1", "DEPLOYED"), helm2("2", "DELETED"), helm3("3", "uninstalled")}, "", ""},
		{"a record that cannot be read is one", []*unstructured.Unstructured{record("Secret", "kyma-system", "x", "owner: helm, name: event-bus, version: odd")}, "", "of an unknown state"},
		{"other releases, and those in other places", []*unstructured.Unstructured{
			record("Secret", "kyma-system", "x", "owner: helm, name: other, version: '1', status: deployed"), record("Secret", "shop", "x", "owner: helm, name: event-bus, version: '1', status: deployed"),
		}, "", ""},
	} {
		s, err := observe(t.Context(), &stored{objects: tc.objects}, New().options, nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if s.helm2 != tc.helm2 || s.helm3 != tc.helm3 {
			t.Errorf("%s: Helm 2 %q, Helm 3 %q", tc.reason, s.helm2, s.helm3)
		}
	}
}

// TestReadDefinitionWithout: nothing to read is nothing to delete.
func TestReadDefinitionWithout(t *testing.T) {
	s := &snapshot{}
	if err := s.readDefinition(t.Context(), &stored{}); err != nil || s.definition != nil {
		t.Errorf("got %+v, %v", s.definition, err)
	}
	broken := &broken{errors.New("refused")}
	if err := s.readDefinition(t.Context(), broken); !errors.Is(err, broken.err) || s.definition != nil {
		t.Errorf("got %+v, %v", s.definition, err)
	}
}

// broken is a cluster of which no object can be read.
type broken struct{ err error }

func (b *broken) Served(context.Context, schema.GroupKind) (migration.Resource, bool, error) {
	return migration.Resource{Kind: definition.Kind}, true, nil
}

func (b *broken) Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error {
	return b.err
}

func (b *broken) Get(context.Context, migration.Ref) (*unstructured.Unstructured, error) {
	return nil, b.err
}

func (b *broken) TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error {
	return b.err
}

// TestDecideMore: forms of the definition, and what is on its way already.
func TestDecideMore(t *testing.T) {
	run := mode{yes: true}
	const name = "CustomResourceDefinition subscriptions.eventing.kyma-project.io"
	with := func(change func(*definitionFound)) *definitionFound {
		d := crd(t, onlyV1alpha1)
		change(d)
		return d
	}
	for _, tc := range []struct {
		reason string
		s      snapshot
		want   []string
	}{
		{"the label keeps the kind", snapshot{definition: with(func(d *definitionFound) {
			d.object.SetLabels(map[string]string{"eventmesh-migration.kyma-project.io/skip": "true"})
		})}, []string{"info: " + name + ": kept: it carries the label eventmesh-migration.kyma-project.io/skip=true"}},
		{"one that is being deleted is left to its end", snapshot{definition: &definitionFound{found: one(t, "CustomResourceDefinition", beingDeleted)}}, []string{}},
		{"the form of v1beta1 with one version outside the list: a newer one", snapshot{definition: crd(t, "version: v1alpha2")}, []string{"info: " + name + ": kept: it serves v1alpha2, which a newer version of Kyma uses"}},
		{"which does not count beside a list", snapshot{definition: crd(t, "version: v1alpha2, "+onlyV1alpha1)}, []string{name + ": delete"}},
		{"an account that may not ask whether it comes back", snapshot{definition: with(func(d *definitionFound) { d.untried = true })}, []string{
			name + ": delete",
			"warning: " + name + ": this account may not find out whether the API server would create it again; if not, it is deleted permanently (Grant this account create on customresourcedefinitions. To check the permission: kubectl auth can-i create customresourcedefinitions)",
		}},
		{"a Channel that is being deleted and that nothing here holds", snapshot{channels: []found{one(t, "Channel", beingDeleted)}}, []string{}},
		{"finalizers of others on a Subscription that is not being deleted: it is in use anyway", snapshot{subscriptions: []found{one(t, "KymaSubscription", busFinalizer)}}, []string{
			"error: KymaSubscription ns/x: it is a Kyma Subscription, which only the Event Bus serves (Delete it, or let trigger-sync move it to the mesh: eventmesh-migrate run --job=trigger-sync)",
		}},
		{"one that is being deleted without our finalizer needs nothing", snapshot{subscriptions: []found{one(t, "KymaSubscription", beingDeleted)}}, []string{}},
		{"a Trigger says why it is not ready", snapshot{triggers: []found{func() found {
			f := one(t, "Trigger", "")
			f.object = manifest.Object(t, `{apiVersion: g/v1, kind: Trigger, metadata: {namespace: ns, name: x}, status: {conditions: [{type: Ready, status: "False", reason: BrokerMissing}]}}`)
			return f
		}()}}, []string{
			"error: Trigger ns/x: it is not ready, so the mesh may not deliver yet: BrokerMissing (To ignore it, label it eventmesh-migration.kyma-project.io/skip=true. Its conditions say why: kubectl -n ns describe trigger.eventing.knative.dev/x)",
		}},
	} {
		if diff := cmp.Diff(tc.want, summary(decide(&tc.s, New().options, run))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestOfV1beta1: which forms v1 shows, and does not create.
func TestOfV1beta1(t *testing.T) {
	for _, tc := range []struct {
		reason, spec string
		want         bool
	}{
		{"it prunes nothing", "preserveUnknownFields: true, versions: [{name: a, schema: {openAPIV3Schema: {type: object}}}]", true},
		{"a version without schema", "versions: [{name: a, schema: {openAPIV3Schema: {type: object}}}, {name: b}]", true},
		{"made at v1", "preserveUnknownFields: false, versions: [{name: a, schema: {openAPIV3Schema: {type: object}}}]", false},
		{"no version at all", "group: g", false},
	} {
		if got := ofV1beta1(crd(t, tc.spec).object); got != tc.want {
			t.Errorf("%s: %t", tc.reason, got)
		}
	}
}
