package frame

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// UsageError is everything that is wrong with how a process was called.
type UsageError struct{ Problems []string }

func (e *UsageError) Error() string { return strings.Join(e.Problems, "; ") }

// Text is the error for people, under the name that they have typed.
func (e *UsageError) Text(name string) string {
	var b strings.Builder
	if len(e.Problems) == 1 {
		fmt.Fprintf(&b, "%s: %s\n", name, e.Problems[0])
	} else {
		fmt.Fprintf(&b, "%s: %s:\n", name, wording.Count(len(e.Problems), "problem"))
		for _, p := range e.Problems {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	fmt.Fprintf(&b, "Nothing was changed. \"%s --help\" explains every flag.\n", name)
	return b.String()
}

// Usage is an error of how the program was called; every problem is told.
func Usage(problems ...string) error { return &UsageError{Problems: problems} }

// Refuse tells what is wrong with how the program was called, and returns what it has told.
func Refuse(w io.Writer, name string, err error) string {
	usage, ok := errors.AsType[*UsageError](err)
	if !ok {
		usage = &UsageError{Problems: []string{err.Error()}}
	}
	text := usage.Text(name)
	fmt.Fprint(w, text)
	return text
}

// NoArguments is cobra.NoArgs in our words.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage(fmt.Sprintf("%q: unexpected argument (see %q)", args[0], cmd.CommandPath()+" --help"))
	}
	return nil
}

// AnyOf lists words as people do: "a, b or c".
func AnyOf(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// Duration is d without its empty minutes and seconds: 15m, not 15m0s.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
