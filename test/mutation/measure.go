package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fate is what became of a mutant.
type fate struct {
	*mutant
	// By is the test binary that killed it; "" if it survived. How: "failed", "did not end".
	By, How string
	// Test is the first test that failed.
	Test string
	// Executed says whether any test executes it at all.
	Executed bool
}

// result is what a measurement has found.
type result struct {
	fates []fate
	// lost are entries of the list that are not in the sources any more.
	lost []*entry
	// available is how many conditions there are, by package.
	available map[string]int
	took      time.Duration
}

// binary is a compiled test binary and what it executes.
type binary struct {
	name, path, dir string
	pkg             string // whose own tests these are; "" for a suite
	args, env       []string
	// took is how long its tests take, one after the other.
	took  time.Duration
	tests []testOf
}

// testOf is one test of a binary.
type testOf struct {
	name     string
	took     time.Duration
	executes map[int]bool
}

// executes are the mutants that any of its tests executes.
func (b *binary) executes() map[int]bool {
	all := map[int]bool{}
	for _, t := range b.tests {
		maps.Copy(all, t.executes)
	}
	return all
}

// those are its tests that execute a mutant, as a pattern, and how long they take.
func (b *binary) those(mutant int) (pattern string, took time.Duration) {
	var names []string
	for _, t := range b.tests {
		if t.executes[mutant] {
			names = append(names, t.name)
			took += t.took
		}
	}
	if len(names) == 0 {
		return "", 0
	}
	return "^(" + strings.Join(names, "|") + ")$", took
}

func measure(ctx context.Context, o options, out io.Writer) (*result, error) {
	began := time.Now()
	pkgs, err := load(ctx, o.root, o.packages)
	if err != nil {
		return nil, err
	}
	var entries []*entry
	if o.listed != "" {
		if entries, err = readListed(filepath.Join(o.root, o.listed)); err != nil {
			return nil, err
		}
	}
	r := &result{available: map[string]int{}}
	chosen := r.choose(o, pkgs, entries)
	fmt.Fprintf(out, "%d mutants of %d conditions in %d packages, seed %d\n", len(chosen), r.conditions(), len(pkgs), o.seed)

	work, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the directory for such things
	overlay, err := overlayOf(work, o.root, pkgs, chosen)
	if err != nil {
		return nil, err
	}
	binaries, err := build(ctx, o, out, work, overlay, pkgs)
	if err != nil {
		return nil, err
	}
	for _, b := range binaries {
		if err := b.first(ctx, o, work); err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%s: %.1f s without a mutant, executes %d of them\n", b.name, b.took.Seconds(), len(b.executes()))
	}

	r.fates = make([]fate, len(chosen))
	var mu sync.Mutex
	done := 0
	err = o.each(ctx, len(chosen), func(i int) {
		r.fates[i] = decide(ctx, o, binaries, chosen[i])
		mu.Lock()
		defer mu.Unlock()
		done++
		if f := r.fates[i]; o.verbose {
			verdict := "survived"
			if f.By != "" {
				verdict = strings.TrimSpace(f.How + " in " + f.By + " " + f.Test)
			}
			fmt.Fprintf(out, "%d/%d %s: %s\n", done, len(chosen), f, verdict)
		} else if done%50 == 0 {
			fmt.Fprintf(out, "%d of %d done after %s\n", done, len(chosen), time.Since(began).Round(time.Second))
		}
	})
	if err != nil {
		return nil, err
	}
	r.took = time.Since(began)
	return r, nil
}

func (r *result) conditions() int {
	n := 0
	for _, k := range r.available {
		n += k
	}
	return n
}

