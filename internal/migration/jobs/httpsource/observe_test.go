package httpsource

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// cluster is a reader over the objects of a test, which remembers what it is
// asked.
type cluster struct {
	kinds   kinds
	objects []*unstructured.Unstructured
	fail    map[string]error // by resource

	mu    sync.Mutex
	asked []string
}

func (c *cluster) ask(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, fmt.Sprintf(format, args...))
}

func (c *cluster) reads() []string {
	slices.Sort(c.asked)
	return c.asked
}

func (c *cluster) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	if err := c.fail[gk.Kind]; err != nil {
		return migration.Resource{}, false, err
	}
	for _, k := range []migration.Kind{c.kinds.application, c.kinds.httpSource, c.kinds.channel, c.kinds.service} {
		if k.GroupKind == gk {
			return k.Resource, k.Served, nil
		}
	}
	return migration.Resource{}, false, nil
}

func (c *cluster) read(r migration.Resource, namespace string, opts migration.ListOptions, fn func(*unstructured.Unstructured) error) error {
	selector, err := labels.Parse(opts.LabelSelector)
	if err != nil {
		return err
	}
	if err := c.fail[r.GroupVersionResource.Resource]; err != nil {
		return fmt.Errorf("cannot list %s: %w", r.GroupResource(), err)
	}
	for _, obj := range c.objects {
		if obj.GetKind() != r.Kind || obj.GetNamespace() != namespace || !selector.Matches(labels.Set(obj.GetLabels())) {
			continue
		}
		own := obj.DeepCopy() // as every answer of a server is
		if opts.Trim != nil {
			opts.Trim(own)
		}
		if err := fn(own); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) List(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions) ([]*unstructured.Unstructured, error) {
	c.ask("list %s in %q", r.GroupVersionResource.Resource, namespace)
	var list []*unstructured.Unstructured
	err := c.read(r, namespace, opts, func(obj *unstructured.Unstructured) error {
		list = append(list, obj)
		return nil
	})
	return list, err
}

func (c *cluster) Each(_ context.Context, r migration.Resource, namespace string, opts migration.ListOptions, fn func(*unstructured.Unstructured) error) error {
	c.ask("each %s in %q %s%s", r.GroupVersionResource.Resource, namespace, opts.LabelSelector, opts.FieldSelector)
	return c.read(r, namespace, opts, fn)
}

func (c *cluster) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	c.ask("get %s", ref)
	for _, obj := range c.objects {
		if obj.GetKind() == ref.Kind && obj.GetName() == ref.Name {
			return obj, nil
		}
	}
	return nil, c.fail[ref.GroupVersionResource.Resource]
}

func app(name string, edits ...edit) *unstructured.Unstructured {
	return edited(map[string]any{
		"apiVersion": "applicationconnector.kyma-project.io/v1alpha1", "kind": "Application",
		"metadata": map[string]any{"name": name, "uid": "uid-app-" + name},
		"spec":     map[string]any{"services": []any{}},
	}, edits)
}

func namespaceObject(edits ...edit) *unstructured.Unstructured {
	return edited(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}}, edits)
}

