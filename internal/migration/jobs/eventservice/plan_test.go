package eventservice

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
	"github.com/kyma-project/eventmesh-migration/test/view"
)

const (
	oldImage = "eu.gcr.io/kyma-project/event-service:b2aa1331"
	newImage = "eu.gcr.io/kyma-project/event-service:cd9874af"
)

// mesh and legacy are the event-service's container on either path.
func container(image string, mesh bool) string {
	args := "--sourceId=shop"
	if mesh {
		args += ", --eventMeshURL=http://shop.kyma-integration"
	}
	return fmt.Sprintf("[{name: istio-proxy, image: proxy}, {name: shop-event-service, image: %q, args: [%s]}]", image, args)
}

func deployment(t *testing.T, containers, status string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: kyma-integration, name: shop-event-service, generation: 3},
spec: {replicas: 1, progressDeadlineSeconds: 600, template: {spec: {containers: %s}}}, status: {%s}}`, containers, status))
}

const (
	rolledOut = `observedGeneration: 3, replicas: 1, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
conditions: [{type: Progressing, status: "True", reason: NewReplicaSetAvailable}, {type: Available, status: "True"}]`
	rolling = `observedGeneration: 3, replicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
conditions: [{type: Progressing, status: "True", reason: ReplicaSetUpdated}, {type: Available, status: "True"}]`
	stalled = `observedGeneration: 3, replicas: 2, updatedReplicas: 1, readyReplicas: 1, availableReplicas: 1,
conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded}]`
)

func pod(t *testing.T, name, containers, metadata, status string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: kyma-integration, name: %s, labels: {app: shop-event-service}%s}, spec: {containers: %s}, status: {%s}}",
		name, metadata, containers, status))
}

func application(t *testing.T, more string) *unstructured.Unstructured {
	t.Helper()
	return manifest.Object(t, "{apiVersion: applicationconnector.kyma-project.io/v1alpha1, kind: Application, metadata: {name: shop}"+more+"}")
}

const conflict = `rpc error: code = Unknown desc = kind HTTPSource with the name \"shop\" already exists in the cluster and wasn't defined in the previous release. Before upgrading, please either delete the resource from the cluster or remove it from the chart`

