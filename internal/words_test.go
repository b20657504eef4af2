package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// banned are words that a reader of another first language does not understand at once, or that
// hide which of several things is meant. Each has the word to use instead. docs/glossary.md has the
// table for people. The patterns are read without regard to case, and a space stands for any white
// space, the end of a line included.
var banned = compile([]struct{ pattern, say string }{
	{`mend(s|ed|ing)?`, "fix"},
	{`in vain`, "cannot become ready, or: without effect"},
	{`heed(s|ed|ing)?`, "respect"},
	{`trying on`, "retrying"},
	{`at that price`, "the consequence, by name"},
	{`as ever`, "as usual"},
	{`(minds|(not|never|to|does|should) mind)`, "ignores, refuses"},
	{`look(s|ed|ing)? whether`, "check whether"},
	{`ma(ke|kes|de|king)( \w+){0,3} again`, "recreate"},
	{`re-?ma(ke|kes|de|king)`, "recreate"},
	{`anew`, "again, or: recreate"},
	{`(take|takes|took|taken|taking)( \w+){0,3} away`, "delete, remove"},
	{`(take|takes|took|taken|taking)( \w+){0,3} off`, "remove"},
	{`(take|takes|took|taken|taking)( \w+){0,3} back`, "undo (by request), roll back (a failed run)"},
	{`(bring|brings|brought|bringing)( \w+){0,3} back`, "restore"},
	{`put(s|ting)?( \w+){0,2} back`, "restore, roll back"},
	{`touch(es|ed|ing)?`, "change, write, use"},
	{`settl(e|es|ed|ing)`, "end, become stable"},
	{`told to`, "asked to, must"},
	{`gone by`, "removed in"},
	{`is to be seen`, "is visible"},
	{`there is no (saying|telling)`, "it is unknown"},
	{`in force`, "valid"},
	{`by hand of`, "by"},
	{`for good`, "permanently"},
	{`all the same`, "still, nevertheless"},
	{`besides`, "in addition to"},
	{`whoever`, "the one that is meant, by name"},
	{`in the midst`, "during"},
	{`last words`, "last output"},
})

// allowed are banned words that have to stay, in one file each.
var allowed = []struct{ file, text, reason string }{
	{"build/modulepack/bundle/shapes.go", "mend", "a field of the scanners' configuration"},
	{"pkg/engine/internal/act/recreate.go", "touched", "the annotation is on objects of clusters"},
}

type word struct {
	pattern *regexp.Regexp
	// has is what each text of the pattern has in it, in lower case.
	has, say string
}

func compile(table []struct{ pattern, say string }) []word {
	words := make([]word, len(table))
	for i, w := range table {
		words[i] = word{regexp.MustCompile(`(?i)\b` + strings.ReplaceAll(w.pattern, " ", `\s+`) + `\b`), longest(w.pattern), w.say}
	}
	return words
}

// maybe is a part of a pattern that not every text of it has.
var maybe = regexp.MustCompile(`\([^()]*\)|\w\?`)

// longest is the longest run of letters that every text of a pattern has, "" if there is none.
func longest(pattern string) string {
	for maybe.MatchString(pattern) {
		pattern = maybe.ReplaceAllString(pattern, "|")
	}
	runs := strings.FieldsFunc(pattern, func(r rune) bool { return !unicode.IsLetter(r) })
	return slices.MaxFunc(append(runs, ""), func(a, b string) int { return len(a) - len(b) })
}

// passage is a text to check, put together from parts that begin in some line each.
type passage []part

type part struct {
	line int
	text string
}

// hits are the banned words of a passage, each with its line.
func (p passage) hits() []hit {
	var whole strings.Builder
	for _, part := range p {
		whole.WriteString(part.text)
	}
	var all []hit
	text := strings.ToLower(whole.String())
	for _, w := range banned {
		if !strings.Contains(text, w.has) {
			continue // which is seen a hundred times as fast as with the pattern
		}
		for _, at := range w.pattern.FindAllStringIndex(text, -1) {
			all = append(all, hit{line: p.line(at[0]), text: strings.Join(strings.Fields(text[at[0]:at[1]]), " "), say: w.say})
		}
	}
	return all
}

