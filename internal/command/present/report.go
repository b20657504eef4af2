package present

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Options of what is printed.
type Options struct {
	// Width of the terminal; 0 is DefaultWidth. Commands are never wrapped: they must stay
	// one line to be pasted.
	Width int
	// Lines at most; 0 is DefaultLines. An error is never left out for it.
	Lines int
	// Full is how to get the full list.
	Full string
	// Caller completes the commands of findings.
	Caller Caller
	// Next is told at the end.
	Next []Step
}

// DefaultLines are what one screen and a little scrolling show.
const DefaultLines = 40

// Job is one row of a report.
type Job struct {
	Name, Phase string
	Result      migration.Result
	// Message is told if no finding tells why the job did not succeed.
	Message string
	Failed  bool
	Changes []migration.ChangeReport
	// Findings that are the same as those of another job are told once.
	Findings []migration.Finding
}

// Report is a report of several jobs.
type Report struct {
	// Title is the first line, a sentence without its full stop.
	Title string
	Jobs  []Job
	// Last are sentences below the findings, such as the exit code.
	Last []string
}

// Quiet are results of jobs that one line names together.
var quiet = []migration.Result{"not-needed", migration.NothingToDo}

// Text returns a report for people.
func Text(r Report, o Options) string {
	o = o.complete()
	head := r.jobs(o.Width)
	var findings []Finding
	for _, j := range r.Jobs {
		findings = append(findings, j.findings()...)
	}
	return assemble(append([]string{r.Title + "."}, head...), Groups(findings), r.Last, o)
}

// Findings returns the findings of a command that has no jobs, below its head.
func Findings(head []string, findings []Finding, o Options) string {
	return assemble(head, Groups(findings), nil, o.complete())
}

func (o Options) complete() Options {
	if o.Width <= 0 {
		o.Width = frame.DefaultWidth
	}
	if o.Lines <= 0 {
		o.Lines = DefaultLines
	}
	return o
}

// findings of a job. One that failed without telling why has its message.
func (j *Job) findings() []Finding {
	all := Of(j.Findings)
	if j.Failed && j.Message != "" && !slices.ContainsFunc(all, func(f Finding) bool { return f.Severity == migration.Error }) {
		all = append(all, Finding{Severity: migration.Error, Object: "job " + j.Name, Problem: j.Message})
	}
	return all
}

// jobs has one line for each job that did anything, and one for all others.
func (r *Report) jobs(width int) []string {
	var rows [][3]string
	var idle []string
	first := map[string]*Job{}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if slices.Contains(quiet, j.Result) && len(j.Changes)+len(j.Findings) == 0 {
			idle = append(idle, j.Name)
			continue
		}
		what := j.what()
		if former := first[j.Name]; former == nil {
			first[j.Name] = j
		} else if former.Result == j.Result && former.what() == what {
			what = "see above"
		}
		name := j.Name
		if j.Phase != "" {
			name += " (" + j.Phase + ")"
		}
		rows = append(rows, [3]string{name, string(j.Result), what})
	}
	lines := aligned(rows, width)
	idle = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(idle))), func(name string) bool { return first[name] != nil })
	if len(idle) > 0 {
		lines = append(lines, frame.Indented("Nothing to do: "+strings.Join(idle, ", "), "  ", width, 2)...)
	}
	return lines
}

// aligned has the third cell wrapped to three lines.
func aligned(rows [][3]string, width int) []string {
	var name, result int
	for _, row := range rows {
		name, result = max(name, len(row[0])), max(result, len(row[1]))
	}
	var lines []string
	for _, row := range rows {
		first := fmt.Sprintf("  %-*s  %-*s  ", name, row[0], result, row[1])
		for i, text := range frame.Indented(row[2], strings.Repeat(" ", len(first)), width, 3) {
			if i == 0 {
				text = first + strings.TrimLeft(text, " ")
			}
			lines = append(lines, text)
		}
		if row[2] == "" {
			lines = append(lines, strings.TrimRight(first, " "))
		}
	}
	return lines
}

// what a job changes and waits for, by verb and kind.
func (j *Job) what() string {
	type key struct {
		verb         migration.Verb
		kind, result string
	}
	counts := map[key]int{}
	var keys []key
	awaited := map[string]bool{}
	for i := range j.Changes {
		ch := &j.Changes[i]
		k := key{ch.Verb, ch.Kind, ch.Result}
		if ch.Verb == migration.Await {
			// Many units may wait for one object.
			object := fmt.Sprint(k, " ", ch.Namespace, "/", ch.Name)
			if awaited[object] {
				continue
			}
			awaited[object] = true
		}
		if counts[k] == 0 {
			keys = append(keys, k)
		}
		counts[k]++
	}
	slices.SortStableFunc(keys, func(a, b key) int {
		return cmp.Or(Rank(a.result)-Rank(b.result), order(a.verb)-order(b.verb))
	})
	var parts []string
	for _, k := range keys {
		part := fmt.Sprintf("%s %s %s", migration.Number(counts[k]), k.verb, k.kind)
		if k.result != "" && k.result != migration.ChangeDone {
			part += " (" + k.result + ")"
		}
		parts = append(parts, part)
	}
	count := map[migration.Severity]int{}
	for _, f := range j.Findings {
		count[f.Severity]++
	}
	for _, s := range []struct {
		severity migration.Severity
		noun     string
	}{{migration.Error, "error"}, {migration.Deferred, ""}, {migration.Warning, "warning"}} {
		switch {
		case count[s.severity] == 0:
		case s.noun == "":
			parts = append(parts, migration.Number(count[s.severity])+" deferred")
		default:
			parts = append(parts, migration.Count(count[s.severity], s.noun))
		}
	}
	return strings.Join(parts, ", ")
}