func TestObserveReads(t *testing.T) {
	type list = []*unstructured.Unstructured
	lists := []string{
		`each applications in "" `, `list channels in "kyma-integration"`,
		`list httpsources in "kyma-integration"`, `list services in "kyma-integration"`,
	}
	whole := append([]string{`each applications in "" `, `each configmaps in "kube-system" OWNER=TILLER,STATUS=DEPLOYED`, "get Namespace kyma-integration"}, lists[1:]...)
	cases := map[string]struct {
		reason  string
		kinds   kinds
		objects list
		want    []string
	}{
		"NoKyma":   {"Without Applications as a kind nothing is read.", unserve("Application"), nil, nil},
		"Migrated": {"A migrated cluster costs four lists and nothing else.", assumedKinds(), list{app("a"), source("a"), channel("a"), service("a")}, lists},
		"NotReady": {"So does one where only a wait is left.", assumedKinds(), list{app("a"), source("a")}, lists},
		"Skipped":  {"And one where nothing may be created.", assumedKinds(), list{app("a", set(true, "spec", "skipInstallation"))}, lists},
		"Missing":  {"Tiller and the namespace are read when something is missing.", assumedKinds(), list{app("a"), namespaceObject()}, whole},
		"Unserved": {"What is not served is not listed, and what cannot be created needs no more reads.",
			unserve("HTTPSource", "Channel", "Service"), list{app("a")}, lists[:1]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &cluster{kinds: tc.kinds, objects: tc.objects}
			if _, err := observe(t.Context(), c, defaults()); err != nil {
				t.Fatalf("%s\nobserve(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, c.reads()); diff != "" {
				t.Errorf("%s\nreads: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Fails on the commit before: a job without a namespace of Tiller's was refused.
func TestWithoutTillerNobodyReadsItsReleases(t *testing.T) {
	j := New()
	j.options.tillerNamespace = ""
	if err := j.Validate(); err != nil {
		t.Error(err)
	}
	for _, row := range j.Access() {
		if row.Resource == "configmaps" {
			t.Errorf("it asks for %v of configmaps in namespace %q", row.Verbs, row.Namespace)
		}
	}
	c := &cluster{kinds: assumedKinds(), objects: []*unstructured.Unstructured{app("a"), namespaceObject()}}
	s, err := observe(t.Context(), c, j.options)
	if err != nil {
		t.Fatal(err)
	}
	for _, read := range c.reads() {
		if strings.Contains(read, "configmaps") {
			t.Errorf("it reads: %s", read)
		}
	}
	if plan := decide(s, j.options); len(plan.Units) != 1 || len(plan.Findings) != 0 {
		t.Errorf("the HTTPSource is not created as on a cluster without releases of Helm 2: %+v", plan)
	}
}

func TestObserve(t *testing.T) {
	has := encoded(gzipped(storedRelease("shop", sourceManifest)))
	c := &cluster{kinds: assumedKinds(), objects: []*unstructured.Unstructured{
		app("shop"),
		app("old", set(true, "spec", "skipInstallation"), set("DEPLOYED", "status", "installationStatus", "status")),
		app("left", set("true", "metadata", "labels", kyma.OptOutLabel)),
		app("gone", deleting()),
		app("shop"), // a list that begins again hands objects over twice
		namespaceObject(deleting()),
		source("done"), channel("done"), service("done"),
		record("shop.v1", "shop", "1", has),
		edited(record("shop.v2", "shop", "2", has).Object, []edit{set("SUPERSEDED", "metadata", "labels", "STATUS")}),
		edited(record("shop.v3", "shop", "3", has).Object, []edit{set("default", "metadata", "namespace")}),
	}}
	s, err := observe(t.Context(), c, defaults())
	if err != nil {
		t.Fatal(err)
	}
	wantApps := []application{
		{name: "gone", terminating: true}, {name: "left", optedOut: true},
		{name: "old", skips: true, installed: true}, {name: "shop"},
	}
	if diff := cmp.Diff(wantApps, s.applications, cmp.AllowUnexported(application{})); diff != "" {
		t.Errorf("applications: -want +got:\n%s", diff)
	}
	if s.sources["done"] == nil || s.channels["done"] == nil || s.services["done"] == nil {
		t.Errorf("sources %v, channels %v, services %v: one is not found by its name", s.sources, s.channels, s.services)
	}
	if s.namespace != namespaceTerminating {
		t.Errorf("namespace state %d, want terminating", s.namespace)
	}
	if r := s.tiller.releases["shop"]; !s.tiller.inUse || r.configMap != "shop.v1" || !r.hasSource {
		t.Errorf("tiller %+v: want the deployed record in kube-system, and only that", s.tiller)
	}
}

func TestObserveErrors(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no"))
	broken := errors.New("broken")
	cases := map[string]struct {
		reason string
		fail   map[string]error
		denied bool
		want   error
	}{
		"Discovery":       {"Discovery that failed is never taken for absence.", map[string]error{"Channel": broken}, false, broken},
		"Applications":    {"Without the Applications nothing can be decided.", map[string]error{"applications": broken}, false, broken},
		"Sources":         {"Nor without the HTTPSources; the reason can be told from the error.", map[string]error{"httpsources": forbidden}, false, forbidden},
		"TillerForbidden": {"A denial for Tiller's records is for the plan to report.", map[string]error{"configmaps": forbidden}, true, nil},
		"TillerBroken":    {"Any other failure is an error.", map[string]error{"configmaps": broken}, false, broken},
		"Namespace":       {"Nor can it go on without knowing the namespace.", map[string]error{"namespaces": forbidden}, false, forbidden},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := observe(t.Context(), &cluster{kinds: assumedKinds(), objects: []*unstructured.Unstructured{app("a")}, fail: tc.fail}, defaults())
			if !errors.Is(err, tc.want) {
				t.Fatalf("%s\nobserve(): error %v, want %v", tc.reason, err, tc.want)
			}
			if err == nil && s.tiller.denied != tc.denied {
				t.Errorf("%s\ndenied = %t, want %t", tc.reason, s.tiller.denied, tc.denied)
			}
		})
	}
}

// TestTrimmedSize holds what a migrated cluster keeps in memory to a size at
// which 5,000 Applications take less than 24 MiB.
func TestTrimmedSize(t *testing.T) {
	const n, limit = 500, 24 << 20 / (3 * 5000)
	k := assumedKinds()
	all := make([]*unstructured.Unstructured, 0, 3*n)
	before := heap()
	for i := range n {
		name := fmt.Sprintf("application-with-an-ordinary-name-%d", i)
		for _, o := range []struct {
			kind migration.Kind
			obj  *unstructured.Unstructured
		}{
			{k.httpSource, source(name, unset("metadata", "labels"))}, // the chart gives it none
			{k.channel, channel(name)},
			{k.service, service(name)},
		} {
			// As a page is decoded: every string and key is its own.
			json, err := o.obj.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			obj := &unstructured.Unstructured{}
			if err := obj.UnmarshalJSON(json); err != nil {
				t.Fatal(err)
			}
			trimTo(o.kind, namespace)(obj)
			all = append(all, obj)
		}
	}
	size := (heap() - before) / int64(len(all))
	t.Logf("a trimmed object takes %d bytes", size)
	if size > limit {
		t.Errorf("a trimmed object takes %d bytes, more than %d", size, limit)
	}
	runtime.KeepAlive(all)
}

func heap() int64 {
	runtime.GC()
	runtime.GC() // what finalizers held goes in the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestTrim(t *testing.T) {
	k := assumedKinds()
	edits := []edit{
		set("1", "metadata", "annotations", "note"), set([]any{"held"}, "metadata", "finalizers"),
		func(obj map[string]any) { // an owner that is no controller
			meta := obj["metadata"].(map[string]any)
			owners, _ := meta["ownerReferences"].([]any)
			meta["ownerReferences"] = append([]any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}}, owners...)
		},
	}
	meta := func(uid string, more map[string]any) map[string]any {
		m := map[string]any{
			"name": "a", "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": int64(1), "finalizers": []any{"held"},
		}
		maps.Copy(m, more)
		return m
	}
	isReady := []any{map[string]any{"type": "Ready", "status": "True"}}
	cases := map[string]struct {
		reason string
		kind   migration.Kind
		obj    *unstructured.Unstructured
		want   map[string]any
	}{
		"Ready": {
			reason: "Of a ready Channel only the facts are left: that it is, that it has an address, and whose it is.",
			kind:   k.channel, obj: channel("a", edits...),
			want: map[string]any{
				"apiVersion": "messaging.knative.dev/v1", "kind": "Channel",
				"metadata": meta("uid-channel-a", map[string]any{"ownerReferences": []any{map[string]any{
					"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource", "name": "a", "uid": "uid-a", "controller": true,
				}}}),
				"status": map[string]any{"conditions": isReady, "address": map[string]any{"url": "trimmed:"}},
			},
		},
		"NotReady": {
			reason: "Of one that is not ready, what explains it stays.",
			kind:   k.service, obj: service("a", append(edits, says("False", "R", "M"), generation(1, 1), unset("metadata", "ownerReferences"))...),
			want: map[string]any{
				"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": meta("uid-service-a", nil),
				"status": map[string]any{
					"observedGeneration": int64(1),
					"conditions":         []any{map[string]any{"type": "Ready", "status": "False", "reason": "R", "message": "M"}},
				},
			},
		},
		"Source": {
			reason: "An HTTPSource keeps what people edit: the engine asks whether they did.",
			kind:   k.httpSource, obj: source("a", append(edits, set("m", "metadata", "annotations", kyma.MarkAnnotation))...),
			want: map[string]any{
				"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource",
				"metadata": meta("uid-a", map[string]any{
					"labels": map[string]any{"application-name": "a"}, "annotations": map[string]any{"note": "1", kyma.MarkAnnotation: "m"},
					"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}},
				}),
				"spec":   map[string]any{"source": "a"},
				"status": map[string]any{"conditions": isReady},
			},
		},
		"AnotherSource": {
			reason: "One that no run has made is not the engine's to delete, and its annotations may have 262,144 bytes.",
			kind:   k.httpSource, obj: source("a", edits...),
			want: map[string]any{
				"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource",
				"metadata": meta("uid-a", map[string]any{
					"labels":          map[string]any{"application-name": "a"},
					"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "uid-c"}},
				}),
				"spec":   map[string]any{"source": "a"},
				"status": map[string]any{"conditions": isReady},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			trimTo(tc.kind, namespace)(tc.obj)
			if diff := cmp.Diff(tc.want, tc.obj.Object); diff != "" {
				t.Errorf("%s\ntrimmed: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
