package scaledown

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

func bus(t *testing.T, name string, replicas int, metadata string, pods ...string) busDeployment {
	t.Helper()
	return busDeployment{
		ref: migration.Ref{Resource: deployments, Namespace: "kyma-system", Name: name}, pods: pods,
		object: manifest.Object(t, fmt.Sprintf("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: %s, uid: u-%s%s}, spec: {replicas: %d}}", name, name, metadata, replicas)),
	}
}

func absent(name string, pods ...string) busDeployment {
	return busDeployment{ref: migration.Ref{Resource: deployments, Namespace: "kyma-system", Name: name}, pods: pods}
}

// summary is a plan in words.
func summary(p *migration.Plan) []string {
	out := []string{}
	for _, u := range p.Units {
		for i := range u.Changes {
			ch := &u.Changes[i]
			line := fmt.Sprintf("%s %s", ch.Verb, ch.Ref)
			if ch.Patch != nil {
				line += " " + string(ch.Patch)
			}
			for _, edit := range ch.Lists {
				line += fmt.Sprintf(" %s -%v +%v", strings.Join(edit.Path, "."), edit.Remove, edit.Add)
			}
			if ch.Verb == migration.Patch && !ch.Guard {
				line += " unguarded"
			}
			if ch.Irreversible {
				line += " for good"
			}
			out = append(out, line)
		}
	}
	for _, f := range p.Findings {
		out = append(out, string(f.Severity)+": "+f.Object+": "+f.Problem)
	}
	return out
}

