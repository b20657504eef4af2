package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/flowpage"
)

func htmlOf(t *testing.T, v *view) string {
	t.Helper()
	var text bytes.Buffer
	if err := write(&text, v); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestPage: what is in trouble is first, each with its numbers and the next command.
func TestPage(t *testing.T) {
	text := htmlOf(t, viewOf(sample(20), everything(sample(20)), "", noon))
	at := -1
	for _, want := range []string{
		"Eventing kyma-system/eventing is Warning. 3 of 20 Subscriptions in trouble",
		"from NATS to EventMesh, step Draining for 4m, 1,204 events left",
		"91 % of the stream: 1,204 events, 640 MiB of 700 MiB", "41 % of the volume", "controller 1/2",
		"NoDeadLetters (DeadLettersStored)", "kubectl eventing explain DeadLettersStored",
		"office/bills", "kubectl -n office edit subscriptions.eventing.kyma-project.io bills",
		"finance/billing", "1,204", "12h", "the sink answers 503. Events wait", "kubectl eventing explain Retrying",
		"crm/contacts", "kubectl eventing dead-letters list --namespace=crm --subscription=contacts",
		"fulfilment/logistics-003", "Flows of events", "<svg", "Sources and types", "Sinks",
	} {
		next := strings.Index(text[at+1:], want)
		if next < 0 {
			t.Fatalf("no %q after %q", want, text[max(0, at):min(len(text), max(0, at)+60)])
		}
		at += 1 + next
	}
}

// TestNamesAreEscaped: a name with markup is text.
func TestNamesAreEscaped(t *testing.T) {
	const evil = `<script>alert(1)</script>`
	s := sample(3)
	s.Subscriptions = append(s.Subscriptions, subscription("shop", "x", evil, "", "good", evil))
	s.NotRead = []string{evil}
	s.Eventings[0].Switch.Message = evil
	text := htmlOf(t, viewOf(s, everything(s), evil, noon))
	if n := strings.Count(text, "<script>"); n != 1 {
		t.Errorf("%d scripts, want the one of the page", n)
	}
	if !strings.Contains(text, `value="&lt;script&gt;alert(1)&lt;/script&gt;"`) {
		t.Error("the query is not in the field")
	}
}

// TestThePolicyKnowsThePage: the browser allows the page's own style and script, and no other one.
func TestThePolicyKnowsThePage(t *testing.T) {
	text := htmlOf(t, viewOf(sample(3), everything(sample(3)), "", noon))
	for _, tag := range []string{"style", "script"} {
		_, content, _ := strings.Cut(text, "<"+tag+">")
		content, _, _ = strings.Cut(content, "</"+tag+">")
		if want := tag + "-src 'sha256-" + flowpage.Hash(content) + "'"; !strings.Contains(policy, want) {
			t.Errorf("no %s in %s", want, policy)
		}
	}
	for _, inline := range []string{" style=", " onclick=", " onload=", "http://www.w3.org/1999", "src="} {
		if strings.Contains(strings.ReplaceAll(text, script, ""), inline) {
			t.Errorf("the page has %q", inline)
		}
	}
}

// TestLargeClusters: of 1,000 Subscriptions the page has the first ones, says how many more there
// are, and finds each.
func TestLargeClusters(t *testing.T) {
	s := sample(1000)
	v := viewOf(s, everything(s), "", noon)
	if len(v.Rows) != mostSubscriptions || v.MoreRows != 1000-mostSubscriptions || v.Total != 1000 {
		t.Errorf("%d rows and %d more of %d", len(v.Rows), v.MoreRows, v.Total)
	}
	text := htmlOf(t, v)
	if len(text) > 150_000 {
		t.Errorf("the page has %d bytes", len(text))
	}
	if !strings.Contains(text, "950 more: search") {
		t.Error("the page does not say how many more there are")
	}
	for query, want := range map[string]int{"loyalty/tickets-964": 1, "LOYALTY tickets-964": 1, "answers 503": 1, "in trouble": 3, "retrying": 1, "no-such": 0, "  ": 1000, "crm-<b>": 1} {
		if v := viewOf(s, everything(s), query, noon); v.Hits != want {
			t.Errorf("%q: %d hits, want %d", query, v.Hits, want)
		}
	}
}

// TestUnknownIsNotZero: what nobody has looked at is a dash.
func TestUnknownIsNotZero(t *testing.T) {
	s := &State{Subscriptions: []inspect.Subscription{subscription("a", "b", "c", "", "new", "d")}}
	v := viewOf(s, everything(s), "", noon)
	r := v.Rows[0]
	if diff := cmp.Diff([]string{"-", "-", "-", "-", "-", "○"}, []string{r.Backlog, r.Oldest, r.Repeating, r.Dead, r.Answer, r.Mark}); diff != "" {
		t.Error(diff)
	}
	if v.Sinks[0].Backlog != "-" || v.Sources[0].Backlog != "-" {
		t.Errorf("%+v, %+v", v.Sinks, v.Sources)
	}
}

// TestSummary is honest about what was not read.
func TestSummary(t *testing.T) {
	good := subscription("a", "b", "c", "0 0 0", "good", "d")
	ready := inspect.Eventing{Namespace: "n", Name: "e", State: "Ready", Served: true}
	for _, tc := range []struct {
		reason string
		state  State
		seen   Seen
		class  string
		want   string
	}{
		{"all is well", State{Eventings: []inspect.Eventing{ready}, Subscriptions: []inspect.Subscription{good}}, Seen{All: true, Eventing: map[string]bool{"n": true}}, "y", "Eventing n/e is Ready. No problem is known of 1 Subscription"},
		{"nothing is installed", State{}, Seen{All: true}, "x", "There is no Eventing in the cluster. There is no Subscription"},
		{"nothing could be read", State{NotRead: []string{"why"}}, Seen{All: true}, "o", "There is no Subscription"},
		{"nothing may be seen", State{Eventings: []inspect.Eventing{ready}, Subscriptions: []inspect.Subscription{good}}, Seen{}, "y", "You may see no Subscription"},
	} {
		v := viewOf(&tc.state, &tc.seen, "", noon)
		if v.Class != tc.class || v.Summary != tc.want {
			t.Errorf("%s: %q %q, want %q %q", tc.reason, v.Class, v.Summary, tc.class, tc.want)
		}
	}
}

// TestPictures: all nodes are within the picture, each on a line of its own in its column, and what
// is in trouble is drawn so.
func TestPictures(t *testing.T) {
	for _, n := range []int{1, 3, 20, 500} {
		s := sample(n)
		p := viewOf(s, everything(s), "", noon).Picture
		taken := map[string]bool{}
		for _, node := range p.Nodes {
			place := fmt.Sprint(node.X, node.Y)
			if taken[place] || node.Y < top || node.Y > p.Height || node.X > width {
				t.Errorf("%d: %+v is at a place that is taken, or outside of %d", n, node, p.Height)
			}
			taken[place] = true
		}
		if !slices.ContainsFunc(p.Lines, func(l line) bool { return strings.HasSuffix(l.Class, " x") }) {
			t.Errorf("%d: no line is in trouble", n)
		}
	}
}

// calls is a page that several people ask for.
func call(t *testing.T, h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	w, q := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/secret/"+path, http.NoBody)
	for i := 0; i < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	h.ServeHTTP(w, q)
	return w
}

func fixed(s *State) func(context.Context) (*State, error) {
	return func(context.Context) (*State, error) { return s, nil }
}

// TestRights: each person sees what that person may read, and who is not known sees nothing.
func TestRights(t *testing.T) {
	s := sample(20)
	answers := &reviews{rights: []string{
		"jane list subscriptions.eventing.kyma-project.io finance", "jane get eventings.operator.kyma-project.io kyma-system", "admin everything",
	}}
	for _, tc := range []struct {
		user        string
		status      int
		want, never []string
	}{
		{"jane", 200, []string{"finance/billing", "Not shown: Subscriptions of namespaces", "Eventing kyma-system/eventing is Warning", "As jane may see it"}, []string{"office", "crm/", "controller 1/2"}},
		{"admin", 200, []string{"finance/billing", "office/bills", "controller 1/2"}, []string{"Not shown"}},
		{"nobody", 200, []string{"You may see no Subscription", "kubectl auth can-i get eventings.operator.kyma-project.io --namespace=kyma-system"}, []string{"finance", "office", "Warning", "1,204"}},
		{"wrong", 401, []string{"does not know the token"}, []string{"finance"}},
		{"", 401, []string{"neither a token nor a client certificate"}, []string{"finance"}},
	} {
		w := call(t, served(tc.user, fixed(s), answers), "")
		text := strings.ReplaceAll(w.Body.String(), script, "")
		if w.Code != tc.status {
			t.Errorf("%s: %d, want %d", tc.user, w.Code, tc.status)
		}
		for _, want := range tc.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", tc.user, want)
			}
		}
		for _, never := range tc.never {
			if strings.Contains(text, never) {
				t.Errorf("%s: %q is shown", tc.user, never)
			}
		}
	}
}

