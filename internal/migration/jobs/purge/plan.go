package purge

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// mode is how the job was called.
type mode struct {
	dryRun, failIfInUse, yes bool
	deleteTimeout            time.Duration
}

// legacyVersion is the one at which the Event Bus knows Kyma Subscriptions.
const legacyVersion = "v1alpha1"

// decide makes the plan. It is pure.
func decide(s *snapshot, o options, m mode) *migration.Plan {
	// In order: deliveries first, then what they came from, finalizers, and the
	// kind itself.
	plan := &migration.Plan{Serial: true}
	used := inUse(s, o)
	for i := range used {
		if m.dryRun && !m.failIfInUse {
			used[i].Severity = migration.Warning
		}
	}
	plan.Findings = used

	// What cannot be undone comes last, but for the kind, which needs it.
	var forGood []migration.Unit
	add := func(u migration.Unit) {
		// What belongs to the first change goes with it, or not at all.
		u.Changes[0].Guard = true
		if u.Changes[0].Irreversible {
			forGood = append(forGood, u)
			return
		}
		plan.Units = append(plan.Units, u)
	}
	for _, f := range slices.Concat(s.channelSubscriptions, s.channels) {
		if u, ok := remove(f, m.deleteTimeout); ok {
			add(u)
		}
	}
	plan.Findings = append(plan.Findings, leaked(s)...)
	for _, f := range s.activations {
		add(release(f, kyma.EventActivationFinalizer))
	}
	for _, f := range s.subscriptions {
		// Others are in use.
		if f.object.GetDeletionTimestamp() != nil && slices.Contains(f.object.GetFinalizers(), kyma.SubscriptionFinalizer) {
			add(release(f, kyma.SubscriptionFinalizer))
		}
	}
	plan.Units = append(plan.Units, forGood...)
	crd, findings := decideDefinition(s, m)
	plan.Units = append(plan.Units, crd...)
	plan.Findings = append(plan.Findings, findings...)

	if len(plan.Units) > 0 && !m.dryRun && !m.yes {
		plan.Findings = append(plan.Findings, migration.Finding{
			ID: "purge-not-confirmed", Severity: migration.Error, Problem: "it deletes objects, and the deletion is not confirmed",
			Note: "Read the plan first. Then confirm it:", Command: "eventmesh-migrate run --job=eventbus-purge --eventbus-purge.yes",
		})
	}
	return plan
}

// leaked names the Channels that the subscription-controller left although nobody
// subscribed to them any more.
func leaked(s *snapshot) []migration.Finding {
	var findings []migration.Finding
	for _, f := range s.channels {
		if !s.subscribed[f.ref.Name] && f.object.GetDeletionTimestamp() == nil {
			findings = append(findings, migration.Finding{
				ID: "channel-without-subscriber", Severity: migration.Info, Object: f.ref.String(),
				Problem: "no Knative Subscription subscribes to it: the subscription-controller left it when it deleted several at once",
			})
		}
	}
	return findings
}

// inUse says what of the Event Bus is still used.
func inUse(s *snapshot, o options) []migration.Finding {
	var findings []migration.Finding
	refuse := func(id, object, problem, note, command string) {
		findings = append(findings, migration.Finding{ID: id, Severity: migration.Error, Object: object, Problem: problem, Note: note, Command: command})
	}
	for _, name := range s.migrations {
		refuse("stock-migration-runs", "Job "+o.namespace+"/"+name, "Kyma's own migration is running",
			kyma.StopMeshMigration, migration.Kubectl(o.namespace, "delete", "job", name))
	}
	if s.helm2 != "" {
		refuse("helm-release-exists", "", fmt.Sprintf("the Helm 2 release %s exists (%s)", o.release, s.helm2),
			"This job does not delete the release. To delete it with Helm 2:",
			migration.CommandLine("helm", "delete", "--purge", "--tls", o.release))
	}
	if s.helm3 != "" {
		refuse("helm-release-exists", "", fmt.Sprintf("the Helm 3 release %s exists in namespace %s (%s)", o.release, o.namespace, s.helm3),
			"This job does not delete the release. To delete it with Helm 3:",
			migration.CommandLine("helm", "uninstall", o.release, "--namespace", o.namespace))
	}
	for _, ref := range s.running {
		what := "it is a pod of the Event Bus"
		if ref.Kind == deployments.Kind {
			what = "it is a part of the Event Bus, and not at 0 replicas"
		}
		refuse("bus-still-up", ref.String(), what, "eventbus-scaledown scales the Event Bus to 0 when nothing uses it.", "eventmesh-migrate run --job=eventbus-scaledown")
	}
	for _, f := range s.subscriptions {
		if f.object.GetDeletionTimestamp() == nil {
			refuse("kyma-subscription-in-use", f.ref.String(), "it is a Kyma Subscription, which only the Event Bus serves",
				"Delete it, or let trigger-sync move it to the mesh.", "eventmesh-migrate run --job=trigger-sync")
		}
	}
	for _, f := range s.triggers {
		r := k8sobject.ReadinessOf(f.object)
		why := strings.TrimSuffix(strings.Join([]string{r.Reason, r.Message}, ": "), ": ")
		if why == "" {
			why = "it has no status yet"
		}
		refuse("mesh-trigger-not-ready", f.ref.String(), "it is not ready, so the mesh may not deliver yet: "+why,
			"To ignore it, label it "+kyma.OptOutLabel+"=true. Its conditions say why.", migration.Kind{GroupKind: knative.Trigger}.Describe(f.ref.Namespace, f.ref.Name))
	}
	return findings
}

