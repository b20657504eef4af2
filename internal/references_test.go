package internal_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"
)

// domain is the document whose sections are cited, by "§" and a number.
const domain = "docs/migration/domain.md"

// documents are the directories of those that are about the products as they are.
var documents = []string{"docs", "docs/migration", "docs/eventing", "docs/library"}

var (
	webAddress = reference{"://", regexp.MustCompile(`[a-z]+://[^\s)"'` + "`" + `]+`)}
	// A name with a placeholder in it (%s, *, <job>) is matched as a whole, to be left out.
	documentName = reference{".md", regexp.MustCompile(`([\w.%*<>/-]*[\w%*<>-]\.md)\b(?:#([\w-]+))?`)}
	// What is code only looks like a link.
	codeSpan        = reference{"`", regexp.MustCompile("`[^`]*`")}
	linkTarget      = reference{"](", regexp.MustCompile(`\]\(([^)\s]+)\)`)}
	sectionNumber   = reference{"§", regexp.MustCompile(`§\s?(\d+(?:\.\d+)*)`)}
	decisionNumber  = reference{"ecision", regexp.MustCompile(`\b[Dd]ecisions? (\d{4})\b`)}
	testName        = reference{"`", regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)`")}
	testFunction    = reference{"func ", regexp.MustCompile(`^func ((?:Test|Fuzz)[A-Z]\w*)\(`)}
	headingLine     = regexp.MustCompile(`^#+ +(.+)$`)
	numberedHeading = regexp.MustCompile(`^(\d+(?:\.\d+)*) `)
	linkInText      = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	anchorElement   = reference{"<a id=", regexp.MustCompile(`<a id="([^"]+)">`)}
	decisionRow     = reference{"| [", regexp.MustCompile(`^\| \[(\d{4})\]\(([^)]+)\) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$`)}
)

// reference is a pattern, and what each text of it has in it: a line without that is passed over a
// hundred times as fast.
type reference struct {
	has     string
	pattern *regexp.Regexp
}

// in returns what the pattern and its groups match in a line.
func (r reference) in(line string) [][]string {
	if !strings.Contains(line, r.has) {
		return nil
	}
	return r.pattern.FindAllStringSubmatch(line, -1)
}

// without returns the line without what the pattern matches.
func (r reference) without(line string) string {
	if !strings.Contains(line, r.has) {
		return line
	}
	return r.pattern.ReplaceAllString(line, "")
}

// notReferences are names that end like a document's and are none, by file.
var notReferences = map[string][]string{
	"build/licenses/main_test.go":              {"MIT-LICENSE.md"}, // the name of a licence in a table
	"test/integration/jobmanager/tool_test.go": {"map.md"},         // a file that the test lets be written
}

// notChecked are files whose references are wrong on purpose.
var notChecked = []string{"internal/references_test.go"}

// repository is the text of its files by path; "" for what is no text.
type repository map[string]string

// has says whether a file or a directory exists.
func (r repository) has(name string) bool {
	if _, ok := r[name]; ok {
		return true
	}
	for file := range r {
		if strings.HasPrefix(file, name+"/") {
			return true
		}
	}
	return false
}

// find returns the path that a name in a file refers to, "" if nothing has it: beside the file,
// from the root, or, without a directory, among the documents.
func (r repository) find(file, name string) string {
	places := []string{path.Join(path.Dir(file), name), path.Clean(name)}
	if path.Dir(file) == "build/site" {
		places = append(places, path.Join("docs", name)) // of which the site is made
	}
	if !strings.Contains(name, "/") {
		for _, dir := range documents {
			places = append(places, path.Join(dir, name))
		}
	}
	for _, place := range places {
		if r.has(place) {
			return place
		}
	}
	return ""
}

// headings are those of a document, without those in blocks of code.
func headings(text string) []string {
	var all []string
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		if match := headingLine.FindStringSubmatch(line); match != nil && !code {
			all = append(all, linkInText.ReplaceAllString(match[1], "$1"))
		}
	}
	return all
}

