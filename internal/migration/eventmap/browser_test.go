//go:build slow

package eventmap

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

var update = flag.Bool("update", false, "write the pictures of the documents")

// opened is what a browser made of a page.
type opened struct {
	// dom is the page as the browser has understood it.
	dom string
	// requests are the addresses it asked for, besides the page itself.
	requests []string
}

// browser is the path of Chromium.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no browser is installed (Debian: apt-get install chromium)")
	return ""
}

// flags are those of every start.
func flags(profile string) []string {
	return []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1",
		"--user-data-dir=" + profile, "--no-first-run", "--disable-quic", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
	}
}

// workDir is a directory that is removed at the end, when the processes of the browser, which
// outlive it for a moment, write nothing there any more.
func workDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "eventmap-") //nolint:usetesting // t.TempDir removes at once, and fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var err error
		for range 100 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Error(err)
	})
	return dir
}

// open shows a page to a real browser, as a window of that size does.
func open(t *testing.T, page []byte, size string) opened {
	t.Helper()
	chromium := browser(t)
	dir := workDir(t)
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, chromium, append(append(flags(filepath.Join(dir, "profile")), "--window-size="+size), args...)...)
		// Its helpers hold stderr longer than it lives.
		cmd.WaitDelay = 5 * time.Second
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		if err := cmd.Run(); err != nil && ctx.Err() != nil {
			t.Fatalf("the browser did not end: %v\n%s", err, &complaints)
		}
		return out.Bytes()
	}
	o := opened{}
	log := filepath.Join(dir, "net.json")
	run("--screenshot="+filepath.Join(dir, "shot.png"), "--log-net-log="+log, "file://"+file)
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	o.requests = requests(t, raw)
	o.dom = string(run("--dump-dom", "file://"+file))
	return o
}

// requests are the addresses in the log of a browser's network, but for those of
// the browser's own.
func requests(t *testing.T, raw []byte) []string {
	t.Helper()
	var log struct {
		Constants struct {
			LogEventTypes map[string]int `json:"logEventTypes"`
		} `json:"constants"`
		Events []struct {
			Type   int `json:"type"`
			Params struct {
				URL       string `json:"url"`
				Initiator string `json:"initiator"`
			} `json:"params"`
		} `json:"events"`
	}
	if err := json.Unmarshal(raw, &log); err != nil {
		t.Fatalf("the log of the browser: %v", err)
	}
	start, ok := log.Constants.LogEventTypes["URL_REQUEST_START_JOB"]
	if !ok {
		t.Fatal("the log of the browser names no URL_REQUEST_START_JOB")
	}
	var out []string
	for _, e := range log.Events {
		// What the browser wants for itself has no page that initiated it.
		if e.Type == start && e.Params.Initiator != "" && e.Params.Initiator != "not an origin" && !slices.Contains(out, e.Params.URL) {
			out = append(out, e.Params.URL)
		}
	}
	return out
}

// reduced is the picture in the n colours that it has most of: a third of the
// size, and the same to the eye.
func reduced(picture image.Image, n int) *image.Paletted {
	count := map[color.Color]int{}
	b := picture.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			count[picture.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return cmp.Compare(count[b], count[a]) })
	out := image.NewPaletted(b, color.Palette(most[:min(n, len(most))]))
	draw.Draw(out, b, picture, b.Min, draw.Src)
	return out
}

// tab is a page that is open in a browser, driven by the DevTools protocol over a pipe.
type tab struct {
	t       *testing.T
	write   io.Writer
	answers chan []byte
	last    int
	session string
}

// start opens a page in a browser of its own.
func start(t *testing.T, page []byte) *tab {
	t.Helper()
	chromium := browser(t)
	dir := workDir(t)
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	theirs, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read, theirsToo, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, chromium, append(flags(filepath.Join(dir, "profile")), "--remote-debugging-pipe")...)
	cmd.ExtraFiles = []*os.File{theirs, theirsToo}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		_, _ = write.Close(), read.Close()
	})
	_, _ = theirs.Close(), theirsToo.Close()
	tb := &tab{t: t, write: write, answers: make(chan []byte, 1000)}
	go func() {
		defer close(tb.answers)
		r := bufio.NewReader(read)
		for {
			message, err := r.ReadBytes(0)
			if err != nil {
				return
			}
			tb.answers <- bytes.TrimSuffix(message, []byte{0})
		}
	}()
	var target struct{ TargetID string }
	tb.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	tb.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	tb.session = session.SessionID
	tb.call("Page.enable", nil, nil)
	tb.call("Page.navigate", map[string]any{"url": "file://" + file}, nil)
	tb.await("Page.loadEventFired")
	return tb
}