// remove deletes a Channel or a Knative Subscription; false if it is on its way
// already, and nothing here holds it.
func remove(f found, limit time.Duration) (migration.Unit, bool) {
	u := migration.Unit{ID: f.ref.String()}
	terminating := f.object.GetDeletionTimestamp() != nil
	if slices.Contains(f.object.GetFinalizers(), kyma.SubscriptionFinalizer) {
		u = release(f, kyma.SubscriptionFinalizer)
		if terminating {
			return u, true
		}
	}
	if terminating {
		return u, false
	}
	u.Changes = append(u.Changes, migration.Change{
		Verb: migration.Delete, Ref: f.ref, UID: f.object.GetUID(), Object: f.object, Timeout: limit,
		Why: "the Event Bus made it, and is gone; what NATS Streaming still holds for it is dropped",
	})
	return u, true
}

// release removes one finalizer of an object, and no other one.
func release(f found, finalizer string) migration.Unit {
	return migration.Unit{ID: f.ref.String(), Changes: []migration.Change{{
		Verb: migration.Patch, Ref: f.ref, UID: f.object.GetUID(), Lists: migration.RemoveFinalizer(finalizer),
		// One that is being deleted goes at once, and does not come back.
		Irreversible: f.object.GetDeletionTimestamp() != nil,
		Why:          "nobody else removes the finalizer " + finalizer,
	}}}
}

// decideDefinition decides about the CustomResourceDefinition of Kyma
// Subscriptions.
func decideDefinition(s *snapshot, m mode) ([]migration.Unit, []migration.Finding) {
	if s.definition == nil || s.definition.object.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	f := *s.definition
	keep := func(why string) ([]migration.Unit, []migration.Finding) {
		return nil, []migration.Finding{{ID: "definition-left", Severity: migration.Info, Object: f.ref.String(), Problem: "kept: " + why}}
	}
	others := slices.DeleteFunc(versions(f.object), func(v string) bool { return v == legacyVersion })
	switch {
	case kyma.OptedOut(f.object):
		return keep(fmt.Sprintf("it carries the label %s=true", kyma.OptOutLabel))
	case len(others) > 0:
		return keep(fmt.Sprintf("it serves %s, which a newer version of Kyma uses", strings.Join(others, ", ")))
	case len(s.foreign) > 0:
		return keep(fmt.Sprintf("%s is no Subscription of the Event Bus, so something else uses the kind", s.foreign[0].ref))
	case slices.ContainsFunc(s.subscriptions, held):
		return keep("a Kyma Subscription that is being deleted has finalizers of others")
	}
	ch := migration.Change{
		Verb: migration.Delete, Ref: f.ref, UID: f.object.GetUID(), Object: f.image, Timeout: m.deleteTimeout, Guard: true,
		Why: "nothing serves this kind any more",
	}
	var findings []migration.Finding
	tell := func(id string, severity migration.Severity, problem, note, command string) {
		findings = append(findings, migration.Finding{ID: id, Severity: severity, Object: f.ref.String(), Problem: problem, Note: note, Command: command})
	}
	switch {
	case f.refusal != "":
		ch.Irreversible = true
		tell("definition-not-restorable", migration.Warning, "it is deleted permanently, because this API server would not create it again: "+f.refusal,
			"To leave the kind in the cluster, label the definition "+kyma.OptOutLabel+"=true. To store a copy:", migration.Kubectl("", "get", "customresourcedefinition", definitionName, "-o", "yaml"))
	case f.untried:
		tell("definition-maybe-not-restorable", migration.Warning, "this account may not find out whether the API server would create it again; if not, it is deleted permanently", "Grant this account create on customresourcedefinitions. To check the permission:", migration.Kubectl("", "auth", "can-i", "create", "customresourcedefinitions"))
	case f.converted:
		tell("definition-converted", migration.Info, "this API server would refuse to create it as it is. An undo creates it in the form that apiextensions v1 accepts, which also stores unknown fields", "", "")
	}
	return []migration.Unit{{ID: f.ref.String(), Changes: []migration.Change{ch}}}, findings
}

// held says whether a Kyma Subscription that is being deleted stays when its own
// finalizer is off.
func held(f found) bool {
	others := slices.DeleteFunc(slices.Clone(f.object.GetFinalizers()), func(have string) bool { return have == kyma.SubscriptionFinalizer })
	return f.object.GetDeletionTimestamp() != nil && len(others) > 0
}
