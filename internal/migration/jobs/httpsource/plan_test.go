package httpsource

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// brief is a plan as a table can state it.
type brief struct {
	Units    []string // "verb ID"
	Findings []string // "severity object: words of the problem"
}

// outline shortens a plan: of each finding's problem it keeps the words.
func outline(p *migration.Plan, words []string) brief {
	var b brief
	for _, u := range p.Units {
		for _, ch := range u.Changes {
			b.Units = append(b.Units, string(ch.Verb)+" "+u.ID)
		}
	}
	for _, f := range p.Findings {
		kept := "?? " + f.Problem
		for _, w := range words {
			if strings.Contains(f.Problem, w) {
				kept = w
				break
			}
		}
		b.Findings = append(b.Findings, string(f.Severity)+" "+f.Object+": "+kept)
	}
	return b
}

func TestDecide(t *testing.T) {
	type list = []*unstructured.Unstructured
	records := func(r map[string]release) *tiller { return &tiller{inUse: true, releases: r} }
	cases := map[string]struct {
		reason       string
		kinds        kinds
		applications []application
		objects      list
		namespace    namespaceState
		tiller       *tiller
		conflict     string
		words        []string // the words of a finding's problem that matter
		want         brief
	}{
		"NoKyma": {
			reason: "Without Applications as a kind there is nothing to do, and the reason is said.",
			kinds:  unserve("Application", "HTTPSource", "Channel", "Service"),
			words:  []string{"serves no kind Application (applicationconnector.kyma-project.io)"},
			want:   brief{Findings: []string{"info : serves no kind Application (applicationconnector.kyma-project.io)"}},
		},
		"NoApplications": {
			reason: "No Applications, no work: it does not matter what else is served.",
			kinds:  unserve("HTTPSource", "Channel", "Service"),
		},
		"Migrated": {
			reason:       "What is ready needs no unit at all.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}, {name: "b", skips: true}, {name: "c", terminating: true}},
			objects:      list{source("a"), channel("a"), service("a"), source("b"), channel("b"), service("b")},
		},
		"Missing": {
			reason:       "Each Application without HTTPSource gets one; units are sorted.",
			kinds:        assumedKinds(),
			applications: []application{{name: "b"}, {name: "a"}},
			namespace:    namespaceActive, tiller: &tiller{},
			want: brief{Units: []string{"create HTTPSource kyma-integration/a", "create HTTPSource kyma-integration/b"}},
		},
		"Terminating": {
			reason:       "An Application that is being deleted gets none.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a", terminating: true}},
		},
		"NotReady": {
			reason:       "Existing ones are waited for, whatever is missing of the three.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}, {name: "b"}, {name: "c"}, {name: "d"}},
			objects: list{
				source("a", says("False", "ServiceNotReady", "")), channel("a"), service("a"),
				source("b"), service("b"),
				source("c"), channel("c", generation(2, 1)), service("c"),
				source("d"), channel("d"),
			},
			want: brief{Units: []string{
				"await HTTPSource kyma-integration/a", "await HTTPSource kyma-integration/b",
				"await HTTPSource kyma-integration/c", "await HTTPSource kyma-integration/d",
			}},
		},
		"SkipInstallation": {
			reason:       "A skipped Application gets no HTTPSource; with a release from before it is at risk, else it needs nothing.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a", skips: true}, {name: "b", skips: true, installed: true}},
			words:        []string{"it has no event-service and no events", "still uses the Event Bus"},
			want: brief{Findings: []string{
				"warning Application b: still uses the Event Bus",
				"info Application a: it has no event-service and no events",
			}},
		},
		"SkipInstallationWithSource": {
			reason:       "An HTTPSource that exists is looked at all the same.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a", skips: true}},
			objects:      list{source("a"), service("a")},
			want:         brief{Units: []string{"await HTTPSource kyma-integration/a"}},
		},
		"OptedOut": {
			reason:       "The label takes out everything of the Application, be it ever so wrong.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a", optedOut: true}, {name: "b.c", optedOut: true}, {name: "d", optedOut: true}},
			objects:      list{source("a", deleting()), service("d")},
			words:        []string{"skipped: it carries the label eventmesh-migration.kyma-project.io/skip=true"},
			want: brief{Findings: []string{
				"info Application a: skipped: it carries the label eventmesh-migration.kyma-project.io/skip=true",
				"info Application b.c: skipped: it carries the label eventmesh-migration.kyma-project.io/skip=true",
				"info Application d: skipped: it carries the label eventmesh-migration.kyma-project.io/skip=true",
			}},
		},
		"BadInput": {
			reason: "Every bad object is reported, and none hides the work on the others.",
			kinds:  assumedKinds(),
			applications: []application{
				{name: "1st"}, {name: "a.b"}, {name: strings.Repeat("x", 64)},
				{name: "channel"}, {name: "fine"}, {name: "going"}, {name: "other"}, {name: "service"},
			},
			objects: list{
				channel("channel", unset("metadata", "ownerReferences")),
				source("going", deleting()), service("going"),
				source("other", set("another", "spec", "source")), channel("other"), service("other"),
				channel("service", ownedBy("sources.kyma-project.io/v1alpha1", "HTTPSource", "x", "1")),
				service("service", ownedBy("v1", "ConfigMap", "service", "1")),
			},
			namespace: namespaceActive, tiller: &tiller{},
			words: []string{
				"cannot work: its adapter is a Knative Service of the same name", "belongs to no HTTPSource",
				"belongs to ConfigMap service", "belongs to HTTPSource x", "is being deleted",
				`HTTPSource kyma-integration/other is of source "another"`,
			},
			want: brief{
				Units: []string{"create HTTPSource kyma-integration/fine"},
				Findings: []string{
					"error Application 1st: cannot work: its adapter is a Knative Service of the same name",
					"error Application a.b: cannot work: its adapter is a Knative Service of the same name",
					"error Application going: is being deleted",
					`error Application other: HTTPSource kyma-integration/other is of source "another"`,
					"error Application " + strings.Repeat("x", 64) + ": cannot work: its adapter is a Knative Service of the same name",
					"error Channel kyma-integration/channel: belongs to no HTTPSource",
					"error Channel kyma-integration/service: belongs to HTTPSource x",
					"error Service kyma-integration/service: belongs to ConfigMap service",
				},
			},
		},
		"BadNameWithSource": {
			reason:       "Waiting for an HTTPSource that cannot become ready would only take longer.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a.b"}},
			objects:      list{source("a.b", unset("status"))},
			words:        []string{"cannot work: its adapter is a Knative Service of the same name"},
			want:         brief{Findings: []string{"error Application a.b: cannot work: its adapter is a Knative Service of the same name"}},
		},
		"Leftovers": {
			reason:       "Children of an HTTPSource of that name that is gone are on their way out, and no obstacle.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}},
			objects:      list{channel("a"), service("a")},
			namespace:    namespaceActive, tiller: &tiller{},
			want: brief{Units: []string{"create HTTPSource kyma-integration/a"}},
		},
		"AdaptersWithoutChannel": {
			reason: "Also of an HTTPSource without Application, by hand, or gone; not of other Knative Services.",
			kinds:  assumedKinds(),
			objects: list{
				source("b"), service("b"),
				service("a"),
				source("c"), service("c"), channel("c"),
				service("d", unset("metadata", "ownerReferences")),
				source("e", set("true", "metadata", "labels", "eventmesh-migration.kyma-project.io/skip")), service("e"),
			},
			want: brief{Units: []string{"await Service kyma-integration/a", "await Service kyma-integration/b"}},
		},
		"AdapterOfSkipped": {
			reason:       "What is not created leaves its leftover adapter to be looked at.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a", skips: true}},
			objects:      list{service("a")},
			words:        []string{"spec.skipInstallation is true"},
			want: brief{
				Units:    []string{"await Service kyma-integration/a"},
				Findings: []string{"info Application a: spec.skipInstallation is true"},
			},
		},
		"UnservedToCreate": {
			reason:       "Every kind that work needs is named, with its component.",
			kinds:        unserve("HTTPSource", "Channel", "Service"),
			applications: []application{{name: "a"}},
			words: []string{"kind HTTPSource (sources.kyma-project.io)", "kind Channel (messaging.knative.dev)",
				"kind Service (serving.knative.dev)"},
			want: brief{
				Units: []string{"create HTTPSource kyma-integration/a"},
				Findings: []string{
					"error : kind HTTPSource (sources.kyma-project.io)", "error : kind Channel (messaging.knative.dev)",
					"error : kind Service (serving.knative.dev)",
				},
			},
		},
		"UnservedToCheck": {
			reason:       "An existing HTTPSource without Channels as a kind cannot be ready.",
			kinds:        unserve("Channel"),
			applications: []application{{name: "a"}},
			objects:      list{source("a"), service("a")},
			words:        []string{"kind Channel (messaging.knative.dev)"},
			want: brief{
				Units:    []string{"await HTTPSource kyma-integration/a"},
				Findings: []string{"error : kind Channel (messaging.knative.dev)"},
			},
		},
		"UnservedButSkipped": {
			reason:       "Applications that need nothing do not need the kinds either.",
			kinds:        unserve("HTTPSource", "Channel", "Service"),
			applications: []application{{name: "a", skips: true}, {name: "b", terminating: true}},
			words:        []string{"spec.skipInstallation is true"},
			want:         brief{Findings: []string{"info Application a: spec.skipInstallation is true"}},
		},
		"NamespaceMissing": {
			reason:       "Nothing can be created in a namespace that is not there.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}},
			namespace:    namespaceMissing, tiller: &tiller{},
			words: []string{"does not exist"},
			want: brief{
				Units:    []string{"create HTTPSource kyma-integration/a"},
				Findings: []string{"error Namespace kyma-integration: does not exist"},
			},
		},
		"NamespaceTerminating": {
			reason:       "Nor in one that is on its way out.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}},
			namespace:    namespaceTerminating, tiller: &tiller{},
			words: []string{"is being deleted"},
			want: brief{
				Units:    []string{"create HTTPSource kyma-integration/a"},
				Findings: []string{"error Namespace kyma-integration: is being deleted"},
			},
		},
		"Helm2": {
			reason:       "Only a release that has the HTTPSource already stays upgradable; the rest is left.",
			kinds:        assumedKinds(),
			applications: []application{{name: "has"}, {name: "lacks"}, {name: "new"}},
			namespace:    namespaceActive,
			tiller: records(map[string]release{
				"has":   {configMap: "has.v2", version: 2, hasSource: true},
				"lacks": {configMap: "lacks.v7", version: 7},
			}),
			words: []string{"left to the application-operator, since its Helm 2 release (ConfigMap kube-system/lacks.v7) lacks HTTPSource kyma-integration/lacks",
				"left to the application-operator, since it has no deployed Helm 2 release"},
			want: brief{
				Units: []string{"create HTTPSource kyma-integration/has"},
				Findings: []string{
					"warning Application lacks: left to the application-operator, since its Helm 2 release (ConfigMap kube-system/lacks.v7) lacks HTTPSource kyma-integration/lacks",
					"warning Application new: left to the application-operator, since it has no deployed Helm 2 release",
				},
			},
		},
		"Helm2Override": {
			reason:       "The user takes the risk, and is told of it for each.",
			kinds:        assumedKinds(),
			applications: []application{{name: "has"}, {name: "lacks"}, {name: "new"}, {name: "odd"}},
			namespace:    namespaceActive, conflict: create,
			tiller: records(map[string]release{
				"has":   {configMap: "has.v2", version: 2, hasSource: true},
				"lacks": {configMap: "lacks.v7", version: 7},
				"odd":   {configMap: "odd.v1", version: 1, err: errors.New("it is no release")},
			}),
			words: []string{"is created as asked for, although its Helm 2 release", "is created as asked for, although it has no deployed",
				"cannot read the Helm 2 release of Application odd: it is no release"},
			want: brief{
				Units: []string{
					"create HTTPSource kyma-integration/has", "create HTTPSource kyma-integration/lacks",
					"create HTTPSource kyma-integration/new", "create HTTPSource kyma-integration/odd",
				},
				Findings: []string{
					"warning Application lacks: is created as asked for, although its Helm 2 release",
					"warning Application new: is created as asked for, although it has no deployed",
					"warning ConfigMap kube-system/odd.v1: cannot read the Helm 2 release of Application odd: it is no release",
				},
			},
		},
		"Helm2Unreadable": {
			reason:       "A record that matters and cannot be read refuses the run, and names the record.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}, {name: "b"}},
			namespace:    namespaceActive,
			tiller: records(map[string]release{
				"a": {configMap: "a.v1", version: 1, err: errors.New("it is no release")},
				"b": {configMap: "b.v1", version: 1, hasSource: true},
			}),
			words: []string{"cannot read the Helm 2 release of Application a: it is no release"},
			want: brief{
				Units:    []string{"create HTTPSource kyma-integration/b"},
				Findings: []string{"error ConfigMap kube-system/a.v1: cannot read the Helm 2 release of Application a: it is no release"},
			},
		},
		"Helm2Denied": {
			reason:       "Without the permission to read Tiller's records nobody knows.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}},
			namespace:    namespaceActive, tiller: &tiller{denied: true},
			words: []string{"no permission to list configmaps in namespace kube-system; whether"},
			want: brief{
				Units:    []string{"create HTTPSource kyma-integration/a"},
				Findings: []string{"error : no permission to list configmaps in namespace kube-system; whether"},
			},
		},
		"Helm2DeniedOverride": {
			reason:       "The user may know that there is no Tiller.",
			kinds:        assumedKinds(),
			applications: []application{{name: "a"}},
			namespace:    namespaceActive, tiller: &tiller{denied: true}, conflict: create,
			words: []string{"HTTPSources are created, as asked for"},
			want: brief{
				Units:    []string{"create HTTPSource kyma-integration/a"},
				Findings: []string{"warning : HTTPSources are created, as asked for"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &snapshot{
				kinds: tc.kinds, applications: tc.applications, namespace: tc.namespace, tiller: tc.tiller,
				sources: objects{}, channels: objects{}, services: objects{},
			}
			for _, obj := range tc.objects {
				map[string]objects{"HTTPSource": s.sources, "Channel": s.channels, "Service": s.services}[obj.GetKind()][obj.GetName()] = obj
			}
			o := defaults()
			if tc.conflict != "" {
				o.onHelm2Conflict = tc.conflict
			}
			got := decide(s, o)
			if diff := cmp.Diff(tc.want, outline(got, tc.words)); diff != "" {
				t.Errorf("%s\ndecide(): -want +got:\n%s", tc.reason, diff)
			}
			for _, f := range got.Findings {
				if f.Note == "" && f.Severity != migration.Info {
					t.Errorf("%s\nfinding %q says no next action", tc.reason, f)
				}
			}
			for _, u := range got.Units {
				for _, ch := range u.Changes {
					if ch.Why == "" {
						t.Errorf("%s\nunit %s does not say why", tc.reason, u.ID)
					}
				}
			}
			if again := decide(s, o); cmp.Diff(got, again) != "" {
				t.Errorf("%s\ndecide() is not deterministic:\n%s", tc.reason, cmp.Diff(got, again))
			}
		})
	}
}

func TestCreatedObject(t *testing.T) {
	s := &snapshot{kinds: assumedKinds(), applications: []application{{name: "shop"}}, namespace: namespaceActive, tiller: &tiller{}}
	s.kinds.httpSource.Resource.Version = "v1beta1" // the best served version, not the one we know
	got := decide(s, defaults())
	ref := migration.Ref{Resource: s.kinds.httpSource.Resource, Namespace: "kyma-integration", Name: "shop"}
	want := &migration.Plan{Parallelism: 16, Units: []migration.Unit{{
		ID: "HTTPSource kyma-integration/shop",
		Changes: []migration.Change{{
			Verb: migration.Create, Ref: ref, Why: "Application shop has no HTTPSource",
			Object: &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "sources.kyma-project.io/v1beta1",
				"kind":       "HTTPSource",
				"metadata": map[string]any{
					"name": "shop", "namespace": "kyma-integration",
					"labels": map[string]any{"app.kubernetes.io/managed-by": "Helm"},
					"annotations": map[string]any{
						"meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "kyma-integration",
					},
				},
				"spec": map[string]any{"source": "shop"},
			}},
		}},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decide(): -want +got:\n%s", diff)
	}
}
