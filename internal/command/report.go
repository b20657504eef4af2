package command

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Meaning explains one exit code.
func Meaning(code int) string {
	if code > migration.ExitSignal {
		name := frame.SignalName(syscall.Signal(code - migration.ExitSignal))
		return fmt.Sprintf("interrupted by %s; the next run continues", cmp.Or(name, "a signal"))
	}
	return migration.ExitCodeOf(code).Meaning
}

// complete is the report as docs/architecture.md has it: one object, with every list present.
func complete(r *migration.Report) *migration.Report {
	full := *r
	if full.Changes == nil {
		full.Changes = []migration.ChangeReport{}
	}
	if full.Findings == nil {
		full.Findings = []migration.Finding{}
	}
	return &full
}

func writeJSON(w io.Writer, r *migration.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(complete(r))
}

func writeYAML(w io.Writer, r *migration.Report) error {
	text, err := yaml.Marshal(complete(r))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// ExitLines tell what an exit code means, and what explains it. A command is not wrapped.
func (p *Program) ExitLines(code int) []string {
	return p.whatToDo(fmt.Sprintf("Exit code %d: %s.", code, Meaning(code)), p.explanation(code))
}

// whatToDo adds the command that explains a sentence to it, if there is one.
func (p *Program) whatToDo(sentence, command string) []string {
	if command == "" {
		return []string{sentence}
	}
	return []string{sentence, "What to do: " + command}
}

// Text is the report of one job for people: a summary, groups of findings, the next command.
func (p *Program) Text(r *migration.Report, cluster string, o present.Options) string {
	told := present.OfJob(r, cluster)
	told.Last = p.lastLines(r)
	return present.Text(told, o)
}

// lastLines tell how a job ended, and what explains it; none if there is nothing to do.
func (p *Program) lastLines(r *migration.Report) []string {
	switch code := r.ExitCode(); {
	case code != migration.ExitOK:
		return p.ExitLines(code)
	case r.Result == migration.DeferredResult:
		return p.whatToDo("Exit code 0, but some work is deferred to a later run.", p.explain("deferred"))
	}
	return nil
}

// WriteWide writes each change and each finding of one job.
func (p *Program) WriteWide(w io.Writer, r *migration.Report) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "%s %s: %s\n%s\n", r.Job, r.Command, r.Result, r.Message)
	fmt.Fprintf(b, "%.1f s, %s, %s", r.Seconds, migration.Count(int(r.Requests.Reads), "read"), migration.Count(int(r.Requests.Writes), "write"))
	if r.Run != "" {
		fmt.Fprintf(b, ", run %s", r.Run)
	}
	fmt.Fprintln(b)

	if r.Command == cmdPlan {
		if err := writePlanned(b, r); err != nil {
			return err
		}
	} else {
		writeChanges(b, r)
	}
	writeFindings(b, r.Findings)
	if last := p.lastLines(r); len(last) > 0 {
		fmt.Fprintf(b, "\n%s\n", strings.Join(last, "\n"))
	}
	return b.Flush()
}

// alwaysShown are the results that a person has to know of, object by object.
var alwaysShown = map[string]bool{
	migration.ChangeNotRestored: true,
	migration.ChangeFailed:      true,
	migration.ChangeProtected:   true,
}

// changeCounts are the numbers of changes by result.
type changeCounts struct {
	total int
	of    map[string]int
}

func countChanges(r *migration.Report) changeCounts {
	c := changeCounts{total: len(r.Changes), of: map[string]int{}}
	for i := range r.Changes {
		c.of[r.Changes[i].Result]++
	}
	return c
}

func (c changeCounts) String() string {
	var parts []string
	for _, result := range c.results() {
		parts = append(parts, fmt.Sprintf("%d %s", c.of[result], cmp.Or(result, "planned")))
	}
	return strings.Join(parts, ", ")
}

// results are those there are, in the order they are told.
func (c changeCounts) results() []string {
	var all []string
	for result := range c.of {
		all = append(all, result)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(present.Rank(a), present.Rank(b)), cmp.Compare(a, b)) })
	return all
}