// line is where the byte at an offset is.
func (p passage) line(offset int) int {
	for _, part := range p {
		if offset < len(part.text) {
			return part.line + strings.Count(part.text[:offset], "\n")
		}
		offset -= len(part.text)
	}
	return 0
}

// hit is a banned word in a file.
type hit struct {
	file, text, say string
	line            int
}

func (h hit) String() string { return fmt.Sprintf("%s:%d: %q: say %s", h.file, h.line, h.text, h.say) }

// speaks says whether people read the text of a file that is not Go code.
func speaks(file string) bool {
	switch base := path.Base(file); {
	case file == "Makefile", base == "README.md", path.Dir(file) == "." && path.Ext(file) == ".md", slices.Contains(documents, path.Dir(file)) && path.Ext(file) == ".md":
		return !strings.HasPrefix(file, "test/")
	default:
		return strings.HasPrefix(file, "charts/") && (base == "values.yaml" || strings.Contains(file, "/templates/"))
	}
}

// product says whether a file is Go code of the product, or of the programs that test it.
func product(file string) bool {
	dir, _, _ := strings.Cut(file, "/")
	return path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "/testdata/") &&
		slices.Contains([]string{"build", "charts", "cmd", "internal", "pkg", "test"}, dir)
}

// wording returns the banned words of the repository, in the order of files and lines.
func (r repository) wording() ([]hit, error) {
	var all []hit
	for _, file := range slices.Sorted(maps.Keys(r)) {
		var passages []passage
		switch {
		case product(file):
			var err error
			if passages, err = passagesOf(file, r[file]); err != nil {
				return nil, err
			}
		case speaks(file):
			passages = []passage{{{1, withoutTable(r[file])}}}
		}
		var here []hit
		for _, p := range passages {
			here = append(here, p.hits()...)
		}
		slices.SortStableFunc(here, func(a, b hit) int { return a.line - b.line })
		for _, h := range here {
			h.file = file
			all = append(all, h)
		}
	}
	return all, nil
}

// withoutTable blanks the table of docs/glossary.md that names the words to avoid.
func withoutTable(document string) string {
	before, section, _ := strings.Cut(document, "\n## Words\n")
	if section == "" {
		return document
	}
	lines := strings.Split(section, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "## ") {
			break
		}
		if strings.HasPrefix(line, "|") {
			lines[i] = ""
		}
	}
	return before + "\n## Words\n" + strings.Join(lines, "\n")
}

// passagesOf returns the comments and the strings of Go code. Strings that are added up are one
// passage, as they are for the reader of the message.
func passagesOf(name, source string) ([]passage, error) {
	if source == "" {
		return nil, nil // deleted, and not committed yet
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var all []passage
	for _, group := range file.Comments {
		var p passage
		for _, c := range group.List {
			// Without its marker, so that a phrase is found over the end of a line.
			p = append(p, part{files.Position(c.Pos()).Line, strings.TrimPrefix(c.Text, "//") + "\n"})
		}
		all = append(all, p)
	}
	seen := map[ast.Node]bool{}
	literal := func(e ast.Expr) part {
		lit, ok := e.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return part{text: "…"} // a value
		}
		seen[lit] = true
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			text = lit.Value
		}
		return part{files.Position(lit.Pos()).Line, text}
	}
	var added func(e ast.Expr) passage
	added = func(e ast.Expr) passage {
		sum, ok := e.(*ast.BinaryExpr)
		if !ok || sum.Op != token.ADD {
			return passage{literal(e)}
		}
		seen[sum] = true
		return append(added(sum.X), added(sum.Y)...)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD && !seen[n] {
				all = append(all, added(n))
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !seen[n] {
				all = append(all, passage{literal(n)})
			}
		}
		return true
	})
	return all, nil
}

