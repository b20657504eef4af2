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
)

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
	for _, dir := range []string{"cmd/", "internal/migration/jobs/", "internal/migration/check/", "internal/migration/cli/", "internal/migration/verify/", "internal/migration/present/", "internal/migration/kyma/", "internal/migration/registry/", "pkg/"} {
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

var (
	// leftOut of a document: code, and what nobody sees.
	leftOut = regexp.MustCompile("(?s)```.*?```|<!--.*?-->")
	// blocks are paragraphs, items of lists, headings, and the cells of tables.
	blocks = regexp.MustCompile(`\n\s*\n|\n\s*([-*#>]|\d+\.) |\n\||\|`)
	// code and linked are one word, and the words of a link.
	code   = regexp.MustCompile("`[^`]*`")
	linked = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	// proseEnds are where a sentence of a document ends, or its second half begins.
	proseEnds = regexp.MustCompile(`[.!?:;](\s|$)`)
)

// forOperators says whether a document is for those who run the migration, and not for those who
// change it.
func forOperators(file string) bool {
	switch file {
	case "README.md", "CONTRIBUTING.md", "SECURITY.md":
		return true
	case "docs/architecture.md", "docs/migration/domain.md", "docs/measurements.md", "docs/testing.md", "docs/packages.md":
		return false
	}
	dir, name := path.Split(file)
	return slices.Contains(documents, path.Clean(dir)) && strings.HasSuffix(name, ".md") || strings.HasPrefix(dir, "charts/") && name == "README.md"
}

// TestSentencesOfDocuments: no sentence of a document for operators is longer than 25 words.
func TestSentencesOfDocuments(t *testing.T) {
	files := checkout(t)
	seen := 0
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !forOperators(file) {
			continue
		}
		seen++
		for _, block := range blocks.Split(leftOut.ReplaceAllString(files[file], ""), -1) {
			for _, sentence := range proseEnds.Split(linked.ReplaceAllString(code.ReplaceAllString(block, "X"), "$1"), -1) {
				for _, long := range longSentences(sentence) {
					t.Errorf("%s: divide the sentence of %s", file, long)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d documents were read: this test holds for nothing", seen)
	}
}
