//go:build soak

package eventingmanager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

// away is the step of a scenario in which the sink takes nothing, and in which the safeguard
// matters.
const away = "the sink is away"

// perStep are the events of that step that are lost at least.
const perStep = 10

// scenario is what happens while events are published.
type scenario struct {
	*site
	sinks  *sinks.Sinks
	prober *prober.Prober
	end    func() // of publishing: every event that was begun is accepted or given up
}

// loses plays a scenario with the programs as they are, which lose nothing, and then with one
// safeguard switched off in one of them: the prober has to name events that were accepted and did
// not arrive.
func loses(t *testing.T, safeguard, program string, play func(s *scenario)) {
	t.Helper()
	for _, off := range []bool{false, true} {
		name := map[bool]string{false: "as it is", true: "without " + safeguard}[off]
		t.Run(name, func(t *testing.T) {
			s := &scenario{site: newSite(t, strings.ToLower(fmt.Sprintf("%s-%v", safeguard, !off)))}
			if off {
				s.switchOff(safeguard, program)
			}
			s.sinks = s.withSinks()
			s.prober = prober.New([]prober.Target{{Application: "commerce", EventType: "order.created", URL: publisherURL + "/commerce/v1/events"}},
				prober.Options{Client: s.http(), Interval: 50 * time.Millisecond, MaxPending: 20})
			s.subscribe(s.sinks, "orders", "source: commerce, types: [order.created.v1]")
			s.sinks.Answer("orders", s.prober.ServeHTTP)
			sending, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.prober.Run(sending)
			}()
			s.end = func() {
				stop()
				<-done
			}
			t.Cleanup(stop)
			play(s)
			s.end()
			s.judge(off)
		})
	}
}

// switchOff lets a program run without a safeguard.
func (s *site) switchOff(safeguard, program string) {
	s.t.Helper()
	binary := process.BuildWithout(s.t, "./cmd/"+program)
	env := process.Without(s.t, safeguard)
	if program == eventingpods.Manager {
		s.binary, s.env = binary, []string{env}
		return
	}
	s.pods.Binaries[program] = binary
	s.pods.Env[program] = []string{env}
}

func (s *scenario) judge(off bool) {
	s.t.Helper()
	patience := time.Minute // an event that was refused waits for half a minute at most
	if off {
		patience = 45 * time.Second
	}
	waiting, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	err := s.prober.Await(waiting)
	r := s.prober.Report()
	s.t.Logf("the prober's report:\n%s", r)
	if lost := len(r.Missing) > 0; err == nil == lost || lost != off {
		s.t.Errorf("events are lost: %v, want %v", lost, off)
	}
	blamed := 0
	for i := range r.Missing {
		if r.Missing[i].Step == away {
			blamed++
		}
	}
	// What was on its way when the step began counts to the step before.
	if off && blamed < perStep {
		s.t.Errorf("%d events of step %q are missing, want %d or more", blamed, away, perStep)
	}
}

// accepted waits until n more events are accepted.
func (s *scenario) accepted(n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	if err := s.prober.AwaitAccepted(ctx, n); err != nil {
		s.t.Fatalf("%v\n%s", err, s.prober.Report())
	}
}

// atMost waits until n more events are accepted, or a time is over: a safeguard may refuse them.
func (s *scenario) atMost(limit time.Duration, n int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), limit)
	defer cancel()
	if err := s.prober.AwaitAccepted(ctx, n); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.t.Fatal(err)
	}
}

func (s *scenario) sinkAway() {
	s.prober.Step(away)
	s.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
}

func (s *scenario) sinkBack() {
	s.prober.Step("the sink is back")
	s.sinks.Answer("orders", s.prober.ServeHTTP)
}

// TestSoakWithoutMaxDeliver: with a limited number of deliveries, NATS gives up what a sink refuses
// for a while.
func TestSoakWithoutMaxDeliver(t *testing.T) {
	loses(t, "MaxDeliver", eventingpods.Controller, func(s *scenario) {
		s.start()
		s.installed()
		s.awaitSubscription("orders")
		s.accepted(20)
		s.sinkAway()
		s.accepted(50)
		const refused = 2 * perStep // some of them count to the step before
		poll.Until(s.t, time.Minute, fmt.Sprintf("%d events were refused three times", refused), func(context.Context) error {
			times, n := map[string]int{}, 0
			for _, id := range s.sinks.IDs("orders") {
				if times[id]++; times[id] == 3 {
					n++
				}
			}
			if n < refused {
				return fmt.Errorf("%d were", n)
			}
			return nil
		})
		s.sinkBack()
		s.accepted(20)
	})
}