// worst are the results of changes in the order in which they are told.
var worst = []string{
	migration.ChangeNotRestored,
	migration.ChangeFailed,
	migration.ChangeProtected,
	migration.ChangeOpen,
	migration.ChangeRolledBack,
	migration.ChangeNotStarted,
	migration.ChangeDone,
	migration.ChangeUnchanged,
}

// Rank is the place of a result of changes in the order in which they are told: the worst
// first, last what is only planned.
func Rank(result string) int {
	if i := slices.Index(worst, result); i >= 0 {
		return i
	}
	return len(worst)
}

// order has waiting last: it changes nothing.
func order(v migration.Verb) int {
	if v == migration.Await {
		return 1
	}
	return 0
}

var titles = map[migration.Severity]string{
	migration.Info: "For your information", migration.Warning: "Warnings", migration.Deferred: "Deferred to a later run", migration.Error: "Errors",
}

// detail says how much is told of a group. A smaller one takes fewer lines.
type detail int

const (
	gone    detail = iota // counted only
	line                  // one line
	brief                 // and the command
	named                 // and the names
	entire                // and the note
	roomier               // and problems of up to three lines
)

// budgets are how much each severity gets, from the most to the least. The first that fits is
// taken; errors are the last that lose anything.
var budgets = []map[migration.Severity]detail{
	{migration.Info: roomier, migration.Warning: roomier, migration.Deferred: roomier, migration.Error: roomier},
	{migration.Info: line, migration.Warning: entire, migration.Deferred: entire, migration.Error: roomier},
	{migration.Info: gone, migration.Warning: entire, migration.Deferred: entire, migration.Error: entire},
	{migration.Info: gone, migration.Warning: named, migration.Deferred: entire, migration.Error: entire},
	{migration.Info: gone, migration.Warning: line, migration.Deferred: named, migration.Error: entire},
	{migration.Info: gone, migration.Warning: line, migration.Deferred: line, migration.Error: entire},
	{migration.Info: gone, migration.Warning: gone, migration.Deferred: line, migration.Error: entire},
	{migration.Info: gone, migration.Warning: gone, migration.Deferred: gone, migration.Error: entire},
	{migration.Info: gone, migration.Warning: gone, migration.Deferred: gone, migration.Error: named},
	{migration.Info: gone, migration.Warning: gone, migration.Deferred: gone, migration.Error: brief},
	{migration.Info: gone, migration.Warning: gone, migration.Deferred: gone, migration.Error: line},
}

func assemble(head []string, groups []Group, last []string, o Options) string {
	var wrapped []string
	for i, l := range head {
		if i == 0 {
			wrapped = append(wrapped, frame.Wrap(l, o.Width)...)
			continue
		}
		wrapped = append(wrapped, l)
	}
	var end []string
	for _, l := range last {
		end = append(end, frame.Wrap(l, o.Width)...)
	}
	end = append(end, next(o)...)
	var body []string
	for i, budget := range budgets {
		body = sections(groups, budget, o)
		if len(wrapped)+len(body)+len(end)+1 <= o.Lines || i == len(budgets)-1 {
			break
		}
	}
	// More kinds of errors than lines: the IDs stay.
	if len(wrapped)+len(body)+len(end)+1 > o.Lines {
		body = onlyIDs(groups, o)
	}
	lines := slices.Concat(wrapped, body)
	if len(end) > 0 {
		lines = append(append(lines, ""), end...)
	}
	return strings.Join(lines, "\n") + "\n"
}

func next(o Options) []string {
	var lines []string
	for i, s := range o.Next {
		prefix := ""
		if i == 0 {
			prefix = "Next: "
			if s.Command == "" {
				prefix = ""
			}
		}
		lines = append(lines, frame.Wrap(prefix+s.Note, o.Width)...)
		if s.Command != "" {
			lines = append(lines, "  "+s.Command)
		}
	}
	return lines
}

// NextText is only the next step, for output that is not assembled here.
func NextText(o Options) string { return strings.Join(next(o.complete()), "\n") + "\n" }