// choose takes the listed mutants, and others at random: the same number from each
// package, as far as it has as many. They get their IDs.
func (r *result) choose(o options, pkgs []*pkg, entries []*entry) []*mutant {
	var chosen []*mutant
	type place struct {
		file     string
		from, to int
	}
	taken := map[place]bool{}
	take := func(m *mutant) {
		if m.Kind == flip {
			taken[place{m.File, m.from, m.to}] = true
		}
		m.ID = len(chosen)
		chosen = append(chosen, m)
	}
	wanted := func(m *mutant) bool {
		return o.only == nil || o.only.MatchString(fmt.Sprintf("%s:%d: %s", m.File, m.Line, m.Text))
	}
	for _, e := range entries {
		if !e.inPackages(pkgs) {
			continue
		}
		found := e.find(pkgs)
		if len(found) == 0 {
			r.lost = append(r.lost, e)
		}
		for _, m := range found {
			if wanted(m) {
				take(m)
			}
		}
	}
	left := o.max
	if o.only != nil {
		left = 1 << 30
	}
	byCount := slices.Clone(pkgs)
	slices.SortStableFunc(byCount, func(a, b *pkg) int { return len(a.mutants) - len(b.mutants) })
	random := rand.New(rand.NewPCG(o.seed, 0))
	for i, p := range byCount {
		r.available[p.rel] = len(p.mutants)
		candidates := slices.DeleteFunc(slices.Clone(p.mutants), func(m *mutant) bool {
			return taken[place{m.File, m.from, m.to}] || !wanted(m)
		})
		random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
		candidates = candidates[:min(len(candidates), left/(len(byCount)-i))]
		left -= len(candidates)
		slices.SortFunc(candidates, func(a, b *mutant) int { return strings.Compare(a.String(), b.String()) })
		for _, m := range candidates {
			take(m)
		}
	}
	return chosen
}

// overlayName is what tells the go command which files to take.
const overlayName = "overlay.json"

// overlayOf writes the instrumented files, and what tells the go command to take them.
func overlayOf(work, root string, pkgs []*pkg, chosen []*mutant) (string, error) {
	files := map[string]string{}
	write := func(name string, content []byte) error {
		at := filepath.Join(work, strconv.Itoa(len(files))+".go")
		files[filepath.Join(root, name)] = at
		return os.WriteFile(at, content, 0o600)
	}
	for _, p := range pkgs {
		for rel, source := range p.sources {
			var of []*mutant
			for _, m := range chosen {
				if m.File == rel {
					of = append(of, m)
				}
			}
			if len(of) > 0 {
				if err := write(rel, instrument(source, of)); err != nil {
					return "", err
				}
			}
		}
		if err := write(filepath.Join(p.rel, "mutants_here.go"), support(p.Name, len(chosen))); err != nil {
			return "", err
		}
	}
	raw, err := json.Marshal(map[string]any{"Replace": files})
	if err != nil {
		return "", err
	}
	name := filepath.Join(work, overlayName)
	return name, os.WriteFile(name, raw, 0o600)
}

// build compiles the test binaries: that of each package, and the suites.
func build(ctx context.Context, o options, out io.Writer, work, overlay string, pkgs []*pkg) ([]*binary, error) {
	var binaries []*binary
	add := func(b *binary) error {
		b.path = filepath.Join(work, fmt.Sprintf("%d.test", len(binaries)))
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", b.path, ".")
		cmd.Dir = b.dir
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot build the tests of %s with the mutants in it: %w\n%s", b.name, err, said)
		}
		if _, err := os.Stat(b.path); err != nil {
			fmt.Fprintf(out, "%s has no tests\n", b.name)
			return nil
		}
		binaries = append(binaries, b)
		return nil
	}
	for _, p := range pkgs {
		if err := add(&binary{name: p.rel, dir: p.Dir, pkg: p.rel, args: []string{"-test.short"}}); err != nil {
			return nil, err
		}
	}
	for _, suite := range o.suites {
		b := &binary{}
		words := strings.Fields(suite)
		for len(words) > 0 && strings.Contains(words[0], "=") && !strings.HasPrefix(words[0], "-") {
			b.env, words = append(b.env, words[0]), words[1:]
		}
		if len(words) == 0 {
			return nil, fmt.Errorf("-suite %q: it names no package", suite)
		}
		b.name, b.dir, b.args = words[0], filepath.Join(o.root, words[0]), words[1:]
		if _, err := os.Stat(b.dir); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(out, "there is no suite %s: left out\n", b.name)
			continue
		}
		if err := add(b); err != nil {
			return nil, err
		}
	}
	return binaries, nil
}

