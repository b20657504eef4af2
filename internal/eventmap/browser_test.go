//go:build slow

package eventmap

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// screenshot is where TestPageInABrowser leaves its picture; docs/map.png was made
// so: go test -tags slow -run InABrowser ./internal/eventmap -screenshot $PWD/docs/map.png.
var screenshot = flag.String("screenshot", "", "file for the screenshot of the page, rather than a temporary one")

// opened is what a browser made of a page.
type opened struct {
	picture image.Image
	// dom is the page as the browser has understood it.
	dom string
	// requests are the addresses it asked for, besides the page itself.
	requests []string
}

// open shows a page to a real browser, as a window of that size does.
func open(t *testing.T, page []byte, size string) opened {
	t.Helper()
	chromium := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		t.Skip("no browser is installed (Debian: apt-get install chromium)")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) []byte {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, chromium, append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1", "--window-size=" + size,
			"--user-data-dir=" + filepath.Join(dir, "profile"), "--no-first-run", "--disable-quic", "--disable-background-networking",
			"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-dev-shm-usage",
		}, args...)...)
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
	shot, log := filepath.Join(dir, "shot.png"), filepath.Join(dir, "net.json")
	run("--screenshot="+shot, "--log-net-log="+log, "file://"+file)
	shown, err := os.ReadFile(shot)
	if err != nil {
		t.Fatal(err)
	}
	if o.picture, err = png.Decode(bytes.NewReader(shown)); err != nil {
		t.Fatal(err)
	}
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

// TestPageInABrowser opens the page of 50 Applications in a real browser: the
// picture is there, in the size it was drawn for, and nothing is asked of the
// network.
func TestPageInABrowser(t *testing.T) {
	m := large(50)
	var page bytes.Buffer
	if err := m.WriteHTML(&page, "https://api.example.com:6443", time.Date(2020, 4, 1, 22, 15, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	o := open(t, page.Bytes(), "1360,2640")
	for _, a := range m.Applications {
		if !strings.Contains(o.dom, ">"+a.Name+"</text>") {
			t.Errorf("the browser shows no %s", a.Name)
		}
	}
	if len(o.requests) > 0 {
		t.Errorf("the page asked for %q", o.requests)
	}
	// Names on the left, lines in the middle, subscribers on the right: each third
	// of the picture is drawn on, at its top and at its end.
	for _, y := range []int{250, 900} {
		for i := range 3 {
			part := image.Rect(20+440*i, y, 20+440*(i+1), y+300)
			if n := inked(o.picture, part); n < 2000 {
				t.Errorf("only %d pixels are drawn in %v", n, part)
			}
		}
	}
	if *screenshot != "" {
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduced(o.picture, 256)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*screenshot, small.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}

	// Could the log not see requests, or the policy not stop them, this test would
	// see nothing either.
	const asks = `<img src="http://127.0.0.1:9/asked.png">`
	if o := open(t, []byte("<!DOCTYPE html><p>"+asks), "400,300"); len(o.requests) != 1 {
		t.Errorf("a page that asks for a picture made the requests %q, want one", o.requests)
	}
	if o := open(t, bytes.Replace(page.Bytes(), []byte("<svg"), []byte(asks+"<svg"), 1), "400,300"); len(o.requests) != 0 {
		t.Errorf("the page's policy let %q through", o.requests)
	}
}
