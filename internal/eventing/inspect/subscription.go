package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// Subscription is a Subscription as people look at it.
type Subscription struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Ready     bool   `json:"ready"`
	// Source and Types are those of the spec, Exact its typeMatching.
	Source string   `json:"source,omitempty"`
	Types  []string `json:"types,omitempty"`
	Exact  bool     `json:"exact,omitempty"`
	Sink   string   `json:"sink,omitempty"`
	// Delivery are the events that wait; nil if nobody has looked.
	Delivery *Delivery `json:"delivery,omitempty"`
	// Problem is the worst that is known, nil if nothing is wrong.
	Problem *Problem `json:"problem,omitempty"`

	rank int
}

// Delivery are the events of a Subscription that wait.
type Delivery struct {
	Backlog int64 `json:"backlog"`
	// Oldest is when the oldest of them was published, nil if that is not known.
	Oldest      *metav1.Time `json:"oldest,omitempty"`
	Repeating   int64        `json:"repeating"`
	DeadLetters int64        `json:"deadLetters"`
}

// Problem is what is wrong with an object.
type Problem struct {
	// Condition and Reason are those of the object's condition, "" if none says it.
	Condition string `json:"condition,omitempty"`
	Reason    string `json:"reason,omitempty"`
	// Since is when it began, nil if that is not known.
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message"`
	// Next is the command that shows more, or helps.
	Next string `json:"next,omitempty"`
}

// How bad it is, the worst first.
const (
	rankUnreadable = iota + 1
	rankInvalid
	rankInactive
	rankSilent
	rankRefused
	rankDeadLetters
	rankRepeating
	rankGood
)

// silentAfter is how long a controller may take for the status of a new Subscription.
const silentAfter = 30 * time.Second

// SubscriptionOf looks at a Subscription.
func SubscriptionOf(u *unstructured.Unstructured, now time.Time) Subscription {
	s := Subscription{Namespace: u.GetNamespace(), Name: u.GetName(), rank: rankGood}
	object := "subscriptions.eventing.kyma-project.io"
	s.Delivery = deliveryOf(u)
	var typed eventingv1alpha2.Subscription
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &typed); err != nil {
		return s.with(rankUnreadable, Problem{
			Message: "the stored object has fields of another type: " + redact.URLs(err.Error()), Next: command("edit", s.Namespace, object, s.Name),
		})
	}
	s.Ready, s.Source, s.Types, s.Sink = typed.Status.Ready, typed.Spec.Source, typed.Spec.Types, redact.URLs(typed.Spec.Sink)
	s.Exact = typed.Spec.TypeMatching == eventingv1alpha2.Exact
	for _, bad := range []struct {
		condition eventingv1alpha2.ConditionType
		rank      int
		next      string
	}{
		{eventingv1alpha2.ConditionSpecValid, rankInvalid, command("edit", s.Namespace, object, s.Name)},
		{eventingv1alpha2.ConditionActive, rankInactive, "kubectl eventing status"},
		{eventingv1alpha2.ConditionDelivering, rankRefused, s.sinkCommand()},
	} {
		for _, c := range typed.Status.Conditions {
			if c.Type == bad.condition && c.Status == corev1.ConditionFalse {
				if d := s.Delivery; bad.rank == rankRefused && d != nil && d.Backlog == 0 && d.DeadLetters > 0 {
					bad.next = s.lettersCommand() // the sink gets nothing more by itself
				}
				return s.with(bad.rank, Problem{
					Condition: string(c.Type), Reason: c.Reason, Since: known(c.LastTransitionTime), Message: redact.URLs(c.Message), Next: bad.next,
				})
			}
		}
	}
	created := typed.CreationTimestamp
	switch d := s.Delivery; {
	case !s.Ready && len(typed.Status.Conditions) == 0 && now.Sub(created.Time) > silentAfter:
		return s.with(rankSilent, Problem{Since: known(created), Message: "no controller has written its status", Next: "kubectl eventing status"})
	case d == nil:
	case d.DeadLetters > 0:
		return s.with(rankDeadLetters, Problem{
			Message: wording.Count(int(d.DeadLetters), "event") + " were given up, and are stored as dead letters",
			Next:    s.lettersCommand(),
		})
	case d.Repeating > 0:
		return s.with(rankRepeating, Problem{
			Since: d.Oldest, Message: wording.Count(int(d.Repeating), "event") + " were refused at least once, and are sent again", Next: s.sinkCommand(),
		})
	}
	return s
}