// TestSoakWithoutDiscardNewPerSubject: NATS deletes the oldest events of a type of which there are
// too many, although nobody got them.
func TestSoakWithoutDiscardNewPerSubject(t *testing.T) {
	loses(t, "DiscardNewPerSubject", eventingpods.Manager, func(s *scenario) {
		s.start()
		s.create(eventings, strings.Replace(one, "natsStreamMaxSize: 10Mi", "natsStreamMaxSize: 10Mi, natsMaxMsgsPerTopic: 10", 1))
		s.await(90*time.Second, operatorv1alpha1.StateReady, "", "")
		s.awaitSubscription("orders")
		s.accepted(20)
		s.sinkAway()
		s.atMost(10*time.Second, 50)
		s.sinkBack()
		s.accepted(20)
	})
}

// TestSoakWithoutR4: an event that is published before its consumer is there is acknowledged, and
// not stored. What keeps the controller from creating the consumer here is a policy of the cluster
// that refuses its finalizer.
func TestSoakWithoutR4(t *testing.T) {
	loses(t, "R4", eventingpods.Manager, func(s *scenario) {
		allow := s.refuseFinalizers()
		s.prober.Step(away)
		s.start()
		s.create(eventings, one)
		poll.Until(s.t, 90*time.Second, "the controller follows NATS", func(context.Context) error {
			state, err := s.get(configMaps, "eventing-controller-state")
			if err == nil && !strings.Contains(fmt.Sprint(state.Object["data"]), "NATS") {
				err = errStill
			}
			return err
		})
		s.atMost(20*time.Second, 20)
		allow()
		s.awaitSubscription("orders")
		s.prober.Step("the consumer is there")
		s.accepted(20)
	})
}

// refuseFinalizers lets the API server refuse all changes of Subscriptions but those of their
// status, until allow is called.
func (s *site) refuseFinalizers() (allow func()) {
	s.t.Helper()
	const name = "frozen"
	policies, bindings := s.core.AdmissionregistrationV1().ValidatingAdmissionPolicies(), s.core.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	fail := admissionv1.Fail
	_, err := policies.Create(s.t.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy: &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{subscriptions.Group}, APIVersions: []string{subscriptions.Version}, Resources: []string{subscriptions.Resource}},
			}}}},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "Subscriptions cannot be changed now"}},
		},
	}, metav1.CreateOptions{})
	s.check(err)
	_, err = bindings.Create(s.t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}, metav1.CreateOptions{})
	s.check(err)
	remove := func() {
		ctx := context.WithoutCancel(s.t.Context())
		for _, err := range []error{bindings.Delete(ctx, name, metav1.DeleteOptions{}), policies.Delete(ctx, name, metav1.DeleteOptions{})} {
			if err != nil && poll.Gone(err) != nil {
				s.t.Error(err)
			}
		}
	}
	s.t.Cleanup(remove)
	change := func() error {
		_, err := s.client.Resource(subscriptions).Namespace(s.namespace).Patch(s.t.Context(), "orders", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"test":"dry"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	poll.Until(s.t, 30*time.Second, "the policy is in force", func(context.Context) error {
		if change() == nil {
			return errStill
		}
		return nil
	})
	return func() {
		remove()
		poll.Until(s.t, 30*time.Second, "the policy is not in force any more", func(context.Context) error { return change() })
	}
}

// TestSoakWithoutOwnerReferences: with owner references, a deletion in the foreground lets the
// garbage collector stop NATS at once, although the operator still waits for the Subscriptions.
func TestSoakWithoutOwnerReferences(t *testing.T) {
	loses(t, "ownerReferences", eventingpods.Manager, func(s *scenario) {
		s.start()
		// What a volume holds would wait there for the next Eventing.
		s.create(eventings, strings.Replace(one, "natsStreamReplicas: 1,", "natsStreamReplicas: 1, natsStreamStorageType: Memory,", 1))
		s.await(90*time.Second, operatorv1alpha1.StateReady, "", "")
		s.awaitSubscription("orders")
		s.accepted(20)
		s.sinkAway()
		s.accepted(20)
		s.end()
		s.remove(metav1.DeletePropagationForeground)
		err := poll.For(s.t.Context(), 15*time.Second, "NATS is stopped", func(context.Context) error {
			_, err := s.get(pods, "eventing-nats-0")
			return poll.Gone(err)
		})
		s.t.Logf("15 s after the deletion: %v", err)
		s.sinkBack()
	})
}
