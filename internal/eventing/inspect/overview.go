package inspect

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
)

// Home is where the programs of eventing are.
type Home struct {
	Namespace string        `json:"namespace"`
	Names     backend.Names `json:"prefix"`
}

// Eventing is an Eventing as people look at it.
type Eventing struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is "" while no operator has looked at it.
	State string `json:"state"`
	// Backend is what is asked for, Active where an event goes that is accepted now, and Serving
	// are those that deliver.
	Backend string   `json:"backend,omitempty"`
	Active  string   `json:"active,omitempty"`
	Serving []string `json:"serving,omitempty"`
	// Switch is the change of the backend that is under way.
	Switch *operatorv1alpha1.Switch `json:"switch,omitempty"`
	NATS   *NATS                    `json:"nats,omitempty"`
	// Problems are the conditions that are not good.
	Problems []Problem `json:"problems,omitempty"`
	Served   bool      `json:"served"`
	Version  string    `json:"version,omitempty"`
}

// NATS is what the stream holds.
type NATS struct {
	Messages int64 `json:"messages"`
	Bytes    int64 `json:"bytes"`
	// DeadLetters is the number of events that were given up and are stored.
	DeadLetters int64 `json:"deadLetters"`
	// Servers are those that are ready.
	Servers int32  `json:"servers"`
	Storage string `json:"storage"`
	// Wanted is the number of servers, and MaxBytes the size of the stream, that the spec asks for.
	Wanted   int32 `json:"wanted"`
	MaxBytes int64 `json:"maxBytes"`
}

// Good tells whether events are taken and delivered, and nobody has to act.
func (e *Eventing) Good() bool { return e.State == string(operatorv1alpha1.StateReady) }

// Program is a program of eventing, with its pods.
type Program struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Object string `json:"object"`
	Ready  int64  `json:"ready"`
	Wanted int64  `json:"wanted"`
}

// Overview is how eventing is.
type Overview struct {
	Home      Home       `json:"home"`
	Eventings []Eventing `json:"eventings"`
	Programs  []Program  `json:"programs"`
	// Troubled are the Subscriptions with a problem, the worst first; Good is the number of others.
	Troubled []Subscription `json:"subscriptions"`
	Good     int            `json:"goodSubscriptions"`
	// NotRead is what could not be read, each with why.
	NotRead []string `json:"notRead,omitempty"`
}

// Well tells whether all could be read, and nothing is wrong.
func (o *Overview) Well() bool { return len(o.NotRead) == 0 && !o.Bad() }

// Bad tells whether something is wrong.
func (o *Overview) Bad() bool {
	served := slices.ContainsFunc(o.Eventings, func(e Eventing) bool { return e.Served && e.Good() })
	short := slices.ContainsFunc(o.Programs, func(p Program) bool { return p.Ready < p.Wanted })
	return !served || short || len(o.Troubled) > 0
}

// Overview reads how eventing is. What the account may not read is named, and the rest is there; it
// is an error if that is the Eventing.
func (c *Cluster) Overview(ctx context.Context, now time.Time) (*Overview, error) {
	o := &Overview{Eventings: []Eventing{}, Programs: []Program{}, Troubled: []Subscription{}}
	var err error
	if o.Eventings, o.Home, err = c.Eventings(ctx); err != nil {
		return nil, err
	}
	if o.Programs, err = c.Programs(ctx, o.Home); err != nil {
		o.NotRead = append(o.NotRead, err.Error())
	}
	all, err := c.Subscriptions(ctx, "", now)
	if err != nil {
		o.NotRead = append(o.NotRead, err.Error())
	}
	o.Troubled = slices.DeleteFunc(all, func(s Subscription) bool { return s.Problem == nil })
	o.Good = len(all) - len(o.Troubled)
	return o, ctx.Err()
}

