// Command sizes limits the sizes of the programs. It fails if a program reaches 50 MB, grows by 5 %
// over build/sizes/sizes.txt, or calls methods by names that are known only at run time, as
// templates do. The linker then keeps every exported method of every Kubernetes type, which adds 10
// MB (docs/decisions/1421-charts-without-helm-and-program-sizes.md).
//
//	go run ./build/sizes          compares
//	go run ./build/sizes -write   writes sizes.txt
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

const (
	recorded = "build/sizes/sizes.txt"
	// most is how large a program may be, in bytes: a pod starts quickly.
	most = 50e6
	// growth is how much larger than recorded it may be, in percent.
	growth = 5
)

func main() {
	write := flag.Bool("write", false, "write "+recorded+", and compare nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *write, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sizes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, write bool, out io.Writer) error {
	programs, err := exec.CommandContext(ctx, "go", "list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`, "./cmd/...").Output()
	if err != nil {
		return fmt.Errorf("cannot list the programs (run this in the root of the repository): %w", err)
	}
	dir, err := os.MkdirTemp("", "eventmesh-sizes-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var sizes []string
	var faults []error
	before, err := read()
	if err != nil && !write {
		return err
	}
	for _, program := range strings.Fields(string(programs)) {
		name := path.Base(program)
		size, byName, err := build(ctx, program, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		sizes = append(sizes, fmt.Sprintf("%s %d", name, size))
		fmt.Fprintf(out, "%-26s %5.1f MB\n", name, float64(size)/1e6)
		if !write {
			faults = append(faults, judge(name, size, before[name], byName)...)
		}
	}
	if write {
		slices.Sort(sizes)
		return os.WriteFile(recorded, []byte(strings.Join(sizes, "\n")+"\n"), 0o644)
	}
	return errors.Join(faults...)
}

// read returns the recorded sizes by the names of programs.
func read() (map[string]int64, error) {
	raw, err := os.ReadFile(recorded)
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for line := range strings.Lines(string(raw)) {
		var name string
		var size int64
		if _, err := fmt.Sscan(line, &name, &size); err != nil {
			return nil, fmt.Errorf("%s: %q: %w", recorded, line, err)
		}
		all[name] = size
	}
	return all, nil
}

// build returns the size of a program as images have it, and the functions in it that call methods
// by name.
func build(ctx context.Context, program, to string) (size int64, byName []string, err error) {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -dumpdep", "-o", to, program)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	var graph bytes.Buffer
	cmd.Stdout, cmd.Stderr = &graph, &graph
	if err := cmd.Run(); err != nil {
		return 0, nil, fmt.Errorf("cannot build %s: %w: %s", program, err, graph.Bytes()[:min(500, graph.Len())])
	}
	for line := range strings.Lines(graph.String()) {
		if from, _, _ := strings.Cut(line, " -> "); strings.Contains(from, "<ReflectMethod>") {
			byName = append(byName, strings.TrimSuffix(strings.TrimSpace(from), " <ReflectMethod>"))
		}
	}
	slices.Sort(byName)
	info, err := os.Stat(to)
	if err != nil {
		return 0, nil, err
	}
	return info.Size(), slices.Compact(byName), nil
}

// judge says what is wrong with a program; before is 0 if no size of it is recorded.
func judge(name string, size, before int64, byName []string) (faults []error) {
	const write = "go run ./build/sizes -write"
	if len(byName) > 0 {
		faults = append(faults, fmt.Errorf("%s calls methods by names that are known at run time only, in %s, so that the linker keeps all of them", name, strings.Join(byName, ", ")))
	}
	switch {
	case size >= most:
		faults = append(faults, fmt.Errorf("%s has %.1f MB, and may have less than %.0f: what does it link? (go version -m, go tool nm -size)", name, float64(size)/1e6, most/1e6))
	case before == 0:
		faults = append(faults, fmt.Errorf("%s has no line in %s: %s", name, recorded, write))
	case float64(size) > float64(before)*(1+growth/100.0):
		faults = append(faults, fmt.Errorf("%s has %.1f MB, and had %.1f: if that is meant, say why in CHANGELOG.md, then: %s", name, float64(size)/1e6, float64(before)/1e6, write))
	}
	return faults
}
