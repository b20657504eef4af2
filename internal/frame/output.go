package frame

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"sigs.k8s.io/yaml"
)

// Forms of -o.
const (
	FormText = "text"
	FormJSON = "json"
	FormYAML = "yaml"
	FormWide = "wide"
	FormName = "name"
)

// OutputError says that the cluster was read, and the result could not be written.
type OutputError struct{ Err error }

func (e *OutputError) Error() string { return e.Err.Error() }
func (e *OutputError) Unwrap() error { return e.Err }

// Structured says whether a form is for programs.
func Structured(form string) bool { return form == FormJSON || form == FormYAML }

// Print writes a value as -o says: json or yaml.
func Print(w io.Writer, form string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err == nil && form == FormYAML {
		raw, err = yaml.JSONToYAML(raw)
	}
	if err == nil {
		_, err = fmt.Fprintln(w, strings.TrimRight(string(raw), "\n"))
	}
	if err != nil {
		return &OutputError{fmt.Errorf("cannot print: %w", err)}
	}
	return nil
}

// Table writes rows under a head; cells are coloured afterwards, so that colours
// take no room.
type Table struct {
	Rows [][]string
	// Width that the table must fit in; 0: any.
	Width int
}

// Row adds a row.
func (t *Table) Row(cells ...string) {
	for i := range cells {
		cells[i] = strings.Join(strings.Fields(cells[i]), " ")
	}
	t.Rows = append(t.Rows, cells)
}

// Write writes the table. paint colours what was laid out.
func (t *Table) Write(w io.Writer, paint func(string) string) error {
	if t.Width > 0 {
		_, err := io.WriteString(w, paint(strings.Join(Columns(t.Rows, t.Width), "\n")+"\n"))
		return err
	}
	var b strings.Builder
	out := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
	for _, r := range t.Rows {
		fmt.Fprintln(out, strings.TrimRight(strings.Join(r, "\t"), "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, paint(b.String()))
	return err
}

// Painter colours whole words on a terminal, and nothing elsewhere. colours have the number of the
// colour of each word.
func Painter(on bool, colours map[string]string) func(string) string {
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

// ToFile writes to a file that appears when it is complete, or to stdout.
func ToFile(name string, stdout, stderr io.Writer, write func(io.Writer) error) error {
	if name == "" || name == "-" {
		return write(stdout)
	}
	f, err := os.OpenFile(name+".part", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return &OutputError{fmt.Errorf("cannot write %s: %w", name, err)}
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
		return &OutputError{fmt.Errorf("cannot write %s: %w", name, err)}
	}
	fmt.Fprintln(stderr, "wrote "+name)
	return nil
}
