package runbook

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	docs "github.com/kyma-project/eventmesh-migration/docs/migration"
	"github.com/kyma-project/eventmesh-migration/internal/frame/manual"
	"github.com/kyma-project/eventmesh-migration/internal/migration/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestEveryCodeAndIDHasAnEntry: what a report names can be explained.
func TestEveryCodeAndIDHasAnEntry(t *testing.T) {
	ids := []string{"exit-130", "143", "3", "permission-missing", "waits-for-link-missing", "deferred", "the-lock"}
	for _, c := range migration.ExitCodes() {
		ids = append(ids, c.ID())
	}
	for _, e := range verify.Catalog() {
		ids = append(ids, e.ID)
	}
	for _, id := range ids {
		found := Find(id)
		if len(found) == 0 {
			t.Errorf("no entry %s", id)
		}
		for _, e := range found {
			if e.Summary == "" || e.Text == "" || e.Section == "" {
				t.Errorf("the entry of %s is not complete: %+v", id, e)
			}
		}
	}
	if found := Find("no-such-id"); len(found) > 0 {
		t.Errorf("an ID that does not exist has %d entries", len(found))
	}
}

// TestEveryAnchorOfATableIsAnEntry: no row gets lost by its form.
func TestEveryAnchorOfATableIsAnEntry(t *testing.T) {
	if want, got := strings.Count(docs.Runbook, "\n| <a id="), len(Entries()); want == 0 || got < want {
		t.Errorf("the runbook has %d rows with an anchor, and %d entries were read", want, got)
	}
}

// TestRender: no entry has signs of a table or a link, and every line but a command fits.
func TestRender(t *testing.T) {
	const width = 60
	for _, e := range Entries() {
		for line := range strings.Lines(e.Render(width, "eventmesh-migrate explain")) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "|") || strings.Contains(line, "](") || strings.Contains(line, "<a id") || strings.Contains(line, "**") {
				t.Errorf("%s: Markdown in %q", e.ID, line)
			}
			if utf8.RuneCountInString(line) > width && !strings.HasPrefix(line, "  ") && strings.Count(strings.TrimSpace(line), " ") > 1 {
				t.Errorf("%s: longer than %d: %q", e.ID, width, line)
			}
		}
	}
}

func TestParse(t *testing.T) {
	const text = "# Runbook\n\n## Exit 9\n\nIt is **over**. See [more](#more), [all](faq.md).\n\n1. First\n   step.\n2. Second.\n\n```bash\n# no heading | no table\nrun   this\n```\n\n" +
		"## More\n\nText.\n\n### Below\n\n| A | B |\n|---|---|\n| `a \\| b` | do [it](#more) |\n\n" +
		"## Findings\n\n| ID | What | Do |\n|---|---|---|\n| <a id=\"x-one\"></a>`one` | It broke. Badly | `fix --it` |\n\n## End\n"
	got := parse(text)
	want := []Entry{
		{ID: "exit-9", Page: page + "exit-9", Section: manual.ExitCodes, Summary: "It is over."},
		{ID: "more", Page: page + "more", Section: manual.Topics, Summary: "More"},
		{ID: "below", Page: page + "below", Section: manual.Topics, Summary: "Below"},
		{ID: "one", Page: page + "x-one", Section: "Findings", Summary: "It broke."},
		{ID: "end", Page: page + "end", Section: manual.Topics, Summary: "End"},
	}
	rendered := map[string]string{}
	for i := range got {
		rendered[got[i].ID] = got[i].Render(40, "tool explain")
		got[i].Text = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{
		"exit-9": "exit-9\n\nIt is over. See more, all\n(docs/migration/faq.md).\n\n1. First step.\n2. Second.\n\n  # no heading | no table\n  run   this\n\nSee also:\n  tool explain more\n",
		"more":   "more\n\nText.\n\nBelow:\n\n`a | b`\n    do it\n\n\nSee also:\n  tool explain more\n",
		"one":    "one (Findings)\n\nWhat: It broke. Badly\n\nDo: `fix --it`\n",
	} {
		if diff := cmp.Diff(want, rendered[id]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
}