// run executes the binary with these variables and arguments; err is nil if all tests pass.
func (b *binary) run(ctx context.Context, o options, timeout time.Duration, env []string, more ...string) error {
	said, err := b.output(ctx, o, timeout, env, more...)
	if err != nil && !errors.Is(err, errTimedOut) {
		return fmt.Errorf("%w\n%s", err, said[max(0, len(said)-8<<10):])
	}
	return err
}

// output is run, with all that the tests print.
func (b *binary) output(ctx context.Context, o options, timeout time.Duration, env []string, more ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	args := append([]string{"-c", fmt.Sprintf(`ulimit -v %d; exec "$@"`, o.memory), "sh", b.path, "-test.failfast", "-test.timeout=" + timeout.String()}, slices.Concat(b.args, more)...)
	if o.skip != "" {
		args = append(args, "-test.skip="+o.skip)
	}
	cmd := exec.CommandContext(ctx, "sh", args...)
	cmd.Dir = b.dir
	cmd.Env = append(append(os.Environ(), b.env...), env...)
	// What the tests start ends with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	said := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = said, said
	err := cmd.Run()
	if ctx.Err() != nil || bytes.Contains(said.Bytes(), []byte("panic: test timed out after")) {
		err = errTimedOut
	}
	return said.Bytes(), err
}

var errTimedOut = errors.New("it did not end in time")

// first runs each test of the binary without a mutant, and keeps what it executes: a mutant
// then meets those tests only.
func (b *binary) first(ctx context.Context, o options, work string) error {
	listed, err := b.output(ctx, o, time.Minute, nil, "-test.list="+b.pattern())
	if err != nil {
		return fmt.Errorf("cannot list the tests of %s: %w\n%s", b.name, err, listed)
	}
	for _, name := range strings.Fields(string(listed)) {
		if !strings.HasPrefix(name, "Test") {
			continue
		}
		t := testOf{name: name, executes: map[int]bool{}}
		seen := filepath.Join(work, filepath.Base(b.path)+"."+name)
		began := time.Now()
		if err := b.run(ctx, o, 10*time.Minute, []string{"MUTANTS_SEEN=" + seen}, "-test.run=^"+name+"$"); err != nil {
			return fmt.Errorf("the tests of %s fail without a mutant: %w", b.name, err)
		}
		t.took = time.Since(began)
		raw, err := os.ReadFile(seen)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		for _, line := range strings.Fields(string(raw)) {
			id, err := strconv.Atoi(line)
			if err != nil {
				return fmt.Errorf("cannot read what %s executes: %w", b.name, err)
			}
			t.executes[id] = true
		}
		b.took += t.took
		b.tests = append(b.tests, t)
	}
	return nil
}

// pattern is that of the tests of the binary.
func (b *binary) pattern() string {
	for _, arg := range b.args {
		if pattern, ok := strings.CutPrefix(arg, "-test.run="); ok {
			return pattern
		}
	}
	return "."
}

