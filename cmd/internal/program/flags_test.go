package program

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestFlags: what the programs took with the flags of Go's own library is taken, so that no
// Deployment that others have written ends with a usage error.
func TestFlags(t *testing.T) {
	type values struct {
		Name  string
		Port  int
		Delay time.Duration
		Log   bool
		Rest  []string
	}
	for _, tc := range []struct {
		reason  string
		args    []string
		want    values
		problem string
	}{
		{reason: "two dashes", args: []string{"--name=a", "--port=1", "--delay=2s", "--log=true"}, want: values{Name: "a", Port: 1, Delay: 2 * time.Second, Log: true}},
		{reason: "one dash", args: []string{"-name=a", "-port=1", "-delay=2s", "-log=true"}, want: values{Name: "a", Port: 1, Delay: 2 * time.Second, Log: true}},
		{reason: "values in words of their own", args: []string{"--name", "a", "-port", "1", "--delay", "2s", "-log"}, want: values{Name: "a", Port: 1, Delay: 2 * time.Second, Log: true}},
		{reason: "a value that begins with a dash is no flag", args: []string{"-name", "-log", "-port", "-10"}, want: values{Name: "-log", Port: -10}},
		{reason: "a value with an equals sign", args: []string{"-name=a=b", "--port", "1"}, want: values{Name: "a=b", Port: 1}},
		{reason: "truth in a word of its own", args: []string{"--log", "true", "-log", "false", "x"}, want: values{Rest: []string{"x"}}},
		{reason: "a word that is no truth", args: []string{"-log", "yes", "-port=1"}, want: values{Log: true, Port: 1, Rest: []string{"yes"}}},
		{reason: "all that follows two dashes is no flag", args: []string{"-log", "--", "-port", "-x"}, want: values{Log: true, Rest: []string{"-port", "-x"}}},
		{reason: "a dash alone is no flag", args: []string{"-", "-port=1"}, want: values{Port: 1, Rest: []string{"-"}}},
		{reason: "a flag nobody knows is told by its name", args: []string{"-nam=a"}, problem: "unknown flag: --nam"},
		{reason: "a letter is none of its words", args: []string{"-n", "a"}, problem: "unknown shorthand flag: 'n' in -n"},
		{reason: "no value", args: []string{"-name"}, problem: "flag needs an argument: --name"},
		{reason: "three dashes", args: []string{"---name=a"}, problem: "bad flag syntax: ---name=a"},
	} {
		var got values
		flags := Flags("p", "")
		flags.StringVar(&got.Name, "name", "", "")
		flags.IntVar(&got.Port, "port", 0, "")
		flags.DurationVar(&got.Delay, "delay", 0, "")
		flags.BoolVar(&got.Log, "log", false, "")
		problem := ""
		if err := Parse(flags, tc.args, io.Discard); err != nil {
			problem = err.Error()
		}
		if diff := cmp.Diff(tc.problem, problem); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if got.Rest = flags.Args(); len(got.Rest) == 0 {
			got.Rest = nil
		}
		if diff := cmp.Diff(tc.want, got); diff != "" && tc.problem == "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestHelp(t *testing.T) {
	const want = `p does it.

Usage:
  p [flags]

Flags:
      --second times   how many times (default 2)
      --first          whether at all
`
	for _, word := range []string{"--help", "-help", "-h"} {
		flags := Flags("p", "p does it.")
		flags.Int("second", 2, "how many `times`")
		flags.Bool("first", false, "whether at all")
		var help strings.Builder
		if err := Parse(flags, []string{"--first", word}, &help); !errors.Is(err, pflag.ErrHelp) || Refused("p", err, &help) != OK {
			t.Errorf("%s: %v, want help", word, err)
		}
		if diff := cmp.Diff(want, help.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", word, diff)
		}
	}
}