// anchors are the fragments by which a document can be linked: of its headings, as GitHub makes
// them, and those it names.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range headings(text) {
		fragment := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
				return unicode.ToLower(r)
			default:
				return -1
			}
		}, heading)
		base := fragment
		for n := 1; all[fragment]; n++ {
			fragment = fmt.Sprintf("%s-%d", base, n)
		}
		all[fragment] = true
	}
	for _, match := range anchorElement.in(text) {
		all[match[1]] = true
	}
	return all
}

// hasAnchor says whether a document has a fragment. One that ends with a dash is the beginning of
// several: a program completes it.
func hasAnchor(text, fragment string) bool {
	all := anchors(text)
	if !strings.HasSuffix(fragment, "-") {
		return all[fragment]
	}
	for anchor := range all {
		if strings.HasPrefix(anchor, fragment) {
			return true
		}
	}
	return false
}

// sections are the numbers of the headings of a document.
func sections(text string) map[string]bool {
	all := map[string]bool{}
	for _, heading := range headings(text) {
		if match := numberedHeading.FindStringSubmatch(heading); match != nil {
			all[match[1]] = true
		}
	}
	return all
}

// tests are the names of all test functions.
func (r repository) tests() map[string]bool {
	all := map[string]bool{}
	for file, text := range r {
		if !strings.HasSuffix(file, "_test.go") {
			continue
		}
		for line := range strings.Lines(text) {
			for _, match := range testFunction.in(line) {
				all[match[1]] = true
			}
		}
	}
	return all
}

// broken returns the references to what does not exist, each with its file and line.
func (r repository) broken() []string {
	var all []string
	cited, tests := sections(r[domain]), r.tests()
	for _, file := range slices.Sorted(maps.Keys(r)) {
		if slices.Contains(notChecked, file) {
			continue
		}
		number := 0
		report := func(format string, args ...any) {
			all = append(all, fmt.Sprintf("%s:%d: %s", file, number, fmt.Sprintf(format, args...)))
		}
		for line := range strings.Lines(r[file]) {
			number++
			line = webAddress.without(line)
			r.documents(file, line, report)
			for _, match := range sectionNumber.in(line) {
				if !cited[match[1]] {
					report("%s has no section %s", domain, match[1])
				}
			}
			for _, match := range decisionNumber.in(line) {
				if !r.hasDecision(match[1]) {
					report("no decision %s", match[1])
				}
			}
			if !strings.HasSuffix(file, ".md") {
				continue
			}
			r.links(file, line, report)
			for _, match := range testName.in(line) {
				if !tests[match[1]] {
					report("no test %s", match[1])
				}
			}
		}
	}
	return all
}

// documents checks what a line says of documents, in whatever kind of file.
func (r repository) documents(file, line string, report func(string, ...any)) {
	for _, match := range documentName.in(line) {
		name, fragment := match[1], match[2]
		if strings.ContainsAny(name, "%*<>") || slices.Contains(notReferences[file], name) {
			continue
		}
		found := r.find(file, name)
		switch {
		case found == "":
			report("no document %s", name)
		case fragment != "" && !hasAnchor(r[found], fragment):
			report("%s has no anchor #%s", found, fragment)
		}
	}
}

// links checks the links in a line of a document to what is no document, and to places in the
// document itself.
func (r repository) links(file, line string, report func(string, ...any)) {
	for _, match := range linkTarget.in(codeSpan.without(line)) {
		name, fragment, _ := strings.Cut(match[1], "#")
		switch {
		case strings.HasSuffix(name, ".md"):
		case name == "" && !hasAnchor(r[file], fragment):
			report("%s has no anchor #%s", file, fragment)
		case name != "" && !r.has(path.Join(path.Dir(file), name)):
			report("no file %s", match[1])
		}
	}
}

func (r repository) hasDecision(number string) bool {
	for file := range r {
		if strings.HasPrefix(file, "docs/decisions/"+number+"-") {
			return true
		}
	}
	return false
}

