package server

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/access"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
)

// reviews answers as the API server does: the token is the name of the user, and rights has
// "<user> <verb> <subresource> <namespace>".
type reviews struct {
	client.Writer
	client.Reader
	rights []string
	ca     string
}

func (r *reviews) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	switch o := o.(type) {
	case *authenticationv1.TokenReview:
		if o.Status.Authenticated = o.Spec.Token != "wrong"; o.Status.Authenticated {
			o.Status.User = authenticationv1.UserInfo{Username: o.Spec.Token, Groups: []string{"people"}}
		}
	case *authorizationv1.SubjectAccessReview:
		a := o.Spec.ResourceAttributes
		o.Status.Allowed = a.Group == group && a.Resource == kind && slices.Contains(r.rights, strings.Join([]string{o.Spec.User, a.Verb, a.Subresource, a.Namespace}, " "))
	default:
		return fmt.Errorf("unexpected %T", o)
	}
	return nil
}

func (r *reviews) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	config, ok := o.(*corev1.ConfigMap)
	if !ok || key.String() != "kube-system/extension-apiserver-authentication" {
		return fmt.Errorf("unexpected %T %s", o, key)
	}
	config.Data = map[string]string{"client-ca-file": r.ca}
	return nil
}

// sinks answers as a test says, and has the events in their order.
type sinks struct {
	mu      sync.Mutex
	ordered bool
	answers map[string]string // by id; "" is 200
	got     []string
	now     int
	most    int
	hold    chan struct{}
}

func (s *sinks) InOrder(key types.NamespacedName) (bool, error) {
	if key.Name == "away" {
		return false, letters.ErrNotDelivered
	}
	return s.ordered, nil
}

func (s *sinks) Redeliver(ctx context.Context, key types.NamespacedName, m *nats.Msg) (letters.Outcome, error) {
	if key.Name == "away" {
		return letters.Outcome{}, letters.ErrNotDelivered
	}
	id := m.Header.Get("ce-id")
	s.mu.Lock()
	s.got = append(s.got, id)
	s.now++
	s.most = max(s.most, s.now)
	answer := s.answers[id]
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
			return letters.Outcome{}, context.Cause(ctx)
		}
	}
	if answer != "" {
		return letters.Outcome{Answer: answer, Problem: "the sink answers " + answer}, nil
	}
	return letters.Outcome{Answer: "200"}, nil
}

// caller is a client with the pin of the server.
type caller struct {
	t    *testing.T
	url  string
	http *http.Client
}

// serve starts a server over a real NATS with dead letters: <namespace>/<name>/<id>.
func serve(t *testing.T, answers *reviews, to *sinks, all ...string) (*Server, *caller) {
	t.Helper()
	js, err := jetstream.New(natsserver.Start(t, "jetstream { store_dir: /data }", nil).Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: backend.DeadLetters, Subjects: []string{backend.DeadLetterSubjects}}); err != nil {
		t.Fatal(err)
	}
	store := &letters.Store{JetStream: func() (jetstream.JetStream, error) { return js, nil }}
	for _, text := range all {
		part := strings.Split(text, "/")
		l := &wire.Letter{Namespace: part[0], Subscription: part[1], Answer: "400", Published: time.Now()}
		of := &nats.Msg{Header: nats.Header{"ce-id": {part[2]}, "ce-type": {"a.b"}, "ce-source": {"s"}, "Nats-Msg-Id": {"n"}}, Data: []byte(`"secret"`)}
		if err := store.Put(t.Context(), l, of, text); err != nil {
			t.Fatal(err)
		}
	}
	identity, err := access.NewIdentity("eventing-controller")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Store: store, Deliverer: to, Access: &access.Access{Client: answers, Reader: answers}, Log: zap.NewNop()}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener, identity) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, &caller{t, "https://" + listener.Addr().String(), &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the pin is compared
		VerifyPeerCertificate: func(raw [][]byte, _ [][]*x509.Certificate) error {
			if sum := sha256.Sum256(raw[0]); hex.EncodeToString(sum[:]) != identity.Pin {
				return fmt.Errorf("another certificate")
			}
			return nil
		},
	}}}}
}

// call returns the status and the body of an answer.
func (c *caller) call(user, method, path, body string) (status int, text string) {
	c.t.Helper()
	q, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if user != "" {
		q.Header.Set("Authorization", "Bearer "+user)
	}
	answer, err := c.http.Do(q)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(raw)
}

