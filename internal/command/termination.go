package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// terminationLog is where the kubelet takes a container's termination message
// from. It makes the file; where there is none, this is no Pod.
const terminationLog = "/dev/termination-log"

// maxTermination is what the kubelet keeps of the message.
const maxTermination = 4096

// terminate writes the container's termination message: it is still there
// when the Pod's log is gone.
func terminate(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(shorten(text, maxTermination))
	return errors.Join(err, f.Close())
}

// shorten cuts text to at most n bytes of whole characters.
func shorten(text string, n int) string {
	const mark = "…\n"
	if len(text) <= n {
		return text
	}
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}

// terminationText is the summary of a report, the worst first: it may be cut.
func (p *Program) terminationText(r *migration.Report) string {
	var b strings.Builder
	code := r.ExitCode()
	fmt.Fprintf(&b, "%s %s: %s (exit code %d). %s\n", r.Job, r.Command, r.Result, code, r.Message)
	if counts := countChanges(r); counts.total > 0 {
		fmt.Fprintf(&b, "changes: %s\n", counts)
	}
	if command := p.explanation(code); code != migration.ExitOK && command != "" {
		fmt.Fprintf(&b, "what to do: %s\n", command)
	}
	for _, g := range bySeverity(r.Findings) {
		for _, f := range g.findings {
			fmt.Fprintf(&b, "%s: %s\n", f.Severity, f)
		}
	}
	for _, c := range r.Changes {
		if alwaysShown[c.Result] {
			fmt.Fprintf(&b, "%s %s: %s: %s\n", c.Verb, nameOf(&c), c.Result, c.Message)
		}
	}
	return b.String()
}