// decide runs the tests of the mutant's package, and then the suites.
func decide(ctx context.Context, o options, binaries []*binary, m *mutant) fate {
	f := fate{mutant: m}
	order := slices.Clone(binaries)
	slices.SortStableFunc(order, func(a, b *binary) int { return rank(a, m) - rank(b, m) })
	for _, b := range order {
		pattern, took := b.those(m.ID)
		if pattern == "" || ctx.Err() != nil {
			continue
		}
		f.Executed = true
		limit := max(o.timeout, 10*took)
		on := []string{"MUTANT=" + strconv.Itoa(m.ID)}
		err := b.run(ctx, o, limit, on, "-test.run="+pattern)
		if errors.Is(err, errTimedOut) && ctx.Err() == nil {
			// On a machine that others load, tests that pass may take so long, too.
			err = b.run(ctx, o, 3*limit, on, "-test.run="+pattern)
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		f.By, f.How = b.name, "failed"
		if found := failed.FindStringSubmatch(err.Error()); found != nil {
			f.Test = found[1]
		}
		if errors.Is(err, errTimedOut) {
			f.How = "did not end"
		}
		return f
	}
	return f
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

func rank(b *binary, m *mutant) int {
	if b.pkg == m.Pkg {
		return 0
	}
	return 1
}

// print tells what was found, and returns the exit code.
func (r *result) print(out io.Writer, o options) int {
	type sum struct{ all, killed, ended, executed int }
	sums := map[string]*sum{}
	var total sum
	var alive, explained, listed []fate
	for _, f := range r.fates {
		s := sums[f.Pkg]
		if s == nil {
			s = &sum{}
			sums[f.Pkg] = s
		}
		for _, s := range []*sum{s, &total} {
			s.all++
			if f.By != "" {
				s.killed++
			}
			if f.How == "did not end" {
				s.ended++
			}
			if f.Executed {
				s.executed++
			}
		}
		switch {
		case f.By != "":
		case f.Listed != nil && f.Listed.Explained != "":
			explained = append(explained, f)
		case f.Listed != nil:
			listed = append(listed, f)
		default:
			alive = append(alive, f)
		}
	}
	state := func(f fate) string {
		if !f.Executed {
			return "not executed"
		}
		return "survived"
	}
	for _, part := range []struct {
		title string
		fates []fate
	}{{"Survivors", alive}, {"Listed, and explained", explained}, {"Listed, and neither killed nor explained", listed}} {
		if len(part.fates) == 0 {
			continue
		}
		slices.SortStableFunc(part.fates, func(a, b fate) int { return strings.Compare(a.File, b.File) })
		fmt.Fprintf(out, "\n%s:\n", part.title)
		for _, f := range part.fates {
			fmt.Fprintf(out, "  %s (%s; %s)\n", f, f.Func, state(f))
			if f.Listed != nil {
				fmt.Fprintf(out, "    %s\n", f.Listed)
				if f.Listed.Explained != "" {
					fmt.Fprintf(out, "    why: %s\n", f.Listed.Explained)
				}
			}
		}
	}
	if len(r.lost) > 0 {
		fmt.Fprintf(out, "\nListed, and not in the sources any more: correct %s\n", o.listed)
		for _, e := range r.lost {
			_, text := e.kind()
			fmt.Fprintf(out, "  %s\n    was: %s\n", e, text)
		}
	}
	score := func(s *sum) float64 { return 100 * float64(s.killed) / float64(max(s.all, 1)) }
	fmt.Fprintf(out, "\n%-32s %10s %8s %8s %9s %8s %7s\n", "PACKAGE", "CONDITIONS", "MUTANTS", "EXECUTED", "KILLED", "BY TIME", "SCORE")
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		s := sums[name]
		fmt.Fprintf(out, "%-32s %10d %8d %8d %9d %8d %6.0f%%\n", name, r.available[name], s.all, s.executed, s.killed, s.ended, score(s))
	}
	fmt.Fprintf(out, "%-32s %10d %8d %8d %9d %8d %6.0f%%\n", "all", r.conditions(), total.all, total.executed, total.killed, total.ended, score(&total))
	fmt.Fprintf(out, "\nThe score is %.1f %%, the threshold %.0f %%; seed %d, %s.\n", score(&total), o.threshold, o.seed, r.took.Round(time.Second))
	if score(&total) < o.threshold || len(listed) > 0 || len(r.lost) > 0 {
		return 1
	}
	return 0
}
