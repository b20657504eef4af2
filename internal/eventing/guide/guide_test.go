package guide

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// reasonsIn are the values of all constants of a file whose names begin with Reason or Event.
func reasonsIn(t *testing.T, file string) (reasons []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") && !strings.HasPrefix(spec.Names[0].Name, "Event") || len(spec.Values) == 0 {
			return true
		}
		literal, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, text)
		return true
	})
	return reasons
}

// notDocumented are reasons of good conditions, and of those that are in no version.
var notDocumented = map[string]bool{
	"Current": true, "Migrating": true, "MigrationFailed": true,
	"Subscription spec has no validation errors": true, "EventMesh Subscription active": true, "EventMesh Subscription not active": true,
}

// TestWhatIsPrintedCanBeExplained: each reason of a condition, state, answer and exit code.
func TestWhatIsPrintedCanBeExplained(t *testing.T) {
	ids := []string{"Ready", "Processing", "Warning", "Error", "Deleting", "204", "400", "507", "exit-0", "exit-6", "exit-130", "6", "publishers-get-507", "storage-class"}
	for _, file := range []string{"../../../api/operator/v1alpha1/conditions.go", "../../../api/eventing/v1alpha2/types.go"} {
		found := reasonsIn(t, file)
		if len(found) < 5 {
			t.Errorf("%s has only %d reasons", file, len(found))
		}
		ids = append(ids, found...)
	}
	for _, id := range ids {
		if notDocumented[id] {
			continue
		}
		found := Find(id)
		if len(found) == 0 {
			t.Errorf("no entry %s", id)
		}
		for _, e := range found {
			if e.Summary == "" || e.Text == "" || e.Section == "" || !strings.Contains(e.Page, "#") {
				t.Errorf("the entry of %s is not complete: %+v", id, e)
			}
		}
	}
	if found := Find("no-such-id"); len(found) > 0 {
		t.Errorf("an ID that does not exist has %d entries", len(found))
	}
}

// TestRows: an entry has the text of its row, and the condition of the row above.
func TestRows(t *testing.T) {
	found := Find("StorageFull")
	if len(found) != 1 || found[0].Section != "BackendAvailable" || !strings.Contains(found[0].Text, "NATS refuses events") {
		t.Errorf("%+v", found)
	}
	if found := Find("204"); len(found) != 1 || !strings.Contains(found[0].Text, "JetStream stored") {
		t.Errorf("%+v", found)
	}
	if found := Find("retrying"); len(found) != 1 || found[0].Section != "Sink delivering" {
		t.Errorf("%+v", found)
	}
}

// TestRender: no entry has signs of a table or a link, and every line but a command fits.
func TestRender(t *testing.T) {
	const width = 80
	for _, e := range Entries() {
		for line := range strings.Lines(e.Render(width, "kubectl eventing explain")) {
			line = strings.TrimRight(line, "\n")
			if strings.HasPrefix(line, "|") || strings.Contains(line, "](") || strings.Contains(line, "**") {
				t.Errorf("%s: Markdown in %q", e.ID, line)
			}
			if utf8.RuneCountInString(line) > width && !strings.HasPrefix(line, "  ") && strings.Count(strings.TrimSpace(line), " ") > 1 {
				t.Errorf("%s: longer than %d: %q", e.ID, width, line)
			}
		}
	}
}
