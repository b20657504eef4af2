package scaledown

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// decide makes the plan. It is pure.
func decide(s *snapshot, o options) *migration.Plan {
	// In order: the intake first, then what serves it, and the finalizers once
	// nobody is left to restore them. A rollback goes the other way.
	plan := &migration.Plan{Serial: true}
	if len(s.migrations) > 0 {
		for _, name := range s.migrations {
			plan.Findings = append(plan.Findings, stockMigration(o.namespace, name))
		}
		return plan
	}
	if held := holds(s); len(held) > 0 {
		plan.Findings = held
		return plan
	}
	for _, d := range s.bus {
		if d.object != nil && kyma.OptedOut(d.object) && !d.down() {
			plan.Findings = append(plan.Findings, optedOut(d))
			return plan
		}
	}
	for _, d := range s.bus {
		if d.down() {
			continue
		}
		plan.Findings = append(plan.Findings, risks(d)...)
		plan.Units = append(plan.Units, migration.Unit{ID: d.ref.String(), Changes: []migration.Change{scale(d)}})
	}
	for _, obj := range s.activations {
		plan.Units = append(plan.Units, release(s.activation, obj))
	}
	// What cannot be undone comes last.
	slices.SortStableFunc(plan.Units, func(a, b migration.Unit) int {
		return irreversible(a) - irreversible(b)
	})
	return plan
}

func optedOut(d busDeployment) migration.Finding {
	return migration.Finding{
		ID: "bus-left-out", Severity: migration.Warning, Object: d.ref.String(),
		Problem: fmt.Sprintf("it carries the label %s=true, so the Event Bus is left running", kyma.OptOutLabel),
	}
}

func irreversible(u migration.Unit) int {
	if u.Changes[0].Irreversible {
		return 1
	}
	return 0
}

func stockMigration(namespace, name string) migration.Finding {
	return migration.Finding{
		ID: "stock-migration-runs", Severity: migration.Error, Object: "Job " + namespace + "/" + name,
		Problem: "Kyma's own migration is running: it recreates ServiceInstances and deletes the Kyma Subscriptions that are still needed",
		Note:    kyma.StopMeshMigration,
		Command: migration.Kubectl(namespace, "delete", "job", name),
	}
}

// holds says what the Event Bus is still needed for, none if nothing.
func holds(s *snapshot) []migration.Finding {
	if s.down() {
		return nil
	}
	var findings []migration.Finding
	for _, e := range s.eventServices {
		f := migration.Finding{
			ID: "event-service-uses-bus", Severity: migration.Deferred, Object: "Application " + e.application,
			Problem: "the Event Bus keeps running, because event-service " + kyma.EventServiceName(e.application) + " is not switched to the mesh: " + e.why.About(eventpath.Deployment, e.namespace, kyma.EventServiceName(e.application)),
			Note:    e.why.Note, Command: e.why.Command,
		}
		switch {
		case e.optedOut:
			f.ID, f.Severity = "event-service-left-out", migration.Warning
			f.Note, f.Command = fmt.Sprintf("This is no failure, since it carries the label %s=true.", kyma.OptOutLabel), ""
		case e.skips:
			f.ID = "event-service-not-upgraded"
			f.Note = "spec.skipInstallation keeps its release as it is. Set it to false, or delete the release. To accept that the Event Bus stays:"
			f.Command = migration.Kubectl("", "label", migration.Kind{GroupKind: kyma.Application}.Named(e.application), kyma.OptOutLabel+"=true")
		case e.orphan:
			f.ID = "event-service-not-upgraded"
			f.Note, f.Command = "No Application has that name. Delete its release, or its Deployment and pods. To see them:", migration.Kubectl(e.namespace, "get", "deployment,pods")
		case e.why.Defect == eventpath.EventServiceRollout || e.why.Defect == eventpath.EventServiceFormerPod:
			f.ID = "event-service-rolling-out"
		}
		findings = append(findings, f)
	}
	var waiting, left []string
	terminating := false
	for _, sub := range s.subscriptions {
		if sub.leftOut {
			left = append(left, sub.name)
			continue
		}
		waiting = append(waiting, sub.name)
		terminating = terminating || sub.terminating
	}
	if len(waiting) > 0 {
		f := migration.Finding{
			ID: "kyma-subscriptions-left", Severity: migration.Deferred,
			Problem: fmt.Sprintf("the Event Bus keeps running, because %s: %s", count(len(waiting), "Kyma Subscription is left", "Kyma Subscriptions are left"), some(waiting)),
			Note:    "trigger-sync moves them to the mesh, or says why it cannot. Run this job after it.",
			Command: "eventmesh-migrate run --job=trigger-sync",
		}
		if terminating {
			f.Note += " One is being deleted: the subscription-controller must run to finish that."
		}
		findings = append(findings, f)
	}
	if len(left) > 0 {
		findings = append(findings, migration.Finding{
			ID: "subscriptions-left-out", Severity: migration.Warning,
			Problem: fmt.Sprintf("the Event Bus keeps running for %s no part of the migration (by the label %s=true, or by the namespace): %s",
				count(len(left), "Kyma Subscription that is", "Kyma Subscriptions that are"), kyma.OptOutLabel, some(left)),
			Note:    "Before the Event Bus can go, delete them, or remove the label.",
			Command: migration.Kubectl("", "get", "subscriptions."+kyma.Subscription.Group, "--all-namespaces", "--show-labels"),
		})
	}
	for _, d := range s.bus {
		if n := d.keptReplicas(); n > 0 && d.replicas() == 0 && len(findings) > 0 {
			findings = append(findings, migration.Finding{
				ID: "bus-down-but-needed", Severity: migration.Warning, Object: d.ref.String(),
				Problem: "it is at 0 since an earlier run, while the Event Bus is needed",
				Note:    "Scale it up again while the Event Bus is needed.",
				Command: d.scaleUp(n),
			})
		}
	}
	return findings
}

