//go:build slow

package main

import (
	"strings"
	"testing"
)

// TestUpProcesses: with processes, each command that is shown can be pasted, and nothing is left in
// the end.
func TestUpProcesses(t *testing.T) {
	tried(t, options{dir: t.TempDir(), processes: true}, func(s *screen) {
		if state := s.paste(3); !strings.Contains(state, "Ready") {
			t.Errorf("the third command shows %s", state)
		}
	})
}
