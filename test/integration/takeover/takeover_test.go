package takeover_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/standin/kymaeventing"
)

// TestOverAndBack goes there and back under load.
func TestOverAndBack(t *testing.T) {
	const n = 3
	s := newSite(t, n)
	l := s.publish(n, 4, 80*time.Millisecond)
	if code, out, _ := s.takeOver("plan"); code != 0 {
		t.Fatalf("plan: exit code %d\n%s", code, out)
	} else {
		t.Log(out)
	}
	for _, way := range []string{"run", "undo"} {
		began := time.Now()
		code, out, log := s.takeOver(way)
		t.Logf("%s took %s:\n%s%s", way, time.Since(began).Round(time.Second), out, log)
		if code != 0 {
			t.Fatalf("%s: exit code %d", way, code)
		}
		if code, out, _ := s.takeOver("verify"); (code == 0) != (way == "run") {
			t.Fatalf("verify after %s: exit code %d\n%s", way, code, out)
		}
		if way == "run" { // a field that Kyma's operator does not know
			_, err := s.client.Resource(eventings).Namespace(namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"spec":{"backend":{"config":{"deadLetterAfter":"25h"}}}}`), metav1.PatchOptions{})
			s.check(err)
		}
		time.Sleep(2 * time.Second)
	}
	if after, _, _ := unstructured.NestedString(s.get(eventings, "eventing").Object, "spec", "backend", "config", "deadLetterAfter"); after != "25h" {
		t.Errorf("Kyma's operator has dropped a field of ours: deadLetterAfter is %q", after)
	}
	s.alone()
	accepted, twice := l.end()
	if accepted < 1000 || twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
}

// subscription is one whose sink is in a namespace.
func (s *site) subscription(name, of string) string {
	return fmt.Sprintf(`{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: %s, namespace: kyma-system},
 spec: {sink: "http://%s.%s.svc.cluster.local", source: commerce, types: [late.created.v1], typeMatching: standard}}`, name, name, of)
}

// TestSinkThatRefuses: the way waits for the last event of Kyma's NATS, and can be left there. At
// its ends, nothing hangs.
func TestSinkThatRefuses(t *testing.T) {
	const n = 2
	s := newSite(t, n)
	s.create(s.subscription("late", "elsewhere")) // nor can Kyma's operator
	code, out, _ := s.takeOver("run")
	if code != 6 || !strings.Contains(out, "Subscription kyma-system/late") || s.replicas("eventing-manager") != 1 {
		t.Fatalf("a Subscription that ours cannot serve: exit code %d\n%s", code, out)
	}
	s.check(s.client.Resource(subscriptions).Namespace(namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}))
	s.await(time.Minute, "it is gone", func(ctx context.Context) error { return s.allReady(ctx, n) })
	s.sinks.Answer("s1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	l := s.publish(n, 2, 20*time.Millisecond)
	time.Sleep(time.Second)

	code, out, log := s.takeOver("run", "--drain-timeout=2s")
	if code != 1 || !strings.Contains(out, "a sink has yet to take") {
		t.Fatalf("the last events are refused: exit code %d\n%s%s", code, out, log)
	}
	_, err := s.client.Resource(subscriptions).Namespace(namespace).Create(t.Context(), object(t, s.subscription("late", namespace)), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "kubectl eventing take-over plan") {
		t.Errorf("a Subscription is created while two NATS accept events: %v", err)
	}
	if s.replicas("eventing-manager") != 1 || s.replicas(publisher) != 0 || s.replicas(prefix+"-manager") != 0 {
		t.Error("Kyma's operator does not deliver the last events")
	}
	s.sinks.Answer("s1", nil)

	if code, out, log := s.takeOver("run"); code != 0 {
		t.Fatalf("run again: exit code %d\n%s%s", code, out, log)
	}
	if f := s.get(eventings, "eventing").GetFinalizers(); !slices.Equal(f, []string{"eventing-manager.kyma-project.io/deletion-hook"}) {
		t.Errorf("ours alone may keep the Eventing: %v", f)
	}
	l.end()

	// Without the kind of nats-manager, Kyma's operator would delete the Service that clients know.
	crds := s.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	s.check(crds.Delete(t.Context(), kymaeventing.NATSKind, metav1.DeleteOptions{}))
	s.await(time.Minute, "the kind NATS is gone", func(ctx context.Context) error {
		_, err := crds.Get(ctx, kymaeventing.NATSKind, metav1.GetOptions{})
		return poll.Gone(err)
	})
	if code, out, _ := s.takeOver("undo"); code != 6 || !strings.Contains(out, kymaeventing.NATSKind) {
		t.Fatalf("undo without the kind NATS: exit code %d\n%s", code, out)
	}
	s.natsKind()
	// Kyma's operator listens to no consumer of a Subscription whose sink has no Service, which
	// keeps events.
	s.check(s.core.CoreV1().Services(namespace).Delete(t.Context(), "s1", metav1.DeleteOptions{}))
	if code, out, log := s.takeOver("undo", "--drain-timeout=1m"); code != 0 {
		t.Fatalf("undo: exit code %d\n%s%s", code, out, log)
	}
	for name, want := range map[string]int64{"eventing-manager": 1, publisher: 1, prefix + "-manager": 0, prefix + "-controller": 0} {
		if got := s.replicas(name); got != want {
			t.Errorf("%s has %d replicas, want %d", name, got, want)
		}
	}
	s.alone()
	s.check(s.client.Resource(eventings).Namespace(namespace).Delete(t.Context(), "eventing", metav1.DeleteOptions{})) // waits for Subscriptions
	for i := range n {
		s.check(s.client.Resource(subscriptions).Namespace(namespace).Delete(t.Context(), fmt.Sprintf("s%d", i), metav1.DeleteOptions{}))
	}
	s.await(time.Minute, "Kyma's operator has let the Eventing go", func(ctx context.Context) error {
		_, err := s.client.Resource(eventings).Namespace(namespace).Get(ctx, "eventing", metav1.GetOptions{})
		return poll.Gone(err)
	})
}

// TestMany: 1, 100 and 1,000 Subscriptions, under load.
func TestMany(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	for _, n := range []int{1, 100, 1000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := newSite(t, n)
			l := s.publish(n, 4, 20*time.Millisecond)
			for _, to := range []takeover.Direction{takeover.Over, takeover.Back} {
				began := time.Now()
				s.way(to, unkilled)
				t.Logf("%s with %d Subscriptions took %s", to, n, time.Since(began).Round(time.Second))
			}
			if accepted, twice := l.end(); twice*1000 > accepted {
				t.Errorf("%d accepted, %d twice", accepted, twice)
			}
			s.alone()
		})
	}
}
