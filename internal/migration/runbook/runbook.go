// Package runbook finds the entries of docs/migration/runbook.md, which is part of the program, and
// turns them into text for a terminal.
package runbook

import (
	"regexp"
	"slices"
	"strings"

	docs "github.com/kyma-project/eventmesh-migration/docs/migration"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
)

// Entry is one ID, one exit code or one section of the runbook.
type Entry = manual.Entry

// page is before each anchor.
const (
	dir  = "docs/migration"
	page = "docs/migration/runbook.md#"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	number   = regexp.MustCompile(`^[0-9]+$`)
)

// Entries are all entries in the order of the runbook: the exit codes, the IDs, and the other
// sections.
func Entries() []Entry {
	all := parse(docs.Runbook)
	order := func(e Entry) int { return slices.Index([]string{manual.ExitCodes, "", manual.Topics}, kind(e)) }
	slices.SortStableFunc(all, func(a, b Entry) int { return order(a) - order(b) })
	return all
}

// kind is the section of exit codes and manual.Topics, "" for the others.
func kind(e Entry) string {
	if e.Section == manual.ExitCodes || e.Section == manual.Topics {
		return e.Section
	}
	return ""
}

// Find returns the entries of an ID. An exit code may be given as its number. Two commands may
// use the same ID for different findings.
func Find(id string) []Entry {
	if number.MatchString(id) {
		id = "exit-" + id
	}
	if code, ok := strings.CutPrefix(id, "exit-"); ok && len(code) == 3 && code > "128" {
		id = "exit-128n"
	}
	var found []Entry
	for _, e := range Entries() {
		if e.ID == id || anchorOf(e) == id {
			found = append(found, e)
		}
	}
	return found
}

func anchorOf(e Entry) string {
	_, anchor, _ := strings.Cut(e.Page, "#")
	return anchor
}

// parse reads the headings and the rows with an anchor.
func parse(text string) []Entry {
	var all []Entry
	lines := strings.Split(text, "\n")
	section := ""
	var head []string
	for i, line := range lines {
		if level, title := manual.Heading(line); level > 1 {
			section = title
			body := lines[i+1 : manual.EndOf(lines, i, level)]
			if slices.ContainsFunc(body, func(l string) bool { return strings.HasPrefix(l, `| <a id="`) }) {
				continue // a list of entries
			}
			e := Entry{ID: manual.Slug(title), Page: page + manual.Slug(title), Section: manual.Topics, Summary: title, Text: strings.TrimSpace(strings.Join(body, "\n"))}
			if strings.HasPrefix(title, "Exit ") {
				e.Section, e.Summary = manual.ExitCodes, manual.FirstSentence(e.Text, dir)
			}
			all = append(all, e)
			continue
		}
		if !strings.HasPrefix(line, "|") {
			head = nil
			continue
		}
		cells := manual.Row(line)
		if head == nil {
			head = cells
		}
		match := manual.Anchored.FindStringSubmatch(cells[0])
		id := codeSpan.FindStringSubmatch(cells[0])
		if match == nil || id == nil {
			continue
		}
		var text []string
		for i := 1; i < len(cells) && i < len(head); i++ {
			text = append(text, head[i]+": "+cells[i])
		}
		all = append(all, Entry{ID: id[1], Page: page + match[1], Section: section, Summary: manual.FirstSentence(cells[1], dir), Text: strings.Join(text, "\n\n")})
	}
	return all
}
