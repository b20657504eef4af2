// Package guide looks up the reason of a condition, a state, an answer of the publisher, an exit
// code or a symptom in the documents of eventing, which are embedded in the program.
package guide

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	docs "github.com/kyma-project/eventmesh-migration/docs/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
)

const dir = "docs/eventing"

// source is a table, or all sections, of a page.
type source struct {
	page, text string
	// heading of the section with the table, whose first head is table; "" means the sections
	// themselves.
	heading, table string
	// section that the entries are listed in.
	section string
	// ids makes the IDs of a row from its cells: none if it has no entry.
	ids func(cells []string) []string
	// about is the cell with the text. Those before it say what it is about.
	about int
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	number   = regexp.MustCompile(`^[0-9]+$`)
)

// sources are in the order of a list of all entries.
var sources = []source{
	{"README.md", docs.README, "Conditions", "Condition", "Conditions of an Eventing", codeIn(1), 2},
	{"README.md", docs.README, "States", "State", "States of an Eventing", codeIn(0), 1},
	{"subscriptions.md", docs.Subscriptions, "Trouble", "Condition", "Conditions of a Subscription", codeIn(1), 2},
	{"subscriptions.md", docs.Subscriptions, "Trouble", "Event", "Events about a Subscription", codeIn(0), 2},
	{"publisher-proxy.md", docs.Publisher, "Answers", "Status", "Answers of the publisher", numbersIn(0), 1},
	{"kubectl-eventing.md", docs.Kubectl, "Findings of check", "Finding", "Findings of check", codeIn(0), 1},
	{"kubectl-eventing.md", docs.Kubectl, "Exit codes", "Exit code", manual.ExitCodes, exitCodeIn(0), 1},
	{"troubleshooting.md", docs.Troubleshooting, "", "", manual.Topics, nil, 0},
	{"dead-letters.md", docs.DeadLetters, "", "", "Dead letters", nil, 0},
}

// codeIn takes the code of a cell as an ID: a reason with spaces gets dashes.
func codeIn(cell int) func([]string) []string {
	return func(cells []string) (ids []string) {
		for _, match := range codeSpan.FindAllStringSubmatch(cells[cell], -1) {
			ids = append(ids, strings.ReplaceAll(match[1], " ", "-"))
		}
		return ids
	}
}

// numbersIn takes each number of a cell: "204, 200".
func numbersIn(cell int) func([]string) []string {
	return func(cells []string) []string {
		return slices.DeleteFunc(strings.FieldsFunc(cells[cell], func(r rune) bool { return r == ',' || r == ' ' }), func(s string) bool { return !number.MatchString(s) })
	}
}

func exitCodeIn(cell int) func([]string) []string {
	return func(cells []string) []string {
		return []string{"exit-" + strings.ReplaceAll(cells[cell], "+", "")}
	}
}

// Entries are all entries.
func Entries() []manual.Entry {
	var all []manual.Entry
	for _, s := range sources {
		if s.ids == nil {
			all = append(all, s.sections()...)
		} else {
			all = append(all, s.rows()...)
		}
	}
	return all
}

// Find returns the entries of an ID, whatever its capitals are. Several conditions may have the
// same reason. An exit code may be given as its number if the publisher has no such answer.
func Find(id string) []manual.Entry {
	id = strings.ReplaceAll(id, " ", "-")
	if code, ok := strings.CutPrefix(id, "exit-"); ok && len(code) == 3 && code > "128" {
		id = "exit-128n"
	}
	of := func(id string) []manual.Entry {
		return slices.DeleteFunc(Entries(), func(e manual.Entry) bool { return !strings.EqualFold(e.ID, id) })
	}
	if found := of(id); len(found) > 0 || !number.MatchString(id) {
		return found
	}
	return of("exit-" + id)
}

// section is the lines below a heading.
func (s source) below() (lines []string, title string) {
	all := strings.Split(s.text, "\n")
	for i, line := range all {
		if level, title := manual.Heading(line); level > 0 && title == s.heading {
			return all[i+1 : manual.EndOf(all, i, level)], title
		}
	}
	return nil, ""
}

// rows are the entries of a table. A cell that is empty says the same as the one above.
func (s source) rows() (entries []manual.Entry) {
	lines, title := s.below()
	var head, former []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "|") {
			head, former = nil, nil
			continue
		}
		cells := manual.Row(line)
		if empty := make([]string, max(0, len(head)-len(cells))); strings.HasPrefix(line, "| |") {
			cells = append(empty, cells...)
		} else {
			cells = append(cells, empty...)
		}
		switch {
		case head == nil:
			head = cells
			continue
		case head[0] != s.table, strings.HasPrefix(cells[len(cells)-1], "--"):
			continue
		}
		for i := range cells {
			if i < len(former) && i < s.about {
				cells[i] = cmp.Or(cells[i], former[i])
			}
		}
		former = cells
		for _, id := range s.ids(cells) {
			entries = append(entries, s.entry(id, title, head, cells))
		}
	}
	return entries
}

func (s source) entry(id, title string, head, cells []string) manual.Entry {
	section := s.section
	if s.table == "Condition" {
		section = manual.Plain(strings.ReplaceAll(cells[0], "`", ""), dir)
	}
	var text []string
	for i := 1; i < len(cells) && i < len(head); i++ {
		if cells[i] != "" && (i >= s.about || strings.Contains(cells[i], ",")) {
			text = append(text, cmp.Or(head[i], "Meaning")+": "+cells[i])
		}
	}
	return manual.Entry{
		ID: id, Page: dir + "/" + s.page + "#" + manual.Slug(title), Section: section,
		Summary: manual.FirstSentence(cells[min(s.about, len(cells)-1)], dir), Text: strings.Join(text, "\n\n"),
	}
}

// sections are the entries of a page by symptom.
func (s source) sections() (entries []manual.Entry) {
	lines := strings.Split(s.text, "\n")
	for i, line := range lines {
		level, title := manual.Heading(line)
		if level < 2 {
			continue
		}
		entries = append(entries, manual.Entry{
			ID: manual.Slug(title), Page: dir + "/" + s.page + "#" + manual.Slug(title), Section: s.section, Summary: title,
			Text: strings.TrimSpace(strings.Join(lines[i+1:manual.EndOf(lines, i, level)], "\n")),
		})
	}
	return entries
}
