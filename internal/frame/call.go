package frame

import (
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// Flag is a flag as it was given: a list counts once, its values separated by commas.
type Flag struct{ Name, Value string }

// Word is the flag as one word of a command line.
func (f Flag) Word() string { return "--" + f.Name + "=" + f.Value }

// Line returns a command line of a program, which may be two words, with flags at its end.
func Line(program string, words []string, flags []Flag) string {
	all := append(strings.Fields(program), words...)
	for _, f := range flags {
		all = append(all, f.Word())
	}
	return wording.CommandLine(all...)
}

// Complete adds the flags of the cluster to a command that knows only its object: one of the
// program itself, which is called as typed says, or one of kubectl. A flag that the command has
// already is not added.
func Complete(line, program, typed string, cluster []Flag) string {
	known := func(string) bool { return true }
	switch {
	case line == program || strings.HasPrefix(line, program+" "):
		line = typed + strings.TrimPrefix(line, program)
	case strings.HasPrefix(line, "kubectl "):
		known = func(flag string) bool { return slices.Contains(ofKubectl, flag) }
	default:
		return line
	}
	for _, f := range cluster {
		if known(f.Name) && !strings.Contains(line, " --"+f.Name) {
			line += " " + wording.ShellQuote(f.Word())
		}
	}
	return line
}

// ofKubectl are the flags of the cluster that kubectl has, too.
var ofKubectl = []string{"context", "kubeconfig"}
