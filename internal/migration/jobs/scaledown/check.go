package scaledown

import (
	"fmt"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// noPods is met when a Deployment is at 0, its controller has seen that, and no
// pod of it exists.
func noPods(ch *migration.Change) migration.Condition {
	ref := ch.Ref
	// A view lags behind the write: a Deployment that is not at 0 yet has to be
	// told from one that somebody scaled up again. This is all the condition
	// remembers.
	var wasDown atomic.Bool
	return migration.Condition{
		Text: "its pods to end",
		On: []migration.Subject{
			ref.Subject(), {GroupKind: replicaSets.GroupKind(), Namespace: ref.Namespace}, {GroupKind: pods.GroupKind(), Namespace: ref.Namespace},
		},
		Eval: func(v migration.View) migration.Status {
			deployment := v.Get(ref.Subject())
			d := busDeployment{ref: ref, object: deployment}
			if deployment != nil && deployment.GetDeletionTimestamp() != nil {
				d.object = nil
			}
			switch {
			case d.replicas() == 0:
				wasDown.Store(true)
			case wasDown.Load():
				return migration.Status{
					State:   migration.Failed,
					Message: fmt.Sprintf("somebody scaled it up again, to %d", d.replicas()),
					Note:    "Find out what scales it: an upgrade of the event-bus chart, an autoscaler, or a GitOps tool. Then run the job again.",
					Command: "eventmesh-migrate run --job=eventbus-scaledown",
				}
			default:
				return migration.Status{Message: "it still has " + migration.Count(int(d.replicas()), "replica")}
			}
			if why := unsettled(d.object); why != "" {
				return migration.Status{Message: why}
			}
			left := podsOf(ref.Name, d.object, v.List(replicaSets.GroupKind(), ref.Namespace), v.List(pods.GroupKind(), ref.Namespace))
			if len(left) == 0 {
				return migration.Status{State: migration.Met}
			}
			return stillThere(left)
		},
	}
}

// unsettled says what the Deployment's controller has yet to do.
func unsettled(deployment *unstructured.Unstructured) string {
	if deployment == nil {
		return ""
	}
	observed, _, _ := unstructured.NestedInt64(deployment.Object, "status", "observedGeneration")
	if observed < deployment.GetGeneration() {
		return "its controller has not seen the change yet"
	}
	if n, _, _ := unstructured.NestedInt64(deployment.Object, "status", "replicas"); n > 0 {
		return fmt.Sprintf("%s still", count(int(n), "pod runs", "pods run"))
	}
	return ""
}

func stillThere(left []*unstructured.Unstructured) migration.Status {
	first := left[0]
	for _, pod := range left {
		if pod.GetName() < first.GetName() {
			first = pod
		}
	}
	name := first.GetNamespace() + "/" + first.GetName()
	message := fmt.Sprintf("%s; Pod %s", count(len(left), "pod still exists", "pods still exist"), name)
	note := "Check why it is not deleted."
	at := first.GetDeletionTimestamp()
	switch finalizers := first.GetFinalizers(); {
	case at == nil:
		message += " is not terminating"
	case len(finalizers) > 0:
		message += fmt.Sprintf(" is terminating and has the finalizers %q", finalizers)
		note = "The controller that owns a finalizer removes it. Check that it runs."
	default:
		message += " is terminating"
		note = "Wait until it ends. If its node is gone permanently, delete the Pod with --grace-period=0 --force."
	}
	return migration.Status{Message: message, Note: note, Command: migration.Kubectl(first.GetNamespace(), "describe", "pod", first.GetName())}
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// some names the first few of many.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
