package frame

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTableIsColouredWithoutMovingIt(t *testing.T) {
	words := map[string]string{"needed": "33", "blocked": "31"}
	tab := &Table{}
	tab.Row("NAME", "NEEDED", "WHY")
	tab.Row("a", "needed", "3 changes\nleft")
	tab.Row("longer", "blocked", "needed elsewhere")
	var plain, colored strings.Builder
	if err := tab.Write(&plain, Painter(false, words)); err != nil {
		t.Fatal(err)
	}
	if err := tab.Write(&colored, Painter(true, words)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("colours where there must be none: %q", plain.String())
	}
	want := "\x1b[1mNAME     NEEDED    WHY\x1b[0m\na        \x1b[33mneeded\x1b[0m    3 changes left\nlonger   \x1b[31mblocked\x1b[0m   needed elsewhere\n"
	if diff := cmp.Diff(want, colored.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
