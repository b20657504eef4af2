package takeover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// Who accepts an event stores it, and nobody else: no event is published a second time. One
	// whose answer was lost may be there twice.
	if stored := s.stored(); stored < accepted || stored > accepted+l.refused["no answer"] {
		t.Errorf("%d events were accepted, and %d stored; sent again: %v", accepted, stored, l.refused)
	}
}

// stored is how many events both NATS have ever stored.
func (s *site) stored() int {
	s.t.Helper()
	code, out, _ := s.takeOver("plan", "--output=json")
	var is struct{ Kyma, Ours struct{ LastSeq int } }
	if err := json.Unmarshal([]byte(out), &is); code != 0 || err != nil {
		s.t.Fatalf("plan: exit code %d: %v\n%s", code, err, out)
	}
	return is.Kyma.LastSeq + is.Ours.LastSeq
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
	account := s.loseAccount(prefix + "-controller")
	code, out, _ := s.takeOver("run")
	if code != 6 || !strings.Contains(out, "Subscription kyma-system/late") || s.replicas("eventing-manager") != 1 {
		t.Fatalf("a Subscription that ours cannot serve: exit code %d\n%s", code, out)
	}
	if !strings.Contains(flat(out), "ServiceAccount kyma-system/"+prefix+"-controller: it does not exist") {
		t.Errorf("an account of ours is gone:\n%s", out)
	}
	_, err := s.core.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	s.check(err)
	s.check(s.client.Resource(subscriptions).Namespace(namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}))
	s.await(time.Minute, "it is gone", func(ctx context.Context) error { return s.allReady(ctx, n) })
	s.sinks.Answer("s1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	l := s.publish(n, 2, 20*time.Millisecond)
	time.Sleep(time.Second)

	code, out, log := s.takeOver("run", "--drain-timeout=2s")
	if code != 1 || !strings.Contains(out, "a sink has yet to take") {
		t.Fatalf("the last events are refused: exit code %d\n%s%s", code, out, log)
	}
	_, err = s.client.Resource(subscriptions).Namespace(namespace).Create(t.Context(), object(t, s.subscription("late", namespace)), metav1.CreateOptions{})
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

	s.withoutNATS()
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

// loseAccount lets an account of ours be owned by an Eventing that is gone, as one of Kyma's is
// over which ours was applied: the garbage collector deletes it. It returns the account to be
// created.
func (s *site) loseAccount(name string) *corev1.ServiceAccount {
	s.t.Helper()
	of := s.core.CoreV1().ServiceAccounts(namespace)
	was, err := of.Get(s.t.Context(), name, metav1.GetOptions{})
	s.check(err)
	_, err = of.Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":[{"apiVersion":"operator.kyma-project.io/v1alpha1","kind":"Eventing","name":"eventing","uid":"gone"}]}}`), metav1.PatchOptions{})
	s.check(err)
	s.await(time.Minute, "the account is gone", func(ctx context.Context) error {
		_, err := of.Get(ctx, name, metav1.GetOptions{})
		return poll.Gone(err)
	})
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: was.Labels}, AutomountServiceAccountToken: was.AutomountServiceAccountToken}
}

// deleteNATS asks for the deletion of Kyma's NATS, which its consumers block.
func (s *site) deleteNATS() {
	s.t.Helper()
	s.check(s.client.Resource(natsObjects).Namespace(namespace).Delete(s.t.Context(), "eventing-nats", metav1.DeleteOptions{}))
	s.await(time.Minute, "consumers block the deletion of NATS", func(ctx context.Context) error {
		u, err := s.client.Resource(natsObjects).Namespace(namespace).Get(ctx, "eventing-nats", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != "Warning" {
			return fmt.Errorf("its state is %q", state)
		}
		return nil
	})
}

// scale changes the replicas of a Deployment or a StatefulSet, and waits until as many pods are
// ready.
func (s *site) scale(gvr schema.GroupVersionResource, name string, n int) {
	s.t.Helper()
	of := s.client.Resource(gvr).Namespace(namespace)
	_, err := of.Patch(s.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, n), metav1.PatchOptions{})
	s.check(err)
	s.await(time.Minute, fmt.Sprintf("%s has %d pods", name, n), func(ctx context.Context) error {
		u, err := of.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		if is != int64(n) || ready != int64(n) {
			return fmt.Errorf("it has %d, %d ready", is, ready)
		}
		return nil
	})
}

