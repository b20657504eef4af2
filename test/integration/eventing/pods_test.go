package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// podPlane is the chart of NATS on a cluster whose pods are processes.
type podPlane struct {
	plane
	t         *testing.T
	core      clientset.Interface
	dynamic   dynamic.Interface
	node      *node.Node
	pods      *natsserver.Pods
	dir       string
	namespace string
	values    map[string]any
}

func startPods(t *testing.T, namespace string) *podPlane {
	t.Helper()
	p := &podPlane{t: t, namespace: namespace, dir: t.TempDir(), plane: plane{seeds: map[string][]byte{}}}
	var err error
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.pods, err = natsserver.NewPods(t.Context())
	check(err)
	p.core, err = clientset.NewForConfig(cluster.Config())
	check(err)
	p.dynamic, err = dynamic.NewForConfig(cluster.Config())
	check(err)
	_, err = p.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	check(err)
	p.node, err = node.Start(t.Context(), cluster.Config(), node.Options{Run: p.pods.Run, Directory: p.dir, Log: t.Logf})
	check(err)
	t.Cleanup(p.node.Stop)

	keys := map[string]any{}
	for _, user := range []string{"system", "manager", "controller", "publisher"} {
		seed, err := natsutil.NewUser()
		check(err)
		keys[user], err = natsutil.PublicKey(seed)
		check(err)
		p.seeds[user] = seed
	}
	p.ca, err = natsutil.NewAuthority("test", time.Now())
	check(err)
	certificate, err := p.ca.Issue([]string{"eventing-nats." + namespace + ".svc"}, time.Now())
	check(err)
	p.values = map[string]any{"image": "nats-server:1", "replicas": int64(1), "users": keys, "syncInterval": "10s", "storage": map[string]any{"className": "standard"}}
	p.apply()
	// The pod waits for what is not there yet, and says so in the words of the scheduler and of the
	// kubelet.
	poll.Until(t, time.Minute, "the pod cannot be scheduled without a StorageClass", func(ctx context.Context) error {
		pod, err := p.core.CoreV1().Pods(namespace).Get(ctx, "eventing-nats-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "unbound immediate PersistentVolumeClaims") {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status)
	})
	_, err = p.core.StorageV1().StorageClasses().Create(t.Context(), node.Class("standard", true, storagev1.VolumeBindingWaitForFirstConsumer), metav1.CreateOptions{})
	check(err)
	t.Cleanup(func() {
		if err := p.core.StorageV1().StorageClasses().Delete(context.WithoutCancel(t.Context()), "standard", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	poll.Until(t, time.Minute, "the pod waits for the Secret with its certificate", func(ctx context.Context) error {
		pod, err := p.core.CoreV1().Pods(namespace).Get(ctx, "eventing-nats-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range pod.Status.ContainerStatuses {
			if c.State.Waiting != nil && strings.Contains(c.State.Waiting.Message, "eventing-nats-tls") {
				return nil
			}
		}
		return fmt.Errorf("%+v", pod.Status)
	})
	_, err = p.core.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "eventing-nats-tls"},
		Data:       map[string][]byte{"tls.crt": certificate.Certificate, "tls.key": certificate.Key, "ca.crt": p.ca.Certificate},
	}, metav1.CreateOptions{})
	check(err)
	return p
}

// apply applies the rendered chart, as the operator does.
func (p *podPlane) apply() {
	p.t.Helper()
	objects, err := loaded(p.t).Render(chart.Release{Name: "eventing", Namespace: p.namespace}, map[string]any{"nats": p.values})
	if err != nil {
		p.t.Fatal(err)
	}
	for _, u := range objects {
		gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
		if _, err := p.dynamic.Resource(gvr).Namespace(p.namespace).Apply(p.t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			p.t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// ready waits until the StatefulSet has rolled out, and returns its pod.
func (p *podPlane) ready() *corev1.Pod {
	p.t.Helper()
	var pod *corev1.Pod
	poll.Until(p.t, time.Minute, "the StatefulSet has rolled out", func(ctx context.Context) error {
		s, err := p.core.AppsV1().StatefulSets(p.namespace).Get(ctx, "eventing-nats", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s.Status.ObservedGeneration != s.Generation || s.Status.ReadyReplicas != 1 || s.Status.UpdatedReplicas != 1 || s.Status.CurrentRevision != s.Status.UpdateRevision {
			return fmt.Errorf("%+v", s.Status)
		}
		pod, err = p.core.CoreV1().Pods(p.namespace).Get(ctx, "eventing-nats-0", metav1.GetOptions{})
		return err
	})
	return pod
}

// stored is the number of messages of the stream, as the server says.
func (p *podPlane) stored(t *testing.T) uint64 {
	t.Helper()
	var n uint64
	poll.Until(t, 30*time.Second, "NATS says what is stored", func(ctx context.Context) error {
		s, err := js(t, p.as(t, "manager")).Stream(ctx, backend.Stream)
		if err != nil {
			return err
		}
		n = s.CachedInfo().State.Msgs
		return nil
	})
	return n
}

// as is connected as a user. The certificate names the Service.
func (p *podPlane) as(t *testing.T, user string) *nats.Conn {
	t.Helper()
	url, err := p.pods.URL(p.namespace, "eventing-nats-0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := natsutil.Connect(url, natsutil.Account{Name: user, Seed: p.seeds[user], CA: p.ca.Certificate, Inbox: "_INBOX." + user}, func(o *nats.Options) error {
		o.TLSConfig.ServerName = "eventing-nats." + p.namespace + ".svc"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	poll.Until(t, 30*time.Second, user+" is connected", func(context.Context) error {
		if !c.IsConnected() {
			return fmt.Errorf("not connected: %w", c.LastError())
		}
		return nil
	})
	return c
}

// TestNATSInPods: the rendered chart on a cluster whose pods are processes. What was accepted
// outlives the process, the pod, and the StatefulSet.
func TestNATSInPods(t *testing.T) {
	p := startPods(t, "nats-in-pods")
	ctx := t.Context()
	first := p.ready()
	claim, err := p.core.CoreV1().PersistentVolumeClaims(p.namespace).Get(ctx, "data-eventing-nats-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Annotations[backend.ServersAnnotation] != "1" || claim.Labels[backend.PlaneLabel] != string(backend.PlaneNATS) {
		t.Errorf("the claim has annotations %v, labels %v, and is %s", claim.Annotations, claim.Labels, claim.Status.Phase)
	}
	if _, err := js(t, p.as(t, "manager")).CreateStream(ctx, stream.Config(small(), "e1", true)); err != nil {
		t.Fatal(err)
	}
	if _, err := js(t, p.as(t, "controller")).CreateConsumer(ctx, backend.Stream, stream.Consumer("shop", "orders", []string{backend.Filter("commerce", "a.b")}, false)); err != nil {
		t.Fatal(err)
	}
	if _, err := js(t, p.as(t, "publisher")).Publish(ctx, backend.Subject("commerce", "a.b"), []byte("1"), jetstream.WithRetryAttempts(0)); err != nil {
		t.Fatal(err)
	}

	if killed := p.node.Kill(func(pod *corev1.Pod) bool { return pod.UID == first.UID }); killed != 1 {
		t.Fatalf("%d containers were killed", killed)
	}
	poll.Until(t, time.Minute, "the container was restarted and is ready", func(ctx context.Context) error {
		pod, err := p.core.CoreV1().Pods(p.namespace).Get(ctx, first.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := pod.Status.ContainerStatuses[0]; pod.UID != first.UID || s.RestartCount != 1 || !s.Ready {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if n := p.stored(t); n != 1 {
		t.Errorf("%d messages after the process was killed, want 1", n)
	}

	p.values["resources"] = map[string]any{"requests": map[string]any{"cpu": "41m"}}
	p.apply()
	second := p.ready()
	if second.UID == first.UID || second.Labels[appsv1.StatefulSetRevisionLabel] == first.Labels[appsv1.StatefulSetRevisionLabel] {
		t.Errorf("Pod %s was not replaced, although the template changed", first.Name)
	}
	if n := p.stored(t); n != 1 {
		t.Errorf("%d messages after the roll-out, want 1", n)
	}

	// The files follow the Secret, and the paths in the configuration are those of this machine.
	if _, err := p.core.CoreV1().Secrets(p.namespace).Patch(ctx, "eventing-nats-tls", types.MergePatchType, []byte(`{"data":{"extra":"eA=="}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 10*time.Second, "the new file is in the volume", func(context.Context) error {
		_, err := os.ReadFile(filepath.Join(p.dir, "pods", string(second.UID), "tls", "extra"))
		return err
	})

	if err := p.core.AppsV1().StatefulSets(p.namespace).Delete(ctx, "eventing-nats", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "the pod is gone", func(ctx context.Context) error {
		_, err := p.core.CoreV1().Pods(p.namespace).Get(ctx, first.Name, metav1.GetOptions{})
		return poll.Gone(err)
	})
	if _, err := os.Stat(filepath.Join(p.dir, "pods", string(second.UID))); !os.IsNotExist(err) {
		t.Errorf("the directory of the pod is still there: %v", err)
	}
	if again, err := p.core.CoreV1().PersistentVolumeClaims(p.namespace).Get(ctx, claim.Name, metav1.GetOptions{}); err != nil || again.UID != claim.UID {
		t.Errorf("the claim did not outlive the StatefulSet: %v", err)
	}
	p.apply()
	p.ready()
	if n := p.stored(t); n != 1 {
		t.Errorf("%d messages after the StatefulSet was deleted and created, want 1", n)
	}

	// A claim that a pod uses is protected; afterwards it goes with its data.
	claims := p.core.CoreV1().PersistentVolumeClaims(p.namespace)
	if err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if again, err := claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil || again.DeletionTimestamp == nil {
		t.Errorf("the claim is not protected while its pod runs: %v", err)
	}
	if err := p.core.AppsV1().StatefulSets(p.namespace).Delete(ctx, "eventing-nats", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "claim, volume and directory are gone", func(ctx context.Context) error {
		_, err := claims.Get(ctx, claim.Name, metav1.GetOptions{})
		_, volume := p.core.CoreV1().PersistentVolumes().Get(ctx, "pvc-"+string(claim.UID), metav1.GetOptions{})
		_, dir := os.Stat(filepath.Join(p.dir, "claims", string(claim.UID)))
		if !os.IsNotExist(dir) {
			dir = errors.New("the directory is there")
		} else {
			dir = nil
		}
		return errors.Join(poll.Gone(err), poll.Gone(volume), dir)
	})
}
