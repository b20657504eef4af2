package internal_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// What vale does not read: the messages in the code, and the texts of charts. It holds the same for
// documents and comments (make lint).

// banned is a word to avoid.
var banned = func() *regexp.Regexp {
	raw, err := os.ReadFile("../tools/vale/styles/Project/Words.yml")
	if err != nil {
		panic(err)
	}
	var rule struct{ Swap map[string]string }
	if err := yaml.Unmarshal(raw, &rule); err != nil || len(rule.Swap) == 0 {
		panic(fmt.Sprintf("%s has no words: %v", raw, err))
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(slices.Sorted(maps.Keys(rule.Swap)), "|") + `)\b`)
}()

// allowed are the banned words that have to stay, by file.
var allowed = map[string]string{
	// A field of the scanners' configuration.
	"build/release/modulepack/bundle/shapes.go": "mend",
	// The annotation is on objects of clusters.
	"pkg/engine/internal/act/recreate.go": "touched",
}

// product says whether a file is Go code of the product, or of the programs that test it.
func product(file string) bool {
	dir, _, _ := strings.Cut(file, "/")
	return path.Ext(file) == ".go" && !strings.HasSuffix(file, "_test.go") && !strings.Contains(file, "/testdata/") &&
		slices.Contains([]string{"build", "charts", "cmd", "internal", "pkg", "test"}, dir)
}

// speaks says whether people read all of a file, which is no document and no code.
func speaks(file string) bool {
	return file == "Makefile" || strings.HasPrefix(file, "charts/") && (path.Base(file) == "values.yaml" || strings.Contains(file, "/templates/"))
}

// wording returns what is to be said in other words, in the order of files.
func (r repository) wording() (found []string, err error) {
	for _, file := range slices.Sorted(maps.Keys(r)) {
		texts := []part{{1, r[file]}}
		switch {
		case r[file] == "": // deleted, and not committed yet
			continue
		case product(file):
			if texts, err = messages(r[file]); err != nil {
				return nil, err
			}
		case !speaks(file):
			continue
		}
		for _, m := range texts {
			for _, at := range banned.FindAllStringIndex(m.text, -1) {
				line := m.line + strings.Count(m.text[:at[0]], "\n")
				found = append(found, fmt.Sprintf("%s:%d: %q", file, line, strings.Join(strings.Fields(m.text[at[0]:at[1]]), " ")))
			}
		}
	}
	return found, nil
}

// TestMessagesUseTheWords: messages and charts use the words of the project: their reader is tired,
// and has another first language.
func TestMessagesUseTheWords(t *testing.T) {
	found, err := checkout(t).wording()
	if err != nil {
		t.Fatal(err)
	}
	for file, word := range allowed {
		at := slices.IndexFunc(found, func(hit string) bool {
			return strings.HasPrefix(hit, file+":") && strings.HasSuffix(hit, strconv.Quote(word))
		})
		if at < 0 {
			t.Errorf("%s does not say %q: remove it from the exceptions", file, word)
			continue
		}
		found = slices.Delete(found, at, at+1)
	}
	for _, hit := range found {
		t.Errorf("%s: tools/vale/styles/Project/Words.yml has what to say instead", hit)
	}
}

// TestWordingCatches says the banned words in each place in which people read them.
func TestWordingCatches(t *testing.T) {
	for _, tc := range []struct {
		reason, file, text string
		want               []string
	}{
		{"a message", "internal/a/a.go", "package a\n\nconst m = \"x: Mend it\"\n", []string{`internal/a/a.go:3: "Mend"`}},
		{"a message in two parts, with a value", "cmd/a/a.go", "package a\n\nvar m = \"took it\" +\n\t\" back, \" + n + \" told to\"\n", []string{`cmd/a/a.go:3: "took it back"`, `cmd/a/a.go:3: "told to"`}},
		{"a text in several lines", "cmd/a/a.go", "package a\n\nvar m = `One\nin\nvain.`\n", []string{`cmd/a/a.go:4: "in vain"`}},
		{"names in the code are no text for people", "pkg/a/a.go", "package a\n\nvar touch, remake int\n", nil},
		{"a part of another word", "pkg/a/a.go", "package a\n\nconst m = \"it recommends an amendment, untouched\"\n", nil},
		{"a test says what it wants", "pkg/a/a_test.go", "package a\n\nconst m = \"touch\"\n", nil},
		{"code that no reader of the project sees", "examples/a/a.go", "package a\n\nconst m = \"touch\"\n", nil},
		{"the help of make", "Makefile", "a: ## Settle it\n", []string{`Makefile:1: "Settle"`}},
		{"a chart's values and templates", "charts/a/values.yaml", "a: 1\n# put it back\n", []string{`charts/a/values.yaml:2: "put it back"`}},
		{"the same", "charts/a/templates/NOTES.txt", "All the same.\n", []string{`charts/a/templates/NOTES.txt:1: "All the same"`}},
		{"a file that is deleted", "pkg/a/a.go", "", nil},
	} {
		got, err := repository{tc.file: tc.text}.wording()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

type part struct {
	line int
	text string
}

const (
	// mostWords of a sentence in a message.
	mostWords = 25
)

var (
	// sentenceEnds are full stops, and the empty lines and list marks of longer texts.
	sentenceEnds = regexp.MustCompile(`[.!?](\s|$)|\n\s*\n|\n\s*([-*#|]|\d+\.)|:\n`)
	plainWord    = regexp.MustCompile(`[A-Za-z…]`)
	// aCount is a count with its noun, which is wrong for 1.
	aCount = regexp.MustCompile(`%d (\w+ )?(errors|warnings|problems|changes|jobs|findings|permissions|replicas|reads|writes|objects|events|lines|namespaces)\b`)
)

// told says whether people read the strings of a file at a terminal.
func told(file string) bool {
	if !product(file) || strings.HasPrefix(file, "test/") || strings.HasPrefix(file, "pkg/migrationtest/") {
		return false
	}
	for _, dir := range []string{"cmd/", "internal/migration/jobs/", "internal/migration/check/", "internal/command/", "internal/migration/cli/", "internal/migration/verify/", "internal/migration/nextstep/", "internal/migration/kyma/", "internal/migration/registry/", "pkg/"} {
		if strings.HasPrefix(file, dir) {
			return true
		}
	}
	return false
}

// messages returns the texts of a file that are whole messages: strings that are added up are one.
func messages(source string) (all []part, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var text func(e ast.Expr) string
	text = func(e ast.Expr) string {
		switch e := e.(type) {
		case *ast.BasicLit:
			if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
				return s
			}
		case *ast.BinaryExpr:
			if e.Op == token.ADD {
				return text(e.X) + text(e.Y)
			}
		}
		return "…" // a value, of which one word is read
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.ADD {
				all = append(all, part{files.Position(n.Pos()).Line, text(n)})
				return false
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				all = append(all, part{files.Position(n.Pos()).Line, text(n)})
			}
		}
		return true
	})
	return all, nil
}

