package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// revert makes one fix ineffective: all of its edits are on at once.
type revert struct {
	// Name is that of the fault, and which of its fixes, if there are several.
	Name string `json:"name"`
	// Fix is what is reverted, in one clause.
	Fix   string   `json:"fix"`
	Edits []*entry `json:"edits"`
	// Test, of test/model, finds it, as what it needs is nothing that schedules play; "": they do.
	Test string `json:"test"`
}

// modelPackages are those that reverts change: the engine, and the job of the model, which
// stands for the real ones.
var modelPackages = []string{"./pkg/engine/...", "./test/model"}

func readReverts(name string) ([]*revert, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("cannot read the reverts: %w", err)
	}
	var reverts []*revert
	if err := yaml.UnmarshalStrict(raw, &reverts); err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", name, err)
	}
	for i, r := range reverts {
		if r.Name == "" || r.Fix == "" || len(r.Edits) == 0 || slices.ContainsFunc(r.Edits, func(e *entry) bool { return !e.complete() }) {
			return nil, fmt.Errorf("%s, entry %d (%s): it needs name, fix and edits, each of one place", name, i+1, r.Name)
		}
	}
	return reverts, nil
}

// mutantsOf are the edits of all reverts; those of one have its index for ID. Each edit must
// name one place: who edits that line corrects the entry.
func mutantsOf(reverts []*revert, pkgs []*pkg) ([]*mutant, error) {
	var all []*mutant
	var wrong []error
	for id, r := range reverts {
		for _, e := range r.Edits {
			found := e.find(pkgs)
			if len(found) != 1 {
				_, text := e.kind()
				wrong = append(wrong, fmt.Errorf("%s: %d places in %s are %q, not one", r.Name, len(found), e.File, text))
				continue
			}
			found[0].ID = id
			all = append(all, found[0])
		}
	}
	return all, errors.Join(wrong...)
}

// verdict is what the schedules of the model found with one fix reverted.
type verdict struct {
	*revert
	// seeds are those of the schedules that broke an invariant, first the first of them.
	seeds []string
	first string
	// failed are the subtests of revert.Test that failed.
	failed []string
	err    error
}

// found says whether the schedules, or the test, tell that the fix is reverted.
func (v *verdict) found() bool { return len(v.seeds) > 0 || len(v.failed) > 0 }

// plays is how often the schedules of a fix are played at most, with other seeds each time,
// until they find that it is reverted.
const plays = 10

