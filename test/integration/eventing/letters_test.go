package eventing_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// lettersAPI is what people reach with a port-forward.
type lettersAPI struct {
	r    *rig
	port int
}

func newLettersAPI(r *rig) *lettersAPI {
	r.t.Helper()
	ports, err := process.FreePorts(1)
	if err != nil {
		r.t.Fatal(err)
	}
	return &lettersAPI{r, ports[0]}
}

func (a *lettersAPI) flag() string { return fmt.Sprintf("--letters-address=localhost:%d", a.port) }

// as makes a user of the API server with these rights below Subscriptions, in all namespaces.
func (a *lettersAPI) as(verbs map[string]string) *rest.Config {
	a.r.t.Helper()
	var rules []rbacv1.PolicyRule
	for subresource, verb := range verbs {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{"eventing.kyma-project.io"}, Resources: []string{"subscriptions/" + subresource}, Verbs: strings.Fields(verb)})
	}
	path, err := cluster.User(a.r.t.Context(), "person", rules...)
	if err != nil {
		a.r.t.Fatal(err)
	}
	return a.config(path)
}

func (a *lettersAPI) config(kubeconfig string) *rest.Config {
	a.r.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		a.r.t.Fatal(err)
	}
	return config
}

// pin is the certificate that the leader has published.
func (a *lettersAPI) pin(ctx context.Context) (string, error) {
	state, err := a.r.client.Resource(configMaps).Namespace(a.r.control).Get(ctx, backend.Names(backend.DefaultPrefix).ControllerState(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	pin, _, _ := unstructured.NestedString(state.Object, "data", "apiCertificate")
	if pin == "" {
		return "", errors.New("the leader has published no certificate")
	}
	return pin, nil
}

// flags let kubectl eventing reach it without a port-forward.
func (a *lettersAPI) flags() []string {
	a.r.t.Helper()
	pin, err := a.pin(a.r.t.Context())
	if err != nil {
		a.r.t.Fatal(err)
	}
	return []string{fmt.Sprintf("--controller=https://localhost:%d", a.port), "--controller-certificate=" + pin}
}

// call is one request of a user, to the certificate that the leader has published.
func (a *lettersAPI) call(ctx context.Context, user *rest.Config, method, path, body string) (status int, text string, err error) {
	pin, err := a.pin(ctx)
	if err != nil {
		return 0, "", err
	}
	config := rest.CopyConfig(user)
	config.Host = fmt.Sprintf("https://localhost:%d", a.port)
	with, err := rest.TLSConfigFor(config)
	if err != nil {
		return 0, "", err
	}
	if with == nil { // neither a certificate nor an authority
		with = &tls.Config{}
	}
	with.RootCAs, with.InsecureSkipVerify = nil, true
	with.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		if sum := sha256.Sum256(raw[0]); hex.EncodeToString(sum[:]) != pin {
			return errors.New("the certificate is not the one that the leader has published")
		}
		return nil
	}
	transport, err := rest.HTTPWrappersForConfig(&rest.Config{BearerToken: config.BearerToken}, &http.Transport{TLSClientConfig: with, TLSHandshakeTimeout: 5 * time.Second, DisableKeepAlives: true})
	if err != nil {
		return 0, "", err
	}
	q, err := http.NewRequestWithContext(ctx, method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	answer, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(raw), err
}

// all are the dead letters of the namespace of the Subscriptions.
func (a *lettersAPI) all(ctx context.Context, user *rest.Config) (list []wire.Letter, err error) {
	for from := "0"; from != ""; {
		status, text, err := a.call(ctx, user, http.MethodGet, "/v1/dead-letters?limit=1000&namespace="+a.r.namespace+"&continue="+from, "")
		if err != nil || status != http.StatusOK {
			return nil, errors.Join(err, fmt.Errorf("%d %s", status, text))
		}
		var page struct {
			Items    []wire.Letter `json:"items"`
			Continue string        `json:"continue"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil {
			return nil, err
		}
		list, from = append(list, page.Items...), page.Continue
	}
	return list, nil
}

// awaitLetters waits until there are so many.
func (a *lettersAPI) awaitLetters(user *rest.Config, n int) (list []wire.Letter) {
	a.r.t.Helper()
	poll.Until(a.r.t, limit, fmt.Sprintf("%d events are dead letters", n), func(ctx context.Context) (err error) {
		if list, err = a.all(ctx, user); err == nil && len(list) != n {
			err = fmt.Errorf("%d", len(list))
		}
		return err
	})
	return list
}

// TestDeadLetters: what a sink does not take is stored, is seen by whoever may see it, with the
// rights of the API server and those of the chart for the controller, and reaches its sink when
// that is repaired.
func TestDeadLetters(t *testing.T) {
	r := newRig(t, true)
	(&meshRig{rig: r}).asInChart()
	api := newLettersAPI(r)
	for _, name := range []string{"orders", "good"} {
		r.subscribe(name, "a.b", "")
	}
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	r.controller("c-0", api.flag(), "--dead-letter-after=0s")
	for _, name := range []string{"orders", "good"} {
		r.await(name, "it is ready", ready)
	}
	ids := numbers("e", 20)
	r.publish("a.b", ids...)
	r.sinks.Await(t, "good", limit, ids...)

	viewer, editor, nobody := api.as(map[string]string{"deadletters": "list"}), api.as(map[string]string{"deadletters": "list update"}), api.as(map[string]string{"events": "list"})
	list := api.awaitLetters(viewer, len(ids))
	if l := list[0]; l.Subscription != "orders" || l.Answer != "404" || l.Type != "a.b" || l.Source != "commerce" || l.Sink != redact.URL(r.sinks.URL("orders", r.namespace)) || l.Tries != 1 || l.UID == "" {
		t.Errorf("dead letter: %+v", l)
	}
	r.await("orders", "the status says so", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionDelivering, eventingv1alpha2.ReasonRetrying)
	})
	r.await("orders", "the status has their number", func(s *eventingv1alpha2.Subscription) string {
		if s.Status.Delivery == nil || s.Status.Delivery.DeadLetters != int64(len(ids)) {
			return "it has not"
		}
		return ""
	})
	for _, tc := range []struct {
		reason       string
		user         *rest.Config
		method, path string
		body         string
		status       int
		says         string
	}{
		{"without the right", nobody, "GET", "/v1/dead-letters", "", 403, "may not list"},
		{"a token of nobody", &rest.Config{BearerToken: "x"}, "GET", "/v1/dead-letters", "", 401, "does not know the token"},
		{"the right to see them is not that to deliver them", viewer, "POST", "/v1/dead-letters/redeliver", "{}", 403, "may not update"},
		{"what is in an event", editor, "GET", fmt.Sprintf("/v1/dead-letters/%d?payload=true", list[0].Sequence), "", 403, "may not get"},
		{"its attributes", editor, "GET", fmt.Sprintf("/v1/dead-letters/%d", list[0].Sequence), "", 200, `"ce-type":"a.b"`},
		{"the administrator, with a client certificate or a token", api.config(cluster.Kubeconfig), "GET", fmt.Sprintf("/v1/dead-letters/%d?payload=true", list[0].Sequence), "", 200, `"data":`},
		{"the sink is not repaired", editor, "POST", "/v1/dead-letters/redeliver", `{"namespace":"` + r.namespace + `"}`, 200, `"refused":20,`},
	} {
		status, text, err := api.call(t.Context(), tc.user, tc.method, tc.path, tc.body)
		if err != nil || status != tc.status || !strings.Contains(text, tc.says) {
			t.Errorf("%s: %d %s %v, want %d with %q", tc.reason, status, text, err, tc.status, tc.says)
		}
	}

	r.sinks.Answer("orders", nil)
	status, text, err := api.call(t.Context(), editor, http.MethodPost, "/v1/dead-letters/redeliver", `{"namespace":"`+r.namespace+`","subscription":"orders"}`)
	if err != nil || status != http.StatusOK || !strings.Contains(text, `"delivered":20,`) || !strings.Contains(text, `"left":0}`) {
		t.Fatalf("redelivery: %d %s %v", status, text, err)
	}
	r.sinks.Await(t, "orders", limit, ids...)
	if last := r.sinks.Of("orders"); last[len(last)-1].Header.Get("Ce-Redelivered") != "true" {
		t.Errorf("the event is not marked: %v", last[len(last)-1].Header)
	}
	api.awaitLetters(viewer, 0)
	if got := len(r.sinks.IDs("good")); got != len(ids) {
		t.Errorf("the other Subscription got %d events, want %d: a redelivery goes to its Subscription only", got, len(ids))
	}
}

// TestNothingIsLostToDeadLetters: of sinks that fail at random for good, with a controller that is
// killed, each accepted event is at its sink or is a dead letter, and after a redelivery all are at
// their sinks.
func TestNothingIsLostToDeadLetters(t *testing.T) { nothingIsLostToDeadLetters(t, 700, 3) }

func nothingIsLostToDeadLetters(t *testing.T, events, kills int) {
	t.Helper()
	r := newRig(t, true)
	api := newLettersAPI(r)
	names := []string{"orders", "bills", "mails"}
	var repaired atomic.Bool
	for _, name := range names {
		r.subscribe(name, "a.b", "")
		r.sinks.Answer(name, func(w http.ResponseWriter, q *http.Request) {
			h := fnv.New32a()
			_, _ = h.Write([]byte(name + q.Header.Get("Ce-Id")))
			switch bad := h.Sum32() % 10; {
			case repaired.Load(), bad > 2:
			case bad == 0:
				w.WriteHeader(http.StatusBadRequest)
			case bad == 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				panic(http.ErrAbortHandler) // no answer
			}
		})
	}
	start := func(n int) *process.Process {
		return r.controller(fmt.Sprint("c-", n), api.flag(), "--dead-letter-after=0s")
	}
	c := start(0)
	for _, name := range names {
		r.await(name, "it is ready", ready)
	}
	ids := numbers("e", events)
	for i := range kills {
		r.publish("a.b", ids[i*len(ids)/kills:(i+1)*len(ids)/kills]...)
		c.Kill()
		c = start(i + 1)
	}
	admin := api.config(cluster.Kubeconfig)
	taken := func() map[string]bool {
		got := map[string]bool{}
		for _, name := range names {
			for _, q := range r.sinks.Of(name) {
				h := fnv.New32a()
				_, _ = h.Write([]byte(name + q.ID))
				if repaired.Load() && q.Header.Get("Ce-Redelivered") == "true" || h.Sum32()%10 > 2 {
					got[name+"/"+q.ID] = true
				}
			}
		}
		return got
	}
	var dead map[string]bool
	poll.Until(t, 3*limit, "each event is at its sink or is a dead letter", func(ctx context.Context) error {
		list, err := api.all(ctx, admin)
		if err != nil {
			return err
		}
		dead = map[string]bool{}
		for _, l := range list {
			dead[l.Subscription+"/"+l.ID] = true
		}
		if n := len(dead) + len(taken()); n != len(ids)*len(names) {
			return fmt.Errorf("%d of %d", n, len(ids)*len(names))
		}
		return nil
	})
	for key := range taken() {
		if dead[key] {
			t.Errorf("%s is at its sink, and is a dead letter", key)
		}
	}
	repaired.Store(true)
	poll.Until(t, limit, "dead letters are delivered again", func(ctx context.Context) error {
		status, text, err := api.call(ctx, admin, http.MethodPost, "/v1/dead-letters/redeliver", "{}")
		if err == nil && (status != http.StatusOK || !strings.Contains(text, `"left":0}`)) {
			err = fmt.Errorf("%d %s", status, text[max(0, len(text)-200):])
		}
		return err
	})
	if got := len(taken()); got != len(ids)*len(names) {
		t.Errorf("%d of %d events are at their sinks after the redelivery", got, len(ids)*len(names))
	}
	t.Logf("%d events for %d sinks, %d kills: %d delivered at first, %d dead letters, 0 in neither", len(ids), len(names), kills, len(ids)*len(names)-len(dead), len(dead))
}
