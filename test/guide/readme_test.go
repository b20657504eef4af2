package guide

import (
	"cmp"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// link is one of a page, without the section that it leads to.
var link = regexp.MustCompile(`\]\(([^)#]*)`)

// page is one of the repository, from its root.
func page(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(path.Join("../..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// section returns what a page has below a heading, up to the next one.
func section(text, heading string) string {
	_, text, _ = strings.Cut(text, "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// TestReadme: each of the three readers gets from the first screen, by the first link after
// "Next:", to commands, and these are the ones that a test runs as they are printed.
func TestReadme(t *testing.T) {
	readme := page(t, "README.md")
	for _, reader := range []struct {
		heading, leads, at string
		commands           []string // the first ones there
		test, in           string   // runs them
	}{
		{"I migrate Kyma 1.10", "README.md", "Try it", []string{"make sandbox"}, "TestAStrangerMigratesTheSandbox", "test/sandbox/sandbox_test.go"},
		{"I run events", "docs/eventing/README.md", "Try it", []string{"make eventing", "make eventing-up"}, "TestUpProcesses", "test/eventing/up_slow_test.go"},
		{"I write a migration for Kubernetes", "docs/library/write-a-migration.md", "1. Begin", []string{"mkdir registry-move && cd registry-move"}, "TestGuide", "test/guide/guide_test.go"},
	} {
		_, next, found := strings.Cut(section(readme, reader.heading), "\nNext: ")
		if !found {
			t.Errorf("%s: README.md has nothing after \"Next:\"", reader.heading)
			continue
		}
		to := link.FindStringSubmatch(next)
		if to == nil {
			t.Errorf("%s: there is no link after \"Next:\"", reader.heading)
			continue
		}
		leads := cmp.Or(to[1], "README.md")
		var commands []string
		for _, b := range blocks(section(page(t, leads), reader.at)) {
			for line := range strings.Lines(b.text) {
				command, _, _ := strings.Cut(line, "  ")
				commands = append(commands, strings.TrimSpace(command))
			}
			if b.language == "bash" {
				break
			}
			commands = nil // settings, which the test has of its own
		}
		if leads != reader.leads || len(commands) < len(reader.commands) || !slices.Equal(commands[:len(reader.commands)], reader.commands) {
			t.Errorf("%s: the first link leads to %s, whose section %q has the commands %q; want %s with %q", reader.heading, leads, reader.at, commands, reader.leads, reader.commands)
		}
		if !strings.Contains(page(t, reader.in), "func "+reader.test+"(") {
			t.Errorf("%s: %s does not have %s", reader.heading, reader.in, reader.test)
		}
	}
}
