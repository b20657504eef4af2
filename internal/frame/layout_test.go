package frame

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// terminals are as wide as those of people.
var terminals = []int{40, 60, 80, 120}

// TestColumns: no value is cut. The text in the last column is, behind a word, and before that
// columns are left out.
func TestColumns(t *testing.T) {
	rows := [][]string{
		{"NAME", "PHASE", "NEEDED", "WHY"},
		{"serviceinstance-recreate", "pre,post", "not-needed", "the Service Catalog has no ServiceInstance (of 27) of a Kyma Application"},
	}
	for width, want := range map[int][]string{
		40: {"NAME", "serviceinstance-recreate"},
		60: {"NAME                       PHASE      WHY", "serviceinstance-recreate   pre,post   the Service Catalog…"},
		80: {"NAME                       PHASE      NEEDED       WHY", "serviceinstance-recreate   pre,post   not-needed   the Service Catalog has no…"},
		120: {
			"NAME                       PHASE      NEEDED       WHY",
			"serviceinstance-recreate   pre,post   not-needed   the Service Catalog has no ServiceInstance (of 27) of a Kyma…",
		},
		200: {
			"NAME                       PHASE      NEEDED       WHY",
			"serviceinstance-recreate   pre,post   not-needed   the Service Catalog has no ServiceInstance (of 27) of a Kyma Application",
		},
	} {
		if diff := cmp.Diff(want, Columns(rows, width)); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
	if lines := Columns(rows[:1], 80); lines[0] != "NAME   PHASE   NEEDED   WHY" {
		t.Errorf("a narrow table: %q", lines[0])
	}
	if lines := Columns([][]string{{"NAME"}, {strings.Repeat("a", 50)}}, 40); lines[1] != strings.Repeat("a", 50) {
		t.Errorf("a name that is wider than the terminal: %q", lines[1])
	}
}

// TestFit cuts behind a word.
func TestFit(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  string
	}{
		{"all of it", 9, "all of it"},
		{"all of it is long", 12, "all of it…"},
		{"all of it is long", 13, "all of it is…"},
		{"of one (and more)", 9, "of one…"},
		{"first, second", 9, "first…"},
		{"eventservice-verify", 12, "eventservic…"},
		{"ä ö ü ß", 5, "ä ö…"},
		{"25 hats, 2 errors", 14, "25 hats…"},
	} {
		if got := Fit(tc.text, tc.width); got != tc.want || utf8.RuneCountInString(got) > tc.width {
			t.Errorf("%q in %d columns: %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
}

// shown is a line as a terminal of a width shows it.
func shown(line string, width int) (rows []string) {
	for all := range slices.Chunk([]rune(painted.ReplaceAllString(line, "")), width) {
		rows = append(rows, string(all))
	}
	return rows
}

// TestAtWords: on no terminal is a word divided that fits, and what is copied has the same words.
func TestAtWords(t *testing.T) {
	for _, line := range []string{
		"",
		"short",
		"10:00:00  INFO  creating HTTPSource kyma-integration/commerce, because Application commerce has none and sends events",
		"10:00:00  \x1b[34mINFO\x1b[0m  undo this with: eventmesh-migrate undo httpsource-sync --context=production --exclude-namespaces=a,b",
		"Undo the newest run of trigger-sync, which ended 3 minutes ago and made 17 changes of Triggers and Kyma Subscriptions? [y/N] ",
		"a word that is longer than a terminal: " + strings.Repeat("long", 40) + " and more",
		"ends in spaces   ",
	} {
		for _, width := range append([]int{1, 7}, terminals...) {
			got := AtWords(line, width)
			if diff := cmp.Diff(strings.Fields(line), strings.Fields(got)); diff != "" {
				t.Errorf("%q at %d columns has other words (-want +got):\n%s", line, width, diff)
			}
			if two := AtWords(line+"\n"+line, width); two != got+"\n"+got {
				t.Errorf("%d columns: the second line depends on the first one: %q", width, two)
			}
			rows := shown(got, width)
			for i := 1; i < len(rows); i++ {
				before, after := rows[i-1], rows[i]
				word := before[strings.LastIndex(before, " ")+1:] + strings.SplitN(after, " ", 2)[0]
				if !strings.HasSuffix(before, " ") && !strings.HasPrefix(after, " ") && utf8.RuneCountInString(word) <= width {
					t.Errorf("%d columns: %q is divided in %q", width, word, rows)
				}
			}
		}
	}
}