// unlisted are the decisions that their index does not list with the number, title and status in
// their first two lines, and the rows of the index without a decision.
func (r repository) unlisted() []string {
	const dir, index = "docs/decisions", "docs/decisions/README.md"
	begins := map[string]string{}
	for line := range strings.Lines(r[index]) {
		for _, match := range decisionRow.in(strings.TrimSpace(line)) {
			begins[path.Join(dir, match[2])] = fmt.Sprintf("# %s %s\nStatus: %s\n", match[1], match[3], match[4])
		}
	}
	var all []string
	for _, file := range slices.Sorted(maps.Keys(r)) {
		if path.Dir(file) != dir || file == index || r[file] == "" {
			continue // "" is deleted, and not committed yet
		}
		if begin := begins[file]; begin == "" || !strings.HasPrefix(r[file], begin) {
			all = append(all, file+": "+index+" does not list it with its title and status")
		}
		delete(begins, file)
	}
	for _, file := range slices.Sorted(maps.Keys(begins)) {
		all = append(all, index+": no decision "+file)
	}
	return all
}

// unseen are the pictures that no document shows.
func (r repository) unseen() []string {
	shown := map[string]bool{}
	for file, text := range r {
		if strings.HasSuffix(file, ".md") {
			for _, match := range linkTarget.in(text) {
				shown[path.Join(path.Dir(file), match[1])] = true
			}
		}
	}
	var all []string
	for _, file := range slices.Sorted(maps.Keys(r)) {
		if path.Ext(file) == ".png" && !shown[file] {
			all = append(all, file+": no document shows this picture")
		}
	}
	return all
}

// TestReferences: a reader who follows a reference finds what it names. It holds for documents,
// anchors, relative links, sections of docs/migration/domain.md and decisions, in every file of the
// repository, and for tests that documents name. Each picture is in a document, and each decision
// in the index of decisions.
func TestReferences(t *testing.T) {
	r := checkout(t)
	for _, reference := range slices.Concat(r.broken(), r.unseen(), r.unlisted()) {
		t.Error(reference)
	}
}