// natsGone waits until no object of Kyma's NATS is left.
func (s *site) natsGone() {
	s.t.Helper()
	s.await(time.Minute, "Kyma's NATS is gone", func(ctx context.Context) error {
		for gvr, name := range map[schema.GroupVersionResource]string{
			natsObjects: "eventing-nats", statefulSets: "eventing-nats", pods: "eventing-nats-0", {Version: "v1", Resource: "services"}: "eventing-nats",
			{Version: "v1", Resource: "secrets"}: "eventing-nats-secret", {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"}: "eventing-nats",
		} {
			_, err := s.client.Resource(gvr).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
			if err := poll.Gone(err); err != nil {
				return fmt.Errorf("%s: %w", gvr.Resource, err)
			}
		}
		return nil
	})
}

// withoutNATS: who has gone over does not miss Kyma's NATS, nor its kind, and does not go back
// without them: Kyma's operator would delete the Service that clients know. In the end both are
// back, with the volume.
func (s *site) withoutNATS() {
	t := s.t
	t.Helper()
	s.deleteNATS()
	if code, out, _ := s.takeOver("undo"); code != 6 || !strings.Contains(flat(out), "NATS kyma-system/eventing-nats: it is being deleted") {
		t.Fatalf("undo to a NATS that is being deleted: exit code %d\n%s", code, out)
	}
	// Nobody but nats-manager deletes volumes.
	s.scale(deployments, "nats-manager", 0)
	_, err := s.client.Resource(natsObjects).Namespace(namespace).Patch(t.Context(), "eventing-nats", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	s.check(err)
	s.natsGone()
	crds := s.client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	s.check(crds.Delete(t.Context(), kymaeventing.NATSKind, metav1.DeleteOptions{}))
	s.await(time.Minute, "the kind NATS is gone", func(ctx context.Context) error {
		_, err := crds.Get(ctx, kymaeventing.NATSKind, metav1.GetOptions{})
		return poll.Gone(err)
	})
	if code, out, _ := s.takeOver("verify"); code != 0 {
		t.Errorf("verify without Kyma's NATS: exit code %d\n%s", code, out)
	}
	if code, out, _ := s.takeOver("undo"); code != 6 || !strings.Contains(out, kymaeventing.NATSKind) {
		t.Fatalf("undo without the kind NATS: exit code %d\n%s", code, out)
	}
	s.natsKind()
	s.create(kymaeventing.NATS)
	s.scale(deployments, "nats-manager", 1)
	s.await(time.Minute, "Kyma's NATS is back", func(ctx context.Context) error {
		u, err := s.client.Resource(natsObjects).Namespace(namespace).Get(ctx, "eventing-nats", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != "Ready" {
			return fmt.Errorf("its state is %q", state)
		}
		return nil
	})
}

// TestKymaIsRemoved: NATS is deleted while the way waits for its last events, and nats-manager is
// stopped. Nothing is lost. Then all of Kyma's is removed as the document says, and ours goes on.
func TestKymaIsRemoved(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	const n = 2
	s := newSite(t, n)
	// nats-manager makes again what is deleted, and undoes what is changed.
	s.check(s.core.CoreV1().Services(namespace).Delete(t.Context(), "eventing-nats", metav1.DeleteOptions{}))
	_, err := s.client.Resource(statefulSets).Namespace(namespace).Patch(t.Context(), "eventing-nats", types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), metav1.PatchOptions{})
	s.check(err)
	s.await(time.Minute, "nats-manager has repaired its objects", func(ctx context.Context) error {
		_, err := s.core.CoreV1().Services(namespace).Get(ctx, "eventing-nats", metav1.GetOptions{})
		if size, _, _ := unstructured.NestedInt64(s.get(statefulSets, "eventing-nats").Object, "spec", "replicas"); err == nil && size != 1 {
			err = fmt.Errorf("it has %d replicas", size)
		}
		return err
	})
	s.sinks.Answer("s1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	l := s.publish(n, 2, 20*time.Millisecond)
	time.Sleep(time.Second)
	if code, out, log := s.takeOver("run", "--drain-timeout=2s"); code != 1 {
		t.Fatalf("the last events are refused: exit code %d\n%s%s", code, out, log)
	}
	s.deleteNATS()
	for _, command := range [][]string{{"plan", "--back"}, {"undo"}} {
		if code, out, _ := s.takeOver(command...); code != 6 || !strings.Contains(flat(out), "it is being deleted") {
			t.Fatalf("%v to a NATS that is being deleted: exit code %d\n%s", command, code, out)
		}
	}
	if code, out, _ := s.takeOver("plan"); code != 0 || !strings.Contains(flat(out), "deletes their volumes with all events") {
		t.Errorf("plan: exit code %d\n%s", code, out)
	}
	s.scale(deployments, "nats-manager", 0)
	s.sinks.Answer("s1", nil)
	if code, out, log := s.takeOver("run"); code != 0 {
		t.Fatalf("run with a NATS that is being deleted: exit code %d\n%s%s", code, out, log)
	}
	s.scale(deployments, "nats-manager", 1)
	code, out, _ := s.takeOver("verify")
	if code != 0 || !strings.Contains(flat(out), "kubectl -n kyma-system scale statefulset eventing-nats --replicas=0") {
		t.Fatalf("verify: exit code %d\n%s", code, out)
	}
	// As the document says, with a volume that is kept: one without the label is not Kyma's any
	// more.
	volumes := s.core.CoreV1().PersistentVolumeClaims(namespace)
	const kept, labeled = "eventing-nats-js-pvc-eventing-nats-0", "eventing-nats-js-pvc-eventing-nats-9"
	_, err = volumes.Patch(t.Context(), kept, types.MergePatchType, []byte(`{"metadata":{"labels":{"app.kubernetes.io/instance":null}}}`), metav1.PatchOptions{})
	s.check(err)
	s.create(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: %s, namespace: kyma-system, labels: {app.kubernetes.io/name: nats, app.kubernetes.io/instance: eventing}},
 spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, labeled)) // of a former server
	s.scale(statefulSets, "eventing-nats", 0)
	s.natsGone()
	s.await(time.Minute, "the other volumes are gone", func(ctx context.Context) error {
		list, err := volumes.List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=eventing"})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s is there", list.Items[0].Name)
		}
		return err
	})
	for _, name := range []string{"eventing-manager", "nats-manager", publisher} {
		s.check(s.client.Resource(deployments).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	list, err := volumes.List(t.Context(), metav1.ListOptions{})
	s.check(err)
	var left []string
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			left = append(left, list.Items[i].Name)
		}
	}
	if slices.Sort(left); !slices.Equal(left, []string{"data-" + prefix + "-nats-0", kept}) {
		t.Errorf("the volumes %v are left, want ours and %s", left, kept)
	}
	if code, out, _ := s.takeOver("verify"); code != 0 {
		t.Errorf("verify without Kyma's programs: exit code %d\n%s", code, out)
	}
	if code, out, _ := s.takeOver("undo"); code != 6 || !strings.Contains(flat(out), "eventing-manager is not there") {
		t.Errorf("undo without Kyma's programs: exit code %d\n%s", code, out)
	}
	before := l.count()
	s.await(time.Minute, "clients go on", func(context.Context) error {
		if l.count() < before+20 {
			return errors.New("too few events are accepted")
		}
		return nil
	})
	l.end()
	s.alone()
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