func TestDecide(t *testing.T) {
	const pub, ctl = "event-bus-event-publish-service", "event-bus-subscription-controller"
	activation := migration.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: kyma.EventActivation.Group, Version: "v1alpha1", Resource: "eventactivations"},
		Kind:                 kyma.EventActivation.Kind,
	}
	ea := func(more string) *unstructured.Unstructured {
		return manifest.Object(t, "{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: EventActivation, metadata: {namespace: shop, name: svc"+more+"}}")
	}
	for _, tc := range []struct {
		reason string
		s      snapshot
		want   []string
	}{{
		reason: "both are up and nothing uses them: in order, and the numbers are kept",
		s:      snapshot{bus: []busDeployment{bus(t, pub, 2, "", "p1", "p2"), bus(t, ctl, 1, "", "c1")}},
		want: []string{
			`patch Deployment kyma-system/` + pub + ` {"metadata":{"labels":{"eventmesh-migration.kyma-project.io/replicas":"2"}},"spec":{"replicas":0}}`,
			`patch Deployment kyma-system/` + ctl + ` {"metadata":{"labels":{"eventmesh-migration.kyma-project.io/replicas":"1"}},"spec":{"replicas":0}}`,
		},
	}, {
		reason: "a second run: 0 is never kept as what there was before",
		s: snapshot{bus: []busDeployment{
			bus(t, pub, 0, `, labels: {eventmesh-migration.kyma-project.io/replicas: "2"}`), bus(t, ctl, 0, ""),
		}},
		want: []string{},
	}, {
		reason: "one that does not exist counts as 0",
		s:      snapshot{bus: []busDeployment{absent(pub), absent(ctl)}},
		want:   []string{},
	}, {
		reason: "but its pods may be there still",
		s:      snapshot{bus: []busDeployment{absent(pub, "p1"), bus(t, ctl, 0, "", "c1")}},
		want:   []string{"await Deployment kyma-system/" + pub, "await Deployment kyma-system/" + ctl},
	}, {
		reason: "an event-service that posts to the Event Bus",
		s: snapshot{
			bus:           []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 1, "")},
			eventServices: []eventService{{application: "shop", why: unswitched("it does not carry --eventMeshURL")}},
		},
		want: []string{"deferred: Application shop: the Event Bus keeps running, because event-service shop-event-service is not switched to the mesh: it does not carry --eventMeshURL"},
	}, {
		reason: "an event-service that was opted out keeps the bus up, but is no failure",
		s: snapshot{
			bus:           []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 1, "")},
			eventServices: []eventService{{application: "shop", why: unswitched("old"), optedOut: true}},
		},
		want: []string{"warning: Application shop: the Event Bus keeps running, because event-service shop-event-service is not switched to the mesh: old"},
	}, {
		reason: "Kyma Subscriptions that are left, and some that were left out",
		s: snapshot{
			bus:           []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 1, "")},
			subscriptions: []subscription{{name: "a/1"}, {name: "b/2"}, {name: "c/3", leftOut: true}},
		},
		want: []string{
			"deferred: : the Event Bus keeps running, because 2 Kyma Subscriptions are left: a/1, b/2",
			"warning: : the Event Bus keeps running for 1 Kyma Subscription that is no part of the migration (by the label eventmesh-migration.kyma-project.io/skip=true, or by the namespace): c/3",
		},
	}, {
		reason: "needed again after an earlier run took one half down",
		s: snapshot{
			bus:           []busDeployment{bus(t, pub, 0, `, labels: {eventmesh-migration.kyma-project.io/replicas: "2"}`), bus(t, ctl, 1, "")},
			subscriptions: []subscription{{name: "a/1"}},
		},
		want: []string{
			"deferred: : the Event Bus keeps running, because 1 Kyma Subscription is left: a/1",
			"warning: Deployment kyma-system/" + pub + ": it is at 0 since an earlier run, while the Event Bus is needed",
		},
	}, {
		reason: "scaled up again since an earlier run, and who may do it again",
		s: snapshot{bus: []busDeployment{
			func() busDeployment {
				d := bus(t, pub, 3, `, labels: {argocd.argoproj.io/instance: kyma, eventmesh-migration.kyma-project.io/replicas: "2"}`)
				d.autoscalers = []string{"hpa"}
				return d
			}(),
			bus(t, ctl, 0, ""),
		}},
		want: []string{
			`patch Deployment kyma-system/` + pub + ` {"metadata":{"labels":{"eventmesh-migration.kyma-project.io/replicas":"3"}},"spec":{"replicas":0}}`,
			"warning: Deployment kyma-system/" + pub + ": an earlier run scaled it from 2 to 0, and it is at 3 again. An upgrade of the event-bus chart does that, and any other tool that manages it",
			"warning: Deployment kyma-system/" + pub + ": HorizontalPodAutoscaler kyma-system/hpa targets it: it is out of work while the Deployment is at 0, and takes over again once it is not",
			"warning: Deployment kyma-system/" + pub + ": Argo CD manages it (argocd.argoproj.io/instance) and may scale it up again",
		},
	}, {
		reason: "Kyma's own migration runs: nothing else is said or done",
		s: snapshot{
			migrations:    []string{"event-bus-mesh-namespaces-migration"},
			bus:           []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 1, "")},
			subscriptions: []subscription{{name: "a/1"}},
		},
		want: []string{"error: Job kyma-system/event-bus-mesh-namespaces-migration: Kyma's own migration is running: it recreates ServiceInstances and deletes the Kyma Subscriptions that are still needed"},
	}, {
		reason: "the label on a Deployment leaves the whole bus alone",
		s:      snapshot{bus: []busDeployment{bus(t, pub, 2, `, labels: {eventmesh-migration.kyma-project.io/skip: "true"}`), bus(t, ctl, 1, "")}},
		want:   []string{"warning: Deployment kyma-system/" + pub + ": it carries the label eventmesh-migration.kyma-project.io/skip=true, so the Event Bus is left running"},
	}, {
		reason: "finalizers go last, only the one, and what cannot come back at the very end",
		s: snapshot{
			bus:        []busDeployment{bus(t, pub, 2, ""), bus(t, ctl, 0, "")},
			activation: activation,
			activations: []*unstructured.Unstructured{
				ea(`, deletionTimestamp: "2020-03-04T00:00:00Z", finalizers: [eventactivation.finalizers.kyma-project.io]`),
				ea(`-b, finalizers: [other, eventactivation.finalizers.kyma-project.io]`),
			},
		},
		want: []string{
			`patch Deployment kyma-system/` + pub + ` {"metadata":{"labels":{"eventmesh-migration.kyma-project.io/replicas":"2"}},"spec":{"replicas":0}}`,
			`patch EventActivation shop/svc-b metadata.finalizers -[eventactivation.finalizers.kyma-project.io] +[]`,
			`patch EventActivation shop/svc metadata.finalizers -[eventactivation.finalizers.kyma-project.io] +[] for good`,
		},
	}} {
		plan := decide(&tc.s, New().options)
		if diff := cmp.Diff(tc.want, summary(plan)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if !plan.Serial {
			t.Errorf("%s: the order counts", tc.reason)
		}
	}
}

