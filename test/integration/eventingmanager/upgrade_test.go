package eventingmanager_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
	"github.com/kyma-project/eventmesh-migration/test/upgrade"
)

// post publishes events one by one, each until it is accepted, and returns their ids.
func (s *site) post(prefix string, count int) []string {
	s.t.Helper()
	ids := make([]string, count)
	client := s.http()
	next, clients := atomic.Int64{}, sync.WaitGroup{}
	for range 4 {
		clients.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= count {
					return
				}
				id := fmt.Sprintf("%s%04d", prefix, i)
				if err := poll.For(s.t.Context(), 2*time.Minute, "the publisher takes event "+id, func(ctx context.Context) error {
					status, answer, err := ask(ctx, client, http.MethodPost, "/publish", created(id), `{"order": 7}`)
					if err == nil && status/100 != 2 {
						err = fmt.Errorf("%d %s", status, answer)
					}
					return err
				}); err != nil {
					s.t.Error(err)
					return
				}
				ids[i] = id
			}
		})
	}
	clients.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
	return ids
}

// servers is the StatefulSet of NATS, and its pod.
func (s *site) servers() (*appsv1.StatefulSet, *corev1.Pod) {
	s.t.Helper()
	set, err := s.core.AppsV1().StatefulSets(s.namespace).Get(s.t.Context(), "eventing-nats", metav1.GetOptions{})
	s.check(err)
	pod, err := s.core.CoreV1().Pods(s.namespace).Get(s.t.Context(), "eventing-nats-0", metav1.GetOptions{})
	s.check(err)
	return set, pod
}

// stored is how many events the stream has.
func (s *site) stored() uint64 {
	s.t.Helper()
	stream, err := s.js("manager").Stream(s.t.Context(), backend.Stream)
	s.check(err)
	return stream.CachedInfo().State.Msgs
}

// deadSink makes a sink end each connection until the returned function is called.
func deadSink(to *sinks.Sinks, name string) (revive func()) {
	var alive atomic.Bool
	to.Answer(name, func(http.ResponseWriter, *http.Request) {
		if !alive.Load() {
			panic(http.ErrAbortHandler)
		}
	})
	return func() { alive.Store(true) }
}

// withBacklog installs eventing with a Subscription, orders, and publishes so many events that wait
// for its sink, which is dead.
func (s *site) withBacklog(prefix string, count int) (to *sinks.Sinks, revive func(), ids []string) {
	s.t.Helper()
	to = s.withSinks()
	revive = deadSink(to, "orders")
	s.start()
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.installed()
	s.awaitSubscription("orders")
	return to, revive, s.post(prefix, count)
}

// formerLabels gives the objects the label by which the version before finds them, as
// docs/eventing/README.md says for going back.
func (s *site) formerLabels() {
	s.t.Helper()
	if _, err := exec.LookPath("kubectl"); err == nil {
		page, err := os.ReadFile("../../../docs/eventing/README.md")
		s.check(err)
		_, after, _ := strings.Cut(string(page), "## Going back to the version before\n")
		_, after, _ = strings.Cut(after, "\nkubectl -n kyma-system label ")
		command, _, _ := strings.Cut(after, "```")
		cmd := exec.CommandContext(s.t.Context(), "bash", "-euo", "pipefail", "-c", "kubectl -n "+s.namespace+" label "+command)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "HOME="+s.t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			s.t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for _, gvr := range []schema.GroupVersionResource{statefulSets, deployments, services, configMaps, secrets, budgets, autoscalers, claims} {
		list, err := s.client.Resource(gvr).Namespace(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: backend.PlaneLabel + "," + backend.InstanceLabel + "=" + s.prefix})
		s.check(err)
		for i := range list.Items {
			s.patch(gvr, list.Items[i].GetName(), `{"metadata":{"labels":{"`+backend.PodInstanceLabel+`":"`+s.prefix+`"}}}`)
		}
	}
}