// TestQuestionsAreFew: a page that is open costs a question for each namespace twice a minute, and
// a reading of the cluster every two seconds, however many look.
func TestQuestionsAreFew(t *testing.T) {
	asked := make(chan string, 1000)
	var reads atomic.Int32
	read := func(context.Context) (*State, error) {
		reads.Add(1)
		s := sample(1000)
		s.At = time.Now()
		return s, nil
	}
	h := served("jane", read, &reviews{rights: []string{"jane list subscriptions.eventing.kyma-project.io shop"}, asked: asked})
	for range 5 {
		if w := call(t, h, "state"); w.Code != http.StatusOK {
			t.Fatal(w.Body)
		}
	}
	// The token, Deployments, the Eventing, all namespaces, and each of nine.
	if n := len(asked); n != 13 {
		t.Errorf("%d questions, want 13", n)
	}
	if n := reads.Load(); n > 2 {
		t.Errorf("the cluster was read %d times", n)
	}
}

// TestUpdates: a page that has all gets nothing, and one that has a part gets the others.
func TestUpdates(t *testing.T) {
	s := sample(20)
	h := served("admin", fixed(s), &reviews{rights: []string{"admin everything"}})
	var u update
	read := func(query string, headers ...string) *httptest.ResponseRecorder {
		t.Helper()
		w := call(t, h, "state?"+query, headers...)
		u = update{}
		if w.Code == http.StatusOK {
			if err := json.Unmarshal(w.Body.Bytes(), &u); err != nil {
				t.Fatal(err)
			}
		}
		return w
	}
	first := read("")
	if len(u.Parts) != len(partNames) {
		t.Fatalf("%d parts, want %d", len(u.Parts), len(partNames))
	}
	var have []string
	for _, p := range u.Parts {
		have = append(have, p.Version)
	}
	tag := first.Header().Get("ETag")
	if w := read("", "If-None-Match", tag); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("%d with %d bytes, want 304", w.Code, w.Body.Len())
	}
	s.VolumeUsed = nil
	if w := read("have="+strings.Join(have, "."), "If-None-Match", tag); w.Code != http.StatusOK || len(u.Parts) != 1 || u.Parts[0].Name != "eventing" {
		t.Errorf("%d: %d parts, want the one of the Eventing", w.Code, len(u.Parts))
	}
	if read("q=finance/billing"); u.Info != "1 of 20 Subscriptions" {
		t.Errorf("info %q", u.Info)
	}
}

// TestNothingCanBeChanged: no request but those that read is known.
func TestNothingCanBeChanged(t *testing.T) {
	h := served("admin", fixed(sample(3)), &reviews{rights: []string{"admin everything"}})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/secret/", http.NoBody))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// TestTheClusterIsAway: the page says so, and what was read before is shown to nobody.
func TestTheClusterIsAway(t *testing.T) {
	h := served("admin", func(context.Context) (*State, error) { return nil, errors.New("no route") }, &reviews{rights: []string{"admin everything"}})
	if w := call(t, h, "state"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "the operator cannot read the cluster: no route") {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