// TestRights: each call needs its right, in its namespace, and what is in an event one of its own.
func TestRights(t *testing.T) {
	answers := &reviews{rights: []string{
		"viewer list deadletters shop", "viewer list deadletters ", "shopper list deadletters shop",
		"reader list deadletters shop", "reader get events shop", "editor update deadletters shop", "remover delete deadletters shop",
	}}
	_, c := serve(t, answers, &sinks{}, "shop/orders/1", "other/orders/2")
	for _, tc := range []struct {
		user, method, path, body string
		status                   int
		has, hasNot              string
	}{
		{"", "GET", "/v1/dead-letters", "", 401, "neither a token nor a client certificate", ""},
		{"wrong", "GET", "/v1/dead-letters", "", 401, "does not know the token", ""},
		{"viewer", "GET", "/v1/dead-letters", "", 200, `"total":2`, "secret"},
		{"shopper", "GET", "/v1/dead-letters", "", 403, "shopper may not list subscriptions.eventing.kyma-project.io/deadletters in all namespaces", ""},
		{"shopper", "GET", "/v1/dead-letters?namespace=shop", "", 200, `"total":1`, "other"},
		{"shopper", "GET", "/v1/dead-letters?namespace=other", "", 403, "kubectl auth can-i list subscriptions.eventing.kyma-project.io --subresource=deadletters --namespace other", ""},
		{"shopper", "GET", "/v1/dead-letters/1", "", 200, `"ce-id":"1"`, "secret"},
		{"shopper", "GET", "/v1/dead-letters/2", "", 403, "", "ce-id"},
		{"shopper", "GET", "/v1/dead-letters/77", "", 403, "", ""},
		{"viewer", "GET", "/v1/dead-letters/77", "", 404, "no such dead letter", ""},
		{"shopper", "GET", "/v1/dead-letters/1?payload=true", "", 403, "may not get subscriptions.eventing.kyma-project.io/events", "InNlY3JldCI="},
		{"reader", "GET", "/v1/dead-letters/1?payload=true", "", 200, "InNlY3JldCI=", "Nats-"},
		{"reader", "POST", "/v1/dead-letters/redeliver", `{"namespace":"shop"}`, 403, "may not update", ""},
		{"editor", "POST", "/v1/dead-letters/delete", `{"namespace":"shop"}`, 403, "may not delete", ""},
		{"editor", "POST", "/v1/dead-letters/redeliver", `{}`, 403, "in all namespaces", ""},
		{"editor", "POST", "/v1/dead-letters/redeliver", `{"namespace":"shop","sequences":[2]}`, 200, `"total":0`, ""},
		{"editor", "POST", "/v1/dead-letters/redeliver", `{"namespace":"shop","Type":1}`, 400, "cannot be read", ""},
		{"editor", "POST", "/v1/dead-letters/redeliver", `{"namespace":"sh>"}`, 400, "no name of a Subscription", ""},
		{"editor", "POST", "/v1/dead-letters/redeliver", `{"subscription":"orders"}`, 400, "needs its namespace", ""},
		{"viewer", "GET", "/v1/dead-letters?limit=0", "", 400, "limit must be a number from 1 to 1000", ""},
		{"viewer", "GET", "/v1/dead-letters?after=yesterday", "", 400, "after must be a time such as", ""},
		{"viewer", "GET", "/v1/dead-letters?continue=x", "", 400, "continue must be", ""},
		{"remover", "POST", "/v1/dead-letters/delete", `{"namespace":"shop"}`, 200, `"deleted":1`, ""},
		{"viewer", "GET", "/v1/dead-letters", "", 200, `"total":1`, ""},
	} {
		status, text := c.call(tc.user, tc.method, tc.path, tc.body)
		if status != tc.status || !strings.Contains(text, tc.has) || tc.hasNot != "" && strings.Contains(text, tc.hasNot) {
			t.Errorf("%s: %s %s %s: %d %s, want %d with %q, without %q", tc.user, tc.method, tc.path, tc.body, status, text, tc.status, tc.has, tc.hasNot)
		}
	}
}

// TestWatch: deliveries are told as they happen, to whom they concern, in namespaces that the user
// may see.
func TestWatch(t *testing.T) {
	s, c := serve(t, &reviews{rights: []string{"a list deliveries shop"}}, &sinks{})
	seen := make(chan wire.Delivery, 2)
	var stopped atomic.Bool
	s.Watch = func(source, id string) (<-chan wire.Delivery, func()) {
		if source != "commerce" || id != "7" {
			t.Errorf("%s %s", source, id)
		}
		return seen, func() { stopped.Store(true) }
	}
	if status, text := c.call("a", "GET", "/v1/deliveries?source=commerce", ""); status != 400 {
		t.Errorf("without an id: %d %s", status, text)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/v1/deliveries?source=commerce&id=7", nil)
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer a")
	answer, err := c.http.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewReader(answer.Body)
	if line, err := lines.ReadString('\n'); line != "{}\n" {
		t.Fatalf("%q, %v", line, err)
	}
	seen <- wire.Delivery{Namespace: "other", Subscription: "bills"}
	seen <- wire.Delivery{Namespace: "shop", Subscription: "orders", Try: 2, Answer: "503"}
	if line, err := lines.ReadString('\n'); !strings.Contains(line, `"subscription":"orders"`) || !strings.Contains(line, `"try":2,"answer":"503"`) {
		t.Fatalf("%q, %v", line, err)
	}
	cancel()
	until(t, stopped.Load)
}

// TestClientCertificates: people whose kubeconfig has one are known as the API server knows them.
func TestClientCertificates(t *testing.T) {
	authority, ours := signed(t, nil, tls.Certificate{}, "ca")
	_, mine := signed(t, authority, ours, "alice")
	_, theirs := signed(t, nil, tls.Certificate{}, "alice")
	answers := &reviews{rights: []string{"alice list deadletters "}, ca: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Raw}))}
	_, c := serve(t, answers, &sinks{})
	transport := c.http.Transport.(*http.Transport)
	for _, tc := range []struct {
		reason string
		with   tls.Certificate
		status int
	}{{"of the cluster", mine, 200}, {"of nobody", theirs, 401}} {
		transport.CloseIdleConnections()
		transport.TLSClientConfig.Certificates = []tls.Certificate{tc.with}
		if status, text := c.call("", "GET", "/v1/dead-letters", ""); status != tc.status {
			t.Errorf("a certificate %s: %d %s, want %d", tc.reason, status, text, tc.status)
		}
	}
}