// longSentences are those of a message with more words than a tired reader takes in at once.
func longSentences(message string) []string {
	var long []string
	for _, sentence := range sentenceEnds.Split(message, -1) {
		words := slices.DeleteFunc(strings.Fields(sentence), func(w string) bool { return !plainWord.MatchString(w) })
		if len(words) > mostWords {
			long = append(long, fmt.Sprintf("%d words: %s", len(words), strings.Join(words, " ")))
		}
	}
	return long
}

// colon ends the first half of a sentence. inBraces is what explains a word, or is YAML, or is a
// list of verbs of fmt alone.
var (
	colon    = regexp.MustCompile(`:( |…)`)
	inBraces = regexp.MustCompile(`\([^)]*\)|\{[^}]*\}|(%\w:? ?)+$`)
)

// colons are the sentences of a message with more than one colon.
func colons(message string) []string {
	if strings.Contains(message, "apiVersion:") || strings.Contains(message, "apiGroups:") || strings.Contains(message, "image: ") {
		return nil // YAML
	}
	var many []string
	for _, sentence := range sentenceEnds.Split(message, -1) {
		sentence = strings.Join(strings.Fields(sentence), " ")
		if len(colon.FindAllString(inBraces.ReplaceAllString(sentence, ""), -1)) > 1 {
			many = append(many, sentence)
		}
	}
	return many
}

// TestSentences: no sentence of a message is longer than 25 words, or has two colons, and no count
// has a noun that is wrong for 1.
func TestSentences(t *testing.T) {
	files := checkout(t)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !told(file) || files[file] == "" {
			continue
		}
		all, err := messages(files[file])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range all {
			for _, long := range longSentences(m.text) {
				t.Errorf("%s:%d: divide the sentence of %s", file, m.line, long)
			}
			for _, sentence := range colons(m.text) {
				t.Errorf("%s:%d: divide the sentence, it has several colons: %s", file, m.line, sentence)
			}
			if count := aCount.FindString(m.text); count != "" {
				t.Errorf("%s:%d: %q is wrong for 1: use migration.Count", file, m.line, count)
			}
		}
	}
}

// TestSentencesCatch finds the long sentence in a message of several parts, and no other.
func TestSentencesCatch(t *testing.T) {
	words := func(n int) string { return strings.TrimSpace(strings.Repeat("word ", n)) }
	for _, tc := range []struct {
		reason, source string
		want           int
	}{
		{"25 words", words(25) + ".", 0},
		{"26 words", words(26) + ".", 1},
		{"two sentences of 25 words", words(25) + ". " + words(25), 0},
		{"signs and numbers are no words", words(25) + " --- 3 = 4", 0},
		{"a list", words(20) + ":\n  - " + words(20) + "\n  - " + words(20), 0},
		{"added up, with a value", words(13) + ` " + n + " ` + words(13), 1},
	} {
		all, err := messages("package a\n\nvar m = \"" + strings.ReplaceAll(tc.source, "\n", `\n`) + "\"\n")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, m := range all {
			found += len(longSentences(m.text))
		}
		if found != tc.want {
			t.Errorf("%s: %d long sentences, want %d", tc.reason, found, tc.want)
		}
	}
	for text, want := range map[string]int{"it stays: why": 0, "it stays: why: because": 1, "it stays: why. Then: what": 0, "it stays (why: because): so": 0, "%s: %s: %s": 0} {
		if got := len(colons(text)); got != want {
			t.Errorf("%q: %d sentences with several colons, want %d", text, got, want)
		}
	}
	if aCount.FindString("%d errors") == "" || aCount.FindString("%s errors, %d of them") != "" {
		t.Error("counts are not told from other numbers")
	}
}
