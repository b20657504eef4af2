package eventing_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/nats-io/nats.go/jetstream"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
	"github.com/kyma-project/eventmesh-migration/test/eventservice"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// patience bounds every wait of the tests of the publisher.
const patience = time.Minute

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// publisher is a process of the publisher, with the files and the ConfigMap that it follows.
type publisher struct {
	*eventservice.Process
	t              testing.TB
	prefix         string
	seedFile, file string
	client         dynamic.Interface
	secret         []byte
}

// startPublisher starts a publisher that accepts events for the stream of p. change may be nil: it
// changes what the publisher is given.
func startPublisher(t testing.TB, p *plane, change func(seed, ca *[]byte, b *backend.Backends), args ...string) *publisher {
	t.Helper()
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out := &publisher{
		t: t, prefix: "p" + uuid.NewString()[:8], seedFile: filepath.Join(dir, "seed"), file: filepath.Join(dir, "ca.crt"), client: client, secret: p.seeds["publisher"],
	}
	seed, ca, b := p.seeds["publisher"], p.ca.Certificate, p.backends()
	if change != nil {
		change(&seed, &ca, &b)
	}
	out.write(out.seedFile, seed)
	out.write(out.file, ca)
	out.follow(&b)
	kubeconfig, err := cluster.User(t.Context(), "publisher",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{out.name()}, Verbs: []string{"list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{"eventing.kyma-project.io"}, Resources: []string{"subscriptions"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{"applicationconnector.kyma-project.io"}, Resources: []string{"applications"}, Verbs: []string{"list", "watch"}})
	if err != nil {
		t.Fatal(err)
	}
	out.Process, err = eventservice.StartServer(t.Context(), process.Build(t, "./cmd/eventing-publisher-proxy"), []string{"KUBECONFIG=" + kubeconfig}, append([]string{
		"--port=0", "--metrics-port=0", "--namespace=default", "--resource-prefix=" + out.prefix, "--nats-seed-file=" + out.seedFile, "--nats-ca-file=" + out.file, "--shutdown-delay=0",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		out.Kill()
		log := out.Log()
		for _, bad := range []string{"WARNING: DATA RACE", "this is a bug", "\npanic: ", string(out.secret)} {
			if strings.Contains(log, bad) {
				t.Errorf("the log has %q", bad)
			}
		}
		if t.Failed() {
			t.Logf("log of the publisher, its end:\n%s", log[max(0, len(log)-8<<10):])
		}
	})
	return out
}

// backends are those of this plane: NATS serves and accepts.
func (p *plane) backends() backend.Backends {
	nats := backend.Set{operatorv1alpha1.NATS}
	return backend.Backends{Epoch: "e1", Serving: nats, Accept: nats, NATS: &backend.NATSAddress{
		URL: strings.Replace(p.URL, "127.0.0.1", "localhost", 1), Stream: backend.Stream, CA: "eventing-nats-ca",
	}}
}

func (p *publisher) name() string { return backend.Names(p.prefix).Backends() }

// write replaces a file as the kubelet does: a reader never sees half of it.
func (p *publisher) write(file string, content []byte) {
	p.t.Helper()
	if err := os.WriteFile(file+".new", content, 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		p.t.Fatal(err)
	}
}

// follow writes the ConfigMap; nil: deletes it.
func (p *publisher) follow(b *backend.Backends) {
	p.t.Helper()
	all := p.client.Resource(configMaps).Namespace("default")
	if b == nil {
		if err := all.Delete(p.t.Context(), p.name(), metav1.DeleteOptions{}); err != nil {
			p.t.Fatal(err)
		}
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": p.name()}}}
	if err := unstructured.SetNestedStringMap(u.Object, b.Data(), "data"); err != nil {
		p.t.Fatal(err)
	}
	_, err := all.Create(p.t.Context(), u, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = all.Update(p.t.Context(), u, metav1.UpdateOptions{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// ready asks as the kubelet does.
func (p *publisher) ready(ctx context.Context) error {
	a, err := ask(ctx, http.MethodGet, strings.TrimSuffix(p.MetricsURL, "/metrics")+"/readyz", nil, "")
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s", a)
	}
	return err
}

func (p *publisher) awaitReady() {
	p.t.Helper()
	poll.Until(p.t, patience, "the publisher is ready", p.ready)
}

// reply is what a client was told.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %v %s", r.status, r.header, r.body) }

var httpClient = &http.Client{
	Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func ask(ctx context.Context, method, url string, header http.Header, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header["User-Agent"] = nil
	maps.Copy(req.Header, header)
	resp, err := httpClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(raw)}, err
}

// publish sends a small event, and returns the answer.
func (p *publisher) publish(ctx context.Context, id string) (reply, error) {
	return ask(ctx, http.MethodPost, p.URL+"/publish", http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {id}, "Ce-Source": {"commerce"}, "Ce-Type": {"order.created.v1"}, "Content-Type": {"text/plain"},
	}, id)
}

// wide is a stream with room for every test of the publisher.
func wide() operatorv1alpha1.BackendConfig {
	c := small()
	c.NATSStreamMaxSize, c.NATSMaxMsgsPerTopic = resource.MustParse("256Mi"), 1_000_000
	return c
}

// receiver gets all events of the stream.
func receiver(t testing.TB, p *plane, config jetstream.StreamConfig) jetstream.Consumer {
	t.Helper()
	if _, err := js(t, p.as(t, "manager")).CreateOrUpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	c, err := js(t, p.as(t, "controller")).CreateConsumer(t.Context(), backend.Stream, stream.Consumer("test", "all", []string{backend.OpenSubjects}, false))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sent is a message as the receiver gets it.
type sent struct {
	Subject, Body string
	Header        map[string]string
}

func received(t testing.TB, from jetstream.Consumer) sent {
	t.Helper()
	m, err := from.Next(jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatalf("no message: %v", err)
	}
	if err := m.DoubleAck(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := sent{Subject: m.Subject(), Body: string(m.Data()), Header: map[string]string{}}
	for name, values := range m.Headers() {
		got.Header[name] = strings.Join(values, "\n")
	}
	return got
}

// TestPublisherRefuses: what is not stored is never answered with 2xx, and each 5xx says when to
// send the event again.
func TestPublisherRefuses(t *testing.T) {
	p := startNATS(t)
	manager := js(t, p.as(t, "manager"))
	from := receiver(t, p, stream.Config(small(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	expect := func(reason, id string, status int, retryAfter, said string) {
		t.Helper()
		poll.Until(t, patience, reason, func(ctx context.Context) error {
			got, err := pub.publish(ctx, id)
			if err != nil {
				return poll.Stop(err)
			}
			if got.status != status || got.header.Get("Retry-After") != retryAfter || !strings.Contains(got.body, said) {
				return fmt.Errorf("%s", got)
			}
			return nil
		})
	}
	expect("an event is stored", "1", 204, "", "")
	expect("the same event is stored already", "1", 204, "", "")
	expect("another one is stored", "2", 204, "", "")
	expect("enough of one type of one source", "3", 507, "30", "storage_full")
	big, err := ask(t.Context(), http.MethodPost, pub.URL+"/publish", http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"big"}, "Ce-Source": {"commerce"}, "Ce-Type": {"a.b"}, "Content-Type": {"text/plain"},
	}, strings.Repeat("x", 1<<20))
	if err != nil || big.status != 507 || big.header.Get("Retry-After") != "30" {
		t.Errorf("an event that is larger than the stream: %v, %s", err, big)
	}
	for _, id := range []string{"1", "2"} {
		if got := received(t, from); got.Body != id {
			t.Errorf("got %s, want event %s once", got.Body, id)
		}
	}
	expect("there is room again", "3", 204, "", "")

	none := p.backends()
	none.Accept, none.Epoch = nil, "e2"
	pub.follow(&none)
	expect("the backend is not accepted", "4", 503, "2", "takes no events now")
	pub.follow(nil)
	expect("nothing says that it is", "4", 503, "2", "takes no events now")
	other := p.backends()
	other.Accept = backend.Set{operatorv1alpha1.EventMesh}
	pub.follow(&other)
	expect("another backend is accepted", "4", 503, "2", "takes no events now")
	both := p.backends()
	both.Accept = backend.Set{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS}
	pub.follow(&both)
	expect("both are accepted", "4", 204, "", "")

	if _, err := manager.UpdateStream(t.Context(), stream.Config(small(), "e1", false)); err != nil {
		t.Fatal(err)
	}
	expect("the stream is closed", "5", 503, "2", "takes no events now")
	silent := stream.Config(small(), "e1", true)
	silent.NoAck = true
	if _, err := manager.UpdateStream(t.Context(), silent); err != nil {
		t.Fatal(err)
	}
	expect("the stream does not answer", "6", 504, "2", "may have been taken")
	p.Kill()
	expect("the server is gone", "7", 503, "2", "cannot be reached")
	if err := pub.ready(t.Context()); err != nil {
		t.Errorf("a publisher that was ready is not, while the server is gone: its Service would be empty: %v", err)
	}
}

// TestPublisherFollows: the address, the seed and the authority may come later, or change, without
// a restart.
func TestPublisherFollows(t *testing.T) {
	p := startNATS(t)
	receiver(t, p, stream.Config(wide(), "e1", true))
	stranger, err := natsutil.NewUser()
	if err != nil {
		t.Fatal(err)
	}
	other, err := natsutil.NewAuthority("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		change func(seed, ca *[]byte, b *backend.Backends)
		repair func(pub *publisher)
	}{
		{"a seed of nobody", func(seed, _ *[]byte, _ *backend.Backends) { *seed = stranger }, func(pub *publisher) { pub.write(pub.seedFile, p.seeds["publisher"]) }},
		{"a seed that is none", func(seed, _ *[]byte, _ *backend.Backends) { *seed = []byte("secret") }, func(pub *publisher) { pub.write(pub.seedFile, append(p.seeds["publisher"], '\n')) }},
		{"another authority", func(_, ca *[]byte, _ *backend.Backends) { *ca = other.Certificate }, func(pub *publisher) { pub.write(pub.file, p.ca.Certificate) }},
		{"another address", func(_, _ *[]byte, b *backend.Backends) { b.NATS.URL = "tls://localhost:1" }, func(pub *publisher) {
			b := p.backends()
			pub.follow(&b)
		}},
		{"no address", func(_, _ *[]byte, b *backend.Backends) { b.NATS = nil }, func(pub *publisher) {
			b := p.backends()
			pub.follow(&b)
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			pub := startPublisher(t, p, tc.change)
			poll.Until(t, patience, "the event is refused", func(ctx context.Context) error {
				got, err := pub.publish(ctx, tc.reason)
				if err == nil && (got.status != 503 || got.header.Get("Retry-After") != "2" || !strings.Contains(got.body, "cannot be reached")) {
					err = fmt.Errorf("%s", got)
				}
				return err
			})
			if err := pub.ready(t.Context()); err == nil {
				t.Error("ready without a backend")
			}
			tc.repair(pub)
			pub.awaitReady()
			if got, err := pub.publish(t.Context(), tc.reason); err != nil || got.status != 204 {
				t.Errorf("%v %s", err, got)
			}
		})
	}
}

// TestPublisherLosesNothing: the server is killed under load. What was answered with 2xx is there,
// and once.
func TestPublisherLosesNothing(t *testing.T) {
	p := startNATS(t)
	from := receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	const clients, kills = 8, 3
	var mu sync.Mutex
	accepted, statuses := map[string]bool{}, map[int]int{}
	var since atomic.Int64 // accepted since the last kill
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("%d-%d", i, n)
				for ctx.Err() == nil {
					got, err := pub.publish(context.WithoutCancel(ctx), id)
					if err != nil {
						t.Errorf("no answer: %v", err)
						return
					}
					mu.Lock()
					statuses[got.status]++
					if got.status == 204 {
						accepted[id] = true
					}
					mu.Unlock()
					switch {
					case got.status == 204:
						since.Add(1)
					case got.status < 500 || got.header.Get("Retry-After") == "":
						t.Errorf("%s", got)
						return
					}
					if got.status == 204 {
						break
					}
					// A client that asks again at once would only count refusals.
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	enough := func(context.Context) error {
		if n := since.Load(); n < 200 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	}
	for range kills {
		poll.Until(t, patience, "events are accepted", enough)
		p.Kill()
		p.Launch()
		since.Store(0)
	}
	poll.Until(t, patience, "events are accepted after the last kill", enough)
	stop()
	all.Wait()
	got := map[string]int{}
	for len(accepted) > 0 {
		batch, err := from.Fetch(1000, jetstream.FetchMaxWait(5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m := range batch.Messages() {
			n++
			got[string(m.Data())]++
			delete(accepted, string(m.Data()))
			if err := m.Ack(); err != nil {
				t.Fatal(err)
			}
		}
		if n == 0 {
			break
		}
	}
	if len(accepted) > 0 {
		t.Errorf("%d events were answered with 2xx, and are lost: %v", len(accepted), slices.Sorted(maps.Keys(accepted))[:min(5, len(accepted))])
	}
	for id, n := range got {
		if n > 1 {
			t.Errorf("event %s is stored %d times", id, n)
		}
	}
	if statuses[503]+statuses[504] == 0 {
		t.Error("no event was refused: the kills had no effect")
	}
	t.Logf("answers: %v", statuses)
}

// TestPublisherSubscribed: the events of an application come from the Subscriptions of all
// namespaces.
func TestPublisherSubscribed(t *testing.T) {
	p := startNATS(t)
	client, err := dynamic.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	// Those of tests before this one.
	if err := client.Resource(subscriptions).Namespace("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, spec := range []map[string]any{
		{"source": "commerce", "types": []any{"order.created.v1", "order.deleted.v2"}},
		{"source": "commerce", "types": []any{"order.created.v1"}},
		{"source": "other", "types": []any{"basket.left.v1"}},
		{"source": "", "typeMatching": "exact", "types": []any{"sap.kyma.custom.commerce.order.paid.v1", "sap.kyma.custom.shop1.order.paid.v1", "other.basket.sold.v1"}},
	} {
		spec["sink"] = "http://sink.default.svc.cluster.local"
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "eventing.kyma-project.io/v1alpha2", "kind": "Subscription", "metadata": map[string]any{"name": fmt.Sprintf("subscribed-%d", i)}, "spec": spec,
		}}
		if _, err := client.Resource(subscriptions).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = client.Resource(subscriptions).Namespace("default").Delete(context.WithoutCancel(t.Context()), u.GetName(), metav1.DeleteOptions{})
		})
	}
	pub := startPublisher(t, p, nil)
	for application, want := range map[string]string{
		"commerce": `{"eventsInfo":[{"name":"order.created","version":"v1"},{"name":"order.deleted","version":"v2"},{"name":"order.paid","version":"v1"}]}`,
		"other":    `{"eventsInfo":[{"name":"basket.left","version":"v1"},{"name":"basket.sold","version":"v1"}]}`,
		"shop-1":   `{"eventsInfo":[{"name":"order.paid","version":"v1"}]}`,
		"nobody":   `{"eventsInfo":[]}`,
	} {
		got, err := ask(t.Context(), http.MethodGet, pub.URL+"/"+application+"/v1/events/subscribed", nil, "")
		if err != nil || got.status != 200 {
			t.Fatalf("%v %s", err, got)
		}
		if diff := cmp.Diff(want, strings.TrimSpace(got.body)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", application, diff)
		}
	}
}

// TestPublisherEnds: on SIGTERM, what was read is answered, and the process ends with exit code 0.
// What was answered with 2xx is there.
func TestPublisherEnds(t *testing.T) {
	p := startNATS(t)
	from := receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	var accepted atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := 0; ; n++ {
				got, err := pub.publish(t.Context(), fmt.Sprintf("%d-%d", i, n))
				if err != nil {
					return // it has ended
				}
				if got.status != 204 {
					t.Errorf("%s", got)
				}
				accepted.Add(1)
			}
		})
	}
	poll.Until(t, patience, "events are accepted", func(context.Context) error {
		if n := accepted.Load(); n < 100 {
			return fmt.Errorf("%d events", n)
		}
		return nil
	})
	if err := pub.Terminate(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := pub.Wait(ctx); err != nil {
		t.Error(err)
	}
	all.Wait()
	info, err := from.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stored := int64(info.NumPending); stored < accepted.Load() || !strings.Contains(pub.Log(), "every request is answered") {
		t.Errorf("%d events are stored, %d were answered with 2xx", stored, accepted.Load())
	}
}

// TestPublisherRepeats: an event is a repeat if source, id, type and data are the same, and its
// client is told. On f3299ef an event with a known source and id was dropped without a word,
// whatever its type and its data were.
func TestPublisherRepeats(t *testing.T) {
	p := startNATS(t)
	from := receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	for _, tc := range []struct{ reason, source, eventType, data, time, repeated string }{
		{"the first", "commerce", "order.created.v1", "1", "2020-03-01T13:00:00Z", ""},
		{"the same", "commerce", "order.created.v1", "1", "2020-03-01T13:00:00Z", "true"},
		{"the same, at another time", "commerce", "order.created.v1", "1", "2020-03-01T13:00:01Z", "true"},
		{"other data", "commerce", "order.created.v1", "2", "2020-03-01T13:00:00Z", ""},
		{"another type", "commerce", "order.changed.v1", "1", "2020-03-01T13:00:00Z", ""},
		{"another source", "shop", "order.created.v1", "1", "2020-03-01T13:00:00Z", ""},
		{"the first once more", "commerce", "order.created.v1", "1", "2020-03-01T13:00:00Z", "true"},
	} {
		got, err := ask(t.Context(), http.MethodPost, pub.URL+"/publish", http.Header{
			"Ce-Specversion": {"1.0"}, "Ce-Id": {"A234-1234-1234"}, "Ce-Source": {tc.source}, "Ce-Type": {tc.eventType}, "Ce-Time": {tc.time}, "Content-Type": {"text/plain"},
		}, tc.data)
		if err != nil {
			t.Fatal(err)
		}
		if got.status != http.StatusNoContent || got.header.Get("X-Event-Repeated") != tc.repeated {
			t.Errorf("%s: %s", tc.reason, got)
		}
		if tc.repeated != "" {
			continue // that it was not stored is seen by the next case
		}
		if is := received(t, from); is.Subject != backend.Subject(tc.source, tc.eventType) || is.Body != tc.data {
			t.Errorf("%s: received %+v", tc.reason, is)
		}
	}
	// The version before made its ids of source and id. What it has stored hides no event of this
	// one: at most an event comes twice.
	former := sha256.Sum256([]byte("commerce\x002"))
	if _, err := js(t, p.as(t, "publisher")).Publish(t.Context(), backend.Subject("commerce", "a.b"), []byte("2"), jetstream.WithMsgID(hex.EncodeToString(former[:]))); err != nil {
		t.Fatal(err)
	}
	if is := received(t, from); is.Body != "2" {
		t.Errorf("received %+v", is)
	}
	if got, err := pub.publish(t.Context(), "2"); err != nil || got.status != http.StatusNoContent || got.header.Get("X-Event-Repeated") != "" {
		t.Errorf("%v, %s", err, got)
	}
	if is := received(t, from); is.Body != "2" {
		t.Errorf("received %+v", is)
	}
}

// TestPublisherMetricsOfKyma: what dashboards for Kyma's own publisher ask for is there, with its
// labels, and too many types of clients become one.
func TestPublisherMetricsOfKyma(t *testing.T) {
	p := startNATS(t)
	receiver(t, p, stream.Config(wide(), "e1", true))
	pub := startPublisher(t, p, nil)
	pub.awaitReady()
	for n := range 2_010 {
		header := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {fmt.Sprint(n)}, "Ce-Source": {"commerce"}, "Ce-Type": {fmt.Sprintf("order.v%d", n)}}
		if got, err := ask(t.Context(), http.MethodPost, pub.URL+"/publish", header, ""); err != nil || got.status != 204 {
			t.Fatalf("%v %s", err, got)
		}
	}
	if got, err := ask(t.Context(), http.MethodPost, pub.URL+"/publish", http.Header{"Ce-Specversion": {"1.0"}}, ""); err != nil || got.status != 400 {
		t.Fatalf("%v %s", err, got)
	}
	got, err := ask(t.Context(), http.MethodGet, pub.MetricsURL, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`eventing_epp_requests_total{code="204",method="post",path="/publish"} 2010`,
		`eventing_epp_requests_total{code="400",method="post",path="/publish"} 1`,
		`eventing_epp_requests_duration_seconds_count{code="204",method="post",path="/publish"} 2010`,
		`eventing_epp_backend_duration_milliseconds_count{code="204",destination_service="NATS"} 2010`,
		`eventing_epp_event_type_published_total{code="204",event_source="commerce",event_type="order.v7"} 1`,
		`eventing_epp_event_type_published_total{code="204",event_source="other",event_type="other"} 10`,
		`eventing_epp_health 1`,
	} {
		if !strings.Contains(got.body, "\n"+line+"\n") {
			t.Errorf("the metrics have no line %s", line)
		}
	}
}