func TestStatus(t *testing.T) {
	fresh := func(status string) *unstructured.Unstructured {
		return pod(t, "new", container(newImage, true), "", status)
	}
	for _, tc := range []struct {
		reason     string
		app        string
		deployment *unstructured.Unstructured
		pods       []*unstructured.Unstructured
		image      string
		want       migration.Status
	}{{
		reason:     "on the mesh, rolled out, no former pod",
		deployment: deployment(t, container(newImage, true), rolledOut), pods: []*unstructured.Unstructured{fresh("")}, image: newImage,
		want: migration.Status{State: migration.Met},
	}, {
		reason: "missing, and the operator has not come to it",
		want: migration.Status{
			Message: "it does not exist; application-operator has not upgraded the Application's release yet",
			Note:    "The log of application-operator says why.",
			Command: "kubectl -n kyma-integration logs statefulset/application-operator",
		},
	}, {
		reason:     "not updated: the operator's own description, and the cure for the conflict it knows",
		app:        `, status: {installationStatus: {status: FAILED, description: "` + conflict + `"}}`,
		deployment: deployment(t, container(oldImage, false), rolledOut),
		want: migration.Status{
			Message: `it does not carry --eventMeshURL, so it posts to the Event Bus (image eu.gcr.io/kyma-project/event-service:b2aa1331); the Helm release of Application shop has failed: rpc error: code = Unknown desc = kind HTTPSource with the name "shop" already exists in the cluster and wasn't defined in the previous release. Before upgrading, please either delete the resource from the cluster or remove it from the chart`,
			Note:    "An HTTPSource that the release did not create is in its way. It carries no events while the event-service posts to the Event Bus. After its deletion, restart StatefulSet application-operator, which creates it. To delete it:",
			Command: "kubectl -n kyma-integration delete httpsource.sources.kyma-project.io/shop",
		},
	}, {
		reason:     "another failure of the release",
		app:        `, status: {installationStatus: {status: FAILED, description: "timed out"}}`,
		deployment: deployment(t, container(newImage, true), rolledOut), image: "event-service:next",
		want: migration.Status{
			Message: "it runs image eu.gcr.io/kyma-project/event-service:cd9874af, not event-service:next; the Helm release of Application shop has failed: timed out",
			Note:    "Fix this error. Then restart application-operator. It tries again only when it starts.",
			Command: "kubectl -n kyma-integration rollout restart statefulset application-operator",
		},
	}, {
		reason:     "a failure that application-operator has not described yet: it does so half a minute later",
		app:        `, status: {installationStatus: {status: FAILED, description: ""}}`,
		deployment: deployment(t, container(newImage, true), rolledOut), image: "event-service:next",
		want: migration.Status{
			Message: "it runs image eu.gcr.io/kyma-project/event-service:cd9874af, not event-service:next; the Helm release of Application shop has failed: without a description",
			Note:    "Fix this error. Then restart application-operator. It tries again only when it starts.",
			Command: "kubectl -n kyma-integration rollout restart statefulset application-operator",
		},
	}, {
		reason:     "crashed once: its sidecar may not have been ready",
		deployment: deployment(t, container(newImage, true), rolling),
		pods: []*unstructured.Unstructured{fresh(`phase: Running, containerStatuses: [{name: shop-event-service, ready: false, restartCount: 1, state: {waiting: {reason: CrashLoopBackOff}},
lastState: {terminated: {exitCode: 1, reason: Error, message: "starting\nfatal: no route to the API server\n"}}}]`)},
		want: migration.Status{
			Message: `Pod kyma-integration/new: container shop-event-service crashed once, the last time with exit code 1 (Error), saying "fatal: no route to the API server"`,
			Note:    "Its conditions and Events say why.",
			Command: "kubectl -n kyma-integration describe pod new",
		},
	}, {
		reason:     "crashes again and again: no need to wait",
		deployment: deployment(t, container(newImage, true), rolling),
		pods: []*unstructured.Unstructured{fresh(`phase: Running, containerStatuses: [{name: shop-event-service, ready: false, restartCount: 5, state: {waiting: {reason: CrashLoopBackOff}},
lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]`)},
		want: migration.Status{
			State:   migration.Failed,
			Message: "Pod kyma-integration/new: container shop-event-service crashed 5 times, the last time with exit code 137 (OOMKilled)",
			Note:    "Its conditions and Events say why.",
			Command: "kubectl -n kyma-integration describe pod new",
		},
	}, {
		reason:     "an image that is not there, until the Deployment's own limit",
		deployment: deployment(t, container(newImage, true), stalled),
		pods:       []*unstructured.Unstructured{fresh(`phase: Pending, containerStatuses: [{name: shop-event-service, ready: false, state: {waiting: {reason: ImagePullBackOff, message: "Back-off pulling image"}}}]`)},
		want: migration.Status{
			State:   migration.Failed,
			Message: "Pod kyma-integration/new: the image of container shop-event-service cannot be pulled (ImagePullBackOff): Back-off pulling image (progress deadline exceeded)",
			Note:    "Its conditions and Events say why.",
			Command: "kubectl -n kyma-integration describe pod new",
		},
	}, {
		reason:     "a name that no image can have",
		deployment: deployment(t, container(newImage, true), rolling),
		pods:       []*unstructured.Unstructured{fresh(`phase: Pending, containerStatuses: [{name: shop-event-service, ready: false, state: {waiting: {reason: InvalidImageName, message: "bad"}}}]`)},
		want: migration.Status{
			State:   migration.Failed,
			Message: "Pod kyma-integration/new: the image of container shop-event-service cannot be pulled (InvalidImageName): bad",
			Note:    "Its conditions and Events say why.",
			Command: "kubectl -n kyma-integration describe pod new",
		},
	}, {
		reason:     "no room on any node",
		deployment: deployment(t, container(newImage, true), rolling),
		pods:       []*unstructured.Unstructured{fresh(`phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: 0/3 nodes are available}]`)},
		want: migration.Status{
			Message: "Pod kyma-integration/new: it has no node (Unschedulable): 0/3 nodes are available",
			Note:    "Its conditions and Events say why.",
			Command: "kubectl -n kyma-integration describe pod new",
		},
	}, {
		reason: "somebody has paused it",
		deployment: func() *unstructured.Unstructured {
			d := deployment(t, container(newImage, true), rolling)
			d.Object["spec"].(map[string]any)["paused"] = true
			return d
		}(),
		want: migration.Status{
			Message: "somebody has paused it, so that its pods are not replaced",
			Note:    "To end that:",
			Command: "kubectl -n kyma-integration rollout resume deployment shop-event-service",
		},
	}, {
		reason:     "what is wrong with a former pod does not matter",
		deployment: deployment(t, container(newImage, true), rolling),
		pods:       []*unstructured.Unstructured{pod(t, "a", container(oldImage, false), "", `containerStatuses: [{name: shop-event-service, restartCount: 9, state: {waiting: {reason: CrashLoopBackOff}}}]`)},
		want: migration.Status{
			Message: "it is not rolled out: pending termination: 1",
			Note:    "Its conditions and Events say what is missing.",
			Command: "kubectl -n kyma-integration describe deployment shop-event-service",
		},
	}, {
		reason:     "rolled out, but a former pod is terminating still, and posts to the Event Bus",
		deployment: deployment(t, container(newImage, true), rolledOut),
		pods:       []*unstructured.Unstructured{fresh(""), pod(t, "old", container(oldImage, false), `, deletionTimestamp: "2020-03-04T00:00:00Z"`, "phase: Running")},
		want: migration.Status{
			Message: "Pod kyma-integration/old does not carry --eventMeshURL, so it posts to the Event Bus; it is terminating, and posts until it has ended",
			Note:    "Wait until it has ended, and run again. If it stays, check for a finalizer or a dead node.",
			Command: "kubectl -n kyma-integration get pod/old",
		},
	}, {
		reason:     "on the mesh already, but of a former image",
		deployment: deployment(t, container(newImage, true), rolledOut),
		pods:       []*unstructured.Unstructured{pod(t, "old", container("event-service:1", true), `, deletionTimestamp: "2020-03-04T00:00:00Z"`, "phase: Running")},
		want: migration.Status{
			Message: "Pod kyma-integration/old still runs the former image event-service:1",
			Note:    "Check why it does not end.",
			Command: "kubectl -n kyma-integration describe pod old",
		},
	}, {
		reason:     "an evicted pod of the former version stays for ever and posts nothing",
		deployment: deployment(t, container(newImage, true), rolledOut),
		pods:       []*unstructured.Unstructured{pod(t, "old", container(oldImage, false), "", "phase: Failed")},
		want:       migration.Status{State: migration.Met},
	}} {
		e := eventService{
			name: "shop", namespace: "kyma-integration", application: application(t, tc.app),
			deployment: tc.deployment, image: tc.image, pods: func() []*unstructured.Unstructured { return tc.pods },
		}
		if diff := cmp.Diff(tc.want, e.status()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestOnTheMesh(t *testing.T) {
	failed := func(description string) *unstructured.Unstructured {
		return application(t, fmt.Sprintf(", status: {installationStatus: {status: FAILED, description: %q}}", description))
	}
	c := onTheMesh(migration.SubjectOf(deployments.GroupKind(), "kyma-integration", "shop-event-service"), "")
	old := deployment(t, container(oldImage, false), rolledOut)
	for _, step := range []struct {
		reason string
		v      view.Of
		want   migration.State
	}{
		{"a release that had failed before is tried again", view.Of{failed("long ago"), old}, migration.Pending},
		{"and still", view.Of{failed("long ago"), old}, migration.Pending},
		{"one that fails now is not", view.Of{failed("now"), old}, migration.Failed},
		{"an Application that is gone is nobody's business", view.Of{old}, migration.Met},
		{"nor one that is not to be installed any more", view.Of{application(t, ", spec: {skipInstallation: true}"), old}, migration.Met},
		{"on the mesh, whatever the release says", view.Of{failed("other"), deployment(t, container(newImage, true), rolledOut)}, migration.Met},
	} {
		if got := c.Eval(step.v); got.State != step.want {
			t.Errorf("%s: got %v: %s", step.reason, got.State, got.Message)
		}
	}
}

func TestDecide(t *testing.T) {
	shop := func(more string) objects { return objects{"shop": application(t, more)} }
	good := objects{"shop-event-service": deployment(t, container(newImage, true), rolledOut)}
	old := objects{"shop-event-service": deployment(t, container(oldImage, false), rolledOut)}
	ready := "status: {address: {url: u}, conditions: [{type: Ready, status: 'True'}]}"
	source := objects{"shop": manifest.Object(t, "{apiVersion: s/v1, kind: HTTPSource, metadata: {namespace: kyma-integration, name: shop}, spec: {source: shop}, "+ready+"}")}
	channel := objects{"shop": manifest.Object(t, "{apiVersion: m/v1, kind: Channel, metadata: {namespace: kyma-integration, name: shop}, "+ready+"}")}
	service := objects{"shop": manifest.Object(t, "{apiVersion: v/v1, kind: Service, metadata: {namespace: kyma-integration, name: shop}, "+ready+"}")}
	for _, tc := range []struct {
		reason   string
		s        snapshot
		want     []string
		expected []string
	}{{
		reason:   "all is well",
		s:        snapshot{applications: shop(""), deployments: good, sources: source, channels: channel, services: service},
		want:     []string{"info: : 1 of 1 Applications posted to the mesh, with all they need, when this began"},
		expected: []string{"shop"},
	}, {
		reason: "a release that failed although its event-service is switched: nobody must delete what carries events",
		s: snapshot{
			applications: shop(`, status: {installationStatus: {status: FAILED, description: "` + conflict + `"}}`), deployments: good,
			sources: source, channels: channel, services: service,
		},
		want: []string{
			`warning: Application shop: its event-service posts to the mesh, but its Helm release has failed: rpc error: code = Unknown desc = kind HTTPSource with the name "shop" already exists in the cluster and wasn't defined in the previous release. Before upgrading, please either delete the resource from the cluster or remove it from the chart: Do not delete the HTTPSource now`,
			"info: : 1 of 1 Applications posted to the mesh, with all they need, when this began",
		},
		expected: []string{"shop"},
	}, {
		reason: "nothing is: both are waited for, neither hides the other",
		s:      snapshot{applications: shop(""), deployments: objects{}, sources: source, services: service},
		want: []string{
			"await Deployment kyma-integration/shop-event-service: it does not exist; application-operator has not upgraded the Application's release yet",
			"await HTTPSource kyma-integration/shop: adapter Service kyma-integration/shop takes events, and there is no Channel kyma-integration/shop to send them to",
			"info: : 0 of 1 Applications posted to the mesh, with all they need, when this began",
		},
		expected: []string{"shop"},
	}, {
		reason: "spec.skipInstallation with an event-service from before is reported, not waited for",
		s:      snapshot{applications: shop(", spec: {skipInstallation: true}"), deployments: old},
		want:   []string{"warning: Application shop: spec.skipInstallation is true, so application-operator does not upgrade its release, and its event-service goes on posting to the Event Bus: it does not carry --eventMeshURL, so it posts to the Event Bus"},
	}, {
		reason: "without one there is nothing to report but that",
		s:      snapshot{applications: shop(", spec: {skipInstallation: true}")},
		want:   []string{"info: Application shop: spec.skipInstallation is true and it has no event-service: there are no events to take"},
	}, {
		reason: "an old pod without its Deployment posts on",
		s:      snapshot{applications: shop(", spec: {skipInstallation: true}"), pods: []*unstructured.Unstructured{pod(t, "p", container(oldImage, false), "", "")}},
		want:   []string{"warning: Application shop: spec.skipInstallation is true, so application-operator does not upgrade its release, and its event-service goes on posting to the Event Bus: Pod kyma-integration/p does not carry --eventMeshURL, so it posts to the Event Bus"},
	}, {
		reason: "left out by its label",
		s:      snapshot{applications: objects{"shop": manifest.Object(t, "{apiVersion: a/v1, kind: Application, metadata: {name: shop, labels: {eventmesh-migration.kyma-project.io/skip: 'true'}}}")}},
		want:   []string{"info: Application shop: left out: it carries the label eventmesh-migration.kyma-project.io/skip=true"},
	}, {
		reason: "no Kyma",
		s:      snapshot{kinds: kinds{missing: []schema.GroupKind{kyma.Application}}},
		want:   []string{"info: : the API server serves no kind Application (applicationconnector.kyma-project.io): this is no Kyma cluster with application-connector"},
	}, {
		reason: "a kind that must be there while there is work is not served, and the component is named",
		s:      snapshot{kinds: kinds{missing: []schema.GroupKind{kyma.HTTPSource}}, applications: shop(""), deployments: good},
		want: []string{
			"await HTTPSource kyma-integration/shop: it does not exist",
			"error: : the API server serves no kind HTTPSource (sources.kyma-project.io), without which no event enters the mesh",
			"info: : 0 of 1 Applications posted to the mesh, with all they need, when this began",
		},
		expected: []string{"shop"},
	}, {
		reason: "Kyma's own migration runs",
		s:      snapshot{migrations: []string{"j"}},
		want:   []string{"error: Job kyma-system/j: Kyma's own migration is running: what is verified now may not hold when it ends"},
	}} {
		k := assumedKinds()
		k.missing = tc.s.kinds.missing
		tc.s.kinds = k
		plan, expected := decide(&tc.s, New().options)
		got := []string{}
		for _, u := range plan.Units {
			if u.Writes() {
				t.Errorf("%s: it must not write: %s", tc.reason, u.ID)
			}
			got = append(got, "await "+u.Changes[0].Ref.String()+": "+u.Changes[0].Why)
		}
		for _, f := range plan.Findings {
			hint, _, _ := strings.Cut(f.Note, ":")
			if !strings.HasPrefix(hint, "Do not delete") {
				hint = ""
			}
			got = append(got, strings.TrimSuffix(string(f.Severity)+": "+f.Object+": "+f.Problem+": "+hint, ": "))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if diff := cmp.Diff(tc.expected, expected); diff != "" {
			t.Errorf("%s: expected Applications (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestComplete: what Await and the probe need to know is in the plan, and so no job remembers it.
func TestComplete(t *testing.T) {
	s := &snapshot{kinds: assumedKinds(), applications: objects{"a": application(t, ""), "b": application(t, "")}}
	j := New()
	plan, expected := decide(s, j.options)
	j.complete(plan, expected)
	if plan.Probe != nil {
		t.Error("it posts, and nobody asked for that")
	}
	for i := range plan.Units {
		ch := &plan.Units[i].Changes[0]
		if got := New().Await(ch)[0].Timeout; got != j.rollout+2*j.perApplication {
			t.Errorf("%s: another process waits for %s", ch.Ref, got)
		}
	}
	if got := j.Await(&migration.Change{Verb: migration.Await, Ref: migration.Ref{Resource: deployments, Name: "a-event-service"}})[0].Timeout; got != j.rollout+j.perApplication {
		t.Errorf("without a plan: %s", got)
	}
	if j.smoke = true; len(plan.Units) != 4 {
		t.Errorf("%d units", len(plan.Units))
	}
	if j.complete(plan, nil); plan.Probe == nil || len(plan.Probe(t.Context())) != 1 {
		t.Error("--smoke does not post")
	}
}
