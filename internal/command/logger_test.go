package command

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
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
