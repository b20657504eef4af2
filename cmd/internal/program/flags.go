package program

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// helpWidth is where the help is wrapped.
const helpWidth = 110

// Flags are those of a program. Its help begins with about, unless that is empty, and has the
// flags in the order in which they are defined.
func Flags(name, about string) *pflag.FlagSet {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() {
		if about != "" {
			fmt.Fprint(flags.Output(), about, "\n\n")
		}
		fmt.Fprintf(flags.Output(), "Usage:\n  %s [flags]\n\nFlags:\n%s", name, flags.FlagUsagesWrapped(helpWidth))
	}
	return flags
}

// Parse reads a command line, and writes the help to help if it is asked for. One dash is as good
// as two, and a truth value may be a word of its own, as in --requestLogging true: Kyma's
// event-service took the first, and its users write the second.
func Parse(flags *pflag.FlagSet, args []string, help io.Writer) error {
	flags.SetOutput(help)
	return flags.Parse(twoDashes(flags, args))
}

// twoDashes returns a command line as pflag reads it. A value in a word of its own stays as it is,
// also if it begins with a dash.
func twoDashes(flags *pflag.FlagSet, args []string) []string {
	var all []string
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		if word == "--" {
			return append(append(all, word), args...)
		}
		if len(word) > 2 && word[0] == '-' && word[1] != '-' {
			word = "-" + word
		}
		name, isFlag := strings.CutPrefix(word, "--")
		f := flags.Lookup(name) // nil if the word has the value, too
		switch {
		case !isFlag || f == nil || len(args) == 0:
		case f.NoOptDefVal == "":
			all, word, args = append(all, word), args[0], args[1:]
		case isTruth(args[0]):
			word, args = word+"="+args[0], args[1:]
		}
		all = append(all, word)
	}
	return all
}

func isTruth(word string) bool {
	_, err := strconv.ParseBool(word)
	return err == nil
}
