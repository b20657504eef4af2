package takeover_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var errKilled = errors.New("the process was killed")

// wire is the way of one process to the API server. It ends at a write: before the request is sent,
// or after it was answered.
type wire struct {
	inner  http.RoundTripper
	at     int64
	after  bool
	kill   context.CancelFunc
	writes atomic.Int64
	dead   atomic.Bool
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.dead.Load() {
		return nil, errKilled
	}
	// Reviews and dry runs change nothing.
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "accessreviews") || strings.Contains(r.URL.RawQuery, "dryRun") || w.writes.Add(1) != w.at {
		return w.inner.RoundTrip(r)
	}
	defer w.kill()
	if w.after {
		if res, err := w.inner.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
	}
	w.dead.Store(true)
	return nil, errKilled
}

// monitor asks the servers of NATS.
func (s *site) monitor(ctx context.Context, namespace, pod string, _ int, path string) ([]byte, error) {
	base, err := s.pods.NATS.Monitor(namespace, pod)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	return io.ReadAll(res.Body)
}

// process makes one step, as a process of its own that is killed at a write; 0 is never.
func (s *site) process(to takeover.Direction, at int64, after bool) (report *migration.Report, killed bool, writes int64) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 11*time.Minute)
	defer cancel()
	w := &wire{at: at, after: after, kill: cancel}
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper {
		w.inner = inner
		return w
	})
	e, err := engine.New(config, engine.Options{
		Names: migration.Names{Program: "eventing-take-over", Domain: "take-over.eventing.kyma-project.io"}, LeaseDuration: time.Second, Timeout: 10 * time.Minute,
	})
	s.check(err)
	ended := make(chan *migration.Report, 1)
	go func() { ended <- e.Run(ctx, takeover.New(takeover.Options{To: to, Get: s.monitor})) }()
	select {
	case report = <-ended:
	case <-ctx.Done(): // nothing of it reaches the API server any more
	}
	return report, w.dead.Load(), w.writes.Load()
}

// unkilled is a stride for a way on which nothing is killed.
const unkilled = 0

// way goes one way, and is killed at each write of each step: of one after the other process at the
// first, the second, and so on, until the step is done. It returns how often.
func (s *site) way(to takeover.Direction, stride int64) (kills int) {
	s.t.Helper()
	at := int64(1)
	if stride == unkilled {
		at = 0
	}
	for deadline := time.Now().Add(30 * time.Minute); time.Now().Before(deadline); {
		report, killed, _ := s.process(to, at, at%2 == 0)
		switch {
		case killed || report == nil:
			kills++
			at += stride
		case report.Result == migration.NothingToDo:
			return kills
		case report.Result == migration.Succeeded:
			if at > 0 {
				at = 1 + int64(kills)%stride // the next step is killed from its first writes on
			}
		case report.Result == migration.DeferredResult:
			time.Sleep(500 * time.Millisecond)
		default:
			s.t.Fatalf("%s: %s: %s: %v", to, report.Result, report.Message, report.Findings)
		}
	}
	s.t.Fatalf("%s does not end", to)
	return 0
}

// admission has the API server add to what is written, as webhooks and policies do: each write gets
// a label and an annotation that is never twice the same, pods get a label and more time to end,
// and Services another way of their packets.
func (s *site) admission() {
	s.t.Helper()
	s.adds("metadata", `Object{metadata: Object.metadata{labels: {"audit.example/seen": "true"}, annotations: {"audit.example/after": oldObject == null ? "nothing" : oldObject.metadata.resourceVersion}}}`,
		"apps/deployments", "/services", "networking.k8s.io/networkpolicies", "operator.kyma-project.io/eventings")
	s.adds("pods", `Object{spec: Object.spec{template: Object.spec.template{metadata: Object.spec.template.metadata{labels: {"audit.example/pod": "true"}}, spec: Object.spec.template.spec{terminationGracePeriodSeconds: 70}}}}`, "apps/deployments")
	s.adds("services", `Object{spec: Object.spec{trafficDistribution: "PreferClose"}}`, "/services")
}