// scaleUp is the command that gives the Deployment its replicas again.
func (d busDeployment) scaleUp(replicas int64) string {
	return migration.Kubectl(d.ref.Namespace, "scale", "deployment", d.ref.Name, fmt.Sprintf("--replicas=%d", replicas))
}

// scale is the change that takes a Deployment to 0, or for one that is there
// already, the wait for its pods.
func scale(d busDeployment) migration.Change {
	if d.replicas() == 0 {
		return migration.Change{
			Verb: migration.Await, Ref: d.ref,
			Why: count(len(d.pods), "pod of it still exists", "pods of it still exist"),
		}
	}
	// One patch: there is no moment at which the number is nowhere. It is never 0.
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{ReplicasLabel: strconv.FormatInt(d.replicas(), 10)}},
		"spec":     map[string]any{"replicas": 0},
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	return migration.Change{
		Verb: migration.Patch, Ref: d.ref, UID: d.object.GetUID(), Patch: patch, Guard: true,
		Object: k8sutil.Basis(d.object, []string{"metadata", "labels", ReplicasLabel}, []string{"spec", "replicas"}),
		Why:    fmt.Sprintf("nothing uses it any more; from %s to 0", count(int(d.replicas()), "replica", "replicas")),
	}
}

// owners of a Deployment who may restore its replicas, by the label or
// annotation they leave on it.
var owners = map[string]string{
	"argocd.argoproj.io/instance":        "Argo CD",
	"argocd.argoproj.io/tracking-id":     "Argo CD",
	"kustomize.toolkit.fluxcd.io/name":   "Flux",
	"helm.toolkit.fluxcd.io/name":        "Flux",
	"fluxcd.io/sync-checksum":            "Flux",
	"configmanagement.gke.io/managed":    "Config Sync",
	"objectset.rio.cattle.io/owner-name": "Fleet",
}

// risks are what may scale the Deployment up again.
func risks(d busDeployment) []migration.Finding {
	if d.object == nil || d.replicas() == 0 {
		return nil
	}
	var findings []migration.Finding
	warn := func(id, problem, note, command string) {
		findings = append(findings, migration.Finding{ID: id, Severity: migration.Warning, Object: d.ref.String(), Problem: problem, Note: note, Command: command})
	}
	if n := d.keptReplicas(); n > 0 {
		warn("bus-scaled-up-again", fmt.Sprintf("an earlier run scaled it from %d to 0, and it is at %d again. An upgrade of the event-bus chart does that, and any other tool that manages it", n, d.replicas()),
			"It is scaled down again. Set its replicas to 0 where they come from, or remove the release (docs/migration/migration-guide-1.12.md).", "")
	}
	for _, name := range d.autoscalers {
		warn("autoscaler-targets-bus", fmt.Sprintf("HorizontalPodAutoscaler %s/%s targets it: it is out of work while the Deployment is at 0, and takes over again once it is not", d.ref.Namespace, name),
			"Delete it. It would scale the Event Bus up again.", migration.Kubectl(d.ref.Namespace, "delete", "horizontalpodautoscalers", name))
	}
	said := map[string]bool{}
	marks := maps.Clone(d.object.GetLabels())
	if marks == nil {
		marks = map[string]string{}
	}
	maps.Copy(marks, d.object.GetAnnotations())
	for _, key := range slices.Sorted(maps.Keys(owners)) {
		if _, ok := marks[key]; ok && !said[owners[key]] {
			said[owners[key]] = true
			warn("gitops-manages-bus", fmt.Sprintf("%s manages it (%s) and may scale it up again", owners[key], key), "Set its replicas to 0 there.", "")
		}
	}
	if owner := metav1.GetControllerOfNoCopy(d.object); owner != nil {
		warn("owner-controls-bus", fmt.Sprintf("%s %s controls it and may scale it up again", owner.Kind, owner.Name), "Scale it down there.", "")
	}
	return findings
}

// release removes the finalizer of an EventActivation, and no other one.
func release(resource migration.Resource, obj *unstructured.Unstructured) migration.Unit {
	ref := resource.RefTo(obj)
	return migration.Unit{ID: ref.String(), Changes: []migration.Change{{
		Verb: migration.Patch, Ref: ref, UID: obj.GetUID(), Lists: migration.RemoveFinalizer(kyma.EventActivationFinalizer), Guard: true,
		// One that is being deleted goes at once, and does not come back.
		Irreversible: obj.GetDeletionTimestamp() != nil,
		Why:          "without the subscription-controller its deletion would hang on the finalizer " + kyma.EventActivationFinalizer,
	}}}
}
