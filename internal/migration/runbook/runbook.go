// Package runbook finds the entries of docs/migration/runbook.md, which is part of the program, and
// turns them into text for a terminal.
package runbook

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	docs "github.com/kyma-project/eventmesh-migration/docs/migration"
)

// Entry is one ID, one exit code or one section of the runbook.
type Entry struct {
	// ID is what a person has read in a report: "link-missing", "exit-3".
	ID string `json:"id"`
	// Page is the place in the runbook.
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
	exitCodes = "Exit codes"
	topics    = "Topics"
)

// page is before each anchor.
const page = "docs/migration/runbook.md#"

var (
	anchored = regexp.MustCompile(`^<a id="([^"]+)"></a>`)
	codeSpan = regexp.MustCompile("`([^`]+)`")
	number   = regexp.MustCompile(`^[0-9]+$`)
)

// Entries are all entries in the order of the runbook: the exit codes, the IDs, and the other
// sections.
func Entries() []Entry {
	all := parse(docs.Runbook)
	order := func(e Entry) int { return slices.Index([]string{exitCodes, "", topics}, kind(e)) }
	slices.SortStableFunc(all, func(a, b Entry) int { return order(a) - order(b) })
	return all
}

// kind is the section of exit codes and topics, "" for the others.
func kind(e Entry) string {
	if e.Section == exitCodes || e.Section == topics {
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
		if level, title := heading(line); level > 1 {
			section = title
			body := lines[i+1 : endOf(lines, i, level)]
			if slices.ContainsFunc(body, func(l string) bool { return strings.HasPrefix(l, `| <a id="`) }) {
				continue // a list of entries
			}
			e := Entry{ID: slug(title), Page: page + slug(title), Section: topics, Summary: title, Text: strings.TrimSpace(strings.Join(body, "\n"))}
			if strings.HasPrefix(title, "Exit ") {
				e.Section, e.Summary = exitCodes, firstSentence(e.Text)
			}
			all = append(all, e)
			continue
		}
		if !strings.HasPrefix(line, "|") {
			head = nil
			continue
		}
		cells := row(line)
		if head == nil {
			head = cells
		}
		match := anchored.FindStringSubmatch(cells[0])
		id := codeSpan.FindStringSubmatch(cells[0])
		if match == nil || id == nil {
			continue
		}
		var text []string
		for i := 1; i < len(cells) && i < len(head); i++ {
			text = append(text, head[i]+": "+cells[i])
		}
		all = append(all, Entry{ID: id[1], Page: page + match[1], Section: section, Summary: firstSentence(cells[1]), Text: strings.Join(text, "\n\n")})
	}
	return all
}

func heading(line string) (level int, title string) {
	title = strings.TrimLeft(line, "#")
	level = len(line) - len(title)
	if level == 0 || !strings.HasPrefix(title, " ") {
		return 0, ""
	}
	return level, strings.TrimSpace(title)
}

// endOf is the line of the next heading that is not below the one at i.
func endOf(lines []string, i, level int) int {
	code := false
	for j := i + 1; j < len(lines); j++ {
		if strings.HasPrefix(lines[j], "```") {
			code = !code
		}
		if next, _ := heading(lines[j]); !code && next > 0 && next <= level {
			return j
		}
	}
	return len(lines)
}

// slug is the anchor of a heading, as GitHub makes it.
func slug(title string) string {
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

// row splits a row of a table into its cells.
func row(line string) []string {
	const bar = "\x00"
	cells := strings.Split(strings.Trim(strings.ReplaceAll(line, `\|`, bar), "| "), "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(strings.ReplaceAll(cells[i], bar, "|"))
	}
	return cells
}

func firstSentence(text string) string {
	text, _, _ = strings.Cut(plain(text), "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	if before, _, found := strings.Cut(text, ". "); found {
		return before + "."
	}
	return text
}
