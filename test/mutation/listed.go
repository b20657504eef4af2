package main

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// entry is a mutant that is listed by name. It is found by its text, so that it survives edits
// around it.
type entry struct {
	// Name is short, and the comments of tests cite it.
	Name string `json:"name"`
	// File is the path in the module; Func, if the text is there more than once, where it is.
	File string `json:"file"`
	Func string `json:"func,omitempty"`
	// One of these: a condition that is negated, an expression that With replaces, a statement that
	// is left out, or before which other code is executed. A text that ends with … is the beginning
	// of one.
	Condition  string `json:"condition,omitempty"`
	Expression string `json:"expression,omitempty"`
	With       string `json:"with,omitempty"`
	Statement  string `json:"statement,omitempty"`
	Before     string `json:"before,omitempty"`
	// Notices is what nobody would notice.
	Notices string `json:"notices"`
	// Explained is why it may survive; what is explained does not fail the measurement.
	Explained string `json:"explained,omitempty"`
}

func (e *entry) String() string { return fmt.Sprintf("%s (%s): %s", e.Name, e.File, e.Notices) }

func (e *entry) kind() (k kind, text string) {
	switch {
	case e.Condition != "":
		return flip, e.Condition
	case e.Expression != "":
		return replace, e.Expression
	case e.Before != "":
		return insert, e.Statement
	}
	return skip, e.Statement
}

// complete says whether the entry names one place, and what is done there.
func (e *entry) complete() bool {
	given := 0
	for _, s := range []string{e.Condition, e.Expression, e.Statement} {
		if s != "" {
			given++
		}
	}
	return e.File != "" && given == 1 && (e.Expression != "") == (e.With != "") && (e.Before == "" || e.Statement != "")
}

func readListed(name string) ([]*entry, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the listed mutants: %w", err)
	}
	var entries []*entry
	if err := yaml.UnmarshalStrict(raw, &entries); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	for i, e := range entries {
		if e.Name == "" || e.Notices == "" || !e.complete() {
			return nil, fmt.Errorf("%s, entry %d (%s): it needs name, file, notices, and one of condition, expression (and with) or statement", name, i+1, e.Name)
		}
	}
	return entries, nil
}

// find returns the mutants that an entry describes, none if the source has changed.
func (e *entry) find(pkgs []*pkg) []*mutant {
	k, text := e.kind()
	text = strings.Join(strings.Fields(text), " ")
	is := func(source string) bool { return source == text }
	if beginning, ok := strings.CutSuffix(text, "…"); ok {
		is = func(source string) bool { return strings.HasPrefix(source, beginning) }
	}
	var found []*mutant
	for _, p := range pkgs {
		for _, f := range p.parsed {
			if f.rel != e.File {
				continue
			}
			f.each(func(in string, node ast.Node) {
				switch node.(type) {
				case ast.Expr:
					if k == skip || k == insert {
						return
					}
				case ast.Stmt:
					if k != skip && k != insert {
						return
					}
				default:
					return
				}
				if e.Func != "" && e.Func != in || !is(f.text(node)) {
					return
				}
				m := f.mutant(p.rel, k, in, node)
				m.With, m.Listed = e.With+e.Before, e // one of them is empty
				// Parentheses, and a statement that is an expression, have the same place twice.
				for _, other := range found {
					if other.from == m.from && other.to == m.to && other.File == m.File {
						return
					}
				}
				found = append(found, m)
			})
		}
	}
	return found
}

// inPackages says whether the entry's file is in one of the packages that are measured.
func (e *entry) inPackages(pkgs []*pkg) bool {
	for _, p := range pkgs {
		if filepath.ToSlash(filepath.Dir(e.File)) == p.rel {
			return true
		}
	}
	return false
}
