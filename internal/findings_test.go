package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var (
	findingID = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	// findingCalls are the functions that make a finding, and take its ID first.
	findingCalls = []string{"find", "say", "tell", "refuse", "warn", "finding"}
)

// literal returns a constant text, "" if it is none.
func literal(e ast.Expr) string {
	if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
		if s, err := strconv.Unquote(lit.Value); err == nil {
			return s
		}
	}
	return ""
}

// identifier is the last part of a name, "" if it is none.
func identifier(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// findingIDs returns the IDs of findings in a file, and the lines of findings without one.
func findingIDs(text string) (ids []string, without []int, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", text, 0)
	if err != nil {
		return nil, nil, err
	}
	add := func(e ast.Expr) {
		if id := literal(e); findingID.MatchString(id) {
			ids = append(ids, id)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if len(n.Args) > 0 && (slices.Contains(findingCalls, identifier(n.Fun)) || identifier(n.Fun) == "Or") {
				add(n.Args[len(n.Args)-1:][0])
				add(n.Args[0])
			}
		case *ast.AssignStmt:
			for i, to := range n.Lhs {
				if identifier(to) == "ID" && i < len(n.Rhs) {
					add(n.Rhs[i])
				}
			}
		case *ast.CompositeLit:
			kind, keys := identifier(n.Type), map[string]ast.Expr{}
			for _, element := range n.Elts {
				if kv, ok := element.(*ast.KeyValueExpr); ok {
					keys[identifier(kv.Key)] = kv.Value
				}
			}
			switch {
			case len(n.Elts) > 0 && (kind == "problem" || kind == "reason"):
				add(n.Elts[0])
			case (keys["Severity"] != nil || keys["Message"] != nil) && keys["ID"] != nil:
				add(keys["ID"])
			case keys["Severity"] != nil && keys["Object"] != nil || keys["Severity"] != nil && keys["Problem"] != nil:
				without = append(without, set.Position(n.Pos()).Line)
			}
		}
		return true
	})
	return ids, without, nil
}

// TestRunbookKnowsEveryFinding: each ID of a job, of the engine and of the manager has its entry in
// the runbook, and each entry an ID.
func TestRunbookKnowsEveryFinding(t *testing.T) {
	r := checkout(t)
	used := map[string]string{}
	for file, text := range r {
		if !product(file) || !strings.HasPrefix(file, "internal/migration/jobs/") && !strings.HasPrefix(file, "pkg/engine/") && !strings.HasPrefix(file, "pkg/jobmanager/") {
			continue
		}
		ids, without, err := findingIDs(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			used[id] = file
		}
		for _, line := range without {
			if file != "pkg/engine/explain.go" && file != "pkg/engine/internal/execute/fail.go" { // act.Advised adds it
				t.Errorf("%s:%d: a finding without an ID", file, line)
			}
		}
	}
	for _, match := range regexp.MustCompile(`Defect += "([a-z-]+)"`).FindAllStringSubmatch(r["internal/migration/kyma/eventpath/answer.go"], -1) {
		used["waits-for-"+match[1]] = "internal/migration/kyma/eventpath/answer.go"
	}
	_, section, _ := strings.Cut(r["docs/migration/runbook.md"], "\n## Findings by ID\n")
	section, _, _ = strings.Cut(section, "\n## ")
	documented := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^\| <a id="([^"]+)"></a>`+"`([^`]+)`"+` \| \S.* \| \S.* \|$`).FindAllStringSubmatch(section, -1) {
		if match[1] != match[2] || documented[match[1]] {
			t.Errorf("docs/migration/runbook.md: the entry of %s is there twice, or has another anchor", match[2])
		}
		documented[match[1]] = true
	}
	if len(documented) == 0 || len(used) == 0 {
		t.Fatal("nothing found: this test would hold for nothing")
	}
	for id, file := range used {
		if !documented[id] {
			t.Errorf("%s: docs/migration/runbook.md has no entry %s", file, id)
		}
	}
	for id := range documented {
		if used[id] == "" {
			t.Errorf("docs/migration/runbook.md: no finding has the ID %s", id)
		}
	}
}

// TestRunbookKnowsEveryFindingOfCheck: the same for those of check, which have a section of their
// own.
func TestRunbookKnowsEveryFindingOfCheck(t *testing.T) {
	r := checkout(t)
	_, section, _ := strings.Cut(r["docs/migration/runbook.md"], "\n## Findings of check\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, used []string
	for _, match := range regexp.MustCompile(`(?m)^\| <a id="(check-[a-z-]+)"></a>`+"`(check-[a-z-]+)`"+` \| \S.* \| \S.* \|$`).FindAllStringSubmatch(section, -1) {
		if match[1] != match[2] {
			t.Errorf("docs/migration/runbook.md: the entry of %s has another anchor", match[2])
		}
		documented = append(documented, match[1])
	}
	for file, text := range r {
		if !product(file) || !strings.HasPrefix(file, "internal/migration/check/") {
			continue
		}
		ids, _, err := findingIDs(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if strings.HasPrefix(id, "check-") && !slices.Contains(used, id) {
				used = append(used, id)
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(used)
	if len(used) == 0 || !slices.Equal(documented, used) {
		t.Errorf("docs/migration/runbook.md has %v, and the findings of check have %v", documented, used)
	}
}

func TestFindingIDsCatch(t *testing.T) {
	ids, without, err := findingIDs("package a\n\nvar a = f.Finding{ID: \"one\", Severity: e}\nvar b = f.Finding{Severity: e, Problem: p}\nvar c = &problem{\"two\", e}\nfunc d() { x.find(\"three\", e); f.ID = \"four\" }\n")
	if err != nil || !slices.Equal(ids, []string{"one", "two", "three", "four"}) || !slices.Equal(without, []int{4}) {
		t.Errorf("got %v, without one %v, %v", ids, without, err)
	}
}
