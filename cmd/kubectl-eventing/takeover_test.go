package main

import (
	"testing"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestStepThatIsUndone: a step that has to be repeated for ever ends the way. Other steps in
// between do not count.
func TestStepThatIsUndone(t *testing.T) {
	made := func(name string) *migration.Report {
		return &migration.Report{Changes: []migration.ChangeReport{{Change: &migration.Change{Verb: migration.Patch, Ref: migration.Ref{Name: name}, Why: name}, Result: migration.ChangeDone}}}
	}
	for reason, tc := range map[string]struct {
		steps []string
		want  bool
	}{
		"one after the other": {[]string{"a", "b", "c", "d", "e"}, false},
		"undone twice":        {[]string{"a", "a", "a", "b"}, false},
		"undone, twice":       {[]string{"a", "a", "b", "a", "a"}, false},
		"undone each time":    {[]string{"a", "b", "b", "b", "b"}, true},
	} {
		last, is := lastStep{}, false
		for _, name := range tc.steps {
			is = last.tooOften(made(name))
		}
		if is != tc.want {
			t.Errorf("%s: %t, want %t", reason, is, tc.want)
		}
	}
}
