package faultproxy

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// TestRealCluster is about what an imitation cannot vouch for: protobuf, and
// continue tokens.
func TestRealCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c, err := kubernetes.Start(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	direct, err := clientset.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := direct.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faultproxy-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = direct.CoreV1().Namespaces().Delete(context.Background(), namespace.Name, metav1.DeleteOptions{})
	})
	start := func(t *testing.T) *Proxy {
		t.Helper()
		p, err := Start(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	typed := func(t *testing.T, p *Proxy) clientset.Interface {
		t.Helper()
		config := p.Config()
		config.ContentType = "application/vnd.kubernetes.protobuf"
		client, err := clientset.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		return client
	}

	t.Run("NamesInProtobuf", func(t *testing.T) {
		p := start(t)
		_, err := typed(t, p).CoreV1().Secrets(namespace.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := p.Log()[0].Request.String(), fmt.Sprintf("create secrets %s/x", namespace.Name); got != want {
			t.Errorf("the proxy saw %q, want %q", got, want)
		}
	})

	t.Run("TimeoutAfterTheWrite", func(t *testing.T) {
		p := start(t)
		p.RandomFaults(1, 1, Timeout)
		_, err := typed(t, p).CoreV1().Secrets(namespace.Name).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "timeout"}}, metav1.CreateOptions{})
		if !apierrors.IsTimeout(err) {
			t.Errorf("the client was told %v, want a timeout", err)
		}
		if _, err := direct.CoreV1().Secrets(namespace.Name).Get(ctx, "timeout", metav1.GetOptions{}); err != nil {
			t.Errorf("the write did not take place: %v", err)
		}
	})

	t.Run("WatchExpiresInProtobuf", func(t *testing.T) {
		p := start(t)
		f := p.RandomFaults(2, 1, WatchExpired)
		// A watch from nowhere begins with an event for each object there is.
		w, err := typed(t, p).CoreV1().Secrets(namespace.Name).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		var last watch.Event
		events := 0
		for e := range w.ResultChan() {
			last = e
			events++
		}
		if err := apierrors.FromObject(last.Object); last.Type != watch.Error || !apierrors.IsGone(err) && !apierrors.IsResourceExpired(err) {
			t.Errorf("after %d events (%s) the last is %s %v, want a 410", events, f, last.Type, last.Object)
		}
	})

	t.Run("ContinueInconsistently", func(t *testing.T) {
		for i := range 3 {
			_, err := direct.CoreV1().ConfigMaps(namespace.Name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("page-", i)}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		p := start(t)
		maps := pager(t, p.Config(), namespace.Name)
		first, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		p.RandomFaults(1, 1, ContinueExpired)
		offered := ""
		for range 20 { // every second time, by chance
			_, err = maps.List(ctx, metav1.ListOptions{Limit: 1, Continue: first.GetContinue()})
			if !apierrors.IsResourceExpired(err) {
				t.Fatalf("the second page: %v, want a 410", err)
			}
			if offered = err.(apierrors.APIStatus).Status().Continue; offered != "" {
				break
			}
		}
		second, err := pager(t, c.Config(), namespace.Name).List(ctx, metav1.ListOptions{Limit: 1, Continue: offered})
		if err != nil {
			t.Fatalf("the API server refuses the token that was offered instead: %v", err)
		}
		if len(second.Items) != 1 || second.Items[0].GetName() == first.Items[0].GetName() {
			t.Errorf("the offered token leads to %v", second.Items)
		}
	})
}

func pager(t *testing.T, config *rest.Config, namespace string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(configMaps).Namespace(namespace)
}