// call asks the browser for something, and reads the answer.
func (tb *tab) call(method string, params map[string]any, into any) {
	tb.t.Helper()
	tb.last++
	raw, err := json.Marshal(map[string]any{"id": tb.last, "method": method, "params": params, "sessionId": tb.session})
	if err != nil {
		tb.t.Fatal(err)
	}
	if tb.session == "" {
		raw = bytes.Replace(raw, []byte(`,"sessionId":""`), nil, 1)
	}
	if _, err := tb.write.Write(append(raw, 0)); err != nil {
		tb.t.Fatal(err)
	}
	for answer := range tb.answers {
		var message struct {
			ID     int
			Error  *struct{ Message string }
			Result json.RawMessage
		}
		if err := json.Unmarshal(answer, &message); err != nil {
			tb.t.Fatal(err)
		}
		if message.ID != tb.last {
			continue
		}
		if message.Error != nil {
			tb.t.Fatalf("%s: %s", method, message.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(message.Result, into); err != nil {
				tb.t.Fatal(err)
			}
		}
		return
	}
	tb.t.Fatalf("%s: the browser has ended", method)
}

// await waits for an event.
func (tb *tab) await(event string) {
	tb.t.Helper()
	for answer := range tb.answers {
		if bytes.Contains(answer, []byte(`"method":"`+event+`"`)) {
			return
		}
	}
	tb.t.Fatalf("the browser has ended before %s", event)
}

// value is what an expression is on the page, as a text.
func (tb *tab) value(expression string) string {
	tb.t.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	tb.call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")"}, &answer)
	if answer.ExceptionDetails != nil {
		tb.t.Fatalf("%s: %s", expression, answer.ExceptionDetails.Text)
	}
	return fmt.Sprint(answer.Result.Value)
}

// wants compares what an expression is.
func (tb *tab) wants(why, expression, want string) {
	tb.t.Helper()
	if got := tb.value(expression); got != want {
		tb.t.Errorf("%s: %s is %q, want %q", why, expression, got, want)
	}
}

// screen sets the width and height, and whether it is dark and answers to touch.
func (tb *tab) screen(wide, high int, dark, touch bool) {
	tb.t.Helper()
	tb.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": touch}, nil)
	tb.call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": touch}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	tb.call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// key presses a key.
func (tb *tab) key(name string, code int) {
	tb.t.Helper()
	text := ""
	if name == "Enter" {
		text = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		tb.call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code, "text": text}, nil)
	}
}

// tap touches the middle of an element.
func (tb *tab) tap(selector string) {
	tb.t.Helper()
	tb.value(`document.querySelector(` + strconv.Quote(selector) + `).scrollIntoView({ block: "center" })`)
	var at struct{ X, Y float64 }
	raw := tb.value(`(r => JSON.stringify({ X: r.x + r.width / 2, Y: r.y + r.height / 2 }))(document.querySelector(` + strconv.Quote(selector) + `).getBoundingClientRect())`)
	if err := json.Unmarshal([]byte(raw), &at); err != nil {
		tb.t.Fatal(err)
	}
	tb.call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []any{map[string]any{"x": at.X, "y": at.Y}}}, nil)
	tb.call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}}, nil)
	tb.call("Input.synthesizeTapGesture", map[string]any{"x": at.X, "y": at.Y}, nil)
}

// types replaces the text of the search field.
func (tb *tab) types(text string) {
	tb.t.Helper()
	tb.value(`document.querySelector("#search").select()`)
	tb.call("Input.insertText", map[string]any{"text": text}, nil)
}

