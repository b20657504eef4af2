package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// kind is what a mutant does.
type kind string

const (
	flip    kind = "flip"    // a condition is negated
	replace kind = "replace" // an expression is another one
	skip    kind = "skip"    // a statement is left out
	insert  kind = "insert"  // other code is executed before a statement
)

// mutant is one change of one file.
type mutant struct {
	ID   int
	Kind kind
	// Pkg is the path of the package in the module, as "pkg/engine".
	Pkg string
	// File is the path in the module.
	File string
	Line int
	// Func is where it is, as "run.Plan"; Text the source, in one line.
	Func, Text string
	// With is what replaces the text, or comes before it.
	With string
	// Listed is the entry of the file of survivors, if it comes from there.
	Listed *entry

	from, to int // offsets in the file
}

func (m *mutant) String() string {
	s := fmt.Sprintf("%s:%d: %s %s", m.File, m.Line, m.Kind, m.Text)
	if m.Kind == replace {
		s += " by " + m.With
	}
	return s
}

// pkg is a package to mutate.
type pkg struct {
	ImportPath, Dir, Name string
	GoFiles               []string

	rel     string
	sources map[string][]byte // by path in the module
	mutants []*mutant         // everything that could be flipped
	parsed  []file
}

type file struct {
	rel    string
	source []byte
	set    *token.FileSet
	tree   *ast.File
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// load reads packages, and finds what could be flipped in them.
func load(ctx context.Context, root string, patterns []string) ([]*pkg, error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-json=ImportPath,Dir,Name,GoFiles"}, patterns...)...)
	cmd.Dir = root
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list %q: %w\n%s", patterns, err, errors.String())
	}
	var pkgs []*pkg
	for decoder := json.NewDecoder(bytes.NewReader(out)); decoder.More(); {
		p := &pkg{sources: map[string][]byte{}}
		if err := decoder.Decode(p); err != nil {
			return nil, fmt.Errorf("cannot read what go list says: %w", err)
		}
		if p.rel, err = filepath.Rel(root, p.Dir); err != nil {
			return nil, err
		}
		for _, name := range p.GoFiles {
			rel := filepath.ToSlash(filepath.Join(p.rel, name))
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				return nil, err
			}
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			f := file{rel, source, set, tree}
			p.sources[rel] = source
			p.parsed = append(p.parsed, f)
			p.mutants = append(p.mutants, conditions(p.rel, f)...)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// conditions finds everything in a file that can be negated without knowing types.
func conditions(rel string, f file) []*mutant {
	var found []*mutant
	seen := map[ast.Expr]bool{}
	add := func(in string, e ast.Expr) {
		e = ast.Unparen(e)
		if e == nil || seen[e] {
			return
		}
		seen[e] = true
		found = append(found, f.mutant(rel, flip, in, e))
	}
	f.each(func(in string, node ast.Node) {
		switch n := node.(type) {
		case *ast.IfStmt:
			add(in, n.Cond)
		case *ast.ForStmt:
			if n.Cond != nil {
				add(in, n.Cond)
			}
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						add(in, e)
					}
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.NOT { // the negation of what is below: one of them is enough
				add(in, n)
				seen[ast.Unparen(n.X)] = true
			}
		case *ast.BinaryExpr:
			switch n.Op {
			case token.LAND, token.LOR:
				add(in, n)
				add(in, n.X)
				add(in, n.Y)
			case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
				add(in, n)
			}
		}
	})
	return found
}

// each visits the nodes of all functions and variables, outer ones first; a constant
// cannot be decided at run time.
func (f file) each(visit func(in string, node ast.Node)) {
	for _, decl := range f.tree.Decls {
		in := ""
		switch d := decl.(type) {
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
		case *ast.FuncDecl:
			in = d.Name.Name
			if d.Recv != nil && len(d.Recv.List) > 0 {
				in = f.text(d.Recv.List[0].Type) + "." + in
				in = strings.TrimPrefix(in, "*")
			}
		}
		ast.Inspect(decl, func(node ast.Node) bool {
			if d, ok := node.(*ast.GenDecl); ok && d.Tok == token.CONST {
				return false
			}
			if node != nil {
				visit(in, node)
			}
			return true
		})
	}
}

func (f file) offset(p token.Pos) int { return f.set.Position(p).Offset }

// text is the source of a node, in one line.
func (f file) text(n ast.Node) string {
	return strings.Join(strings.Fields(string(f.source[f.offset(n.Pos()):f.offset(n.End())])), " ")
}

func (f file) mutant(rel string, k kind, in string, n ast.Node) *mutant {
	return &mutant{
		Kind: k, Pkg: rel, File: f.rel, Line: f.set.Position(n.Pos()).Line, Func: in, Text: f.text(n),
		from: f.offset(n.Pos()), to: f.offset(n.End()),
	}
}

// edit is text that is inserted.
type edit struct {
	at    int
	text  string
	opens bool
	size  int
	id    int
}

// instrument returns the source with the mutants in it. Lines stay where they are, so
// that what a test prints can be found.
func instrument(source []byte, mutants []*mutant) []byte {
	var edits []edit
	for _, m := range mutants {
		before, after := fmt.Sprintf("mutateFlip_(%d, ", m.ID), ")"
		switch m.Kind {
		case replace:
			before, after = fmt.Sprintf("mutateReplace_(%d, ", m.ID), ", "+m.With+")"
		case skip:
			before, after = fmt.Sprintf("if !mutateOn_(%d) { ", m.ID), " }"
		case insert:
			before, after = fmt.Sprintf("if mutateOn_(%d) { %s }; ", m.ID, m.With), ""
		}
		size := m.to - m.from
		edits = append(edits, edit{m.from, before, true, size, m.ID}, edit{m.to, after, false, size, m.ID})
	}
	slices.SortStableFunc(edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.opens != b.opens: // what ends here, ends first
			if a.opens {
				return 1
			}
			return -1
		case a.opens: // the outer one opens first
			return cmp.Or(b.size-a.size, a.id-b.id)
		}
		return cmp.Or(a.size-b.size, b.id-a.id)
	})
	var out bytes.Buffer
	last := 0
	for _, e := range edits {
		out.Write(source[last:e.at])
		out.WriteString(e.text)
		last = e.at
	}
	out.Write(source[last:])
	return out.Bytes()
}

// support is what the instrumented files of a package call.
func support(name string, mutants int) []byte {
	return fmt.Appendf(nil, `package %s

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
)

// The enabled mutant, and the file to record the executed mutants in.
var mutateAt_, mutateSeen_ = func() (int, string) {
	at, err := strconv.Atoi(os.Getenv("MUTANT"))
	if err != nil {
		at = -1
	}
	return at, os.Getenv("MUTANTS_SEEN")
}()

var mutateHit_ [%d]atomic.Bool

func mutateOn_(id int) bool {
	if mutateSeen_ != "" && !mutateHit_[id].Swap(true) {
		f, err := os.OpenFile(mutateSeen_, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(f, id)
		f.Close()
	}
	return id == mutateAt_
}

func mutateFlip_(id int, condition bool) bool { return condition != mutateOn_(id) }

func mutateReplace_[T any](id int, is, other T) T {
	if mutateOn_(id) {
		return other
	}
	return is
}
`, name, mutants)
}