func sections(groups []Group, budget map[migration.Severity]detail, o Options) []string {
	var lines []string
	short := false
	for _, severity := range severities {
		var of []Group
		count := 0
		for _, g := range groups {
			if g.Severity == severity {
				of = append(of, g)
				count += g.Count
			}
		}
		if len(of) == 0 {
			continue
		}
		title := fmt.Sprintf("%s (%s)", titles[severity], migration.Number(count))
		if kinds := len(of); kinds < count && kinds > 1 {
			title = fmt.Sprintf("%s (%s, %s)", titles[severity], migration.Number(count), migration.Count(kinds, "kind"))
		}
		if budget[severity] == gone {
			lines = append(lines, title)
			short = true
			continue
		}
		lines = append(lines, "", title+":")
		for i := range of {
			text, cut := of[i].lines(budget[severity], o)
			lines = append(lines, text...)
			short = short || cut
		}
	}
	if short && o.Full != "" {
		lines = append(lines, frame.Wrap("The full list: "+o.Full, o.Width)...)
	}
	// Errors are the last groups.
	for i := range groups {
		if g := &groups[i]; o.Caller.Explains && g.Severity == migration.Error && g.ID != "" {
			return append(lines, "About an ID: "+o.Caller.Explain(g.ID))
		}
	}
	return lines
}

// lines of a group, and whether anything was left out.
func (g *Group) lines(d detail, o Options) (lines []string, short bool) {
	head := g.Problem
	if g.ID != "" {
		head = g.ID + ": " + head
	}
	alone := g.Count == 1 && len(g.Objects) == 1
	switch {
	case alone && g.ID != "":
		head = g.ID + " (" + g.Objects[0] + "): " + g.Problem
	case alone:
		head = g.Objects[0] + ": " + g.Problem
	case g.Count > 1:
		head = migration.Number(g.Count) + " × " + head
	}
	most := map[detail]int{line: 1, brief: 1, named: 2, entire: 2, roomier: 3}[d]
	lines = frame.Indented(head, "  ", o.Width, most)
	short = g.Count > 3 || len(frame.Indented(head, "  ", o.Width, 100)) > most
	if d >= named && !alone && len(g.Objects) > 0 {
		lines = append(lines, frame.Indented(some(g.Objects), "    ", o.Width, 2)...)
	}
	if d >= entire && g.Note != "" {
		lines = append(lines, frame.Indented(g.Note, "    ", o.Width, 3)...)
	}
	if d >= brief && g.Command != "" {
		lines = append(lines, "    "+o.Caller.Complete(g.Command))
	}
	return lines, short || d < entire
}

// onlyIDs is for more kinds of errors than there are lines.
func onlyIDs(groups []Group, o Options) []string {
	var lines, ids []string
	count := map[migration.Severity]int{}
	for i := range groups {
		g := &groups[i]
		count[g.Severity] += g.Count
		if g.Severity == migration.Error {
			ids = append(ids, cmp.Or(g.ID, frame.Fit(g.Problem, 40)))
		}
	}
	for _, severity := range severities {
		if severity != migration.Error && count[severity] > 0 {
			lines = append(lines, fmt.Sprintf("%s (%s)", titles[severity], migration.Number(count[severity])))
		}
	}
	lines = append(lines, "", fmt.Sprintf("Errors (%s, %s):", migration.Number(count[migration.Error]), migration.Count(len(ids), "kind")))
	lines = append(lines, frame.Indented(strings.Join(ids, ", "), "  ", o.Width, 100)...)
	if o.Full != "" {
		lines = append(lines, frame.Wrap("The full list: "+o.Full, o.Width)...)
	}
	return lines
}

// Total is how many changes the jobs of a plan would make.
type Total struct{ Writes, Jobs, Deferred int }

// Changes counts what the jobs would change. A job that is planned in two phases counts once.
func Changes(jobs []Job) Total {
	var t Total
	seen := map[string]map[string]bool{}
	deferred := map[Finding]bool{}
	for i := range jobs {
		j := &jobs[i]
		if seen[j.Name] == nil {
			seen[j.Name] = map[string]bool{}
		}
		before := len(seen[j.Name])
		for k := range j.Changes {
			ch := &j.Changes[k]
			if ch.Verb != migration.Await {
				seen[j.Name][fmt.Sprint(ch.Verb, ch.APIVersion, ch.Kind, ch.Namespace, "/", ch.Name)] = true
			}
		}
		t.Writes += len(seen[j.Name]) - before
		if before == 0 && len(seen[j.Name]) > 0 {
			t.Jobs++
		}
		for _, f := range Of(j.Findings) {
			if f.Severity == migration.Deferred {
				deferred[f] = true
			}
		}
	}
	t.Deferred = len(deferred)
	return t
}

func (t Total) String() string {
	var text string
	switch {
	case t.Writes == 0:
		text = "no changes"
	default:
		text = migration.Count(t.Writes, "change") + " in " + migration.Count(t.Jobs, "job")
	}
	if t.Deferred > 0 {
		text += ", " + migration.Number(t.Deferred) + " deferred"
	}
	return text
}