// TestWords: messages, comments and documents use the words of the project: their reader is tired,
// and has another first language.
func TestWords(t *testing.T) {
	hits, err := checkout(t).wording()
	if err != nil {
		t.Fatal(err)
	}
	used := make([]bool, len(allowed))
	for _, h := range hits {
		if i := slices.IndexFunc(allowed, func(a struct{ file, text, reason string }) bool { return a.file == h.file && a.text == h.text }); i >= 0 {
			used[i] = true
			continue
		}
		t.Error(h)
	}
	for i, a := range allowed {
		if !used[i] {
			t.Errorf("%s does not say %q: remove it from the exceptions", a.file, a.text)
		}
	}
}

// TestWordsCatch says the banned words in each place in which people read.
func TestWordsCatch(t *testing.T) {
	for _, tc := range []struct {
		reason string
		file   string
		text   string
		want   []string
	}{
		{reason: "a message", file: "internal/a/a.go", text: "package a\n\nconst m = \"x: Mend it\"\n", want: []string{`internal/a/a.go:3: "mend": say fix`}},
		{reason: "a message in two parts, with a value", file: "cmd/a/a.go", text: "package a\n\nvar m = \"took it\" +\n\t\" back, \" + n + \" told to\"\n", want: []string{
			`cmd/a/a.go:3: "took it back": say undo (by request), roll back (a failed run)`, `cmd/a/a.go:4: "told to": say asked to, must`,
		}},
		{reason: "a text in several lines", file: "cmd/a/a.go", text: "package a\n\nvar m = `One\nin vain.`\n", want: []string{`cmd/a/a.go:4: "in vain": say cannot become ready, or: without effect`}},
		{reason: "a comment, over the end of a line", file: "pkg/a/a.go", text: "package a\n\n// A waits. It is made\n// once again.\nvar A int\n", want: []string{`pkg/a/a.go:3: "made once again": say recreate`}},
		{reason: "names in the code are no text for people", file: "pkg/a/a.go", text: "package a\n\nvar touch, remake int\n"},
		{reason: "a part of another word", file: "pkg/a/a.go", text: "package a\n\n// It recommends an amendment, untouched, in mind of the reminders.\n"},
		{reason: "a test says what it wants", file: "pkg/a/a_test.go", text: "package a\n\n// touch\n"},
		{reason: "code that no reader of the project sees", file: "examples/a/a.go", text: "package a\n\n// touch\n"},
		{reason: "a document", file: "docs/migration/domain.md", text: "# A\n\nIt brings them\nback.\n", want: []string{`docs/migration/domain.md:3: "brings them back": say restore`}},
		{
			reason: "the table of the words to avoid, and no other table", file: "docs/glossary.md",
			text: "# A\n\n## Words\n\nMend.\n\n| fix | mend |\n\n## B\n\n| mend |\n",
			want: []string{`docs/glossary.md:5: "mend": say fix`, `docs/glossary.md:11: "mend": say fix`},
		},
		{reason: "decisions are as they were decided", file: "docs/decisions/0001-libraries.md", text: "It brings it back.\n"},
		{reason: "the help of make", file: "Makefile", text: "a: ## Settle it\n", want: []string{`Makefile:1: "settle": say end, become stable`}},
		{reason: "a chart's manual, values and templates", file: "charts/a/values.yaml", text: "a: 1\n# put it back\n", want: []string{`charts/a/values.yaml:2: "put it back": say restore, roll back`}},
		{reason: "the same", file: "charts/a/templates/NOTES.txt", text: "All the same.\n", want: []string{`charts/a/templates/NOTES.txt:1: "all the same": say still, nevertheless`}},
		{reason: "the same", file: "charts/core/README.md", text: "Whoever\n", want: []string{`charts/core/README.md:1: "whoever": say the one that is meant, by name`}},
		{reason: "a file that is deleted", file: "pkg/a/a.go", text: ""},
	} {
		hits, err := repository{tc.file: tc.text}.wording()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range hits {
			got = append(got, h.String())
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
