package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/cli"
	"github.com/kyma-project/eventmesh-migration/internal/registry"
	"github.com/kyma-project/eventmesh-migration/internal/verify"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// tree is the program's commands, as execute makes them.
func tree() *cobra.Command {
	a := &app{jobs: registry.Jobs(registry.All()), name: program}
	jobs := make([]migration.Job, len(a.jobs))
	for i, job := range a.jobs {
		jobs[i] = job.Job
	}
	a.Tool = cli.NewTool(program, cli.IO{Stdout: os.Stdout, Stderr: os.Stderr, Env: func(string) string { return "" }}, jobs...)
	return a.root()
}

// problem says why a person could not paste the command; "" if they can.
func problem(command string) string {
	if strings.ContainsAny(command, "<>{};\n…") {
		return "it is not one complete command"
	}
	if out, err := exec.Command("bash", "-n", "-c", command).CombinedOutput(); err != nil {
		return "bash does not parse it: " + string(out)
	}
	out, err := exec.Command("bash", "-c", `printf '%s\n' `+command).Output() // only quotes and words, see above
	if err != nil {
		return err.Error()
	}
	words := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	switch words[0] {
	case "kubectl":
		return ""
	case program:
	default:
		return "it is no command of ours, or of kubectl"
	}
	cmd, rest, err := tree().Find(words[1:])
	if err != nil || cmd.Name() == program {
		return "there is no such command"
	}
	for _, word := range rest {
		name, value, _ := strings.Cut(word, "=")
		long, isFlag := strings.CutPrefix(name, "--")
		if !isFlag {
			continue
		}
		f := cmd.Flags().Lookup(long)
		if f == nil {
			return cmd.Name() + " has no flag " + name
		}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			err = list.Replace(strings.Split(value, ","))
		} else if value != "" {
			err = f.Value.Set(value)
		}
		if err != nil {
			return err.Error()
		}
		if long == "job" && !strings.Contains(" "+strings.Join(jobNames(registry.Jobs(registry.All())), " ")+" ", " "+value+" ") {
			return "there is no job " + value
		}
	}
	return ""
}

// TestPrintedCommandsCanBePasted: the commands of the reports that internal/present has as
// examples, and of every finding of verify.
func TestPrintedCommandsCanBePasted(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("there is no bash")
	}
	commands := map[string]string{}
	files, err := filepath.Glob("../../internal/present/testdata/*.golden")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if command := strings.TrimSpace(line); strings.HasPrefix(line, "  ") && (strings.HasPrefix(command, program+" ") || strings.HasPrefix(command, "kubectl ")) {
				commands[command] = filepath.Base(file)
			}
		}
	}
	for _, e := range verify.Catalog() {
		for _, object := range []string{"", "Thing shop/or'ders", "Thing crm"} {
			if _, command := e.Advice(object); command != "" {
				commands[command] = "verify " + e.ID
			}
		}
	}
	if len(commands) < 30 {
		t.Errorf("only %d commands were found", len(commands))
	}
	for command, from := range commands {
		if why := problem(command); why != "" {
			t.Errorf("%s: %s\n  %s", from, why, command)
		}
	}
	for _, bad := range []string{"eventmesh-migrate rnu", "eventmesh-migrate verify --phase=pre", "eventmesh-migrate run --job=nobody", "kubectl label namespace <namespace> a=b", "kubectl get 'pods", "svcat get"} {
		if problem(bad) == "" {
			t.Errorf("%s can be pasted", bad)
		}
	}
}
