package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/internal/migration/runbook"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestExplain(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		code   int
		want   []string
	}{
		{reason: "All IDs, by section.", want: []string{"Exit codes:\n  exit-0 ", "\nFindings of verify:\n", "  link-missing ", "\nFindings by ID:\n", "  permission-missing "}},
		{reason: "The ID of two commands.", args: []string{"run-open"}, want: []string{"run-open (Findings of verify)\n", "run-open (Findings by ID)\n"}},
		{reason: "An exit code.", args: []string{"exit-3"}, want: []string{"exit-3\n", "1. `not restored: …`"}},
		{reason: "An exit code of a signal.", args: []string{"143"}, want: []string{"exit-128n\n"}},
		{reason: "A section.", args: []string{"the-lock"}, want: []string{"share one Lease"}},
		{reason: "A reference.", args: []string{"waits-for-link-missing"}, want: []string{"See also:\n  eventmesh-migrate explain verify-link-missing\n"}},
		{reason: "A typing error.", args: []string{"lnk-mising"}, code: migration.ExitUsage, want: []string{`unknown ID "lnk-mising" (similar: link-missing; all: eventmesh-migrate explain)`}},
		{reason: "Nothing is like it.", args: []string{"xyz"}, code: migration.ExitUsage, want: []string{`unknown ID "xyz" (all: eventmesh-migrate explain)`}},
		{reason: "Two IDs.", args: []string{"exit-1", "exit-2"}, code: migration.ExitUsage, want: []string{`"exit-2": unexpected argument`}},
	} {
		code, stdout, stderr := called(t, program, append([]string{"explain"}, tc.args...)...)
		if code != tc.code {
			t.Errorf("%s Exit code %d, want %d\n%s", tc.reason, code, tc.code, stderr)
		}
		for _, part := range tc.want {
			if !strings.Contains(stdout+stderr, part) {
				t.Errorf("%s %q is missing in:\n%s%s", tc.reason, part, stdout, stderr)
			}
		}
	}
	_, stdout, _ := called(t, program, "explain", "exit-3", "-o", "json")
	var entries []runbook.Entry
	if err := json.Unmarshal([]byte(stdout), &entries); err != nil || len(entries) != 1 || entries[0].ID != "exit-3" || entries[0].Page != "docs/migration/runbook.md#exit-3" {
		t.Errorf("%v in:\n%s", err, stdout)
	}
	if _, words, _ := called(t, program, "__complete", "explain", ""); !strings.Contains(words, "\nlink-missing\t") {
		t.Errorf("the IDs cannot be completed:\n%s", words)
	}
}
