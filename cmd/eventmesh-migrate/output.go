package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/present"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Forms of -o.
const (
	formText = "text"
	formJSON = "json"
	formYAML = "yaml"
	formWide = "wide"
	formName = "name"
)

// place names the cluster in what is printed for machines.
type place struct {
	Server  string `json:"server"`
	Context string `json:"context,omitempty"`
}

func placeOf(c *cli.Connection) place { return place{Server: c.Config.Host, Context: c.Context} }

// outputError says that the cluster was read, and the result could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

func (a *app) structured() bool { return a.output == formJSON || a.output == formYAML }

// print writes a value as -o says: json or yaml.
func (a *app) print(v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err == nil && a.output == formYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintln(a.Stdout, strings.TrimRight(string(raw), "\n"))
	}
	if err != nil {
		return &outputError{fmt.Errorf("cannot print: %w", err)}
	}
	return nil
}

// table writes rows under a head; cells are coloured afterwards, so that colours
// take no room.
type table struct {
	rows [][]string
	// width that the table must fit in; 0: any.
	width int
}

func (t *table) row(cells ...string) {
	for i := range cells {
		cells[i] = strings.Join(strings.Fields(cells[i]), " ")
	}
	t.rows = append(t.rows, cells)
}

func (t *table) write(w io.Writer, paint func(string) string) error {
	if t.width > 0 {
		_, err := io.WriteString(w, paint(strings.Join(present.Table(t.rows, t.width), "\n")+"\n"))
		return err
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, r := range t.rows {
		fmt.Fprintln(out, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, paint(b.String()))
	return err
}

// Colours of words that tell a state.
var colours = map[string]string{
	"needed": "33", "deferred": "33", "planned": "36", "warning": "33", "not-started": "33",
	"succeeded": "32", "not-needed": "32", "nothing-to-do": "32",
	"blocked": "31", "failed": "31", "rolled-back": "31", "partly-restored": "31", "refused": "31", "locked": "31", "timed-out": "31",
	"interrupted": "31", "error": "31", "open": "31",
}

// painter colours whole words on a terminal, and nothing elsewhere.
func painter(on bool) func(string) string {
	if !on {
		return func(s string) string { return s }
	}
	return func(s string) string {
		lines := strings.Split(s, "\n")
		for i, line := range lines {
			if i == 0 {
				lines[i] = "\x1b[1m" + line + "\x1b[0m"
				continue
			}
			// Runs of spaces separate the words.
			cells := strings.SplitAfter(line, "  ")
			for j, cell := range cells {
				word := strings.TrimSpace(cell)
				if code := colours[word]; code != "" {
					cells[j] = strings.Replace(cell, word, "\x1b["+code+"m"+word+"\x1b[0m", 1)
				}
			}
			lines[i] = strings.Join(cells, "")
		}
		return strings.Join(lines, "\n")
	}
}

func secondsOf(s float64) string {
	if s == 0 {
		return "0s"
	}
	return fmt.Sprintf("%.2fs", s)
}

// writeRun tells people how several jobs ended.
func (a *app) writeRun(c *cli.Connection, r *jobmanager.Report, s jobmanager.Selection) error {
	if a.structured() {
		return a.print(r)
	}
	if a.output == formName {
		var names []string
		for _, j := range r.Jobs {
			if j.Report != nil {
				names = append(names, present.Changed(j.Report)...)
			}
		}
		return present.WriteNames(a.Stdout, names)
	}
	if a.output != formWide {
		_, err := io.WriteString(a.Stdout, painter(c.Color)(textOf(a, c).run(r, s)))
		return err
	}
	fmt.Fprintln(a.Stdout, textOf(a, c).heading())
	t := &table{}
	head := []string{"JOB", "COMPONENT", "PHASE", "RESULT", "CHECK", "RUN", "WHY"}
	t.row(head...)
	for _, j := range r.Jobs {
		t.row(j.Job, j.Component, string(j.Phase), string(j.Result), secondsOf(j.NeededSeconds), secondsOf(j.Seconds), cmp.Or(j.Message, j.Reason))
	}
	if err := t.write(a.Stdout, painter(c.Color)); err != nil {
		return err
	}
	for i := range r.Jobs {
		if j := &r.Jobs[i]; j.Report != nil {
			fmt.Fprintln(a.Stdout)
			if err := cli.WriteWide(a.Stdout, j.Report); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(a.Stdout, "\n%s. %s in all: %s checking, %s running; %s, %s.\n", r.Message, secondsOf(r.Seconds), secondsOf(r.NeededSeconds), secondsOf(r.RunSeconds), migration.Count(int(r.Requests.Reads), "read"), migration.Count(int(r.Requests.Writes), "write"))
	if r.ExitCode != migration.ExitOK {
		fmt.Fprintln(a.Stdout, strings.Join(cli.ExitLines(r.ExitCode), "\n"))
	}
	return nil
}

// toFile writes to a file that appears when it is complete, or to stdout.
func (a *app) toFile(name string, write func(io.Writer) error) error {
	if name == "" || name == "-" {
		return write(a.Stdout)
	}
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return &outputError{fmt.Errorf("cannot write %s: %w", name, err)}
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(name+".part", name)
	}
	if err != nil {
		_ = os.Remove(name + ".part") // the error that matters is told
		return &outputError{fmt.Errorf("cannot write %s: %w", name, err)}
	}
	fmt.Fprintln(a.Stderr, "wrote "+name)
	return nil
}
