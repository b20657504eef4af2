// Package browser drives Chromium in tests: it opens pages, types, presses keys, and looks at what
// is drawn.
package browser

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
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// Opened is what a browser made of a page.
type Opened struct {
	// DOM is the page as the browser has understood it.
	DOM string
	// Requests are the addresses it asked for, other than the page itself.
	Requests []string
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
	dir, err := os.MkdirTemp("", "browser-") //nolint:usetesting // t.TempDir removes at once, and fails
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

// Open shows a page to a real browser, as a window of that size does.
func Open(t *testing.T, page []byte, size string) Opened {
	t.Helper()
	chromium := browser(t)
	dir := workDir(t)
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	log := filepath.Join(dir, "net.json")
	// A picture is taken, so that what is asked for to paint the page is asked for.
	cmd := exec.CommandContext(ctx, chromium, append(flags(filepath.Join(dir, "profile")),
		"--window-size="+size, "--screenshot="+filepath.Join(dir, "shot.png"), "--dump-dom", "--log-net-log="+log, "file://"+file)...)
	// Its helpers hold stderr longer than it lives.
	cmd.WaitDelay = 5 * time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		t.Fatalf("the browser did not end: %v\n%s", err, &complaints)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return Opened{DOM: out.String(), Requests: requests(t, raw)}
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

// Reduced is the picture in the n colours that it has most of: a third of the
// size, and the same to the eye.
func Reduced(picture image.Image, n int) *image.Paletted {
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

// Tab is a page that is open in a browser, driven by the DevTools protocol over a pipe.
type Tab struct {
	// T is who is told what is wrong: a subtest sets its own.
	T       *testing.T
	write   io.Writer
	answers chan []byte
	last    int
	session string
	// complaints are those so far.
	complaints []string
}

// Start opens a page in a browser of its own.
func Start(t *testing.T, page []byte) *Tab {
	t.Helper()
	browser(t)
	return Visit(t, fileOf(t, page))
}

// Show opens another page.
func (tb *Tab) Show(page []byte) {
	tb.T.Helper()
	tb.Go(fileOf(tb.T, page))
}

// fileOf is the address of a file with a page.
func fileOf(t *testing.T, page []byte) string {
	t.Helper()
	file := filepath.Join(workDir(t), "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	return "file://" + file
}

// Visit opens an address in a browser of its own.
func Visit(t *testing.T, address string) *Tab {
	t.Helper()
	chromium := browser(t)
	dir := workDir(t)
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
	tb := &Tab{T: t, write: write, answers: make(chan []byte, 1000)}
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
	tb.Call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	tb.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	tb.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		tb.Call(domain+".enable", nil, nil)
	}
	tb.Go(address)
	return tb
}

// Go opens another address, and waits until it is there.
func (tb *Tab) Go(address string) {
	tb.T.Helper()
	tb.Call("Page.navigate", map[string]any{"url": address}, nil)
	tb.await("Page.loadEventFired")
}

// Complaints are the errors of scripts, and what the browser has written to its console as an
// error, such as a request that the policy of a page refuses.
func (tb *Tab) Complaints() []string {
	tb.T.Helper()
	tb.Value("1") // what was complained of before is read by then
	return tb.complaints
}

// listen keeps the complaints among the events.
func (tb *Tab) listen(message []byte) {
	var event struct {
		Method string
		Params struct {
			Type             string
			Args             []struct{ Value any }
			Entry            struct{ Level, Text, URL string }
			ExceptionDetails struct {
				Text      string
				Exception struct{ Description string }
			}
		}
	}
	if json.Unmarshal(message, &event) != nil {
		return
	}
	p := event.Params
	switch {
	case event.Method == "Runtime.exceptionThrown":
		tb.complaints = append(tb.complaints, p.ExceptionDetails.Text+" "+p.ExceptionDetails.Exception.Description)
	case event.Method == "Runtime.consoleAPICalled" && (p.Type == "error" || p.Type == "assert"):
		tb.complaints = append(tb.complaints, fmt.Sprint(p.Args))
	case event.Method == "Log.entryAdded" && p.Entry.Level == "error":
		tb.complaints = append(tb.complaints, p.Entry.Text+" "+p.Entry.URL)
	}
}

// Call asks the browser for something, and reads the answer.
func (tb *Tab) Call(method string, params map[string]any, into any) {
	tb.T.Helper()
	tb.last++
	raw, err := json.Marshal(map[string]any{"id": tb.last, "method": method, "params": params, "sessionId": tb.session})
	if err != nil {
		tb.T.Fatal(err)
	}
	if tb.session == "" {
		raw = bytes.Replace(raw, []byte(`,"sessionId":""`), nil, 1)
	}
	if _, err := tb.write.Write(append(raw, 0)); err != nil {
		tb.T.Fatal(err)
	}
	for answer := range tb.answers {
		tb.listen(answer)
		var message struct {
			ID     int
			Error  *struct{ Message string }
			Result json.RawMessage
		}
		if err := json.Unmarshal(answer, &message); err != nil {
			tb.T.Fatal(err)
		}
		if message.ID != tb.last {
			continue
		}
		if message.Error != nil {
			tb.T.Fatalf("%s: %s", method, message.Error.Message)
		}
		if into != nil {
			if err := json.Unmarshal(message.Result, into); err != nil {
				tb.T.Fatal(err)
			}
		}
		return
	}
	tb.T.Fatalf("%s: the browser has ended", method)
}

// await waits for an event.
func (tb *Tab) await(event string) {
	tb.T.Helper()
	for answer := range tb.answers {
		tb.listen(answer)
		if bytes.Contains(answer, []byte(`"method":"`+event+`"`)) {
			return
		}
	}
	tb.T.Fatalf("the browser has ended before %s", event)
}

// Value is what an expression is on the page, as a text.
func (tb *Tab) Value(expression string) string {
	tb.T.Helper()
	var answer struct {
		Result           struct{ Value any }
		ExceptionDetails *struct{ Text string }
	}
	tb.Call("Runtime.evaluate", map[string]any{"expression": "String(" + expression + ")"}, &answer)
	if answer.ExceptionDetails != nil {
		tb.T.Fatalf("%s: %s", expression, answer.ExceptionDetails.Text)
	}
	return fmt.Sprint(answer.Result.Value)
}

// Wants compares what an expression is.
func (tb *Tab) Wants(why, expression, want string) {
	tb.T.Helper()
	if got := tb.Value(expression); got != want {
		tb.T.Errorf("%s: %s is %q, want %q", why, expression, got, want)
	}
}

// Screen sets the width and height, and whether it is dark and is that of a phone.
func (tb *Tab) Screen(wide, high int, dark, touch bool) {
	tb.T.Helper()
	tb.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": wide, "height": high, "deviceScaleFactor": 1, "mobile": touch}, nil)
	tb.Call("Emulation.setTouchEmulationEnabled", map[string]any{"enabled": touch}, nil)
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	tb.Call("Emulation.setEmulatedMedia", map[string]any{"features": []any{map[string]any{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Key presses a key, such as "Enter", 13.
func (tb *Tab) Key(name string, code int) {
	tb.T.Helper()
	text := ""
	if name == "Enter" {
		text = "\r"
	}
	for _, kind := range []string{"keyDown", "keyUp"} {
		tb.Call("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code, "text": text}, nil)
	}
}

// Tap presses the middle of an element on a phone.
func (tb *Tab) Tap(selector string) {
	tb.T.Helper()
	tb.Value(`document.querySelector(` + strconv.Quote(selector) + `).scrollIntoView({ block: "center" })`)
	var at struct{ X, Y float64 }
	raw := tb.Value(`(r => JSON.stringify({ X: r.x + r.width / 2, Y: r.y + r.height / 2 }))(document.querySelector(` + strconv.Quote(selector) + `).getBoundingClientRect())`)
	if err := json.Unmarshal([]byte(raw), &at); err != nil {
		tb.T.Fatal(err)
	}
	tb.Call("Input.dispatchTouchEvent", map[string]any{"type": "touchStart", "touchPoints": []any{map[string]any{"x": at.X, "y": at.Y}}}, nil)
	tb.Call("Input.dispatchTouchEvent", map[string]any{"type": "touchEnd", "touchPoints": []any{}}, nil)
	tb.Call("Input.synthesizeTapGesture", map[string]any{"x": at.X, "y": at.Y}, nil)
}

// Type replaces the text of the search field.
func (tb *Tab) Type(text string) {
	tb.T.Helper()
	tb.Value(`document.querySelector("#search").select()`)
	tb.Call("Input.insertText", map[string]any{"text": text}, nil)
}

// Picture is what is on the screen.
func (tb *Tab) Picture() image.Image {
	tb.T.Helper()
	var answer struct{ Data []byte }
	tb.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	picture, err := png.Decode(bytes.NewReader(answer.Data))
	if err != nil {
		tb.T.Fatal(err)
	}
	return picture
}

// Accessible tells what axe-core finds on the page that is serious, in light and in dark. An
// expression is evaluated before.
func (tb *Tab) Accessible(before string) {
	tb.T.Helper()
	tb.Call("Runtime.evaluate", map[string]any{"expression": string(axe(tb.T))}, nil)
	for _, dark := range []bool{false, true} {
		tb.Screen(1360, 1000, dark, false)
		tb.Value(before)
		tb.Value(`(window.found = "", axe.run().then(r => { window.found = JSON.stringify({ passes: r.passes.length, violations: r.violations.map(v => ({ id: v.id, impact: v.impact, help: v.help, at: v.nodes.slice(0, 3).map(n => n.html) })) }) }), 1)`)
		poll.Until(tb.T, 3*time.Minute, "axe has looked at the page", func(context.Context) error {
			if tb.Value("window.found") == "" {
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
		if err := json.Unmarshal([]byte(tb.Value("window.found")), &found); err != nil {
			tb.T.Fatal(err)
		}
		if found.Passes < 20 {
			tb.T.Errorf("only %d rules hold: axe has not looked at the page", found.Passes)
		}
		for _, v := range found.Violations {
			if v.Impact == "serious" || v.Impact == "critical" {
				tb.T.Errorf("dark %t: %s (%s): %s: %q", dark, v.ID, v.Impact, v.Help, v.At)
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

// Inked counts the pixels of a part of the picture that are not of its paper.
func Inked(picture image.Image, part image.Rectangle) int {
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
