package main

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/command"
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/pkg/jobmanager"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Forms of -o.
const (
	formText = frame.FormText
	formJSON = frame.FormJSON
	formYAML = frame.FormYAML
	formWide = frame.FormWide
	formName = frame.FormName
)

// place names the cluster in what is printed for machines.
type place struct {
	Server  string `json:"server"`
	Context string `json:"context,omitempty"`
}

func placeOf(c *command.Connection) place { return place{Server: c.Config.Host, Context: c.Context} }

func (a *app) structured() bool { return frame.Structured(a.output) }

// print writes a value as -o says: json or yaml.
func (a *app) print(v any) error { return frame.Print(a.Stdout, a.output, v) }

// toFile writes to a file that appears when it is complete, or to stdout.
func (a *app) toFile(name string, write func(io.Writer) error) error {
	return frame.ToFile(name, a.Stdout, a.Stderr, write)
}

// Colours of words that tell a state.
var colours = map[string]string{
	"needed": "33", "deferred": "33", "planned": "36", "warning": "33", "not-started": "33",
	"succeeded": "32", "not-needed": "32", "nothing-to-do": "32",
	"blocked": "31", "failed": "31", "rolled-back": "31", "partly-restored": "31", "refused": "31", "locked": "31", "timed-out": "31",
	"interrupted": "31", "error": "31", "open": "31",
}

// painter colours whole words on a terminal, and nothing elsewhere.
func painter(on bool) func(string) string { return frame.Painter(on, colours) }

func secondsOf(s float64) string {
	if s == 0 {
		return "0s"
	}
	return fmt.Sprintf("%.2fs", s)
}

// writeRun tells people how several jobs ended.
func (a *app) writeRun(c *command.Connection, r *jobmanager.Report, s jobmanager.Selection) error {
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
		return frame.WriteNames(a.Stdout, names)
	}
	if a.output != formWide {
		_, err := io.WriteString(a.Stdout, painter(c.Color)(textOf(a, c).run(r, s)))
		return err
	}
	fmt.Fprintln(a.Stdout, textOf(a, c).heading())
	t := &frame.Table{}
	head := []string{"JOB", "COMPONENT", "PHASE", "RESULT", "CHECK", "RUN", "WHY"}
	t.Row(head...)
	for _, j := range r.Jobs {
		t.Row(j.Job, j.Component, string(j.Phase), string(j.Result), secondsOf(j.NeededSeconds), secondsOf(j.Seconds), cmp.Or(j.Message, j.Reason))
	}
	if err := t.Write(a.Stdout, painter(c.Color)); err != nil {
		return err
	}
	for i := range r.Jobs {
		if j := &r.Jobs[i]; j.Report != nil {
			fmt.Fprintln(a.Stdout)
			if err := cli.Program().WriteWide(a.Stdout, j.Report); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(a.Stdout, "\n%s. %s in all: %s checking, %s running; %s, %s.\n", r.Message, secondsOf(r.Seconds), secondsOf(r.NeededSeconds), secondsOf(r.RunSeconds), migration.Count(int(r.Requests.Reads), "read"), migration.Count(int(r.Requests.Writes), "write"))
	if r.ExitCode != migration.ExitOK {
		fmt.Fprintln(a.Stdout, strings.Join(cli.Program().ExitLines(r.ExitCode), "\n"))
	}
	return nil
}
