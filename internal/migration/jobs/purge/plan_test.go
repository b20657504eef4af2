package purge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

// one is an object of a kind with that metadata, besides its name.
func one(t *testing.T, kind, metadata string) found {
	t.Helper()
	ref := migration.Ref{Resource: migration.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "g", Version: "v1"}, Kind: kind}, Namespace: "ns", Name: "x"}
	return found{ref, manifest.Object(t, fmt.Sprintf("{apiVersion: g/v1, kind: %s, metadata: {namespace: ns, name: x%s}}", kind, metadata))}
}

func crd(t *testing.T, versions string) *definitionFound {
	t.Helper()
	ref := migration.Ref{Resource: migration.Resource{Kind: definition.Kind}, Name: definitionName}
	obj := manifest.Object(t, "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: "+definitionName+"}, spec: {"+versions+"}}")
	return &definitionFound{found: found{ref, obj}, image: obj}
}

func summary(p *migration.Plan) []string {
	out := []string{}
	for _, u := range p.Units {
		var changes []string
		for i := range u.Changes {
			ch := &u.Changes[i]
			change := string(ch.Verb) + string(ch.Patch)
			for _, edit := range ch.Lists {
				change += fmt.Sprintf(" %s -%v +%v", strings.Join(edit.Path, "."), edit.Remove, edit.Add)
			}
			switch {
			case i == 0 && !ch.Guard:
				change += " unguarded"
			case ch.Verb == migration.Delete && ch.Object == nil:
				change += " of whatever is there"
			}
			if ch.Irreversible {
				change += " for good"
			}
			changes = append(changes, change)
		}
		out = append(out, u.ID+": "+strings.Join(changes, ", "))
	}
	for _, f := range p.Findings {
		out = append(out, string(f.Severity)+": "+f.String())
	}
	return out
}

const (
	busFinalizer  = ", finalizers: [subscription.finalizers.kyma-project.io]"
	both          = ", finalizers: [subscription.finalizers.kyma-project.io, subscription-controller]"
	eaFinalizer   = ", finalizers: [eventactivation.finalizers.kyma-project.io]"
	beingDeleted  = `, deletionTimestamp: "2020-03-04T00:00:00Z"`
	onlyV1alpha1  = "versions: [{name: v1alpha1, served: true}]"
	withNewer     = "versions: [{name: v1alpha1, served: true}, {name: v1alpha2, served: true}]"
	newerUnserved = "versions: [{name: v1alpha1, served: true}, {name: v1alpha2, served: false}]"
	oldForm       = "version: v1alpha1"
)

