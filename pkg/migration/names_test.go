package migration

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for name, tc := range map[string]struct {
		names Names
		mark  string
		wrong string // a part of the error; "": there is none
	}{
		"Both":     {Names{"move", "move.example.com"}, "move.example.com/change", ""},
		"NoDomain": {Names{"move", ""}, "move/change", ""},
		"None":     {Names{}, "", "set Names.Program"},
		"Upper":    {Names{"Move", ""}, "", `"Move"`},
		"Dots":     {Names{"move.it", ""}, "", `"move.it"`},
		"Long":     {Names{strings.Repeat("m", maxProgram+1), ""}, "", "40 characters"},
		"Slash":    {Names{"move", "example.com/move"}, "", `"example.com/move"`},
	} {
		t.Run(name, func(t *testing.T) {
			switch err := tc.names.Validate(); {
			case tc.wrong == "" && (err != nil || tc.names.Mark() != tc.mark):
				t.Errorf("%v, and the mark is %q", err, tc.names.Mark())
			case tc.wrong != "" && (err == nil || !strings.Contains(err.Error(), tc.wrong)):
				t.Errorf("%v, want %q in it", err, tc.wrong)
			}
		})
	}
}
