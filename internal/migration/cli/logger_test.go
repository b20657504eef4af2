package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"k8s.io/klog/v2"
)

func TestLogFormats(t *testing.T) {
	for name, tc := range map[string]struct {
		reason              string
		args                []string
		terminal            bool
		env                 map[string]string
		json, status, color bool
	}{
		"Pod":         {reason: "machines read the logs of a Pod", json: true},
		"Terminal":    {reason: "people read a terminal", terminal: true, env: map[string]string{"TERM": "xterm"}, status: true, color: true},
		"NoColor":     {reason: "https://no-color.org", terminal: true, env: map[string]string{"TERM": "xterm", "NO_COLOR": "1"}, status: true},
		"DumbTerm":    {reason: "an editor's shell cannot move the cursor", terminal: true, env: map[string]string{"TERM": "dumb"}},
		"NoTerm":      {reason: "nothing is known about the terminal", terminal: true},
		"JSONAsked":   {reason: "a status line would make the JSON invalid", args: []string{"--log-format=json"}, terminal: true, env: map[string]string{"TERM": "xterm"}, json: true},
		"ConsoleFile": {reason: "a file has no status line and no colours", args: []string{"--log-format=console"}, env: map[string]string{"TERM": "xterm"}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			tr.isTerminal = func(io.Writer) bool { return tc.terminal }
			for k, v := range tc.env {
				tr.env[k] = v
			}
			tr.main()
			first, _, _ := strings.Cut(tr.stderr.String(), "\n")
			if got := json.Valid([]byte(first)); got != tc.json {
				t.Errorf("%s: JSON: %t, want %t: %s", tc.reason, got, tc.json, first)
			}
			if got := strings.Contains(first, "\x1b["); got != tc.color {
				t.Errorf("%s: colour: %t, want %t: %q", tc.reason, got, tc.color, first)
			}
			if got := tr.options.Progress != nil; got != tc.status {
				t.Errorf("%s: status line: %t, want %t", tc.reason, got, tc.status)
			}
		})
	}
}

func TestJSONLines(t *testing.T) {
	tr := newTrial(t)
	tr.main()
	for line := range strings.Lines(tr.stderr.String()) {
		var got struct{ Time, Level, Message, Job string }
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("not JSON: %v: %s", err, line)
		}
		if got.Time == "" || got.Level == "" || got.Message == "" || got.Job != "test-job" {
			t.Errorf("a collector cannot use this: %s", line)
		}
	}
}

func TestClientGoLogs(t *testing.T) {
	for level, want := range map[string][]string{
		"debug": {"DEBUG client-go connecting", "DEBUG client-go the API is deprecated", "WARN client-go cannot watch: connection reset", "DEBUG client-go cannot read: reading: context canceled", "DEBUG client-go reconnecting"},
		"info":  {"WARN client-go cannot watch: connection reset"},
		"error": nil,
	} {
		t.Run(level, func(t *testing.T) {
			var b bytes.Buffer
			defer klogTo(newLogger(&b, logSettings{level: level}))()
			klog.InfoS("connecting")
			klog.Warning("the API is deprecated")
			klog.ErrorS(errors.New("connection reset"), "cannot watch")
			klog.ErrorS(fmt.Errorf("reading: %w", context.Canceled), "cannot read")
			klog.Background().V(4).Info("reconnecting")
			klog.Background().V(6).Info("far too much")

			var got []string
			for line := range strings.Lines(b.String()) {
				// Without the time, and the fields after the message.
				parts := strings.Split(strings.TrimSpace(line), "  ")
				got = append(got, strings.TrimSpace(strings.Join(parts[1:4], " ")))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("client-go's errors are repeated calls, no news for who asked for %s (-want +got):\n%s", level, diff)
			}
		})
	}
}

func TestMutedKeepsFields(t *testing.T) {
	var b bytes.Buffer
	defer klogTo(newLogger(&b, logSettings{json: true, level: "info"}).With(zap.String("a", "b")))()
	klog.Background().WithValues("c", "d").Error(nil, "cannot list")
	for _, want := range []string{`"level":"warn"`, `"a":"b"`, `"c":"d"`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in %s", want, &b)
		}
	}
}

// TestNothingSecretIsLogged: every line goes through the redactor, whatever it quotes.
// It fails on the commit before.
func TestNothingSecretIsLogged(t *testing.T) {
	for _, asJSON := range []bool{true, false} {
		var out bytes.Buffer
		log := newLogger(&out, logSettings{json: asJSON, level: "info"})
		const address = "http://me:hunter2@fn.shop/?code=hunter2"
		log.Named("x").With(zap.String("with", address)).Info("posted to "+address, zap.String("uri", address), zap.Error(errors.New(address)), zap.Strings("all", []string{address}))
		if got := out.String(); strings.Contains(got, "hunter2") || strings.Count(got, "http://fn.shop/?code=…") != 5 {
			t.Errorf("JSON %t: %s", asJSON, got)
		}
	}
}
