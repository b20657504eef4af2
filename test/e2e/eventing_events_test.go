//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/prober"
)

// byPeople begins the ids of events that people send.
const byPeople = "by-people-"

// people look at eventing with kubectl eventing, and send events to the Subscription shop/orders;
// sent are the ids of those that its sink has got. eventing_people_test.go sets it: that program
// can be taken out.
var people func(e *eventing, t *testing.T, sent <-chan string)

// events sends events to the publisher, first one by hand and then many, while pods of NATS, of the
// controller and of the publisher are killed. What was accepted arrives at the sink.
func (e *eventing) events(t *testing.T, began time.Time) {
	t.Helper()
	ctx := t.Context()
	client := &http.Client{Transport: e.through, Timeout: 15 * time.Second}
	p := prober.New([]prober.Target{{Application: "commerce", EventType: "order.created", URL: e.publisher + "/commerce/v1/events"}}, prober.Options{Client: client, MaxPending: 100})
	published, byHand := make(chan *http.Request, 1), make(chan string, 100)
	url := e.serveHere(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Ce-Id") == "1" { // that of the guide
			published <- r
			return
		}
		if id := r.Header.Get("Ce-Id"); strings.HasPrefix(id, byPeople) {
			byHand <- id
			return
		}
		p.ServeHTTP(w, r)
	}))
	guide := e.guide(t, "docs/eventing/subscriptions.md")
	if len(guide) != 3 {
		t.Fatalf("the guide has %d blocks of commands", len(guide))
	}
	guide[0]()
	e.relay(t, "shop", "orders", 8080, url)
	e.rolledOut(t, "shop", "orders")
	answer := guide[1]()
	guide[2]()
	select {
	case r := <-published:
		t.Logf("from the first kubectl apply to the event at its sink: %.0f s", time.Since(began).Seconds())
		if !strings.Contains(answer, " 204 ") || r.Header.Get("Ce-Source") != "commerce" || r.Header.Get("Ce-Type") != "order.created.v1" || r.ContentLength != int64(len(`{"order": 7}`)) {
			t.Errorf("answer %s; the sink got %v", answer, r.Header)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("the event of /publish did not arrive; answer %s", answer)
	}
	if people != nil {
		people(e, t, byHand)
	}

	const kills, pause = 6, 10 * time.Second
	sending, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	defer func() {
		stop()
		<-done
	}()
	if err := p.AwaitAccepted(ctx, 100); err != nil {
		t.Fatalf("%v\n%s", err, p.Report())
	}
	var slowest time.Duration
	for i := range kills {
		component := []string{"nats", "controller", "publisher-proxy"}[i%3]
		p.Step("killed " + component)
		e.kill(t, component)
		at := time.Now()
		if err := p.AwaitAccepted(ctx, 1); err != nil {
			t.Fatalf("%v\n%s", err, p.Report())
		}
		slowest = max(slowest, time.Since(at))
		select {
		case <-time.After(pause - time.Since(at)):
		case <-ctx.Done():
		}
	}
	stop()
	<-done
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := p.Await(waiting); err != nil {
		t.Error(err)
	}
	r := p.Report()
	t.Logf("%d kills, accepting again after at most %.1f s; the prober's report:\n%s", kills, slowest.Seconds(), r)
	limit := poll.Within(15 * time.Second)
	if len(r.Missing) > 0 || len(r.GivenUp) > 0 || slowest > limit {
		t.Errorf("events were lost, or refused for more than %s:\n%s", limit, r)
	}
	for _, program := range []string{"eventing-controller", "eventing-publisher-proxy"} {
		account := "system:serviceaccount:" + eventingNamespace + ":" + program
		refused, err := e.Requests(ctx, 0, func(r kubernetes.Request) bool { return r.User == account && r.Code == http.StatusForbidden })
		if err != nil || len(refused) > 0 {
			t.Errorf("the Role of %s lacks %v, %v", program, refused, err)
		}
	}
	e.rolledOut(t, eventingNamespace, "eventing-controller")
	e.rolledOut(t, eventingNamespace, "eventing-publisher-proxy")
	e.do(t, "", "-n", "shop", "delete", "subscriptions.eventing.kyma-project.io", "orders", "--timeout=30s")
}

// guide is each block of commands of a document. Call it to run it, from the root of the
// repository; it returns the output.
func (e *eventing) guide(t *testing.T, document string) (blocks []func() string) {
	t.Helper()
	root, scripts := scriptsOf(t, document)
	for _, script := range scripts {
		blocks = append(blocks, func() string { return e.shell(t, root, script) })
	}
	return blocks
}

// shell runs commands in a directory, and returns what they print.
func (e *eventing) shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"KUBECONFIG=" + e.Kubeconfig, "HOME=" + t.TempDir(), "PATH=" + filepath.Dir(e.kubectl) + ":" + os.Getenv("PATH")}
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

// kill deletes one pod of a component, without the time that it has to end. Kubernetes waits longer
// and longer before it starts a container again whose process was killed, so a new pod is what a
// test can wait for.
func (e *eventing) kill(t *testing.T, component string) {
	t.Helper()
	if err := e.killPod(t.Context(), component); err != nil {
		t.Errorf("cannot kill a pod of %s: %v", component, err)
	}
}

func (e *eventing) killPod(ctx context.Context, component string) error {
	pods, err := e.podsOf(ctx, component)
	if err != nil {
		return err
	}
	if len(pods.Items) == 0 {
		return errors.New("there is none")
	}
	return e.client.CoreV1().Pods(eventingNamespace).Delete(ctx, pods.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
}

// podsOf are the pods of a component that have not ended.
func (e *eventing) podsOf(ctx context.Context, component string) (*corev1.PodList, error) {
	return e.client.CoreV1().Pods(eventingNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + component, FieldSelector: "status.phase!=Failed"})
}

// fail has the kubelet end a pod of a component for ever. As one that it evicts, the pod stays, and
// its ReplicaSet creates another one.
func (e *eventing) fail(t *testing.T, component string) {
	t.Helper()
	pods, err := e.podsOf(t.Context(), component)
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%v, %+v", err, pods)
	}
	name := pods.Items[0].Name
	if _, err := e.client.CoreV1().Pods(eventingNamespace).Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "Pod "+name+" has failed", func(ctx context.Context) error {
		pod, err := e.client.CoreV1().Pods(eventingNamespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != corev1.PodFailed {
			err = fmt.Errorf("it is %s", pod.Status.Phase)
		}
		return err
	})
}

// serveHere starts a server that pods reach, and returns its URL.
func (c *cluster) serveHere(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(c.Host, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}
