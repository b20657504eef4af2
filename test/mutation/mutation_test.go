package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestConditions(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		body   string
		want   []string
	}{
		"If":         {"the condition, once", `if a == b { }`, []string{"a == b"}},
		"Init":       {"not what comes before it", `if x := f(); x { }`, []string{"x"}},
		"And":        {"the whole, and each operand", `if a && (b || c) { }`, []string{"a && (b || c)", "a", "b || c", "b", "c"}},
		"Not":        {"a negation and what it negates are one", `if !a { }`, []string{"!a"}},
		"NotMore":    {"as above; operands below it count", `if !(a && b) { }`, []string{"!(a && b)", "a", "b"}},
		"For":        {"a loop without a condition has none", `for a < b { }; for { }; for range c { }`, []string{"a < b"}},
		"Switch":     {"each case of a switch without a tag", `switch { case a, b > c: default: }; switch a { case 1: }`, []string{"a", "b > c"}},
		"Elsewhere":  {"comparisons", `return f(a == b), func() bool { return c }`, []string{"a == b"}},
		"NoConstant": {"it cannot be decided at run time", `const x = 1 == 2; _ = a`, nil},
		"InOneLine":  {"the text as people write it", "if a &&\n\n\tb { }", []string{"a && b", "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			source := "package p\n\nfunc (x *T[K]) m() any {\n" + tc.body + "\n}\n"
			set := token.NewFileSet()
			tree, err := parser.ParseFile(set, "x.go", source, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, m := range conditions("p", file{"p/x.go", []byte(source), set, tree}) {
				m.ID = i
				got = append(got, m.Text)
				if m.Func != "T[K].m" || m.Line < 4 {
					t.Errorf("%s is in %q, line %d", m, m.Func, m.Line)
				}
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

const sample = `package p

import "strings"

type T struct{ n int }

func (t T) Sign() int {
	if t.n < 0 { // tested
		return -1
	}
	if t.n > 100 { // not executed with true, so that only its negation is seen
		return 2
	}
	return 1
}

func Count(words []string) (n int) {
	for i := 0; i < len(words); i++ {
		if words[i] != "" || strings.TrimSpace(words[i]) != "" {
			n++
		}
	}
	return n
}

func Wait(n int) {
	for n > 0 {
		n--
		if n == 7 { // changes nothing
			n = 7
		}
	}
}

func Never(a bool) string {
	if a {
		return "never"
	}
	return ""
}

func Limit() int { return 3 * 4 }

func Add(to map[string]int) {
	to["a"] = 1
	to["b"] = 2
}
`

const sampleTest = `package p

import "testing"

func TestIt(t *testing.T) {
	if (T{-1}).Sign() != -1 || (T{1}).Sign() != 1 {
		t.Error("Sign")
	}
	if Count([]string{"a", "b", ""}) != 2 {
		t.Error("Count")
	}
	Wait(9)
	if Limit() > 100 {
		t.Error("Limit")
	}
	m := map[string]int{}
	Add(m)
	if m["a"] != 1 {
		t.Error("Add")
	}
}
`

const sampleSuite = `package suite

import (
	"os"
	"testing"

	"example.com/sample/p"
)

func TestSuite(t *testing.T) {
	if os.Getenv("SUITE") != "1" {
		t.Fatal("the variable of the suite is not set")
	}
	m := map[string]int{}
	p.Add(m)
	if m["b"] != 2 {
		t.Error("Add")
	}
}

func TestOther(t *testing.T) { t.Error("is not asked for") }
`

const sampleListed = `
- {name: L1, file: p/p.go, expression: 3 * 4, with: "400", notices: the limit}
- {name: L2, file: p/p.go, expression: 3 * 4, with: "5", notices: a lower limit, explained: it is a guess}
- {name: L3, file: p/p.go, func: Add, statement: 'to["a"] = 1', notices: the first}
- {name: L4, file: p/p.go, statement: 'to["b"] = 2', notices: the second}
- {name: L5, file: p/p.go, condition: n == 7, notices: nothing}
- {name: L6, file: p/p.go, condition: n == 8, notices: is gone}
- {name: L8, file: p/p.go, func: Limit, statement: return 3 …, before: return 500, notices: what comes before a statement}
- {name: L7, file: other/x.go, condition: n == 8, notices: of a package that is not measured}
`

// TestMeasure mutates a module of three files.
func TestMeasure(t *testing.T) {
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module example.com/sample\n\ngo 1.24\n", "p/p.go": sample, "p/p_test.go": sampleTest,
		"suite/suite_test.go": sampleSuite, "listed.yaml": sampleListed,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := options{
		root: root, packages: []string{"./p"}, listed: "listed.yaml", max: 100, seed: 1, threshold: 50, parallel: 2, timeout: 2 * time.Second, memory: 6 << 20,
		suites: []string{"SUITE=1 ./suite -test.run=^TestSuite$", "./nothing"},
	}
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	r, err := measure(t.Context(), o, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, f := range r.fates {
		verdict := "survived"
		switch {
		case f.By != "":
			verdict = f.How + " in " + f.By
		case !f.Executed:
			verdict = "not executed"
		}
		name := f.Text
		if f.Listed != nil {
			name = f.Listed.Name
		}
		got[name] = verdict
	}
	want := map[string]string{
		"t.n < 0":        "failed in p",
		"t.n > 100":      "failed in p",
		"i < len(words)": "failed in p",
		`words[i] != "" || strings.TrimSpace(words[i]) != ""`: "failed in p",
		`words[i] != ""`:                    "failed in p",
		`strings.TrimSpace(words[i]) != ""`: "failed in p",
		"n > 0":                             "survived",
		"a":                                 "not executed",
		"L1":                                "failed in p",
		"L2":                                "survived",
		"L3":                                "failed in p",
		"L4":                                "failed in ./suite",
		"L5":                                "did not end in p",
		"L8":                                "failed in p",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var out strings.Builder
	if code := r.print(&out, o); code != 1 { // L6 is lost
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{"L6 (p/p.go): is gone", "why: it is a guess", "flip n > 0 (Wait; survived)", "flip a (Never; not executed)", "The score is 78.6 %"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, out.String())
		}
	}
	r.lost = nil
	if code := r.print(io.Discard, o); code != 0 {
		t.Errorf("exit code %d, and everything listed is killed or explained", code)
	}
	o.threshold = 90
	if code := r.print(io.Discard, o); code != 1 {
		t.Errorf("exit code %d below the threshold", code)
	}
}

// TestReverts: each edit of reverts.yaml names one place, and they compile. That the
// schedules of test/model find every one takes minutes: go run ./test/mutation -reverts.
func TestReverts(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pkgs, err := load(t.Context(), root, modelPackages)
	if err != nil {
		t.Fatal(err)
	}
	reverts, err := readReverts(filepath.Join(root, "test/mutation/reverts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := mutantsOf(reverts, pkgs)
	if err != nil {
		t.Fatalf("correct test/mutation/reverts.yaml: %v", err)
	}
	if testing.Short() {
		t.Skip("two packages to compile")
	}
	overlay, err := overlayOf(t.TempDir(), root, pkgs, mutants)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", overlay}, modelPackages...)...)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestSafeguards: each edit of safeguards.yaml names one place, and the programs compile with all
// of them. That events are lost without each of them takes minutes: make soak.
func TestSafeguards(t *testing.T) {
	root, err := moduleRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var names strings.Builder
	if err := overlaySafeguards(t.Context(), root, dir, &names); err != nil {
		t.Fatal(err)
	}
	if names.Len() == 0 {
		t.Error("there are no safeguards")
	}
	if testing.Short() {
		t.Skip("packages to compile")
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-overlay", filepath.Join(dir, overlayName)}, safeguardPackages...)...)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestJudged reads what the schedules of test/model say.
func TestJudged(t *testing.T) {
	const said = `--- FAIL: TestModelSchedules (1.00s)
    schedule_test.go:105: seed 6: (ii) version 31: run-2 changes sources a/s0
    schedule_test.go:105: seed 6: (i) another
    schedule_test.go:112: seed 6:
        00:00.000        run-1 begins
    schedule_test.go:105: seed 31: (ii) version 7
FAIL
`
	v := judged(&revert{Name: "A1"}, []byte(said), errors.New("exit status 1"))
	if want := "A1: 2 schedules, seeds 6, 31; the first: (ii) version 31: run-2 changes sources a/s0"; v.line() != want {
		t.Errorf("got %q", v.line())
	}
	if v := judged(&revert{Name: "A2"}, []byte("PASS"), nil); v.line() != "A2: not found" {
		t.Errorf("got %q", v.line())
	}
	if v := judged(&revert{Name: "A3"}, []byte("panic: seed 3 hangs"), errors.New("exit status 2")); v.err == nil || len(v.seeds) != 0 {
		t.Errorf("a crash is no invariant: %q", v.line())
	}
	if v := judgedBy(&revert{Name: "N9"}, []byte("--- FAIL: TestRights (0.1s)\n    --- FAIL: TestRights/Lease (0.1s)\n"), errors.New("exit status 1")); v.line() != "N9: TestRights, TestRights/Lease" || !v.found() {
		t.Errorf("got %q", v.line())
	}
	if v := judgedBy(&revert{Name: "N9"}, []byte("PASS"), nil); v.line() != "N9: not found" || v.found() {
		t.Errorf("got %q", v.line())
	}
	if v := judgedBy(&revert{Name: "N9"}, []byte("panic"), errors.New("exit status 2")); v.err == nil || v.found() {
		t.Errorf("a crash is no failed test: %q", v.line())
	}
}

// TestChoiceIsSpread: a package with few conditions gives all of them, the rest is
// shared, and the same seed chooses the same.
func TestChoiceIsSpread(t *testing.T) {
	pkgs := func() []*pkg {
		var out []*pkg
		for name, n := range map[string]int{"a": 100, "b": 3, "c": 50} {
			p := &pkg{rel: name}
			for i := range n {
				p.mutants = append(p.mutants, &mutant{Pkg: name, File: name + "/x.go", Line: i, Text: "x", from: i, to: i + 1, Kind: flip})
			}
			out = append(out, p)
		}
		slices.SortFunc(out, func(a, b *pkg) int { return strings.Compare(a.rel, b.rel) })
		return out
	}
	choose := func(seed uint64) (all []string, by map[string]int) {
		r := &result{available: map[string]int{}}
		by = map[string]int{}
		for _, m := range r.choose(options{max: 43, seed: seed}, pkgs(), nil) {
			by[m.Pkg]++
			all = append(all, m.String())
		}
		return all, by
	}
	first, by := choose(1)
	if want := map[string]int{"a": 20, "b": 3, "c": 20}; !maps.Equal(by, want) {
		t.Errorf("chosen %v, want %v", by, want)
	}
	if again, _ := choose(1); !slices.Equal(first, again) {
		t.Error("the same seed chooses others")
	}
	if other, _ := choose(2); slices.Equal(first, other) {
		t.Error("another seed chooses the same")
	}
}
