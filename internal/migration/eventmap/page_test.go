package eventmap

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/internal/migration/runbook"
)

// large is a cluster with n Applications in the middle of its migration; their
// events go to eight namespaces.
func large(n int) *Map {
	namespaces := []string{"analytics", "crm", "finance", "fulfilment", "loyalty", "marketing", "shop", "support"}
	names := []string{"billing", "commerce", "erp", "inventory", "logistics", "newsletter", "payments", "pricing", "tickets", "warehouse"}
	m := &Map{}
	for i := range n {
		app := fmt.Sprintf("%s-%02d", names[i%len(names)], i/len(names)+1)
		m.Applications = append(m.Applications, Source{Name: app, Path: []Path{PathMesh, PathMesh, PathMesh, PathBoth, PathEventBus}[i%5]})
		for j := range 1 + i%3 {
			ns := namespaces[(i+3*j)%len(namespaces)]
			f := Flow{Application: app, EventType: "order.created", Version: "v1", Namespace: ns, Subscriber: fmt.Sprintf("http://on-%s-%d.%s:8080/", app, j, ns)}
			switch {
			case i%5 == 4: // its event-service posts to the Event Bus
				f.Before, f.After = Route{Object: "lambda-x"}, Route{Object: "x"}
			case (i+j)%7 == 3:
				f.Before = Route{Object: "lambda-x"}
			case (i+j)%11 == 5:
				f.Before, f.After = Route{Object: "lambda-x"}, Route{Object: "x", Problem: "not ready"}
			default:
				f.After = Route{Object: "x"}
			}
			m.Flows = append(m.Flows, f)
		}
	}
	return m
}

// pictures are the pictures of a page.
func pictures(page string) []string {
	var all []string
	for _, rest := range strings.Split(page, "<svg")[1:] {
		picture, _, _ := strings.Cut(rest, "</svg>")
		all = append(all, "<svg"+picture+"</svg>")
	}
	return all
}

// TestPicturesAreReadable holds for any number of Applications: every name is drawn in the picture
// of its namespace, within the picture, on a line of its own.
func TestPicturesAreReadable(t *testing.T) {
	for _, n := range []int{0, 1, 3, 50, 200} {
		m := large(n)
		var page strings.Builder
		if err := m.WriteHTML(&page, "x", time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
		drawn := map[string]int{}
		for _, picture := range pictures(page.String()) {
			readable(t, picture, drawn)
		}
		for _, a := range m.Applications {
			if drawn[a.Name] == 0 {
				t.Errorf("%d Applications: %s is not drawn", n, a.Name)
			}
		}
		for _, f := range m.Flows {
			if drawn[f.Subscriber] != 1 {
				t.Errorf("%d Applications: %s is drawn %d times", n, f.Subscriber, drawn[f.Subscriber])
			}
		}
	}
}

// readable checks one picture, and counts its texts.
func readable(t *testing.T, picture string, drawn map[string]int) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(picture))
	taken := map[string]string{}
	height := 0
	var x, y string
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("the picture is no XML: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			attributes := map[string]string{}
			for _, a := range token.Attr {
				attributes[a.Name.Local] = a.Value
			}
			if token.Name.Local == "svg" {
				height, _ = strconv.Atoi(strings.Fields(attributes["viewBox"])[3])
			}
			switch x = ""; token.Name.Local {
			case "text":
				x, y = attributes["x"], attributes["y"]
			case "tspan":
				x = attributes["x"]
			}
		case xml.EndElement:
			x = ""
		case xml.CharData:
			if x == "" || len(token) == 0 {
				continue
			}
			name := string(token)
			if strings.Contains(x, " ") {
				name = string([]rune(name)[2:]) // the first two are its marks
			}
			drawn[name]++
			at, _ := strconv.Atoi(y)
			if at <= 0 || at >= height {
				t.Errorf("%q is at %s, outside of a picture %d high", token, y, height)
			}
			// Each column has lines of 13 pixels.
			for off := -12; off <= 12; off++ {
				if other := taken[fmt.Sprint(x, " ", at+off)]; other != "" {
					t.Errorf("%q and %q are on top of each other", token, other)
				}
			}
			taken[x+" "+y] = string(token)
		}
	}
}