func (tb *tab) picture() image.Image {
	tb.t.Helper()
	var answer struct{ Data []byte }
	tb.call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	picture, err := png.Decode(bytes.NewReader(answer.Data))
	if err != nil {
		tb.t.Fatal(err)
	}
	return picture
}

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
	tb := start(t, htmlOf(t, large(300)))
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
			tb.t = t
			tb.screen(s.wide, s.high, s.dark, s.touch)
			tb.value(`(location.hash = "", document.querySelectorAll("details").forEach(d => { d.open = false; }), scrollTo(0, 0))`)
			tb.wants("the paper", `getComputedStyle(document.body).backgroundColor`, s.paper)
			tb.wants("the page is not wider than the screen", `document.documentElement.scrollWidth <= innerWidth`, "true")
			tb.wants("all sections are closed", open, "0")
			tb.wants("the search is on the first screen", `document.querySelector("#search").getBoundingClientRect().bottom < innerHeight / 2`, "true")
			tb.wants("so are all problems", `[...document.querySelectorAll(".problem")].pop().getBoundingClientRect().bottom < innerHeight`, "true")
			tb.value(`scrollTo(0, 5000)`)
			tb.wants("the search stays on the screen", `(r => r.top >= 0 && r.bottom < innerHeight / 2)(document.querySelector("#search").getBoundingClientRect())`, "true")
			tb.value(`scrollTo(0, 0)`)

			tb.types("billing-01 order.created")
			tb.wants("only the rows of billing-01 are found", shown, "1")
			tb.wants("and their sections are open", open, "1")
			tb.wants("the number of hits is said", `document.querySelector("#info").textContent.startsWith("1 of ")`, "true")
			tb.types("billing-02 no trigger")
			tb.wants("the problem of billing-02 is found by its words", listed, "1")
			tb.types(" ")
			tb.wants("an empty search shows everything", open, "0")

			choose := func(selector string) {
				t.Helper()
				if s.touch {
					tb.tap(selector)
					return
				}
				tb.value(`document.querySelector(` + strconv.Quote(selector) + `).focus()`)
				tb.key("Enter", 13)
			}
			choose("details[data-ns] > summary")
			tb.wants("a section can be opened", open, "1")
			tb.wants("its picture is there", `document.querySelector("details[data-ns][open] svg").getBoundingClientRect().width >= 300`, "true")
			tb.wants("its texts can be read", `document.querySelector("details[data-ns][open] svg text").getBoundingClientRect().height >= 12`, "true")
			tb.wants("the head of the table stays", `getComputedStyle(document.querySelector("details[data-ns][open] thead th")).position`, "sticky")

			choose(".problem > summary")
			problem := tb.value(`document.querySelector(".problem a").hash.slice(1)`)
			choose(".problem a")
			// The browser follows a link in a task of its own.
			poll.Until(t, 10*time.Second, "the row of the problem is reached", func(context.Context) error {
				if got := tb.value(focused); got != problem {
					return fmt.Errorf("%q has the focus, want %q", got, problem)
				}
				return nil
			})
			tb.wants("its section is open", `document.getElementById("`+problem+`").closest("details").open`, "true")
			tb.wants("it is on the screen", `(r => r.top >= 0 && r.bottom <= innerHeight)(document.getElementById("`+problem+`").getBoundingClientRect())`, "true")
			tb.wants("it is marked, and so is its line", `document.querySelectorAll("tr.on").length > 0 && document.querySelectorAll("a.on.broken").length > 0`, "true")

			choose("details[data-ns][open] svg a[data-s]")
			tb.wants("a line tells its events", `document.querySelector("#info").textContent.includes("order.created.v1")`, "true")
		})
	}
}

// TestPageIsAccessible: axe-core finds nothing serious on the page, in light and in dark, with all
// sections open.
func TestPageIsAccessible(t *testing.T) {
	tb := start(t, htmlOf(t, large(50)))
	tb.call("Runtime.evaluate", map[string]any{"expression": string(axe(t))}, nil)
	for _, dark := range []bool{false, true} {
		tb.screen(1360, 1000, dark, false)
		tb.value(`document.querySelectorAll("details").forEach(d => { d.open = true; })`)
		tb.value(`(window.found = "", axe.run().then(r => { window.found = JSON.stringify({ passes: r.passes.length, violations: r.violations.map(v => ({ id: v.id, impact: v.impact, help: v.help, at: v.nodes.slice(0, 3).map(n => n.html) })) }) }), 1)`)
		poll.Until(t, 3*time.Minute, "axe has looked at the page", func(context.Context) error {
			if tb.value("window.found") == "" {
				return errors.New("it is looking")
			}
			return nil
		})
		var found struct {
			Passes     int
			Violations []struct {
				ID, Impact, Help string
				At               []string
			}
		}
		if err := json.Unmarshal([]byte(tb.value("window.found")), &found); err != nil {
			t.Fatal(err)
		}
		if found.Passes < 20 {
			t.Errorf("only %d rules hold: axe has not looked at the page", found.Passes)
		}
		for _, v := range found.Violations {
			if v.Impact == "serious" || v.Impact == "critical" {
				t.Errorf("dark %t: %s (%s): %s: %q", dark, v.ID, v.Impact, v.Help, v.At)
			}
		}
	}
}

