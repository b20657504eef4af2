package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	bashBlock = regexp.MustCompile("(?ms)^ *```bash\n(.*?)^ *```$")
	// indentedBlock is a command between two paragraphs.
	indentedBlock = regexp.MustCompile(`(?m)^ {4}((?:bin/)?eventmesh-migrate|kubectl|helm|make|rm|argocd|flux) [^\n]*(?:\\\n[^\n]*)*`)
	ofOurs        = regexp.MustCompile("(?m)(?:^ *|`)(?:bin/)?(eventmesh-migrate [^\n`]+)")
	// rest of a line that is not the command: a comment, a file, another program.
	afterwards = regexp.MustCompile(`\s+[#>|].*$`)
)

// wrongIn returns what of a document cannot be typed: blocks that bash does not parse, and commands
// of this program that do not exist.
func wrongIn(document string) (wrong []string, commands int) {
	for _, block := range append(bashBlock.FindAllString(document, -1), indentedBlock.FindAllString(document, -1)...) {
		script := strings.ReplaceAll(strings.ReplaceAll(block, "```bash", ""), "```", "")
		if out, err := exec.Command("bash", "-n", "-c", script).CombinedOutput(); err != nil {
			wrong = append(wrong, strings.TrimSpace(script)+": "+string(out))
		}
	}
	for _, found := range ofOurs.FindAllStringSubmatch(document, -1) {
		command := strings.TrimSpace(afterwards.ReplaceAllString(found[1], ""))
		if strings.HasPrefix(command, program+" job ") {
			continue // its flags are those of the job: TestExamples runs it
		}
		commands++
		if why := problem(command); why != "" {
			wrong = append(wrong, command+": "+why)
		}
	}
	return wrong, commands
}

// TestCommandsInDocuments: what the documents show can be typed. TestExamples in
// test/integration/jobmanager runs the blocks.
func TestCommandsInDocuments(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	files, err := filepath.Glob("../../docs/migration/*.md")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, file := range append(files, "../../README.md", "../../CONTRIBUTING.md") {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		wrong, commands := wrongIn(string(raw))
		all += commands
		for _, why := range wrong {
			t.Errorf("%s: %s", file, why)
		}
	}
	if all < 100 {
		t.Errorf("only %d commands were found", all)
	}
	wrong, _ := wrongIn("Run `eventmesh-migrate rnu` or `eventmesh-migrate plan -o wide`.\n\n```bash\nbin/eventmesh-migrate verify --phase pre   # no\nif true\n```\n\n    kubectl get 'pods\n")
	if len(wrong) != 4 {
		t.Errorf("of four errors it finds %q", wrong)
	}
}