func (s Subscription) with(rank int, p Problem) Subscription {
	s.rank, s.Problem = rank, &p
	return s
}

// lettersCommand shows the dead letters, and says how they are delivered again.
func (s *Subscription) lettersCommand() string {
	return wording.CommandLine("kubectl", "eventing", "dead-letters", "list", "--namespace="+s.Namespace, "--subscription="+s.Name)
}

// sinkCommand shows whether the Service of the sink is there, and has pods.
func (s *Subscription) sinkCommand() string {
	_, host, _ := strings.Cut(s.Sink, "://")
	service, _, _ := strings.Cut(host, ".")
	if service == "" {
		return command("describe", s.Namespace, "subscriptions.eventing.kyma-project.io", s.Name)
	}
	return wording.CommandLine("kubectl", "-n", s.Namespace, "get", "endpointslices", "-l", "kubernetes.io/service-name="+service)
}

// LastAnswer is what the sink has said last, as far as the conditions tell: "the sink answers 503".
func (s *Subscription) LastAnswer() string {
	switch {
	case s.Problem != nil && s.Problem.Condition == string(eventingv1alpha2.ConditionDelivering):
		answer, _, _ := strings.Cut(s.Problem.Message, ". ")
		return answer
	case s.Ready && (s.Problem == nil || s.rank >= rankDeadLetters):
		return "taken"
	}
	return ""
}

// deliveryOf reads status.delivery. It is nil if nobody has looked.
func deliveryOf(u *unstructured.Unstructured) *Delivery {
	found, ok, err := unstructured.NestedMap(u.Object, "status", "delivery")
	if !ok || err != nil {
		return nil
	}
	raw, err := json.Marshal(found)
	if err != nil {
		return nil
	}
	d := &Delivery{}
	if json.Unmarshal(raw, d) != nil {
		return nil
	}
	return d
}

// Subscriptions of a namespace, "" for all: those in trouble first.
func (c *Cluster) Subscriptions(ctx context.Context, namespace string, now time.Time) ([]Subscription, error) {
	var all []Subscription
	err := c.Each(ctx, Subscriptions, namespace, metav1.ListOptions{}, func() { all = nil }, func(u *unstructured.Unstructured) error {
		all = append(all, SubscriptionOf(u, now))
		return nil
	})
	slices.SortStableFunc(all, compareTrouble)
	return all, err
}

// Subscription is one of them, nil if it does not exist.
func (c *Cluster) Subscription(ctx context.Context, namespace, name string, now time.Time) (*Subscription, error) {
	u, err := c.Get(ctx, Subscriptions, namespace, name)
	if u == nil || err != nil {
		return nil, err
	}
	s := SubscriptionOf(u, now)
	return &s, nil
}

// compareTrouble has the worst first; of two that are as bad, the one with more events that wait,
// and then the one that waits for longer.
func compareTrouble(a, b Subscription) int {
	backlog := func(s Subscription) int64 {
		if s.Delivery == nil {
			return 0
		}
		return s.Delivery.Backlog
	}
	since := func(s Subscription) int64 {
		if s.Problem == nil || s.Problem.Since == nil {
			return 1<<63 - 1
		}
		return s.Problem.Since.Unix()
	}
	return cmp.Or(
		cmp.Compare(a.rank, b.rank), cmp.Compare(backlog(b), backlog(a)), cmp.Compare(since(a), since(b)),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
	)
}

// Wants tells whether a Subscription asks for an event, as the backend compares them.
func (s *Subscription) Wants(source, eventType string) bool {
	if backend.IsFormer(eventType) {
		clean, err := backend.CleanFormer(eventType)
		if err != nil {
			return false
		}
		eventType = clean
	}
	return slices.ContainsFunc(s.Types, func(t string) bool {
		ofSource, ofType := backend.Matched(s.Exact, s.Source, t)
		return ofType == eventType && (ofSource == "" || ofSource == source)
	})
}

func command(verb, namespace, resource, name string) string {
	return wording.CommandLine("kubectl", "-n", namespace, verb, resource, name)
}

func known(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// String is the name of the object for people.
func (s *Subscription) String() string { return fmt.Sprintf("Subscription %s/%s", s.Namespace, s.Name) }
