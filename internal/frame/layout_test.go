package frame

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestColumnsFit(t *testing.T) {
	rows := [][]string{{"NAME", "PHASE", "NEEDED", "WHY"}, {"serviceinstance-recreate", "pre,post", "not-needed", strings.Repeat("very long ", 40)}}
	for _, width := range []int{200, 80, 50} {
		for _, line := range Columns(rows, width) {
			if n := utf8.RuneCountInString(line); n > width {
				t.Errorf("width %d: a line of %d columns: %s", width, n, line)
			}
		}
	}
	if lines := Columns(rows[:1], 80); lines[0] != "NAME   PHASE   NEEDED   WHY" {
		t.Errorf("a narrow table: %q", lines[0])
	}
}
