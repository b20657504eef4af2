//go:build slow

package eventmap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/browser"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var update = flag.Bool("update", false, "write the pictures of the documents")

func htmlOf(t *testing.T, m *Map) []byte {
	t.Helper()
	var page bytes.Buffer
	if err := m.WriteHTML(&page, "prod (https://api.example.com:6443)", time.Date(2020, 4, 1, 22, 15, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	return page.Bytes()
}

// TestPageInABrowser reads the page of 300 Applications in a real browser: it searches, expands a
// section, and follows a problem, on a desktop, on a phone, and in the dark.
func TestPageInABrowser(t *testing.T) {
	tb := browser.Start(t, htmlOf(t, large(300)))
	const (
		open    = `document.querySelectorAll("details[data-ns][open]").length`
		listed  = `[...document.querySelectorAll("tr[data-f]")].filter(r => r.checkVisibility()).length`
		shown   = `[...document.querySelectorAll("tr[data-a]")].filter(r => r.checkVisibility()).length`
		focused = `document.activeElement.id`
	)
	for _, s := range []struct {
		name        string
		wide, high  int
		dark, touch bool
		paper       string
	}{
		{name: "desktop", wide: 1360, high: 1000, paper: "rgb(255, 255, 255)"},
		{name: "phone", wide: 390, high: 844, touch: true, paper: "rgb(255, 255, 255)"},
		{name: "dark", wide: 1360, high: 1000, dark: true, paper: "rgb(20, 24, 29)"},
	} {
		t.Run(s.name, func(t *testing.T) {
			tb.T = t
			tb.Screen(s.wide, s.high, s.dark, s.touch)
			tb.Value(`(location.hash = "", document.querySelectorAll("details").forEach(d => { d.open = false; }), scrollTo(0, 0))`)
			tb.Wants("the paper", `getComputedStyle(document.body).backgroundColor`, s.paper)
			tb.Wants("the page is not wider than the screen", `document.documentElement.scrollWidth <= innerWidth`, "true")
			tb.Wants("all sections are closed", open, "0")
			tb.Wants("the search is on the first screen", `document.querySelector("#search").getBoundingClientRect().bottom < innerHeight / 2`, "true")
			tb.Wants("so are all problems", `[...document.querySelectorAll(".problem")].pop().getBoundingClientRect().bottom < innerHeight`, "true")
			tb.Value(`scrollTo(0, 5000)`)
			tb.Wants("the search stays on the screen", `(r => r.top >= 0 && r.bottom < innerHeight / 2)(document.querySelector("#search").getBoundingClientRect())`, "true")
			tb.Value(`scrollTo(0, 0)`)

			tb.Type("billing-01 order.created")
			tb.Wants("only the rows of billing-01 are found", shown, "1")
			tb.Wants("and their sections are open", open, "1")
			tb.Wants("the number of hits is said", `document.querySelector("#info").textContent.startsWith("1 of ")`, "true")
			tb.Type("billing-02 no trigger")
			tb.Wants("the problem of billing-02 is found by its words", listed, "1")
			tb.Type(" ")
			tb.Wants("an empty search shows everything", open, "0")

			choose := func(selector string) {
				t.Helper()
				if s.touch {
					tb.Tap(selector)
					return
				}
				tb.Value(`document.querySelector(` + strconv.Quote(selector) + `).focus()`)
				tb.Key("Enter", 13)
			}
			choose("details[data-ns] > summary")
			tb.Wants("a section can be opened", open, "1")
			tb.Wants("its picture is there", `document.querySelector("details[data-ns][open] svg").getBoundingClientRect().width >= 300`, "true")
			tb.Wants("its texts can be read", `document.querySelector("details[data-ns][open] svg text").getBoundingClientRect().height >= 12`, "true")
			tb.Wants("the head of the table stays", `getComputedStyle(document.querySelector("details[data-ns][open] thead th")).position`, "sticky")

			choose(".problem > summary")
			problem := tb.Value(`document.querySelector(".problem a").hash.slice(1)`)
			choose(".problem a")
			// The browser follows a link in a task of its own.
			poll.Until(t, 10*time.Second, "the row of the problem is reached", func(context.Context) error {
				if got := tb.Value(focused); got != problem {
					return fmt.Errorf("%q has the focus, want %q", got, problem)
				}
				return nil
			})
			tb.Wants("its section is open", `document.getElementById("`+problem+`").closest("details").open`, "true")
			tb.Wants("it is on the screen", `(r => r.top >= 0 && r.bottom <= innerHeight)(document.getElementById("`+problem+`").getBoundingClientRect())`, "true")
			tb.Wants("it is marked, and so is its line", `document.querySelectorAll("tr.on").length > 0 && document.querySelectorAll("a.on.broken").length > 0`, "true")

			choose("details[data-ns][open] svg a[data-s]")
			tb.Wants("a line tells its events", `document.querySelector("#info").textContent.includes("order.created.v1")`, "true")
		})
	}
}

// TestPageIsAccessible: axe-core finds nothing serious on the page, in light and in dark, with all
// sections open.
func TestPageIsAccessible(t *testing.T) {
	tb := browser.Start(t, htmlOf(t, large(50)))
	tb.Accessible(`document.querySelectorAll("details").forEach(d => { d.open = true; })`)
}

// TestPictureOfAPage shows the page of 50 Applications: each third of the first section is drawn
// on.
func TestPictureOfAPage(t *testing.T) {
	m := large(50)
	tb := browser.Start(t, htmlOf(t, m))
	tb.Screen(1360, 1500, false, false)
	tb.Wants("every section is open", `document.querySelectorAll("details:not([open])").length`, "0")
	for _, a := range m.Applications {
		tb.Wants(a.Name+" is drawn", `[...document.querySelectorAll("svg tspan")].some(e => e.textContent === "`+a.Name+`" && e.checkVisibility())`, "true")
	}
	picture := tb.Picture()
	top, err := strconv.ParseFloat(tb.Value(`document.querySelector("svg").getBoundingClientRect().top`), 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		part := image.Rect(30+400*i, int(top)+60, 30+400*(i+1), int(top)+260)
		if n := browser.Inked(picture, part); n < 800 {
			t.Errorf("only %d pixels are drawn in %v", n, part)
		}
	}
}

// mapOf is a map of the sandbox; TestTranscript in test/sandbox writes it.
func mapOf(t *testing.T, name string) *Map {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	m := &Map{}
	if err := json.Unmarshal(raw, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestPicturesInTheDocuments: the pictures of docs/pictures are of the present page. Two browsers,
// and two machines with other fonts, do not draw the same, so the digest of what they draw decides,
// and the size of the picture.
func TestPicturesInTheDocuments(t *testing.T) {
	const (
		dir   = "../../../docs/pictures"
		limit = 120_000 // bytes: a person may read the documents over a slow connection
	)
	var digests strings.Builder
	tb := browser.Start(t, nil)
	for _, p := range []struct {
		name        string
		m           *Map
		wide, high  int
		dark, phone bool
		// at is what the picture begins with, "" for the top of the page.
		at string
	}{
		{name: "map-before", m: mapOf(t, "before"), wide: 1100, high: 820},
		{name: "map-after", m: mapOf(t, "after"), wide: 1100, high: 820},
		{name: "map-desktop", m: large(50), wide: 1360, high: 1200},
		{name: "map-dark", m: large(50), wide: 1360, high: 700, dark: true, at: ".bar"},
		{name: "map-phone", m: large(50), wide: 390, high: 844, phone: true},
	} {
		page := htmlOf(t, p.m)
		fmt.Fprintf(&digests, "%x  %s %dx%d dark=%t at=%q\n", sha256.Sum256(page), p.name, p.wide, p.high, p.dark, p.at)
		tb.Show(page)
		tb.Screen(p.wide, p.high, p.dark, p.phone)
		if p.at != "" {
			tb.Value(`document.querySelector("` + p.at + `").scrollIntoView()`)
		}
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, browser.Reduced(tb.Picture(), 64)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, p.name+".png")
		if *update {
			if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(raw) > limit {
			t.Errorf("%s has %d bytes", file, len(raw))
		}
		shown, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if b := shown.Bounds(); b.Dx() != p.wide || b.Dy() != p.high {
			t.Errorf("%s is %v, want %d x %d", file, b, p.wide, p.high)
		}
	}
	file := filepath.Join(dir, "pages.sha256")
	if *update {
		if err := os.WriteFile(file, []byte(digests.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(raw), digests.String()); diff != "" {
		t.Errorf("the pictures are of another page (-update draws them): -shown +now\n%s", diff)
	}
}

// TestPageAsksForNothing: the page makes no request, and its policy stops those that would be
// added.
func TestPageAsksForNothing(t *testing.T) {
	page := htmlOf(t, large(50))
	if o := browser.Open(t, page, "1360,1000"); len(o.Requests) > 0 {
		t.Errorf("the page asked for %q", o.Requests)
	}
	// Could the log not see requests, or the policy not stop them, this test would
	// see nothing either.
	const asks = `<img src="http://127.0.0.1:9/asked.png">`
	if o := browser.Open(t, []byte("<!DOCTYPE html><p>"+asks), "400,300"); len(o.Requests) != 1 {
		t.Errorf("a page that asks for a picture made the requests %q, want one", o.Requests)
	}
	if o := browser.Open(t, bytes.Replace(page, []byte("<svg"), []byte(asks+"<svg"), 1), "400,300"); len(o.Requests) != 0 {
		t.Errorf("the page's policy let %q through", o.Requests)
	}
	// Nor does any other script run.
	const runs = `<script>document.title = "run"</script>`
	if o := browser.Open(t, bytes.Replace(page, []byte("<svg"), []byte(runs+"<svg"), 1), "400,300"); strings.Contains(o.DOM, "<title>run</title>") {
		t.Error("the page's policy let another script run")
	}
}
