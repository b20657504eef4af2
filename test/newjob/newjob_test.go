// Package newjob proves what docs/migration/eventmesh-migrate.md says of a new job: it is a
// package, a main.go and an entry of the registry, and everything else follows.
package newjob

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// entry is what a developer adds to the table in internal/migration/registry.
const entry = `		{
			Registration: jobmanager.Registration{
				Job: sample.New(),
				Hooks: []jobmanager.Hook{
					jobmanager.Before(Core, "httpsource-sync"),
					jobmanager.After(ApplicationConnector, "trigger-sync"),
				},
				RemoveBy: "1.13.0",
			},
			Chart: &Chart{
				Timeout: 7 * time.Minute, Rollback: time.Minute, UndoneByRollback: true,
				Flags: map[string][]string{afterConnector: complete},
			},
			Tested: "nothing",
		},
`

// chartTests are those of test/integration/charts that are about every job.
const chartTests = "^(TestEachComponentRunsTheChainOfTheRegistry|TestEachJobGetsTheFlagsItHas|TestAccountsOutliveAFailedHookAndGoAfterTheLastJob" +
	"|TestPowerIsGivenLastAndTheAccountIsReplacedFirst|TestAnAccountExistsAtEachEventAtWhichItsJobRuns|TestWithoutHooksThereIsOneJobForAPhaseNamedAfterItsSpec" +
	"|TestTheFirstHookCreatesTheStateNamespace|TestTheStateNamespaceIsCreatedByWhateverJobRunsFirst|TestNoJobReachesForeignSecrets|TestNoRoleHasAWildcard" +
	"|TestAnOverlaidChartKeepsKymasObjectsAndGetsTheHooks|TestAnOverlayWritesTheDigests|TestDigestsThatLeaveAProgramUnpinnedAreRefused" +
	"|TestADigestIsOfItsProgramAndCountsInsteadOfTheTag|TestAJobCanBeLeftOutOfEveryChain|TestAChartWithoutAnyJobIsRefused|TestTheChartsPassHelmLint)$/^Helm3$"

func TestAJobIsAPackageAMainAndAnEntry(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs, and tests a copy of the repository, which is no unit test")
	}
	root := copied(t)
	must(t, root, "git", "init", "--quiet") // a test asks git for the files of the repository

	// By hand.
	copyFS(t, filepath.Join(root, "internal", "migration", "jobs", "sample"), "testdata/sample")
	copyFS(t, filepath.Join(root, "cmd", "sample-sync"), "testdata/sample-sync")
	const module = "github.com/kyma-project/eventmesh-migration/"
	table := filepath.Join("internal", "migration", "registry", "registry.go")
	edit(t, filepath.Join(root, table), "\t\""+module+"internal/migration/jobs/scaledown\"\n", "\t\""+module+"internal/migration/jobs/sample\"\n\t\""+module+"internal/migration/jobs/scaledown\"\n")
	edit(t, filepath.Join(root, table), "\treturn []Entry{\n", "\treturn []Entry{\n"+entry)
	byHand := []string{"cmd/sample-sync/main.go", "internal/migration/jobs/sample/job.go", "internal/migration/registry/registry.go"}
	if diff := cmp.Diff(byHand, changed(t, root)); diff != "" {
		t.Fatalf("the copy differs (-want +got):\n%s", diff)
	}
	if out, err := run(t, root, "gofmt", "-l", "internal/migration/registry", "internal/migration/jobs/sample", "cmd/sample-sync"); err != nil || out != "" {
		t.Errorf("not formatted: %s %v", out, err)
	}

	// By the generator; make verify finds out that it was not run.
	if out, err := run(t, root, "go", "run", variant, "./build/generate", "-check"); err == nil || !strings.Contains(out, "run make charts") {
		t.Errorf("nobody would notice that nothing was generated: %v\n%s", err, out)
	}
	must(t, root, "go", "run", variant, "./build/generate")
	must(t, root, "go", "run", variant, "./build/generate", "-check")
	generated := []string{
		"charts/eventmesh-migration/README.md", "charts/eventmesh-migration/templates/_access.tpl", "charts/eventmesh-migration/templates/_jobs.tpl",
		"charts/eventmesh-migration/values.schema.json", "charts/eventmesh-migration/values.yaml", "docs/migration/README.md", "docs/migration/eventmesh-migrate.md", "docs/migration/laptop-role.yaml",
		"docs/packages.md",
	}
	want := slices.Sorted(slices.Values(append(generated, byHand...)))
	if diff := cmp.Diff(want, changed(t, root)); diff != "" {
		t.Errorf("what a new job changes (-want +got):\n%s", diff)
	}
	for _, name := range generated {
		raw, err := os.ReadFile(filepath.Join(root, name))
		mention := "sample-sync"
		if name == "docs/migration/laptop-role.yaml" { // one Role for all jobs
			mention = `{apiGroups: [""], resources: ["configmaps"], verbs: ["create","delete","get"]}`
		}
		if err != nil || !bytes.Contains(raw, []byte(mention)) {
			t.Errorf("%s does not have %s: %v", name, mention, err)
		}
	}

	// The job is a program of its own, and in the tool.
	bin := t.TempDir()
	must(t, root, "go", "build", variant, "-o", bin+"/", "./cmd/sample-sync", "./cmd/eventmesh-migrate")
	own := must(t, root, filepath.Join(bin, "sample-sync"), "--help")
	if tool := must(t, root, filepath.Join(bin, "eventmesh-migrate"), "job", "sample-sync", "--help"); tool != own || !strings.Contains(own, "--integration-namespace") {
		t.Errorf("the tool is another program:\n%s\n%s", tool, own)
	}

	// All tests that are about every job hold for it.
	must(t, root, "git", "add", "--all")
	must(t, root, "go", "test", variant, "./internal", "./internal/migration/registry", "./build/generate", "./cmd/eventmesh-migrate")
	out := must(t, root, "go", "test", variant, "-count=1", "-v", "-run", chartTests, "./test/integration/charts")
	if passed := strings.Count(out, "--- PASS: Test"); passed < strings.Count(chartTests, "|")+1 {
		t.Errorf("only %d tests of the charts were run:\n%s", passed, out)
	}
}

// copied returns a copy of the repository. It is always at the same place, so that what
// did not change since is built already.
func copied(t *testing.T) string {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := kubernetes.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(cache, "newjob")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(root+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() }) // it was not written to
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	for name, content := range tree(t, repository) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if to, ok := strings.CutPrefix(content, link); ok {
			err = os.Symlink(to, file)
		} else {
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// link begins the content of a symbolic link in a tree.
const link = "symbolic link to "

// tree is the content of all files by name, without what Git and make build keep.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case name == ".git" || name == "bin":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			files[name] = link + to
			return err
		case !d.IsDir():
			raw, err := os.ReadFile(path)
			files[name] = string(raw)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// changed are the files in which the copy differs.
func changed(t *testing.T, root string) []string {
	t.Helper()
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	before, after := tree(t, repository), tree(t, root)
	var names []string
	for name, content := range after {
		if former, ok := before[name]; !ok || former != content {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func copyFS(t *testing.T, to, from string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// edit replaces the one place of a text.
func edit(t *testing.T, file, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), from); n != 1 {
		t.Fatalf("%s has %q %d times", file, from, n)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(raw), from, to, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// must runs a command in the copy, and returns its stdout.
func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	began := time.Now()
	out, err := run(t, dir, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f s: %s %s", time.Since(began).Seconds(), filepath.Base(name), strings.Join(args, " "))
	return out
}

func run(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String() + stderr.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}