// TestUpgrade: the version before this one has stored 1,000 events for a sink that is dead. This
// version takes over, and delivers them when the sink is back; so does the former version again,
// and this one after it. NATS goes on unless its pods have another template.
func TestUpgrade(t *testing.T) {
	quick(t)
	former := upgrade.Previous(t, eventingpods.Manager, eventingpods.Publisher, eventingpods.Controller)
	s := newSite(t, "upgrade")
	s.pods.Version("previous", former)
	to := s.withSinks()
	revive := deadSink(to, "orders")
	takes := func(version string) {
		t.Helper()
		if s.operator != nil {
			s.operator.Kill()
			s.operator.Wait()
		}
		binary := filepath.Join(former, eventingpods.Manager)
		if version == "test" {
			binary = process.Build(t, "./cmd/eventing-manager")
		}
		s.run(binary, s.flags(version))
	}
	// updated waits until each program is that of a version, and all is Ready.
	updated := func(version string) {
		t.Helper()
		poll.Until(t, 3*time.Minute, "the programs are those of "+version, func(ctx context.Context) error {
			for _, program := range []string{eventingpods.Publisher, eventingpods.Controller} {
				d, err := s.core.AppsV1().Deployments(s.namespace).Get(ctx, program, metav1.GetOptions{})
				if err != nil {
					return err
				}
				if image := d.Spec.Template.Spec.Containers[0].Image; image != program+":"+version {
					return fmt.Errorf("%s has %s", program, image)
				}
				if st := d.Status; st.ObservedGeneration < d.Generation || st.UpdatedReplicas != 1 || st.Replicas != 1 || st.AvailableReplicas != 1 {
					return fmt.Errorf("%s: %+v", program, st)
				}
			}
			return nil
		})
		s.await(2*time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionPublisherProxyReady, operatorv1alpha1.ReasonDeployed)
		s.awaitSubscription("orders")
	}
	takes("previous")
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.installed()
	updated("previous")
	const many = 1000
	ids := s.post("n", many)
	if n := s.stored(); n != many {
		t.Fatalf("the former version has stored %d events", n)
	}
	set, pod := s.servers()
	calm := func(version string) {
		t.Helper()
		now, is := s.servers()
		if same := apiequality.Semantic.DeepEqual(set.Spec.Template, now.Spec.Template); same && is.UID != pod.UID {
			t.Errorf("%s: the template of NATS is the same, and its pod is another one", version)
		} else if !same {
			t.Logf("%s has another template of NATS", version)
		}
		set, pod = now, is
	}
	began := time.Now()
	takes("test")
	updated("test")
	calm("this version")
	if n := s.stored(); n != many {
		t.Errorf("%d events are stored after the upgrade", n)
	}
	took := time.Since(began)
	revive()
	to.Await(t, "orders", 5*time.Minute, ids...)
	t.Logf("upgraded in %.0f s; %d events are delivered after %.0f s", took.Seconds(), many, time.Since(began).Seconds())
	for i, version := range []string{"previous", "test"} {
		if version == "previous" {
			s.operator.Kill()
			s.operator.Wait()
			s.formerLabels()
		}
		takes(version)
		updated(version)
		calm(version)
		to.Await(t, "orders", time.Minute, s.post(fmt.Sprintf("d%d-", i), 10)...)
	}
	poll.Until(t, time.Minute, "the stream is empty", func(context.Context) error {
		if n := s.stored(); n > 0 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	s.delete(subscriptions, "orders")
	s.remove(metav1.DeletePropagationBackground)
	s.gone(2 * time.Minute)
	if left := s.left(false); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestReplacedStatefulSet: a StatefulSet of a version that had other values in fields that cannot
// be changed. The operator replaces it, and neither the pod nor an event in it is lost. Until it
// has an age, what the API server says about the field is shown.
func TestReplacedStatefulSet(t *testing.T) {
	quick(t)
	s := newSite(t, "replaced")
	to, revive, ids := s.withBacklog("r", 100)
	s.operator.Kill()
	s.operator.Wait()

	is, pod := s.servers()
	orphan := metav1.DeletePropagationOrphan
	s.check(s.core.AppsV1().StatefulSets(s.namespace).Delete(t.Context(), is.Name, metav1.DeleteOptions{PropagationPolicy: &orphan}))
	old := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: is.Name, Labels: is.Labels, Annotations: is.Annotations}, Spec: is.Spec}
	old.Spec.ServiceName, old.Spec.PodManagementPolicy = "eventing-nats-former", appsv1.OrderedReadyPodManagement
	var uid types.UID
	poll.Until(t, time.Minute, "the StatefulSet of the former version is created", func(ctx context.Context) error {
		made, err := s.core.AppsV1().StatefulSets(s.namespace).Create(ctx, old, metav1.CreateOptions{FieldManager: "former"})
		if err == nil {
			uid = made.UID
		}
		return err
	})
	adopted := func(by types.UID) {
		t.Helper()
		poll.Until(t, time.Minute, "the StatefulSet has taken the pod over", func(context.Context) error {
			_, now := s.servers()
			if now.UID != pod.UID {
				return poll.Stop(fmt.Errorf("the pod is another one: %s instead of %s", now.UID, pod.UID))
			}
			if owner := metav1.GetControllerOf(now); owner == nil || owner.UID != by {
				return fmt.Errorf("its owner is %v", owner)
			}
			return nil
		})
	}
	adopted(uid)
	s.start()
	poll.Until(t, time.Minute, "the Eventing says what the API server refuses", func(context.Context) error {
		e, err := s.eventing(s.namespace, "eventing")
		if err != nil {
			return err
		}
		c := meta.FindStatusCondition(e.Status.Conditions, operatorv1alpha1.ConditionSpecApplied)
		if e.Status.State != operatorv1alpha1.StateWarning || c == nil || !strings.Contains(c.Message, "cannot apply StatefulSet eventing-nats") {
			return fmt.Errorf("%s, %+v", e.Status.State, c)
		}
		return nil
	})
	poll.Until(t, 3*time.Minute, "the StatefulSet is replaced", func(ctx context.Context) error {
		now, err := s.core.AppsV1().StatefulSets(s.namespace).Get(ctx, is.Name, metav1.GetOptions{})
		if err == nil && (now.UID == uid || now.Spec.ServiceName != is.Spec.ServiceName || now.Spec.PodManagementPolicy != is.Spec.PodManagementPolicy) {
			err = errStill
		}
		return err
	})
	now, _ := s.servers()
	adopted(now.UID)
	s.await(time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
	if n := s.stored(); n != uint64(len(ids)) {
		t.Errorf("%d of %d events are stored", n, len(ids))
	}
	if restarts := func() int32 { _, p := s.servers(); return p.Status.ContainerStatuses[0].RestartCount }(); restarts > 0 {
		t.Errorf("NATS was restarted %d times", restarts)
	}
	revive()
	to.Await(t, "orders", 2*time.Minute, ids...)
	s.delete(subscriptions, "orders")
}
