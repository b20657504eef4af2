// Package manual turns entries of documents that are part of a program into text for a terminal.
package manual

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

// Entry is one ID, one exit code or one section of a manual.
type Entry struct {
	// ID is what a person has read in a report: "link-missing", "exit-3".
	ID string `json:"id"`
	// Page is the place in the repository: docs/migration/runbook.md#exit-3.
	Page string `json:"page"`
	// Section is the title of the entries that belong together.
	Section string `json:"section"`
	// Summary is the first sentence.
	Summary string `json:"summary"`
	// Text is the whole entry, in Markdown.
	Text string `json:"text"`
}

// Sections of entries that are sections themselves.
const (
	ExitCodes = "Exit codes"
	Topics    = "Topics"
)

// Anchored is the anchor before a cell of a table.
var Anchored = regexp.MustCompile(`^<a id="([^"]+)"></a>`)

// List is the list of all entries, by section. A summary is cut at the width; 0 cuts none.
func List(entries []Entry, width int) string {
	longest := map[string]int{}
	for _, e := range entries {
		longest[e.Section] = max(longest[e.Section], len(e.ID))
	}
	var b strings.Builder
	for i, e := range entries {
		if i == 0 || entries[i-1].Section != e.Section {
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("\n", min(i, 1)), e.Section)
		}
		line := fmt.Sprintf("  %-*s  %s", longest[e.Section], e.ID, e.Summary)
		if width > 0 {
			line = frame.Fit(line, width)
		}
		fmt.Fprintln(&b, line)
	}
	return b.String()
}

// Heading is the level of a line that is a heading, and its title; 0 of every other line.
func Heading(line string) (level int, title string) {
	title = strings.TrimLeft(line, "#")
	level = len(line) - len(title)
	if level == 0 || !strings.HasPrefix(title, " ") {
		return 0, ""
	}
	return level, strings.TrimSpace(title)
}

// EndOf is the line of the next heading that is not below the one at i.
func EndOf(lines []string, i, level int) int {
	code := false
	for j := i + 1; j < len(lines); j++ {
		if strings.HasPrefix(lines[j], "```") {
			code = !code
		}
		if next, _ := Heading(lines[j]); !code && next > 0 && next <= level {
			return j
		}
	}
	return len(lines)
}

// Slug is the anchor of a heading, as GitHub makes it.
func Slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

// Row splits a row of a table into its cells.
func Row(line string) []string {
	const bar = "\x00"
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, bar), "| "), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], bar, "|"))
	}
	return cells
}

// FirstSentence is that of a text in a file of a directory.
func FirstSentence(text, dir string) string {
	text, _, _ = strings.Cut(Plain(text, dir), "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	if before, _, found := strings.Cut(text, ". "); found {
		return before + "."
	}
	return text
}

// Unknown says that there is no entry with an ID, and names those that are like it.
func Unknown(id string, ids []string, program string) string {
	near := frame.Similar(id, ids)
	similar := ""
	if len(near) > 0 {
		similar = "similar: " + strings.Join(near[:min(len(near), 5)], ", ") + "; "
	}
	return fmt.Sprintf("unknown ID %q (%sall: %s explain)", id, similar, program)
}
