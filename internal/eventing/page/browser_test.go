//go:build slow

package page

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/browser"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var redraw = flag.Bool("update", false, "write the pictures of the documents")

// live is a page in a browser, of a cluster that a test changes.
func live(t *testing.T, state *State) (*browser.Tab, *atomic.Pointer[State], *httptest.Server) {
	t.Helper()
	var now atomic.Pointer[State]
	now.Store(state)
	read := func(context.Context) (*State, error) {
		s := *now.Load()
		s.At = time.Now()
		return &s, nil
	}
	server := httptest.NewServer(served("jane", read, &reviews{rights: []string{"jane everything"}}))
	t.Cleanup(server.Close)
	return browser.Visit(t, server.URL+"/secret/"), &now, server
}

// TestPageInABrowser: a person who knows the name of a Subscription finds what is wrong with it by
// search, with a keyboard alone, on a desktop, on a phone and in the dark, of 20 and of 1,000.
func TestPageInABrowser(t *testing.T) {
	for _, n := range []int{20, 1000} {
		tb, _, server := live(t, sample(n))
		for _, s := range []struct {
			name       string
			wide, high int
			dark       bool
			paper      string
		}{
			{"desktop", 1360, 1000, false, "rgb(255, 255, 255)"},
			{"phone", 390, 844, false, "rgb(255, 255, 255)"},
			{"dark", 1360, 1000, true, "rgb(20, 24, 29)"},
		} {
			t.Run(fmt.Sprintf("%s %d", s.name, n), func(t *testing.T) {
				tb.T = t
				tb.Screen(s.wide, s.high, s.dark, s.name == "phone")
				tb.Go(server.URL + "/secret/")
				tb.Wants("the paper", `getComputedStyle(document.body).backgroundColor`, s.paper)
				tb.Wants("the page is not wider than the screen", `document.documentElement.scrollWidth <= innerWidth`, "true")
				tb.Wants("the search is on the first screen", `document.querySelector("#search").getBoundingClientRect().bottom < innerHeight / 2`, "true")
				tb.Wants("so is the summary", `document.querySelector(".sum").getBoundingClientRect().bottom < innerHeight / 2`, "true")
				tb.Wants("the first row is in trouble", `document.querySelector("#subscriptions tbody tr").id`, "s-office/bills")
				tb.Wants("no more rows than fit", `document.querySelectorAll("#subscriptions tbody tr").length`, strconv.Itoa(min(n, mostSubscriptions)))
				tb.Value(`scrollTo(0, 3000)`)
				tb.Wants("the search stays on the screen", `(r => r.top >= 0 && r.bottom < innerHeight / 2)(document.querySelector("#search").getBoundingClientRect())`, "true")
				tb.Value(`scrollTo(0, 0)`)

				tb.Key("Tab", 9)
				tb.Wants("the keyboard comes to the search first", `document.activeElement.id`, "search")
				tb.Type("billing 503")
				until(tb, "one is found", `document.querySelectorAll("#subscriptions tbody tr").length`, "1")
				tb.Wants("it is said how many", `document.querySelector("#info").textContent`, fmt.Sprintf("1 of %d Subscriptions", n))
				tb.Wants("the answer of the sink is on the screen", `(e => e.textContent.includes("the sink answers 503") && e.getBoundingClientRect().top < innerHeight * 2)(document.querySelector("#subscriptions tbody"))`, "true")
				tb.Wants("a reload keeps the search", `location.search`, "?q=billing+503")
				tb.Key("Tab", 9)
				until(tb, "the keyboard comes to the Subscription", `document.activeElement.id`, "a-s-finance/billing")
				tb.Wants("which is seen", `getComputedStyle(document.activeElement).outlineStyle`, "solid")
				tb.Key("/", 191)
				until(tb, "and back", `document.activeElement.id`, "search")
				tb.Type(" ")
				until(tb, "an empty search shows everything", `document.querySelectorAll("#subscriptions tbody tr").length`, strconv.Itoa(min(n, mostSubscriptions)))
				if bad := tb.Complaints(); len(bad) > 0 {
					t.Errorf("the browser complains: %q", bad)
				}
			})
		}
	}
}

// until waits for what an expression is.
func until(tb *browser.Tab, why, expression, want string) {
	tb.T.Helper()
	poll.Until(tb.T, 20*time.Second, why, func(context.Context) error {
		if got := tb.Value(expression); got != want {
			return fmt.Errorf("%s is %q, want %q", expression, got, want)
		}
		return nil
	})
}