// playReverts reverts each fix alone, and plays the schedules of test/model. The result is
// the exit code: 1 if one is not found.
func playReverts(ctx context.Context, o options, file string, schedules int, out io.Writer) (int, error) {
	began := time.Now()
	pkgs, err := load(ctx, o.root, modelPackages)
	if err != nil {
		return 2, err
	}
	reverts, err := readReverts(filepath.Join(o.root, file))
	if err != nil {
		return 2, err
	}
	if o.only != nil {
		reverts = slices.DeleteFunc(reverts, func(r *revert) bool { return !o.only.MatchString(r.Name) })
	}
	mutants, err := mutantsOf(reverts, pkgs)
	if err != nil {
		return 2, err
	}
	work, err := os.MkdirTemp("", "reverts-")
	if err != nil {
		return 2, err
	}
	defer func() { _ = os.RemoveAll(work) }() // it is in the directory for such things
	overlay, err := overlayOf(work, o.root, pkgs, mutants)
	if err != nil {
		return 2, err
	}
	o.suites = []string{fmt.Sprintf("MODEL_SCHEDULES=%d ./test/model -test.run=^TestModelSchedules$", schedules)}
	binaries, err := build(ctx, o, out, work, overlay, nil)
	if err != nil {
		return 2, err
	}
	model := binaries[0]
	const limit = 30 * time.Minute
	if said, err := model.output(ctx, o, limit, nil); err != nil {
		return 2, fmt.Errorf("the schedules break invariants with all fixes in place: %w\n%s", err, said[max(0, len(said)-8<<10):])
	}
	for _, r := range reverts {
		if r.Test == "" {
			continue
		}
		said, err := model.output(ctx, o, limit, nil, "-test.v", "-test.run=^"+r.Test+"$")
		if err == nil && !bytes.Contains(said, []byte("--- PASS: "+r.Test+" ")) {
			err = errors.New("it did not run")
		}
		if err != nil {
			return 2, fmt.Errorf("%s, which finds %s, does not pass with all fixes in place: %w\n%s", r.Test, r.Name, err, said[max(0, len(said)-8<<10):])
		}
	}
	fmt.Fprintf(out, "%d schedules, nothing found with all fixes in place, %s\n", schedules, time.Since(began).Round(time.Second))
	verdicts := make([]verdict, len(reverts))
	err = o.each(ctx, len(reverts), func(i int) {
		mutant := "MUTANT=" + strconv.Itoa(i)
		if name := reverts[i].Test; name != "" {
			said, err := model.output(ctx, o, limit, []string{mutant}, "-test.run=^"+name+"$")
			verdicts[i] = judgedBy(reverts[i], said, err)
			fmt.Fprintln(out, verdicts[i].line())
			return
		}
		// A fault that few schedules meet gets further ones, until one finds it.
		for play := range plays {
			said, err := model.output(ctx, o, limit, []string{mutant, fmt.Sprintf("MODEL_FIRST=%d", 1+play*schedules)})
			if verdicts[i] = judged(reverts[i], said, err); verdicts[i].err != nil || len(verdicts[i].seeds) > 0 {
				break
			}
		}
		fmt.Fprintln(out, verdicts[i].line())
	})
	if err != nil {
		return 2, err
	}
	fmt.Fprintf(out, "\n%d schedules for each, and up to %d until a fault is found, %s. One seed alone: MODEL_SEED\n", schedules, plays*schedules, time.Since(began).Round(time.Second))
	code := 0
	for _, v := range verdicts {
		fmt.Fprintf(out, "%s\n  reverted: %s\n", v.line(), v.Fix)
		if !v.found() {
			code = 1
		}
	}
	return code, nil
}

// broken is how test/model tells of a schedule that broke an invariant.
var broken = regexp.MustCompile(`(?m)^\s+schedule_test\.go:\d+: seed (\d+): (\(.*)$`)

func judged(r *revert, said []byte, err error) verdict {
	v := verdict{revert: r}
	for _, hit := range broken.FindAllSubmatch(said, -1) {
		if seed := string(hit[1]); !slices.Contains(v.seeds, seed) {
			v.seeds = append(v.seeds, seed)
		}
		if v.first == "" {
			v.first = string(bytes.TrimSpace(hit[2]))
		}
	}
	if len(v.seeds) == 0 && err != nil {
		v.err = fmt.Errorf("%w\n%s", err, said[max(0, len(said)-2<<10):])
	}
	return v
}

// failing is how a test of a verdict fails.
var failing = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// judgedBy is judged for a fix that a test finds.
func judgedBy(r *revert, said []byte, err error) verdict {
	v := verdict{revert: r}
	for _, hit := range failing.FindAllSubmatch(said, -1) {
		v.failed = append(v.failed, string(hit[1]))
	}
	if len(v.failed) == 0 && err != nil {
		v.err = fmt.Errorf("%w\n%s", err, said[max(0, len(said)-2<<10):])
	}
	return v
}

func (v *verdict) line() string {
	switch {
	case len(v.failed) > 0:
		return fmt.Sprintf("%s: %s", v.Name, strings.Join(v.failed, ", "))
	case v.err != nil:
		return fmt.Sprintf("%s: no invariant is broken, and the test fails: %v", v.Name, v.err)
	case len(v.seeds) == 0:
		return v.Name + ": not found"
	}
	return fmt.Sprintf("%s: %d schedules, seeds %s; the first: %s", v.Name, len(v.seeds), strings.Join(v.seeds[:min(len(v.seeds), 5)], ", "), v.first)
}