func TestNoPods(t *testing.T) {
	const (
		zero    = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: pub, generation: 2}, spec: {replicas: 0, selector: {matchLabels: {app: pub}}}, status: {observedGeneration: 2}}"
		two     = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: pub, generation: 1}, spec: {replicas: 2}, status: {observedGeneration: 1, replicas: 2}}"
		unseen  = "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-system, name: pub, generation: 2}, spec: {replicas: 0}, status: {observedGeneration: 1, replicas: 2}}"
		set     = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: kyma-system, name: pub-abc, ownerReferences: [{kind: Deployment, name: pub, controller: true}]}}"
		foreign = "{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: kyma-system, name: pub-2-abc, ownerReferences: [{kind: Deployment, name: pub-2, controller: true}]}}"
	)
	pod := func(more, owner string) string {
		if owner != "" {
			more += fmt.Sprintf(", ownerReferences: [{kind: ReplicaSet, name: %s, controller: true}]", owner)
		}
		return "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-system, name: p" + more + "}, status: {phase: Running}}"
	}
	for _, tc := range []struct {
		reason  string
		objects []string
		want    migration.State
		message string
	}{
		{reason: "at 0, seen, and no pod", objects: []string{zero, set}, want: migration.Met},
		{reason: "no Deployment and no pod", want: migration.Met},
		{reason: "a view that lags behind the write is no sign of anybody", objects: []string{two}, want: migration.Pending, message: "it still has 2 replicas"},
		{reason: "not seen by its controller", objects: []string{unseen}, want: migration.Pending, message: "its controller has not seen the change yet"},
		{
			reason: "a terminating pod exists, with whatever labels", objects: []string{zero, set, pod(`, deletionTimestamp: "2020-03-04T00:00:00Z", finalizers: [f]`, "pub-abc")},
			want: migration.Pending, message: `1 pod still exists; Pod kyma-system/p is terminating and has the finalizers ["f"]`,
		},
		{
			reason: "a pod that outlives its ReplicaSet and its Deployment", objects: []string{pod(", labels: {pod-template-hash: abc}", "pub-abc")},
			want: migration.Pending, message: "1 pod still exists; Pod kyma-system/p is not terminating",
		},
		{
			reason: "an orphaned pod is known by its labels", objects: []string{zero, pod(", labels: {app: pub}", "")},
			want: migration.Pending, message: "1 pod still exists; Pod kyma-system/p is not terminating",
		},
		{reason: "a pod of another Deployment with the same labels", objects: []string{zero, set, foreign, pod(", labels: {app: pub}", "pub-2-abc")}, want: migration.Met},
		{
			reason:  "an evicted pod stays for ever and does nothing",
			objects: []string{zero, set, "{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-system, name: p, ownerReferences: [{kind: ReplicaSet, name: pub-abc, controller: true}]}, status: {phase: Failed}}"},
			want:    migration.Met,
		},
	} {
		var v view.Of
		for _, text := range tc.objects {
			v = append(v, manifest.Object(t, text))
		}
		c := noPods(&migration.Change{Ref: migration.Ref{Resource: deployments, Namespace: "kyma-system", Name: "pub"}})
		got := c.Eval(v)
		if got.State != tc.want || got.Message != tc.message {
			t.Errorf("%s: got %v %q, want %v %q", tc.reason, got.State, got.Message, tc.want, tc.message)
		}
	}

	c := noPods(&migration.Change{Ref: migration.Ref{Resource: deployments, Namespace: "kyma-system", Name: "pub"}})
	if got := c.Eval(view.Of{manifest.Object(t, unseen)}); got.State != migration.Pending {
		t.Errorf("got %v", got)
	}
	if got := c.Eval(view.Of{manifest.Object(t, two)}); got.State != migration.Failed || got.Message != "somebody scaled it up again, to 2" {
		t.Errorf("once it was seen at 0, more than that is somebody's doing: %v %q", got.State, got.Message)
	}
}

func TestAwait(t *testing.T) {
	j := New()
	patch := migration.Change{Verb: migration.Patch, Ref: migration.Ref{Resource: deployments, Namespace: "n", Name: "d"}}
	// A change of another process comes out of a journal, as JSON.
	raw, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	var stored migration.Change
	if err := json.Unmarshal(raw, &stored); err != nil {
		t.Fatal(err)
	}
	if c := j.Await(&stored); len(c) != 1 || c[0].Timeout != j.podsTimeout || len(c[0].On) != 3 {
		t.Errorf("a scaled Deployment is awaited within --pods-timeout: %+v", c)
	}
	stored.Verb = migration.Await
	if c := j.Await(&stored); len(c) != 1 {
		t.Errorf("one that is at 0 already is awaited, too: %+v", c)
	}
	other := migration.Change{Verb: migration.Patch, Ref: migration.Ref{Resource: migration.Resource{Kind: "EventActivation"}}}
	if c := j.Await(&other); c != nil {
		t.Errorf("a finalizer is off at once: %+v", c)
	}
}

func TestValidate(t *testing.T) {
	j := New()
	if err := j.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	j.podsTimeout = 0
	j.options.namespace = "Kyma System"
	j.options.controller = j.options.publisher
	want := `--pods-timeout must be positive, not 0s
--event-bus-namespace "Kyma System" is not the name of a namespace: a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')
--publisher and --subscription-controller are both "event-bus-event-publish-service"`
	err := j.Validate()
	if err == nil {
		t.Fatal("nothing is wrong?")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("every bad value at once (-want +got):\n%s", diff)
	}
}

// unswitched is an answer about the event-service of the Application shop.
func unswitched(problem string) eventpath.Answer {
	return eventpath.Answer{Defect: eventpath.EventServiceNotSwitched, Problem: problem, Note: "Upgrade application-connector."}
}
