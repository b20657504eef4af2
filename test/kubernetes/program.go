package kubernetes

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Program is one that a test runs.
type Program struct {
	// Dir is that of its module, and Package as go build takes it there.
	Dir, Package string
	// Flags are for go build, Env is added to its environment.
	Flags, Env []string
}

// programs are those that this process has built: to learn that one is up to date takes two seconds
// of a processor.
var programs struct {
	sync.Mutex
	built map[string]string
}

// Build builds the program into the cache, once in the life of the process, and returns its path.
// The next process finds it up to date, and links nothing. In the same run of make it does not even
// ask. The results of tests depend on the sources of the program: see DependOn.
func (p Program) Build(ctx context.Context) (string, error) {
	// Two checkouts, or the kinds of build, must not overwrite each other. An overlay is a
	// temporary file.
	flags := slices.Clone(p.Flags)
	if i := slices.Index(flags, "-overlay"); i >= 0 {
		flags = slices.Delete(flags, i+1, i+2)
	}
	variant := sha256.Sum256(fmt.Appendf(nil, "%s %s %q %q", p.Dir, p.Package, flags, p.Env))
	key := fmt.Sprintf("bin-%x", variant[:6])
	programs.Lock()
	defer programs.Unlock()
	if path := programs.built[key]; path != "" {
		return path, nil
	}
	path, err := p.build(ctx, key)
	if err != nil {
		return "", fmt.Errorf("cannot build %s: %w", p.Package, err)
	}
	if programs.built == nil {
		programs.built = map[string]string{}
	}
	programs.built[key] = path
	return path, nil
}

func (p Program) build(ctx context.Context, key string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, key)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	checkout, err := filepath.Abs(p.Dir)
	if err != nil {
		return "", err
	}
	err = os.WriteFile(filepath.Join(dir, checkoutFile), []byte(checkout), 0o644)
	if err != nil {
		return "", err
	}
	if err := removeOrphans(cache); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, ".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// Other test processes build the same at the same time.
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(dir, programOf(p.Package))
	if p.Package == "." {
		path = filepath.Join(dir, filepath.Base(p.Dir))
	}
	inputs := filepath.Join(dir, ".inputs")
	// Not os.Getenv: go test would never find a result in its cache that depends on it.
	run, _ := syscall.Getenv(runVariable)
	stamp := filepath.Join(dir, ".run")
	if run == "" || slices.Contains(p.Flags, "-overlay") || !stamped(stamp, run, path) {
		// A build that fails must not leave the stamp of the same run beside a former program.
		if err := os.RemoveAll(stamp); err != nil {
			return "", err
		}
		if err := p.compile(ctx, path); err != nil {
			return "", err
		}
		if err := p.list(ctx, inputs); err != nil {
			return "", err
		}
		if err := os.WriteFile(stamp, []byte(run), 0o644); err != nil {
			return "", err
		}
	}
	names, err := os.ReadFile(inputs)
	if err != nil {
		return "", err
	}
	return path, DependOn(strings.FieldsFunc(string(names), func(r rune) bool { return r == '\n' })...)
}

// stamped tells whether a program was built in this run of make.
func stamped(stamp, run, path string) bool {
	of, err := os.ReadFile(stamp)
	if err == nil && string(of) == run {
		_, err = os.Stat(path)
		return err == nil
	}
	return false
}

// DependOn lets go test keep the result of the tests of this process only while files, and what is
// directly in directories, are as they are. It keeps the result of a test that has passed until the
// test or something else changes that this process has opened, and knows nothing of what a program
// reads that the test starts, or is built from.
func DependOn(names ...string) error {
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// DependOnTrees is DependOn for directories with all that is below them.
func DependOnTrees(roots ...string) error {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, is fs.DirEntry, err error) error {
			if err == nil && is.IsDir() {
				err = DependOn(path)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// list writes the directories of the program's packages, the files that are embedded in it, and its
// go.mod, one in a line. Libraries have a version there.
func (p Program) list(ctx context.Context, into string) error {
	const format = `{{with .Module}}{{if or (not .Version) (and .Replace (not .Replace.Version))}}{{$.Dir}}
{{range $.EmbedFiles}}{{$.Dir}}/{{.}}
{{end}}{{end}}{{end}}`
	names, err := p.run(ctx, "list", "-deps", "-f", format)
	if err != nil {
		return fmt.Errorf("cannot list what it is built from: %w", err)
	}
	return os.WriteFile(into, append(names, filepath.Join(p.Dir, "go.mod")...), 0o644)
}

// runVariable names a run of make, in which sources do not change: what one test process has built
// is up to date for the others. Without it, each process asks go build.
const runVariable = "EVENTMESH_TEST_RUN"

// compile lets go build write the program, which is quick if it is up to date.
func (p Program) compile(ctx context.Context, path string) error {
	_, err := p.run(ctx, "build", "-o", path)
	return err
}

// run runs a command of go for the package, with the flags of the program.
func (p Program) run(ctx context.Context, command string, args ...string) (stdout []byte, err error) {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{command, "-C", p.Dir}, args, p.Flags, []string{p.Package})...)
	cmd.Env = append(os.Environ(), p.Env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if stdout, err = cmd.Output(); err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", command, err, stdout, &stderr)
	}
	return stdout, nil
}

// checkoutFile says beside a program which directory it was built from.
const checkoutFile = ".checkout"

// removeOrphans removes the programs whose checkout is gone: a clone for one run leaves 1 GiB.
func removeOrphans(cache string) error {
	files, err := filepath.Glob(filepath.Join(cache, "bin-*", checkoutFile))
	if err != nil {
		return err
	}
	for _, file := range files {
		checkout, err := os.ReadFile(file)
		if err != nil || len(checkout) == 0 {
			// Another process removes it, or is about to write it.
			continue
		}
		if _, err := os.Stat(string(checkout)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(filepath.Dir(file)); err != nil {
			return err
		}
	}
	return nil
}
