package page

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
)

// noon is when the samples were read.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func before(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-d)} }

// subscription is one as the API server shows it.
func subscription(namespace, name, source, delivery, conditions string, types ...any) inspect.Subscription {
	condition := func(kind, status, reason, message string) map[string]any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-31T00:00:00Z"}
	}
	status := map[string]any{"ready": conditions != "invalid"}
	switch conditions {
	case "good":
		status["conditions"] = []any{condition("Subscription spec valid", "True", "", ""), condition("Subscription active", "True", "", ""), condition("Sink delivering", "True", "Delivering", "")}
	case "503":
		status["conditions"] = []any{condition("Sink delivering", "False", "Retrying", "the sink answers 503. Events wait, and are sent again")}
	case "invalid":
		status["conditions"] = []any{condition("Subscription spec valid", "False", "Subscription validation errors", `sink is in namespace "office": use a Service in namespace "`+namespace+`"`)}
	case "new":
		status["ready"] = false
	}
	if delivery != "" {
		var backlog, repeating, dead int64
		_, _ = fmt.Sscan(delivery, &backlog, &repeating, &dead) // constants of the tests
		d := map[string]any{"backlog": backlog, "repeating": repeating, "deadLetters": dead}
		if backlog > 0 {
			d["oldest"] = "2026-01-31T00:00:00Z"
		}
		status["delivery"] = d
	}
	return inspect.SubscriptionOf(&unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": namespace, "name": name, "creationTimestamp": "2026-01-31T11:59:50Z"},
		"spec":     map[string]any{"source": source, "types": types, "sink": "http://" + name + "." + namespace + ".svc.cluster.local/"},
		"status":   status,
	}}, noon)
}

// sample is a cluster with n Subscriptions in eight namespaces. Three are in trouble; the one of
// billing in finance has events that wait.
func sample(n int) *State {
	namespaces := []string{"analytics", "crm", "finance", "fulfilment", "loyalty", "marketing", "shop", "support"}
	sources := []string{"commerce", "erp", "billing", "logistics", "tickets"}
	s := &State{At: noon, Home: inspect.Home{Namespace: "kyma-system", Names: "eventing"}}
	used := 0.41
	s.VolumeUsed = &used
	s.Eventings = []inspect.Eventing{{
		Namespace: "kyma-system", Name: "eventing", State: "Warning", Backend: "EventMesh", Active: "NATS", Served: true, Version: "0.1.0",
		Switch:   &operatorv1alpha1.Switch{From: "NATS", To: "EventMesh", Step: "Draining", Since: *before(4 * time.Minute), Pending: 1204, Message: "1,204 events wait for Subscription finance/billing, whose sink answers 503."},
		NATS:     &inspect.NATS{Messages: 1204, Bytes: 640 << 20, MaxBytes: 700 << 20, DeadLetters: 2, Servers: 3, Wanted: 3, Storage: "File"},
		Problems: []inspect.Problem{{Condition: "NoDeadLetters", Reason: "DeadLettersStored", Since: before(26 * time.Hour), Message: "2 events were given up. The oldest is kept until 2026-03-01.", Next: "kubectl eventing explain DeadLettersStored"}},
	}}
	s.Programs = []inspect.Program{{Name: "operator", Ready: 1, Wanted: 1}, {Name: "publisher", Ready: 2, Wanted: 2}, {Name: "controller", Ready: 1, Wanted: 2}, {Name: "NATS", Ready: 3, Wanted: 3}}
	s.Subscriptions = []inspect.Subscription{
		subscription("office", "bills", "erp", "", "invalid", "invoice.sent.v1"),
		subscription("finance", "billing", "commerce", "1204 50 2", "503", "order.created.v1", "order.paid.v1"),
		subscription("crm", "contacts", "crm-<b>&\"", "0 0 2", "good", "contact.changed.v1"),
	}
	for i := len(s.Subscriptions); i < n; i++ {
		kind, delivery := "good", "0 0 0"
		if i%17 == 5 {
			kind, delivery = "new", ""
		}
		types := []any{fmt.Sprintf("%s.created.v1", []string{"order", "invoice", "customer", "parcel"}[i%4])}
		if i%3 == 0 {
			types = append(types, "order.cancelled.v1", "order.returned.v1")
		}
		s.Subscriptions = append(s.Subscriptions, subscription(namespaces[i%8], fmt.Sprintf("%s-%03d", sources[i%5], i), sources[(i/5)%5], delivery, kind, types...))
	}
	return s
}

// everything is what an administrator sees.
func everything(s *State) *Seen {
	seen := &Seen{User: "jane", All: true, Programs: true, Eventing: map[string]bool{}}
	for _, e := range s.Eventings {
		seen.Eventing[e.Namespace] = true
	}
	return seen
}

// reviews answers as the API server does: the token is the name of the user, and rights has
// "<user> <verb> <resource> <namespace>". asked counts the questions.
type reviews struct {
	client.Writer
	client.Reader
	rights []string
	asked  chan string
}

func (r *reviews) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	var question string
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		question = "token " + o.Spec.Token
		if o.Status.Authenticated = o.Spec.Token != "wrong"; o.Status.Authenticated {
			o.Status.User = authenticationv1.UserInfo{Username: o.Spec.Token, Groups: []string{"people"}}
		}
	case *authorizationv1.SubjectAccessReview:
		a := o.Spec.ResourceAttributes
		question = strings.Join([]string{o.Spec.User, a.Verb, a.Resource + "." + a.Group, a.Namespace}, " ")
		o.Status.Allowed = slices.Contains(r.rights, o.Spec.User+" everything") || slices.Contains(r.rights, question)
	default:
		return fmt.Errorf("unexpected %T", o)
	}
	if r.asked != nil {
		r.asked <- question
	}
	return nil
}

// served is a page as a person has it who is known by the kubeconfig.
func served(user string, read func(context.Context) (*State, error), answers *reviews) http.Handler {
	s := &Server{Read: read, Rights: &Rights{Access: &access.Access{Client: answers, Reader: answers}}, Log: zap.NewNop(), now: func() time.Time { return noon }}
	inner := s.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user != "" {
			q.Header.Set("Authorization", "Bearer "+user)
		}
		switch strings.TrimPrefix(q.URL.Path, "/secret/") {
		case "":
			q.URL.Path = backend.PagePath
		case "state":
			q.URL.Path = backend.PageStatePath
		}
		inner.ServeHTTP(w, q)
	})
}