// TestPageIsLive: new numbers come without a reload. The focus, the search, a selection and what
// was closed stay. When the operator is away, the page says so, and goes on when it is back.
func TestPageIsLive(t *testing.T) {
	tb, now, server := live(t, sample(20))
	tb.Value(`(window.notReloaded = true, document.querySelector("#flow").open = false, getSelection().selectAllChildren(document.querySelector("#subscriptions code")), document.getElementById("a-s-finance/billing").focus({ preventScroll: true }))`)
	next := sample(20)
	next.Subscriptions[1] = subscription("finance", "billing", "commerce", "1999 50 2", "503", "order.created.v1", "order.paid.v1")
	next.Subscriptions[0], next.Subscriptions[1] = next.Subscriptions[1], next.Subscriptions[0]
	now.Store(next)
	until(tb, "the new number is there", `document.getElementById("s-finance/billing").cells[1].textContent`, "1,999")
	tb.Wants("the rows have the new order", `document.querySelector("#subscriptions tbody tr").id`, "s-finance/billing")
	tb.Wants("the page was not loaded again", `window.notReloaded`, "true")
	tb.Wants("the focus is where it was", `document.activeElement.id`, "a-s-finance/billing")
	tb.Wants("what was closed is closed", `document.querySelector("#flow").open`, "false")
	tb.Wants("the selection is there", `getSelection().toString().startsWith("kubectl -n office")`, "true")

	now.Store(sample(3))
	until(tb, "rows that are gone are gone", `document.querySelectorAll("#subscriptions tbody tr").length`, "3")
	if bad := tb.Complaints(); len(bad) > 0 {
		t.Errorf("the browser complains: %q", bad)
	}

	address := server.Listener.Addr().String()
	server.Config.SetKeepAlivesEnabled(false)
	server.CloseClientConnections()
	_ = server.Listener.Close()
	until(tb, "the page says that it is not live", `document.querySelector("#now").className`, "old")
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	again := &http.Server{Handler: server.Config.Handler, ReadHeaderTimeout: time.Minute}
	t.Cleanup(func() { _ = again.Close() })
	go func() { _ = again.Serve(listener) }()
	until(tb, "and that it is again", `document.querySelector("#now").className`, "")
}

// TestPageWithoutScripts shows the state, and searches.
func TestPageWithoutScripts(t *testing.T) {
	tb, _, server := live(t, sample(20))
	tb.Call("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	tb.Go(server.URL + "/secret/?q=billing+503")
	tb.Wants("it says how to see it anew", `document.querySelector("#now").textContent.includes("reload")`, "true")
	tb.Wants("there is a button", `getComputedStyle(document.querySelector("button")).display !== "none"`, "true")
	tb.Wants("the search works", `document.querySelectorAll("#subscriptions tbody tr").length`, "1")
}

// TestPageIsAccessible: axe-core finds nothing serious on the page, in light and in dark.
func TestPageIsAccessible(t *testing.T) {
	tb, _, _ := live(t, sample(60))
	tb.Accessible(`1`)
}

// TestPolicyOfThePage: another script does not run, and nothing outside is asked for.
func TestPolicyOfThePage(t *testing.T) {
	tb, _, _ := live(t, sample(3))
	tb.Value(`(s => { s.textContent = "window.run = true"; document.body.append(s); })(document.createElement("script"))`)
	tb.Wants("another script", `window.run`, "undefined")
	tb.Value(`fetch("http://127.0.0.1:9/").catch(() => { window.stopped = true; })`)
	until(tb, "a request to another place is stopped", `window.stopped`, "true")
	if bad := strings.Join(tb.Complaints(), " "); !strings.Contains(bad, "Content Security Policy") {
		t.Errorf("the policy stopped nothing: %q", bad)
	}
}

// TestPicturesInTheDocuments: the pictures of docs/pictures are of the present page. The digest of
// the page decides, since no two machines draw the same.
func TestPicturesInTheDocuments(t *testing.T) {
	const (
		dir      = "../../../docs/pictures"
		maxBytes = 120_000 // a person may read the documents over a slow connection
	)
	sum := sha256.Sum256([]byte(htmlOf(t, viewOf(sample(20), everything(sample(20)), "", noon))))
	digest := fmt.Sprintf("%x  eventing-page, eventing-page-dark, eventing-page-phone\n", sum)
	tb, _, server := live(t, sample(20))
	for _, p := range []struct {
		name       string
		wide, high int
		dark       bool
	}{{"eventing-page", 1200, 900, false}, {"eventing-page-dark", 1360, 760, true}, {"eventing-page-phone", 390, 844, false}} {
		tb.Go(server.URL + "/secret/")
		tb.Screen(p.wide, p.high, p.dark, p.wide < 700)
		if p.dark {
			tb.Value(`document.querySelector("#flow").scrollIntoView()`)
		}
		until(tb, "it is live", `document.querySelector("#now").textContent.startsWith("live")`, "true")
		tb.Value(`document.querySelector("#now").textContent = "live, as of 12:00:00"`)
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, browser.Reduced(tb.Picture(), 64)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, p.name+".png")
		if *redraw {
			if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if b := shown.Bounds(); b.Dx() != p.wide || b.Dy() != p.high || len(raw) > maxBytes {
			t.Errorf("%s is %v with %d bytes, want %d x %d", file, b, len(raw), p.wide, p.high)
		}
	}
	file := filepath.Join(dir, "eventing-page.sha256")
	if *redraw {
		if err := os.WriteFile(file, []byte(digest), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) != digest {
		t.Error("the pictures are of another page: go test -tags slow -run TestPicturesInTheDocuments ./internal/eventing/page -update")
	}
}