// checkout reads the files of the repository.
func checkout(t *testing.T) repository {
	t.Helper()
	const root = ".."
	// As for load: a file that is new, or gone, makes go test run this again.
	if err := filepath.WalkDir(root, func(_ string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".git" {
			return fs.SkipDir // it changes with every command of git
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	list := exec.Command("git", "ls-files", "-z")
	list.Dir = root
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("cannot list the files of the repository: %v:\n%s", err, &stderr)
	}
	r := repository{}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		r[name] = ""
		info, err := os.Lstat(filepath.Join(root, name))
		if os.IsNotExist(err) || err == nil && !info.Mode().IsRegular() {
			continue // deleted, and not committed yet; or a symbolic link, whose target is checked itself
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(raw, []byte{0}) {
			r[name] = string(raw)
		}
	}
	if r[domain] == "" || r["README.md"] == "" {
		t.Fatalf("%d files found, %s or README.md not among them: this test would hold for nothing", len(r), domain)
	}
	return r
}

// TestReferencesCatch breaks each kind of reference once.
func TestReferencesCatch(t *testing.T) {
	const about = "# About\n\n## 4 Brokers\n\n### 4.3 The `trap`, [again](x.md)\n\n## Same\n\n## Same\n\n<a id=\"named-one\"></a>\n\n```bash\n# 5 no heading\n```\n"
	for _, tc := range []struct {
		reason string
		file   string
		text   string
		want   []string
	}{
		{reason: "a comment names a document from the root", file: "internal/a/a.go", text: "// See docs/migration/domain.md §4.3.\n"},
		{reason: "a section that was never written", file: "internal/a/a.go", text: "package a\n\n// (docs/migration/domain.md\n// §4.4)\n", want: []string{"internal/a/a.go:4: docs/migration/domain.md has no section 4.4"}},
		{reason: "a comment in a block of code is no heading", file: "Makefile", text: "# docs/migration/domain.md §5\n", want: []string{"Makefile:1: docs/migration/domain.md has no section 5"}},
		{reason: "a document that is not in the repository", file: "charts/x/templates/_a.tpl", text: "{{/* architecture.md */}}\n", want: []string{"charts/x/templates/_a.tpl:1: no document architecture.md"}},
		{reason: "a document in another place", file: "values.yaml", text: "# decisions/0001-one.md\n# docs/decisions/0001-one.md\n", want: []string{"values.yaml:1: no document decisions/0001-one.md"}},
		{reason: "beside the file, and among the documents", file: "docs/decisions/0002-two.md", text: "0001-one.md and domain.md\n"},
		{reason: "what a program completes", file: "a.go", text: "fmt.Sprintf(\"docs/migration/domain.md#named-\", id); \"%s/none.md\"; docs/*.md\n"},
		{reason: "what no completion makes right", file: "a.go", text: "\"docs/migration/domain.md#exit-\"\n", want: []string{"a.go:1: docs/migration/domain.md has no anchor #exit-"}},
		{reason: "an address elsewhere is somebody else's", file: "a.md", text: "[x](https://example.com/none.md#none) and https://example.com/other.md\n"},
		{reason: "anchors of headings, with code and a link", file: "docs/a.md", text: "[x](domain.md#43-the-trap-again) [y](domain.md#same-1) [z](domain.md#named-one) [here](#here)\n\n## Here\n"},
		{reason: "an anchor that is not there", file: "docs/a.md", text: "[x](domain.md#43-the-trap)\n", want: []string{"docs/a.md:1: docs/migration/domain.md has no anchor #43-the-trap"}},
		{reason: "an anchor of the document itself that is not there", file: "docs/a.md", text: "\n[x](#there)\n", want: []string{"docs/a.md:2: docs/a.md has no anchor #there"}},
		{reason: "links to a picture and to a directory", file: "docs/a.md", text: "![map](map.png) [all](decisions) [up](../go.mod)\n"},
		{reason: "a link to a file that is not there", file: "docs/a.md", text: "![map](none.png)\n", want: []string{"docs/a.md:1: no file none.png"}},
		{reason: "code that looks like a link, and code in a link", file: "docs/a.md", text: "`[a-z](none)?` and [`go.mod`](../go.mod)\n"},
		{reason: "decisions by number", file: "a.go", text: "// Decision 0001 says why, decision 0003 does not.\n", want: []string{"a.go:1: no decision 0003"}},
		{reason: "tests that a document names", file: "docs/a.md", text: "`TestThere`, `TestGone`, TestOther, `make test`\n", want: []string{"docs/a.md:1: no test TestGone"}},
		{reason: "a name that is no reference", file: "build/licenses/main_test.go", text: "\"MIT-LICENSE.md\", \"LICENSE.md\"\n", want: []string{"build/licenses/main_test.go:1: no document LICENSE.md"}},
		{reason: "this file has wrong ones on purpose", file: "internal/references_test.go", text: "none.md\n"},
	} {
		r := repository{
			domain: about, "README.md": "", "go.mod": "", "docs/map.png": "", "docs/decisions/0001-one.md": "",
			"docs/x.md": "", "a_test.go": "func TestThere(t *testing.T) {\n",
		}
		r[tc.file] = tc.text
		if diff := cmp.Diff(tc.want, r.broken()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
	r := repository{"docs/a.png": "", "docs/b.png": "", "docs/a.md": "![a](a.png)\n", "README.md": "![b](b.png)\n"}
	if diff := cmp.Diff([]string{"docs/b.png: no document shows this picture"}, r.unseen()); diff != "" {
		t.Errorf("a picture that is linked, and one of another directory (-want +got):\n%s", diff)
	}
	const row = "| [0001](0001-one.md) | One | accepted | x |\n"
	for _, tc := range []struct {
		reason, index, decision string
		want                    []string
	}{
		{reason: "listed as it is", index: row, decision: "# 0001 One\nStatus: accepted\n"},
		{reason: "another status", index: row, decision: "# 0001 One\nStatus: accepted, replaces 0002\n", want: []string{"docs/decisions/0001-one.md: docs/decisions/README.md does not list it with its title and status"}},
		{reason: "not listed", decision: "# 0001 One\nStatus: accepted\n", want: []string{"docs/decisions/0001-one.md: docs/decisions/README.md does not list it with its title and status"}},
		{reason: "a row without a decision", index: row, want: []string{"docs/decisions/README.md: no decision docs/decisions/0001-one.md"}},
	} {
		r := repository{"docs/decisions/README.md": tc.index, "docs/decisions/0001-one.md": tc.decision}
		if diff := cmp.Diff(tc.want, r.unlisted()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}
