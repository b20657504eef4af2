// Command licenses collects the licences that an image has to contain: the licence of this project,
// and the licence texts and notices of all modules that its program links, including Go's standard
// library.
//
//	go run ./build/licenses -into bin/image/licenses -programs bin/image httpsource-sync trigger-sync
//
// A command is one of cmd/, or <name>=<package>. Each gets a folder: LICENSE, and below the
// module's path and version what the module has. A module without a text is an error, and so is a
// module that a program in -programs says it is linked from and that has no text in its folder.
// Other platforms than the images' may have other modules: -platform windows/amd64.
package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	into := flag.String("into", "bin/image/licenses", "`folder` for a folder of each command, which is deleted first")
	programs := flag.String("programs", "", "`folder` of the built programs, to compare with")
	platform := flag.String("platform", "linux/"+runtime.GOARCH, "`os/architecture` that the programs are for")
	flag.Parse()
	if err := run(context.Background(), *into, *programs, *platform, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "licenses:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, into, programs, platform string, commands []string) error {
	goos, goarch, found := strings.Cut(platform, "/")
	if !found {
		return fmt.Errorf("the platform %q is not os/architecture", platform)
	}
	env := []string{"GOOS=" + goos, "GOARCH=" + goarch, "CGO_ENABLED=0"}
	for _, command := range commands {
		command, of, found := strings.Cut(command, "=")
		if !found {
			of = "./cmd/" + command
		}
		dir := filepath.Join(into, command)
		if _, err := collect(ctx, of, dir, env); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if programs == "" {
			continue
		}
		program := filepath.Join(programs, command)
		if goos == "windows" {
			program += ".exe"
		}
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return fmt.Errorf("cannot read from which modules %s is linked: %w", command, err)
		}
		if missing := withoutText(info, dir); len(missing) > 0 {
			return fmt.Errorf("%s is linked from modules whose licence was not found: %s", command, strings.Join(missing, ", "))
		}
	}
	return nil
}

// ours is the path of this project's module.
const ours = "github.com/kyma-project/eventmesh-migration"

// module is one that a program is linked from.
type module struct {
	Path, Version, Dir string
	Main               bool
	Replace            *module
}

// folder is where its texts are, in the folder of a command.
func (m *module) folder() string {
	if m.Main {
		return "."
	}
	return filepath.FromSlash(m.Path + "@" + m.Version)
}

// collect makes the folder of one command, given as go list takes it, and returns the modules that
// it is linked from. The environment names the platform.
func collect(ctx context.Context, command, into string, env []string) ([]*module, error) {
	if err := os.RemoveAll(into); err != nil {
		return nil, err
	}
	modules, packages, err := linked(ctx, command, env)
	if err != nil {
		return nil, err
	}
	for _, m := range modules {
		files, err := texts(m.Dir, packages[m.Path])
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Path, err)
		}
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join(m.Dir, file))
			if err != nil {
				return nil, err
			}
			to := filepath.Join(into, m.folder(), file)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(to, content, 0o644); err != nil {
				return nil, err
			}
		}
	}
	return modules, nil
}

// linked returns the modules that a command is linked from, and the folders of their packages that
// are in it, by the module's path. Go's own library counts as a module "go".
func linked(ctx context.Context, command string, env []string) (modules []*module, packages map[string][]string, err error) {
	about, err := list(ctx, env, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return nil, nil, err
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(about)), "\n")
	modules = []*module{{Path: "go", Version: strings.TrimPrefix(version, "go"), Dir: root}}
	out, err := list(ctx, env, "list", "-deps", "-json=Dir,Module", command)
	if err != nil {
		return nil, nil, err
	}
	packages = map[string][]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *module
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return modules, packages, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if p.Module == nil {
			continue // of Go's own library
		}
		if p.Module.Replace != nil {
			p.Module.Dir = p.Module.Replace.Dir
		}
		if packages[p.Module.Path] == nil {
			modules = append(modules, p.Module)
		}
		packages[p.Module.Path] = append(packages[p.Module.Path], p.Dir)
	}
}

// list runs go for a platform.
func list(ctx context.Context, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

var (
	license = regexp.MustCompile(`(?i)^(.+[-_.])?((un)?licen[sc]es?|copying)([-_.].*)?$`)
	notice  = regexp.MustCompile(`(?i)^(notices?|patents|copyright)([-_.].*)?$`)
)

// texts returns the files of a module that have to go with a program: those at its root, and, since
// code of others is often below a text of its own, those on the way to each package that is linked.
func texts(root string, packages []string) ([]string, error) {
	dirs := []string{root}
	for _, dir := range packages {
		for ; dir != root && !slices.Contains(dirs, dir); dir = filepath.Dir(dir) {
			if rel, err := filepath.Rel(root, dir); err != nil || !filepath.IsLocal(rel) {
				return nil, fmt.Errorf("its package in %s is not below it", dir)
			}
			dirs = append(dirs, dir)
		}
	}
	var files []string
	found := false
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.Type().IsRegular() || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			if license.MatchString(e.Name()) {
				found = found || dir == root
			} else if !notice.MatchString(e.Name()) {
				continue
			}
			rel, err := filepath.Rel(root, filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			files = append(files, rel)
		}
	}
	if !found {
		return nil, fmt.Errorf("no licence is at its root, %s: find its licence before an image may hold it", root)
	}
	return files, nil
}

// withoutText returns the modules that a program says it is linked from and that have no licence in
// a folder.
func withoutText(info *debug.BuildInfo, dir string) []string {
	modules := []*module{
		{Path: "go", Version: strings.TrimPrefix(info.GoVersion, "go")},
		// A program of others is of no main module here.
		{Path: info.Main.Path, Version: info.Main.Version, Main: info.Main.Path == ours},
	}
	for _, dep := range info.Deps {
		modules = append(modules, &module{Path: dep.Path, Version: dep.Version})
	}
	var missing []string
	for _, m := range modules {
		entries, err := os.ReadDir(filepath.Join(dir, m.folder()))
		if err != nil || !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Type().IsRegular() && license.MatchString(e.Name()) }) {
			missing = append(missing, m.Path)
		}
	}
	return missing
}
