package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// concurrent are packages that only who runs something beside something else imports.
var concurrent = []string{"sync", "sync/atomic", "testing/synctest", "net/http/httptest", "golang.org/x/sync/errgroup"}

// concurrency returns what in a file runs beside something else, or "".
func concurrency(file *ast.File) string {
	for _, spec := range file.Imports {
		if name, _ := strconv.Unquote(spec.Path.Value); slices.Contains(concurrent, name) {
			return "imports " + name
		}
	}
	found := ""
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = "has a go statement"
		case *ast.SelectorExpr:
			if n.Sel.Name == "Parallel" {
				found = "has parallel tests"
			}
		}
		return found == ""
	})
	return found
}

// TestPlainPackagesRunNothingBesideAnother: what make test tests without the race detector, because
// there is nothing that it could find, has no goroutines, and neither have the tests.
func TestPlainPackagesRunNothingBesideAnother(t *testing.T) {
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^PLAIN := (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no PLAIN")
	}
	for _, pkg := range strings.Fields(string(list[1])) {
		files, err := filepath.Glob(filepath.Join("..", pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("PLAIN of the Makefile names %s, which has no files (%v)", pkg, err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if why := concurrency(file); why != "" {
				t.Errorf("PLAIN of the Makefile names %s, and %s %s: take it out, so that it is tested with the race detector", pkg, filepath.Base(name), why)
			}
		}
	}
}
