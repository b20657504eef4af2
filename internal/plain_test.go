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
		name, _ := strconv.Unquote(spec.Path.Value)
		if slices.Contains(concurrent, name) {
			return "imports " + name
		}
		// What it is given may be called beside what called it.
		if dir, ours := strings.CutPrefix(name, module+"/"); ours && starts(dir) {
			return "imports " + name + ", which has goroutines"
		}
	}
	return goroutine(file)
}

// starts tells whether a package of this module, without its tests, has goroutines.
func starts(dir string) bool {
	files, _ := filepath.Glob(filepath.Join("..", dir, "*.go"))
	return slices.ContainsFunc(files, func(name string) bool {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		return !strings.HasSuffix(name, "_test.go") && (err != nil || goroutine(file) != "")
	})
}

// goroutine returns what in a file is a goroutine, or "".
func goroutine(file *ast.File) string {
	found := ""
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = "has a go statement"
		case *ast.SelectorExpr:
			if n.Sel.Name == "Parallel" || n.Sel.Name == "Go" {
				found = "calls " + n.Sel.Name
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