// adds has the API server add something to each object of some resources that is written in the
// namespace, soon.
func (s *site) adds(name, what string, resources ...string) {
	s.t.Helper()
	policies := s.core.AdmissionregistrationV1()
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "adds-" + name}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
		MatchConstraints:   &admissionregistrationv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}},
		ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
		Mutations:          []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeApplyConfiguration, ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: what}}},
	}}
	for _, r := range resources {
		group, plural, _ := strings.Cut(r, "/")
		policy.Spec.MatchConstraints.ResourceRules = append(policy.Spec.MatchConstraints.ResourceRules, admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{plural}},
		}})
	}
	s.t.Cleanup(func() {
		ctx := context.WithoutCancel(s.t.Context())
		_ = policies.MutatingAdmissionPolicyBindings().Delete(ctx, policy.Name, metav1.DeleteOptions{})
		_ = policies.MutatingAdmissionPolicies().Delete(ctx, policy.Name, metav1.DeleteOptions{})
	})
	_, err := policies.MutatingAdmissionPolicies().Create(s.t.Context(), policy, metav1.CreateOptions{})
	s.check(err)
	_, err = policies.MutatingAdmissionPolicyBindings().Create(s.t.Context(), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}, metav1.CreateOptions{})
	s.check(err)
}

// added fails unless the API server has added all of it.
func (s *site) added() {
	s.t.Helper()
	operator, service := s.get(deployments, "eventing-manager"), s.get(schema.GroupVersionResource{Version: "v1", Resource: "services"}, publisher)
	pod, _, _ := unstructured.NestedString(operator.Object, "spec", "template", "metadata", "labels", "audit.example/pod")
	how, _, _ := unstructured.NestedString(service.Object, "spec", "trafficDistribution")
	if seen := service.GetLabels()["audit.example/seen"]; pod == "" || how == "" || seen == "" {
		s.t.Errorf("the API server adds %q, %q and %q", pod, how, seen)
	}
}

// TestKilled goes there and back under load, and each process is killed: at each write with make
// test-slow, at some of them otherwise. Nor does it matter what the API server adds to a write.
func TestKilled(t *testing.T) {
	const n = 2
	stride := int64(20)
	if all {
		stride = 1
	}
	s := newSite(t, n)
	s.admission()
	l := s.publish(n, 2, 50*time.Millisecond)
	for _, to := range []takeover.Direction{takeover.Over, takeover.Back} {
		began := time.Now()
		kills := s.way(to, stride)
		t.Logf("%s: killed %d times, %s", to, kills, time.Since(began).Round(time.Second))
		if kills < 4 {
			t.Errorf("%s was killed %d times", to, kills)
		}
	}
	s.added()
	if accepted, twice := l.end(); twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
	s.alone()
}

// TestTurnsRound: a way is left after some of its steps, in the direction of the other one. A
// Subscription is deleted there, for which nobody may be there.
func TestTurnsRound(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	const n = 2
	s := newSite(t, n)
	l := s.publish(n, 2, 50*time.Millisecond)
	s.service("late")
	for _, steps := range []int{2, 3, 5, 7, 9} {
		s.await(time.Minute, "Subscriptions can be created", func(ctx context.Context) error { // a moment after the policy is gone
			_, err := s.client.Resource(subscriptions).Namespace(namespace).Create(ctx, object(t, s.subscription("late", namespace)), metav1.CreateOptions{})
			return err
		})
		s.await(time.Minute, "it is ready", func(ctx context.Context) error { return s.allReady(ctx, n+1) })
		for done := 0; done < steps; {
			switch report, _, _ := s.process(takeover.Over, 0, false); report.Result {
			case migration.Succeeded:
				done++
			case migration.NothingToDo:
				done = steps
			case migration.DeferredResult:
				time.Sleep(300 * time.Millisecond)
			default:
				t.Fatalf("%s: %s", report.Result, report.Message)
			}
		}
		s.check(s.client.Resource(subscriptions).Namespace(namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}))
		s.way(takeover.Back, unkilled)
		s.await(time.Minute, "it is gone", func(ctx context.Context) error { return s.allReady(ctx, n) })
		t.Logf("back after %d steps", steps)
	}
	if accepted, twice := l.end(); twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
	s.alone()
}