// TestPageIsSmall: that of 300 Applications and 2,000 flows is below 1 MB.
func TestPageIsSmall(t *testing.T) {
	m := large(300)
	for i := range m.Flows {
		for _, r := range []*Route{&m.Flows[i].Before, &m.Flows[i].After} {
			if r.Object != "" {
				r.Object = "object-changed-10cb7a2bf05c"
			}
		}
	}
	for i := len(m.Flows); i < 2000; i++ {
		f := m.Flows[i%300]
		f.EventType = fmt.Sprintf("order.changed.%d", i)
		f.Subscriber = fmt.Sprintf("http://more-%s-%d.%s:8080/", f.Application, i, f.Namespace)
		m.Flows = append(m.Flows, f)
	}
	var page bytes.Buffer
	if err := m.WriteHTML(&page, "x", time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", page.Len())
	if page.Len() >= 1e6 {
		t.Errorf("the page has %d bytes", page.Len())
	}
	if strings.Contains(page.String(), "<details open") || strings.Contains(page.String(), `" open>`) {
		t.Error("a section begins open, with 300 Applications")
	}
}

// some has a flow of each kind.
func some() *Map {
	flow := func(app, ns, subscriber string, before, after Route) Flow {
		return Flow{Application: app, EventType: "order.created", Version: "v1", Namespace: ns, Subscriber: subscriber, Before: before, After: after}
	}
	return &Map{
		Applications: []Source{{"billing", PathEventBus}, {"commerce", PathMesh}, {"crm", PathMesh}, {"idle", PathEventBus}},
		Flows: []Flow{
			flow("billing", "finance", "http://paid.finance/", Route{Object: "paid"}, Route{}),
			flow("commerce", "shop", "http://orders.shop/", Route{}, Route{Object: "orders"}),
			flow("crm", "shop", "does-not-exist", Route{}, Route{Object: "gone", Problem: "not linked"}),
			flow("crm", "shop", "http://left.shop/", Route{Object: "left"}, Route{}),
		},
	}
}

// TestPageSays what matters first: a summary, the problems with a link to their row, and each state
// in words.
func TestPageSays(t *testing.T) {
	var out strings.Builder
	if err := some().WriteHTML(&out, "prod (https://api.example.com)", time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	last := 0
	for _, want := range []string{
		"<title>Event map: prod (https://api.example.com)</title>",
		"<main>", "1 of 4 on the mesh, 2 broken: crm → does-not-exist, crm → left.shop</p>",
		`id="search"`, "✗ not linked</span>: 1 flow</summary>", "<code>eventmesh-migrate explain link-missing</code>", `<td><a href="#f3">crm</a>`,
		"✗ no Trigger, and the mesh takes the events</span>: 1 flow</summary>", "<code>eventmesh-migrate explain subscription-without-trigger</code>", `<td><a href="#f4">crm</a>`,
		"<summary>finance: 1 flow</summary>", "<caption>Flows to namespace finance</caption>", `<th scope="col">Application</th>`,
		`<tr id=f1 data-a=0 data-s=0>`, `<td class=y>paid<td class=o>-`,
		`<summary>shop: 3 flows, <span class="x">✗ 2 broken</span></summary>`, `<td class=o>-<td class=x>gone (not linked)`,
		"<h2>Applications without subscribers</h2>", "idle</p>", "</main>",
	} {
		at := strings.Index(page[last:], want)
		if at < 0 {
			t.Fatalf("the page does not say %q after its first %d bytes", want, last)
		}
		last += at
	}
	for _, want := range []string{
		// A line is as bad as the worst of its events, and leads to a row.
		`<a href="#f3" class="broken" data-a="1"><title>crm: events take the mesh</title>`,
		`td.y::before { content: "✓ "; content: "✓ " / "works: "; }`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %s", want)
		}
	}
}

// TestSummary names at most three problems.
func TestSummary(t *testing.T) {
	r := &row{App: "crm", Flow: Flow{Subscriber: "does-not-exist"}}
	for _, tc := range []struct {
		reason   string
		problems []*row
		want     string
	}{
		{reason: "nothing is broken", want: "17 of 219 on the mesh, nothing is broken"},
		{reason: "one", problems: []*row{r}, want: "17 of 219 on the mesh, 1 broken: crm → does-not-exist"},
		{reason: "five", problems: []*row{r, {App: "erp"}, r, r, r}, want: "17 of 219 on the mesh, 5 broken: crm → does-not-exist, erp → no endpoint, crm → does-not-exist and 2 more"},
	} {
		if diff := cmp.Diff(tc.want, summary(17, 219, tc.problems)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestPolicy lets the page's own script run, and no other.
func TestPolicy(t *testing.T) {
	var page strings.Builder
	if err := large(1).WriteHTML(&page, "x", time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(page.String(), "<script>")
	text, _, _ = strings.Cut(text, "</script>")
	hash := sha256.Sum256([]byte(text))
	want := "script-src 'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
	// The template writes quotes and plus signs of an attribute as character references.
	if got := html.UnescapeString(page.String()); !strings.Contains(got, want) {
		t.Errorf("the policy does not have %s", want)
	}
}

// TestMermaidIsGrouped when it has more edges than Mermaid takes.
func TestMermaidIsGrouped(t *testing.T) {
	for _, tc := range []struct {
		reason string
		m      *Map
		want   []string
	}{
		{"few", some(), []string{`a1 -. "order.created.v1, before" .-> s1`, "subgraph n1"}},
		{"many subscribers", times(some(), 200), []string{"%% 800 edges are grouped by Application and namespace", `a1 -. "200 before" .-> n1`, `a2 -- "200 after" --> n2`, `a3 -. "400 broken" .-> n2`}},
		{"many Applications", large(600), []string{"edges are grouped by path and namespace", "Applications, path mesh"}},
	} {
		var out strings.Builder
		if err := tc.m.WriteMermaid(&out); err != nil {
			t.Fatal(err)
		}
		for _, want := range tc.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: no %q in:\n%.2000s", tc.reason, want, &out)
			}
		}
		if n := strings.Count(out.String(), "->"); n > mermaidEdges {
			t.Errorf("%s: %d edges", tc.reason, n)
		}
	}
}

// times repeats the flows with other subscribers.
func times(m *Map, n int) *Map {
	flows := m.Flows
	m.Flows = nil
	for i := range n {
		for _, f := range flows {
			f.Subscriber += strconv.Itoa(i)
			m.Flows = append(m.Flows, f)
		}
	}
	return m
}

// TestNamesAreTexts puts what would be markup into names.
func TestNamesAreTexts(t *testing.T) {
	const evil = `"]</title><script>alert(1)</script>`
	m := &Map{
		Applications: []Source{{Name: evil, Path: evil}},
		Flows:        []Flow{{Application: evil, EventType: evil, Version: evil, Namespace: evil, Subscriber: evil, After: Route{Object: evil, Problem: evil}}},
	}
	for name, write := range map[string]func(io.Writer) error{
		"html":    func(w io.Writer) error { return m.WriteHTML(w, evil, time.Unix(0, 0)) },
		"mermaid": m.WriteMermaid,
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		for _, markup := range []string{"<script>alert", `"]&lt;`, `"]#lt;`} {
			if strings.Contains(out.String(), markup) {
				t.Errorf("%s: a name became markup, %s:\n%s", name, markup, &out)
			}
		}
	}
}

// TestExplainedProblems: each command that the page prints beside a problem has an answer, in the
// part of the runbook about verify.
func TestExplainedProblems(t *testing.T) {
	for problem, id := range explained {
		if len(runbook.Find("verify-"+id)) == 0 {
			t.Errorf("%s: the runbook of verify has no %s", problem, id)
		}
		rows := []*row{{Problem: problem}}
		if groups, _ := grouped(rows); groups[0].Explain != id {
			t.Errorf("%s is explained by %q", problem, groups[0].Explain)
		}
	}
	if len(explained) < 9 {
		t.Errorf("%d problems are explained", len(explained))
	}
}