// signed makes a certificate, signed by another one or by itself.
func signed(t *testing.T, by *x509.Certificate, with tls.Certificate, name string) (*x509.Certificate, tls.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: []string{"people"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: by == nil, BasicConstraintsValid: true,
	}
	parent, signer := by, with.PrivateKey
	if by == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return made, tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

// TestRedeliver: what a sink takes is no dead letter any more, and the rest stays, so that the same
// call goes on where it was.
func TestRedeliver(t *testing.T) {
	to := &sinks{answers: map[string]string{"2": "400"}}
	_, c := serve(t, &reviews{rights: []string{"a update deadletters ", "a list deadletters "}}, to, "shop/orders/1", "shop/orders/2", "shop/away/3", "other/x/4")
	status, text := c.call("a", "POST", "/v1/dead-letters/redeliver", "{}")
	if status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	var sum wire.Summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &sum); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire.Summary{Done: true, Total: 4, Delivered: 2, Refused: 1, Failed: 1, Left: 2}, sum); diff != "" || len(lines) != 5 {
		t.Errorf("%d lines, summary (-want +got):\n%s", len(lines), diff)
	}
	if !strings.Contains(text, `"subscription":"away","id":"3","result":"failed","problem":"no events of the Subscription are delivered now. See why: kubectl -n shop get subscriptions.eventing.kyma-project.io away"`) {
		t.Errorf("a Subscription that is gone: %s", text)
	}
	to.answers = nil
	if _, text := c.call("a", "POST", "/v1/dead-letters/redeliver", "{}"); !strings.Contains(text, `"total":2,"delivered":1,"refused":0,"gone":0,"deleted":0,"failed":1,"left":1`) {
		t.Errorf("the second call: %s", text)
	}
	if _, text := c.call("a", "POST", "/v1/dead-letters/redeliver", `{"sequences":[1,1,3]}`); !strings.Contains(text, `"total":2,"delivered":0,"refused":0,"gone":1,"deleted":0,"failed":1,"left":1`) {
		t.Errorf("by sequence: %s", text)
	}
}

// TestRedeliverInOrder: dead letters of a Subscription whose events come in order are sent in
// order, those of others four at a time.
func TestRedeliverInOrder(t *testing.T) {
	var all, want []string
	for n := range 40 {
		all, want = append(all, fmt.Sprintf("shop/orders/%d", n)), append(want, fmt.Sprint(n))
	}
	for _, ordered := range []bool{true, false} {
		to := &sinks{ordered: ordered}
		_, c := serve(t, &reviews{rights: []string{"a update deadletters "}}, to, all...)
		if status, text := c.call("a", "POST", "/v1/dead-letters/redeliver", "{}"); status != 200 || !strings.Contains(text, `"delivered":40`) {
			t.Fatalf("%d %s", status, text)
		}
		if ordered && !slices.Equal(to.got, want) || to.most > atOnce || ordered && to.most > 1 {
			t.Errorf("ordered %v: %d at once, %v", ordered, to.most, to.got)
		}
	}
}

// TestInterruptedRedelivery: when the client goes away the work ends, nothing is lost, and another
// one can begin.
func TestInterruptedRedelivery(t *testing.T) {
	to := &sinks{hold: make(chan struct{})}
	s, c := serve(t, &reviews{rights: []string{"a update deadletters ", "a list deadletters "}}, to, "shop/orders/1", "shop/orders/2")
	ctx, cancel := context.WithCancel(t.Context())
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/dead-letters/redeliver", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer a")
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		if answer, err := c.http.Do(q); err == nil {
			_, _ = bufio.NewReader(answer.Body).ReadString('\n')
			_ = answer.Body.Close()
		}
	}()
	until(t, func() bool { to.mu.Lock(); defer to.mu.Unlock(); return to.now > 0 })
	if status, text := c.call("a", "POST", "/v1/dead-letters/redeliver", "{}"); status != 409 {
		t.Errorf("two at once: %d %s", status, text)
	}
	cancel()
	<-gone
	until(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return !s.busy })
	close(to.hold)
	if _, text := c.call("a", "POST", "/v1/dead-letters/redeliver", "{}"); !strings.Contains(text, `"total":2,"delivered":2`) {
		t.Errorf("after an interrupted one: %s", text)
	}
}

func until(t *testing.T, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("20 seconds are over")
		}
	}
}