func writeChanges(b *bufio.Writer, r *migration.Report) {
	counts := countChanges(r)
	if counts.total == 0 {
		return
	}
	fmt.Fprintf(b, "\nChanges: %s\n", counts)
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, result := range counts.results() {
		for i := range r.Changes {
			c := &r.Changes[i]
			if c.Result != result {
				continue
			}
			took := ""
			if c.Seconds > 0 {
				took = fmt.Sprintf("%.1f s", c.Seconds)
			}
			fmt.Fprintln(table, strings.TrimRight(fmt.Sprintf("  %s\t%s %s\t%s\t%s", c.Result, c.Verb, nameOf(c), took, frame.OneLine(c.Message)), "\t"))
		}
	}
	_ = table.Flush() // b keeps its own errors
}

// nameOf spells the object of a change.
func nameOf(c *migration.ChangeReport) string {
	return migration.Ref{Resource: migration.Resource{Kind: c.Kind}, Namespace: c.Namespace, Name: c.Name}.String()
}

type severityGroup struct {
	severity migration.Severity
	findings []migration.Finding
}

// bySeverity groups findings, the worst first.
func bySeverity(all []migration.Finding) []severityGroup {
	var groups []severityGroup
	for _, s := range []migration.Severity{migration.Error, migration.Deferred, migration.Warning, migration.Info} {
		g := severityGroup{severity: s}
		for _, f := range all {
			if f.Severity == s {
				g.findings = append(g.findings, f)
			}
		}
		if len(g.findings) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

func writeFindings(b *bufio.Writer, all []migration.Finding) {
	for _, g := range bySeverity(all) {
		fmt.Fprintf(b, "\n%s (%d):\n", severityTitle[g.severity], len(g.findings))
		for _, f := range g.findings {
			fmt.Fprint(b, "  ")
			if f.Object != "" {
				fmt.Fprintf(b, "%s: ", f.Object)
			}
			fmt.Fprintf(b, "%s\n", f.Problem)
			if f.Hint != "" {
				fmt.Fprintf(b, "    %s\n", f.Hint)
			}
		}
	}
}

var severityTitle = map[migration.Severity]string{
	migration.Error:    "Errors",
	migration.Deferred: "Deferred to a later run",
	migration.Warning:  "Warnings",
	migration.Info:     "For your information",
}

// writePlanned writes each change with all there is to know about it.
func writePlanned(b *bufio.Writer, r *migration.Report) error {
	for i := range r.Changes {
		c := &r.Changes[i]
		fmt.Fprintf(b, "\n%d. %s %s", i+1, c.Verb, nameOf(c))
		if how := canBeUndone[c.Reversible]; how != "" {
			fmt.Fprintf(b, " (%s)", how)
		}
		fmt.Fprintln(b)
		if c.Message != "" {
			fmt.Fprintf(b, "   %s\n", frame.OneLine(c.Message))
		}
		if c.Replaces != nil {
			writeReplacement(b, c.Replaces)
			continue
		}
		if err := writeContent(b, c.Change); err != nil {
			return fmt.Errorf("cannot show %s: %w", nameOf(c), err)
		}
	}
	return nil
}

var canBeUndone = map[migration.Reversible]string{
	migration.ReversibleYes:    "can be undone",
	migration.ReversibleNewUID: "can be undone, under a new UID",
	migration.ReversibleNo:     "CANNOT be undone",
}

// writeReplacement writes how the fields of one object become those of another,
// side by side, as a diff of the two would not show.
func writeReplacement(b *bufio.Writer, r *migration.Replacement) {
	fmt.Fprintf(b, "   replaces %s:\n", r.Of)
	table := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	for _, f := range r.Fields {
		switch {
		case f.From == "":
			fmt.Fprintf(table, "     (new)\t->\t%s\n", f.To)
		case f.To == "":
			fmt.Fprintf(table, "     %s\t->\t(no equivalent)\n", f.From)
		default:
			fmt.Fprintf(table, "     %s\t->\t%s\n", f.From, f.To)
		}
	}
	_ = table.Flush() // b keeps its own errors
}

// writeContent writes the object that a change creates or recreates, or the fields that it
// patches, as YAML.
func writeContent(b *bufio.Writer, c *migration.Change) error {
	var text []byte
	var err error
	switch {
	case c == nil, c.Hidden:
		return nil
	case (c.Verb == migration.Create || c.Verb == migration.Recreate) && c.Object != nil:
		text, err = yaml.Marshal(c.Object.Object)
	case c.Verb == migration.Patch && len(c.Patch) > 0:
		text, err = yaml.JSONToYAML(c.Patch)
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(redact.URLs(string(text))) {
		fmt.Fprintf(b, "     %s", line)
	}
	return nil
}