// axe is axe-core, from the registry of npm, by its checksum.
func axe(t *testing.T) []byte {
	t.Helper()
	const version, checksum = "4.14.1", "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry.npmjs.org/axe-core/-/axe-core-"+version+".tgz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Skipf("npm cannot be reached: %v", err)
	}
	defer answer.Body.Close()
	unpacked, err := gzip.NewReader(answer.Body)
	if err != nil {
		t.Skipf("npm does not answer with a package (%s): %v", answer.Status, err)
	}
	for files := tar.NewReader(unpacked); ; {
		file, err := files.Next()
		if err != nil {
			t.Fatal(err)
		}
		if file.Name != "package/axe.min.js" {
			continue
		}
		script, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(script)); sum != checksum {
			t.Fatalf("axe-core %s is another file: %s", version, sum)
		}
		return script
	}
}

// TestPictureOfAPage shows the page of 50 Applications: each third of the first section is drawn
// on.
func TestPictureOfAPage(t *testing.T) {
	m := large(50)
	tb := start(t, htmlOf(t, m))
	tb.screen(1360, 1500, false, false)
	tb.wants("every section is open", `document.querySelectorAll("details:not([open])").length`, "0")
	for _, a := range m.Applications {
		tb.wants(a.Name+" is drawn", `[...document.querySelectorAll("svg tspan")].some(e => e.textContent === "`+a.Name+`" && e.checkVisibility())`, "true")
	}
	picture := tb.picture()
	top, err := strconv.ParseFloat(tb.value(`document.querySelector("svg").getBoundingClientRect().top`), 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		part := image.Rect(30+400*i, int(top)+60, 30+400*(i+1), int(top)+260)
		if n := inked(picture, part); n < 800 {
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
		tb := start(t, page)
		tb.screen(p.wide, p.high, p.dark, p.phone)
		if p.at != "" {
			tb.value(`document.querySelector("` + p.at + `").scrollIntoView()`)
		}
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced(tb.picture(), 64)); err != nil {
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

// inked counts the pixels of a part of the picture that are not of its paper.
func inked(picture image.Image, part image.Rectangle) int {
	paper := color.NRGBAModel.Convert(picture.At(0, 0))
	n := 0
	part = part.Intersect(picture.Bounds())
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			if color.NRGBAModel.Convert(picture.At(x, y)) != paper {
				n++
			}
		}
	}
	return n
}

// TestPageAsksForNothing: the page makes no request, and its policy stops those that would be
// added.
func TestPageAsksForNothing(t *testing.T) {
	page := htmlOf(t, large(50))
	if o := open(t, page, "1360,1000"); len(o.requests) > 0 {
		t.Errorf("the page asked for %q", o.requests)
	}
	// Could the log not see requests, or the policy not stop them, this test would
	// see nothing either.
	const asks = `<img src="http://127.0.0.1:9/asked.png">`
	if o := open(t, []byte("<!DOCTYPE html><p>"+asks), "400,300"); len(o.requests) != 1 {
		t.Errorf("a page that asks for a picture made the requests %q, want one", o.requests)
	}
	if o := open(t, bytes.Replace(page, []byte("<svg"), []byte(asks+"<svg"), 1), "400,300"); len(o.requests) != 0 {
		t.Errorf("the page's policy let %q through", o.requests)
	}
	// Nor does any other script run.
	const runs = `<script>document.title = "run"</script>`
	if o := open(t, bytes.Replace(page, []byte("<svg"), []byte(runs+"<svg"), 1), "400,300"); strings.Contains(o.dom, "<title>run</title>") {
		t.Error("the page's policy let another script run")
	}
}
