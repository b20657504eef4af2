package internal_test

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// widest is the number of columns of a line of a comment or a document. A tab is four of them.
const widest = 100

var (
	// goComment is a line of text in a comment: no marker or directive, which a tool reads.
	goComment = regexp.MustCompile(`^\t*// [^+\s]`)
	// unbroken is code in a line, which stays in one line to be copied.
	unbroken = regexp.MustCompile("`[^`]*`")
	// noProse begins a line of a document that cannot be wrapped: a table, a heading, markup, a
	// command.
	noProse = regexp.MustCompile(`^(\s*(\||#|<|!\[)|    +[a-z]+ )`)
)

// long returns the lines that are too wide, by file and line. Blocks of code are not wrapped, nor a
// line whose words would not be shorter on one of their own, such as an address.
func (r repository) long() []string {
	var found []string
	for _, file := range slices.Sorted(maps.Keys(r)) {
		document := path.Ext(file) == ".md" && !strings.Contains(file, "/testdata/")
		if !document && (path.Ext(file) != ".go" || strings.HasPrefix(path.Base(file), "zz_generated")) {
			continue
		}
		code, output := false, false
		for i, line := range strings.Split(r[file], "\n") {
			if document && strings.HasPrefix(strings.TrimSpace(line), "```") {
				code = !code
			}
			// What an example prints has the lines that it has.
			output = !document && (output && strings.Contains(line, "//") || strings.HasSuffix(line, "// Output:"))
			if code || output || document && noProse.MatchString(line) || !document && !goComment.MatchString(line) {
				continue
			}
			wide := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			words := len(strings.Fields(unbroken.ReplaceAllString(line, "x")))
			if wide > widest && words > 2 {
				found = append(found, fmt.Sprintf("%s:%d: %d columns, wrap at %d", file, i+1, wide, widest))
			}
		}
	}
	return found
}

// TestLinesAreWrapped: comments and documents fit beside a second window.
func TestLinesAreWrapped(t *testing.T) {
	for _, line := range checkout(t).long() {
		t.Error(line)
	}
}

func TestLinesAreWrappedCatches(t *testing.T) {
	long := strings.Repeat("word ", 20) + "a"
	for _, tc := range []struct {
		reason, file, text string
		want               []string
	}{
		{"a comment", "a.go", "package a\n\n// " + long + "\n", []string{"a.go:3: 104 columns, wrap at 100"}},
		{"a tab is as wide as it looks", "a.go", "\t// " + long[5:] + "\n", []string{"a.go:1: 103 columns, wrap at 100"}},
		{"code, markers and directives", "a.go", "var a = `" + long + "`\n// +marker " + long + "\n//go:embed " + long + "\n", nil},
		{"a document", "README.md", "# " + long + "\n\n- " + long + "\n", []string{"README.md:3: 103 columns, wrap at 100"}},
		{"a table, an address, code", "README.md", "| " + long + "|\n[x](https://" + strings.ReplaceAll(long, " ", "/") + ")\n```\n" + long + "\n```\n", nil},
	} {
		if diff := cmp.Diff(tc.want, (repository{tc.file: tc.text}).long()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
