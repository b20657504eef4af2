package takeover

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// await returns what must hold after a change.
func await(ch *migration.Change) []migration.Condition {
	var e expect
	if ch.Ref.Resource != deployments || len(ch.Expect) == 0 || json.Unmarshal(ch.Expect, &e) != nil || ch.Verb == migration.Delete {
		return nil
	}
	switch {
	case e.Ours:
		return []migration.Condition{oursReady(e, ch.Ref)}
	case e.Down:
		return []migration.Condition{isDown(ch.Ref)}
	case e.Up:
		return []migration.Condition{isUp(ch.Ref)}
	}
	return nil
}

// isDown holds when a Deployment is at 0, its controller has seen that, and no pod of it exists.
func isDown(ref migration.Ref) migration.Condition {
	return migration.Condition{
		Text: "its pods to end",
		On:   []migration.Subject{ref.Subject(), in(replicaSets, ref.Namespace), in(pods, ref.Namespace)},
		Eval: func(v migration.View) migration.Status {
			d := v.Get(ref.Subject())
			n := podsByDeployment(v.List(replicaSets.GroupKind(), ref.Namespace), v.List(pods.GroupKind(), ref.Namespace))[ref.Name]
			switch {
			case d != nil && replicasOf(d) > 0:
				return migration.Status{Message: "it still has " + migration.Count(int(replicasOf(d)), "replica"), Note: "If that stays so, something scales it up again: a GitOps tool, lifecycle-manager, or a policy of the API server."}
			case d != nil && !seen(d):
				return migration.Status{Message: "its controller has not seen the change yet"}
			case n > 0:
				return migration.Status{Message: migration.Count(n, "pod") + " still there", Command: migration.Kubectl(ref.Namespace, "get", "pods")}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// isUp holds when all pods of a Deployment are available.
func isUp(ref migration.Ref) migration.Condition {
	return migration.Condition{
		Text: "its pods to be available",
		On:   []migration.Subject{ref.Subject()},
		Eval: func(v migration.View) migration.Status {
			if available(v.Get(ref.Subject())) {
				return migration.Status{State: migration.Met}
			}
			return migration.Status{Message: "not all of its pods are available", Command: migration.Kubectl(ref.Namespace, "describe", "deployment", ref.Name)}
		},
	}
}

func in(r migration.Resource, namespace string) migration.Subject {
	return migration.SubjectOf(r.GroupKind(), namespace, "")
}

// oursReady holds when ours is up, and serves each Subscription.
func oursReady(e expect, operator migration.Ref) migration.Condition {
	names := backend.Names(e.Prefix)
	return migration.Condition{
		Text: "ours to be ready for each Subscription",
		On:   []migration.Subject{in(deployments, e.Namespace), in(configMaps, e.Namespace), in(eventings, e.Namespace), in(subscriptions, "")},
		Eval: func(v migration.View) migration.Status {
			get := func(r migration.Resource, name string) *unstructured.Unstructured {
				return v.Get(migration.SubjectOf(r.GroupKind(), e.Namespace, name))
			}
			s := &snapshot{
				ourOperator: get(deployments, operator.Name), ourController: get(deployments, names.Controller()), ourPublisher: get(deployments, names.Publisher()),
				eventing: get(eventings, theirName), epoch: get(configMaps, names.Backends()),
			}
			why := s.oursNotReady()
			// It is asked for each change of a Subscription: they are read until one is not ready.
			for _, obj := range v.List(subscriptions.GroupKind(), "") {
				if why != "" {
					break
				}
				is, err := subscriptionOf(obj)
				if err != nil {
					return migration.Status{State: migration.Failed, Message: err.Error()}
				}
				why = oursUnready(s.eventing, s.epoch, []*subscription{is})
			}
			if why != "" {
				return migration.Status{Message: why, Command: "kubectl eventing status"}
			}
			return migration.Status{State: migration.Met}
		},
	}
}

// oursUnready says what is missing in the status that our operator and our controller write. One
// that Kyma's operator has written has none of it.
func oursUnready(eventing, contract *unstructured.Unstructured, all []*subscription) string {
	if eventing == nil || contract == nil {
		return "our operator has not begun yet"
	}
	text := func(path ...string) string {
		s, _, _ := unstructured.NestedString(eventing.Object, path...)
		return s
	}
	observed, _, _ := unstructured.NestedInt64(eventing.Object, "status", "observedGeneration")
	if state := text("status", "state"); state != "Ready" || observed != eventing.GetGeneration() || text("status", "version") == "" {
		return fmt.Sprintf("the state of the Eventing is %q", state)
	}
	epoch, _, _ := unstructured.NestedString(contract.Object, "data", "epoch")
	for _, s := range all {
		if why := unserved(s, epoch); why != "" {
			return "Subscription " + s.key() + " " + why
		}
	}
	return ""
}

// unserved says why a Subscription has no consumer in our NATS yet. One that is being deleted needs
// none.
func unserved(s *subscription, epoch string) string {
	if s.DeletionTimestamp != nil {
		return ""
	}
	for _, b := range s.Status.Backends {
		if b.Type == "NATS" && b.Ready && b.Epoch == epoch && b.ObservedGeneration == s.Generation {
			return ""
		}
	}
	return "is not ready in our NATS yet"
}

// backendType is that of an Eventing, in its canonical spelling.
func backendType(eventing *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(eventing.Object, "spec", "backend", "type")
	switch kind {
	case "", "nats":
		return "NATS"
	}
	return kind
}