// Eventings are all Eventings, the one that is served first, and where its programs are. Without an
// Eventing, the error says so.
func (c *Cluster) Eventings(ctx context.Context) ([]Eventing, Home, error) {
	found, err := c.List(ctx, Eventings, "", "")
	if err != nil {
		return nil, Home{}, err
	}
	if len(found) == 0 {
		return nil, Home{}, &NotInstalledError{"there is no Eventing in the cluster: apply one (kubectl apply -f charts/eventing-manager/samples/eventing.yaml)"}
	}
	slices.SortFunc(found, func(a, b *unstructured.Unstructured) int {
		return a.GetCreationTimestamp().Time.Compare(b.GetCreationTimestamp().Time)
	})
	var all []Eventing
	var homes []Home
	for _, u := range found {
		e, home := eventingOf(u)
		all, homes = append(all, e), append(homes, home)
	}
	at := max(0, slices.IndexFunc(all, func(e Eventing) bool { return e.Served }))
	all[0], all[at] = all[at], all[0]
	return all, homes[at], nil
}

// eventingOf looks at an Eventing.
func eventingOf(u *unstructured.Unstructured) (Eventing, Home) {
	e := Eventing{Namespace: u.GetNamespace(), Name: u.GetName()}
	home := Home{Namespace: u.GetNamespace(), Names: backend.DefaultPrefix}
	var typed operatorv1alpha1.Eventing
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed); err != nil {
		e.Problems = []Problem{{
			Message: "the stored object has fields of another type: " + redact.URLs(err.Error()), Next: command("edit", e.Namespace, Eventings.GroupResource().String(), e.Name),
		}}
		return e, home
	}
	status := &typed.Status
	e.State, e.Active, e.Version, e.Switch = string(status.State), string(status.ActiveBackend), status.Version, status.Switch
	for _, b := range status.Serving {
		e.Serving = append(e.Serving, string(b))
	}
	if b := typed.Spec.Backend; b != nil {
		e.Backend = string(b.Type.Canonical())
		if status.NATS != nil {
			letters, _, _ := unstructured.NestedInt64(u.Object, "status", "nats", "deadLetters")
			e.NATS = &NATS{
				Messages: status.NATS.Messages, Bytes: status.NATS.Bytes, DeadLetters: letters, Servers: status.NATS.Servers, Storage: string(status.NATS.Storage),
				Wanted: b.Config.NATSStreamReplicas, MaxBytes: b.Config.NATSStreamMaxSize.Value(),
			}
		}
	}
	e.Problems, e.Served = problemsOf(status.Conditions)
	if name, namespace, ok := strings.Cut(status.PublisherService, "."); ok {
		home = Home{Namespace: namespace, Names: backend.Names(strings.TrimSuffix(name, backend.Names("").Publisher()))}
	}
	return e, home
}

// problemsOf are the conditions that are not good, and whether the operator acts on the object.
func problemsOf(conditions []metav1.Condition) (bad []Problem, served bool) {
	for _, c := range conditions {
		good := c.Status == metav1.ConditionTrue
		switch c.Type {
		case operatorv1alpha1.ConditionServed:
			served = good
		case operatorv1alpha1.ConditionOptionalFeatures:
			continue // all else works
		case operatorv1alpha1.ConditionSwitching:
			// Its step has a line of its own, unless somebody has to act.
			if c.Reason != operatorv1alpha1.ReasonBlocked && c.Reason != operatorv1alpha1.ReasonDangling {
				continue
			}
			good = false
		}
		if !good {
			bad = append(bad, Problem{Condition: c.Type, Reason: c.Reason, Since: known(c.LastTransitionTime), Message: redact.URLs(c.Message), Next: "kubectl eventing explain " + c.Reason})
		}
	}
	return bad, served
}

// Programs are the programs that are there, with their pods.
func (c *Cluster) Programs(ctx context.Context, home Home) ([]Program, error) {
	all := []Program{}
	for _, p := range []struct {
		program, kind, object string
		of                    schema.GroupVersionResource
	}{
		{"operator", "Deployment", string(home.Names) + "-manager", deployments},
		{"publisher", "Deployment", home.Names.Publisher(), deployments},
		{"controller", "Deployment", home.Names.Controller(), deployments},
		{"NATS", "StatefulSet", home.Names.NATS(), statefulSets},
	} {
		u, err := c.Get(ctx, p.of, home.Namespace, p.object)
		if err != nil {
			return all, err
		}
		if u == nil {
			continue // it has another name, or the backend needs none
		}
		wanted, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		all = append(all, Program{Name: p.program, Kind: p.kind, Object: p.object, Ready: ready, Wanted: wanted})
	}
	return all, nil
}