func TestDecide(t *testing.T) {
	run := mode{yes: true, deleteTimeout: time.Minute}
	for _, tc := range []struct {
		reason string
		s      snapshot
		mode   mode
		want   []string
	}{{
		reason: "nothing is left", mode: run, want: []string{},
	}, {
		reason: "everything, in order: deliveries, Channels, finalizers, the kind",
		s: snapshot{
			channels: []found{one(t, "Channel", "")}, channelSubscriptions: []found{one(t, "Subscription", both)}, subscribed: map[string]bool{"x": true},
			activations: []found{one(t, "EventActivation", eaFinalizer)}, definition: crd(t, onlyV1alpha1),
		},
		mode: run,
		want: []string{
			`Subscription ns/x: patch metadata.finalizers -[subscription.finalizers.kyma-project.io] +[], delete`,
			`Channel ns/x: delete`,
			`EventActivation ns/x: patch metadata.finalizers -[eventactivation.finalizers.kyma-project.io] +[]`,
			`CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete`,
		},
	}, {
		reason: "a Channel that nobody subscribes to is named",
		s:      snapshot{channels: []found{one(t, "Channel", "")}},
		mode:   run,
		want: []string{
			`Channel ns/x: delete`,
			`info: Channel ns/x: no Knative Subscription subscribes to it: the subscription-controller left it when it deleted several at once`,
		},
	}, {
		reason: "what hangs on our finalizers goes for good, after what can come back and before the kind",
		s: snapshot{
			channelSubscriptions: []found{one(t, "Subscription", busFinalizer+beingDeleted)}, channels: []found{one(t, "Channel", beingDeleted+", finalizers: [other]")},
			activations:   []found{one(t, "EventActivation", eaFinalizer+beingDeleted), one(t, "EventActivation", eaFinalizer)},
			subscriptions: []found{one(t, "KymaSubscription", busFinalizer+beingDeleted)}, definition: crd(t, oldForm),
		},
		mode: run,
		want: []string{
			`EventActivation ns/x: patch metadata.finalizers -[eventactivation.finalizers.kyma-project.io] +[]`,
			`Subscription ns/x: patch metadata.finalizers -[subscription.finalizers.kyma-project.io] +[] for good`,
			`EventActivation ns/x: patch metadata.finalizers -[eventactivation.finalizers.kyma-project.io] +[] for good`,
			`KymaSubscription ns/x: patch metadata.finalizers -[subscription.finalizers.kyma-project.io] +[] for good`,
			`CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete`,
		},
	}, {
		reason: "a run must be told to delete",
		s:      snapshot{definition: crd(t, onlyV1alpha1)}, mode: mode{},
		want: []string{
			"CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete",
			"error: it deletes objects, and the deletion is not confirmed (Read the plan first. Then confirm it: eventmesh-migrate run --job=eventbus-purge --eventbus-purge.yes)",
		},
	}, {
		reason: "a plan need not",
		s:      snapshot{definition: crd(t, onlyV1alpha1)}, mode: mode{dryRun: true},
		want: []string{"CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete"},
	}, {
		reason: "everything that is in use has a name, and the releases their commands",
		s: snapshot{
			helm2: "DEPLOYED", helm3: "deployed", subscriptions: []found{one(t, "Subscription", busFinalizer)},
			running:    []migration.Ref{{Resource: deployments, Namespace: "kyma-system", Name: "d"}, {Resource: pods, Namespace: "kyma-system", Name: "p"}},
			triggers:   []found{one(t, "Trigger", "")},
			migrations: []string{"j"},
		},
		mode: run,
		want: []string{
			"error: Job kyma-system/j: Kyma's own migration is running (Wait until it has ended. Or remove the sub-chart mesh-namespaces-migration from the event-bus chart (docs/migration/migration-guide-1.11.md), and stop the Job: kubectl -n kyma-system delete job j)",
			"error: the Helm 2 release event-bus exists (DEPLOYED) (This job does not delete the release. To delete it with Helm 2: helm delete --purge --tls event-bus)",
			"error: the Helm 3 release event-bus exists in namespace kyma-system (deployed) (This job does not delete the release. To delete it with Helm 3: helm uninstall event-bus --namespace kyma-system)",
			"error: Deployment kyma-system/d: it is a part of the Event Bus, and not at 0 replicas (eventbus-scaledown scales the Event Bus to 0 when nothing uses it: eventmesh-migrate run --job=eventbus-scaledown)",
			"error: Pod kyma-system/p: it is a pod of the Event Bus (eventbus-scaledown scales the Event Bus to 0 when nothing uses it: eventmesh-migrate run --job=eventbus-scaledown)",
			"error: Subscription ns/x: it is a Kyma Subscription, which only the Event Bus serves (Delete it, or let trigger-sync move it to the mesh: eventmesh-migrate run --job=trigger-sync)",
			"error: Trigger ns/x: it is not ready, so the mesh may not deliver yet: it has no status yet (To ignore it, label it eventmesh-migration.kyma-project.io/skip=true. Its conditions say why: kubectl -n ns describe trigger.eventing.knative.dev/x)",
		},
	}, {
		reason: "a plan warns of it",
		s:      snapshot{helm3: "deployed"}, mode: mode{dryRun: true},
		want: []string{"warning: the Helm 3 release event-bus exists in namespace kyma-system (deployed) (This job does not delete the release. To delete it with Helm 3: helm uninstall event-bus --namespace kyma-system)"},
	}, {
		reason: "unless it is asked to fail",
		s:      snapshot{helm3: "deployed"}, mode: mode{dryRun: true, failIfInUse: true},
		want: []string{"error: the Helm 3 release event-bus exists in namespace kyma-system (deployed) (This job does not delete the release. To delete it with Helm 3: helm uninstall event-bus --namespace kyma-system)"},
	}, {
		reason: "a newer version of Kyma uses the kind",
		s:      snapshot{definition: crd(t, withNewer)}, mode: run,
		want: []string{"info: CustomResourceDefinition subscriptions.eventing.kyma-project.io: kept: it serves v1alpha2, which a newer version of Kyma uses"},
	}, {
		reason: "a version that is not served uses nothing",
		s:      snapshot{definition: crd(t, newerUnserved)}, mode: run,
		want: []string{"CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete"},
	}, {
		reason: "what the API server would not create again is deleted permanently, and that is said",
		s: snapshot{definition: func() *definitionFound {
			d := crd(t, onlyV1alpha1)
			d.refusal = "spec.versions[0].schema: Required value"
			return d
		}()}, mode: run,
		want: []string{
			"CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete for good",
			"warning: CustomResourceDefinition subscriptions.eventing.kyma-project.io: it is deleted permanently, because this API server would not create it again: spec.versions[0].schema: Required value (To leave the kind in the cluster, label the definition eventmesh-migration.kyma-project.io/skip=true. To store a copy: kubectl get customresourcedefinition subscriptions.eventing.kyma-project.io -o yaml)",
		},
	}, {
		reason: "one that comes back in another form",
		s: snapshot{definition: func() *definitionFound {
			d := crd(t, onlyV1alpha1)
			d.converted = true
			return d
		}()}, mode: run,
		want: []string{
			"CustomResourceDefinition subscriptions.eventing.kyma-project.io: delete",
			"info: CustomResourceDefinition subscriptions.eventing.kyma-project.io: this API server would refuse to create it as it is. An undo creates it in the form that apiextensions v1 accepts, which also stores unknown fields",
		},
	}, {
		reason: "Subscriptions of another form are not the Event Bus's, and no reason to refuse",
		s:      snapshot{definition: crd(t, onlyV1alpha1), foreign: []found{one(t, "Subscription", "")}}, mode: run,
		want: []string{"info: CustomResourceDefinition subscriptions.eventing.kyma-project.io: kept: Subscription ns/x is no Subscription of the Event Bus, so something else uses the kind"},
	}, {
		reason: "a Kyma Subscription with a finalizer of others stays, and so does the kind",
		s:      snapshot{definition: crd(t, onlyV1alpha1), subscriptions: []found{one(t, "Subscription", ", finalizers: [other]"+beingDeleted)}}, mode: run,
		want: []string{"info: CustomResourceDefinition subscriptions.eventing.kyma-project.io: kept: a Kyma Subscription that is being deleted has finalizers of others"},
	}} {
		if diff := cmp.Diff(tc.want, summary(decide(&tc.s, New().options, tc.mode))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestValidate(t *testing.T) {
	j := New()
	if err := j.Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	j.deleteTimeout, j.options.release = 0, "Event Bus"
	if err := j.Validate(); err == nil || !strings.Contains(err.Error(), "--delete-timeout") || !strings.Contains(err.Error(), "--release") {
		t.Errorf("every bad value at once: %v", err)
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
}
