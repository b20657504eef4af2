// Package present turns reports into text for people at a terminal: a summary, warnings,
// errors, and the next command, in a limited number of lines. Its functions are pure: what
// is known comes in, text goes out.
package present

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Finding is one thing a person should know about one object, whatever command found it.
type Finding struct {
	Severity migration.Severity
	// ID names what was found; findings without one are grouped by their problem.
	ID              string
	Object, Problem string
	// Command is one complete command line, Note a sentence. Either may be empty.
	Command, Note string
}

// Of returns the findings of a job.
func Of(findings []migration.Finding) []Finding {
	out := make([]Finding, len(findings))
	for i, f := range findings {
		out[i] = Finding{Severity: f.Severity, ID: f.ID, Object: f.Object, Problem: f.Problem, Command: f.Command, Note: f.Note}
		if f.Command == "" && f.Note == "" {
			out[i].Note = f.Hint // of the report of an earlier version
		}
	}
	return out
}

// Group is all findings of one kind.
type Group struct {
	Severity migration.Severity
	ID       string
	// Problem is that of all of them; what differs is replaced by "…".
	Problem string
	// Objects are in the order in which they were found, each once.
	Objects []string
	Count   int
	// Command and Note are those of the first finding. The others of the group differ in
	// names only.
	Command, Note string

	// general is set if the problems of the group differ.
	general bool
}

var severities = []migration.Severity{migration.Info, migration.Warning, migration.Deferred, migration.Error}

// Groups are the findings by kind: by ID if they have one, otherwise by the problem without
// names and numbers. A finding that several jobs tell counts once. The order is that of
// severity, errors last, and then that in which they were found.
func Groups(findings []Finding) []Group {
	type key struct {
		severity  migration.Severity
		id, about string
	}
	at, seen := map[key]int{}, map[Finding]bool{}
	var groups []Group
	for _, f := range findings {
		same := f
		same.Command, same.Note = "", ""
		if seen[same] {
			continue
		}
		seen[same] = true
		k := key{severity: f.Severity, id: f.ID}
		if f.ID == "" {
			k.about = Kind(f.Problem, f.Object)
		}
		i, known := at[k]
		if !known {
			i = len(groups)
			at[k] = i
			groups = append(groups, Group{Severity: f.Severity, ID: f.ID, Problem: frame.OneLine(f.Problem), Command: f.Command, Note: f.Note})
		}
		g := &groups[i]
		g.Count++
		if f.Object != "" && !slices.Contains(g.Objects[max(0, len(g.Objects)-1):], f.Object) {
			g.Objects = append(g.Objects, f.Object)
		}
		if !g.general && g.Problem != frame.OneLine(f.Problem) {
			g.general = true
			g.Problem = Kind(g.Problem, strings.Join(g.Objects[:min(1, len(g.Objects))], ""))
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity))
	})
	return groups
}

var names = regexp.MustCompile(`"[^"]*"` + // quoted
	`|\bHelm [0-9]` + // no number of anything
	`|https?://[^\s,;)]+` +
	`|\b(?:[Dd]eployment|[Nn]amespace|event-service|[Aa]pplication|[Ss]ource|[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+|Broker|Trigger|Channel|Subscription|Service|Pod|Job|Secret|Application) ([a-z0-9][-a-z0-9./]*[a-z0-9]|[a-z0-9])` +
	`|[^\s,;:("']*/[^\s,;:)"']+` + // namespace/name
	`|\b[a-z][-a-z0-9.]*-[a-z0-9.]*[0-9][-a-z0-9]*\b` + // a name with a number
	`|\b[0-9][0-9.,]*(?:[smhd]|ms|m[0-9]+s|h[0-9]+m)?\b`)

// verbs follow a kind in a sentence, and are no names.
var verbs = regexp.MustCompile(` (a|an|and|are|as|at|because|but|can|cannot|carries|delivers|did|does|exists|has|have|in|is|it|lacks|must|needs|not|of|on|or|posts|still|that|the|to|uses|was|were|which|will|with|without)$`)

// Kind is a problem without the names and numbers in it, so that two objects with one
// problem can be told together.
func Kind(problem, object string) string {
	problem = frame.OneLine(problem)
	if _, path, found := strings.Cut(object, " "); found {
		problem = without(problem, path)
		if namespace, name, both := strings.Cut(path, "/"); both {
			problem = without(without(problem, name), namespace)
		}
	}
	problem = names.ReplaceAllStringFunc(problem, func(found string) string {
		if strings.HasPrefix(found, `"`) {
			return `"…"`
		}
		kind, _, two := strings.Cut(found, " ")
		switch {
		case kind == "Helm":
			return found
		case two && verbs.MatchString(found):
			return found
		case two:
			return kind + " …"
		}
		return "…"
	})
	return problem
}

// without replaces a name where it is a word.
func without(text, name string) string {
	const around = " \"'()/=,;:."
	var b strings.Builder
	for {
		at := strings.Index(text, name)
		if at < 0 || name == "" {
			b.WriteString(text)
			return b.String()
		}
		end := at + len(name)
		whole := (at == 0 || strings.ContainsRune(around, rune(text[at-1]))) && (end == len(text) || strings.ContainsRune(around, rune(text[end])))
		b.WriteString(text[:at])
		if whole {
			b.WriteString("…")
		} else {
			b.WriteString(name)
		}
		text = text[end:]
	}
}

// some are three names and how many more there are. A kind that all share is said once.
func some(objects []string) string {
	if len(objects) == 0 {
		return ""
	}
	const shown = 3
	kind, _, _ := strings.Cut(objects[0], " ")
	names := slices.Clone(objects[:min(shown, len(objects))])
	for i := range names {
		if rest, same := strings.CutPrefix(names[i], kind+" "); same && i > 0 {
			names[i] = rest
		}
	}
	text := strings.Join(names, ", ")
	if more := len(objects) - len(names); more > 0 {
		text += fmt.Sprintf(" and %s more", migration.Number(more))
	}
	return text
}
