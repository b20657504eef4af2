// Command mutation measures how well tests cover the decisions in this code: it flips one condition
// at a time, and counts the flips that make a test fail.
//
//	go run ./test/mutation                                    300 mutants of all packages, and the listed ones
//	go run ./test/mutation -packages ./internal/migration/jobs/trigger  of one package
//	go run ./test/mutation -only 'content.go'                 those whose "file:line: text" matches
//	go run ./test/mutation -reverts                           the fixes of reverts.yaml
//	go run ./test/mutation -overlay DIRECTORY                 what builds programs without the safeguards of safeguards.yaml
//
// All mutants are compiled into one test binary for each package, and the environment variable
// MUTANT enables one of them, so that the time is spent on running tests and not on building them.
// The sources do not change: the go command reads the rewritten files with -overlay. Mutants are
//
//   - conditions of if and for, cases of a switch without a tag, operands of && and ||, and
//     comparisons elsewhere, each negated. They are taken at random (-seed), the same number from
//     each package;
//   - those of survivors.yaml, which no test had noticed: always, and each must be killed or
//     explained.
//
// A first run without a mutant records which mutants each test executes. A mutant that no test
// executes has survived. For each other mutant, the tests of its own package that execute it are
// run, and, if those pass, those of the suites (-suite). It is killed if they fail, run out of
// memory, or exceed a time limit, and then three times that limit. Everything runs without a
// cluster.
//
// With -reverts it makes the fixes of reverts.yaml ineffective instead, one at a time, and plays
// the schedules of test/model: the exit code is 1 if they do not find one of them.
//
// With -overlay it writes overlay.json into the directory, and prints the names of the safeguards
// of safeguards.yaml. A program that is built with it has all safeguards. MUTANT=<n> in its
// environment switches the n-th one off, beginning with 0. See suite.BuildWithout.
//
// The exit code is 0; 1 if the score is below the threshold, or a listed mutant survived without an
// explanation or is not in the sources any more; 2 if nothing could be said, because tests fail
// without a mutant, for example.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// options are the command line.
type options struct {
	root      string
	packages  []string
	listed    string
	suites    []string
	only      *regexp.Regexp
	max       int
	seed      uint64
	threshold float64
	parallel  int
	timeout   time.Duration
	memory    int
	skip      string
	verbose   bool
}

// each does something for each number below n, as many at once as o.parallel says, and
// begins with none any more when ctx ends.
func (o options) each(ctx context.Context, n int, do func(i int)) error {
	var work errgroup.Group
	work.SetLimit(max(o.parallel, 1))
	for i := 0; i < n && ctx.Err() == nil; i++ {
		work.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = work.Wait() // it has no errors
	return context.Cause(ctx)
}

// list is a flag that may be given several times.
type list struct {
	values *[]string
	given  bool
}

func (l *list) String() string { return "" }

func (l *list) Set(s string) error {
	if !l.given {
		*l.values, l.given = nil, true
	}
	if s != "" {
		*l.values = append(*l.values, s)
	}
	return nil
}

func main() {
	o := options{
		packages: []string{
			"./pkg/engine/...", "./pkg/migration", "./internal/migration/jobs/trigger/...", "./internal/migration/jobs/serviceinstance", "./internal/migration/jobs/scaledown",
			"./internal/migration/jobs/purge", "./internal/migration/jobs/growpvc", "./internal/migration/jobs/httpsource", "./internal/migration/kyma/eventpath",
		},
		suites: []string{"./test/model -test.run=^Test(Engine|Limits|Rights|Marks|Killed|Undo|Run|Answers|Events|Unreadable)", "MODEL_SCHEDULES=40 ./test/model -test.run=^TestModelSchedules$"},
	}
	packages := flag.String("packages", strings.Join(o.packages, ","), "packages to mutate, separated by commas")
	only := flag.String("only", "", "regular expression: only mutants whose \"file:line: text\" matches, all of them")
	flag.StringVar(&o.listed, "listed", "test/mutation/survivors.yaml", "file of the mutants that are always run; empty for none")
	flag.Var(&list{values: &o.suites}, "suite", "`[KEY=VALUE…] PACKAGE [ARGUMENT…]`: a test binary that meets what survives its own package; may be repeated, empty for none")
	flag.IntVar(&o.max, "max", 300, "mutants to take at random")
	flag.Uint64Var(&o.seed, "seed", 1, "of the choice")
	flag.Float64Var(&o.threshold, "threshold", 75, "score in % below which the exit code is 1")
	flag.IntVar(&o.parallel, "parallel", 2, "test binaries that run at once")
	flag.DurationVar(&o.timeout, "timeout", 20*time.Second, "of one test binary, if ten times what it takes without a mutant is less")
	flag.IntVar(&o.memory, "memory", 6<<20, "KiB of address space of a test binary: a loop that does not end may fill the memory before its time is over")
	flag.StringVar(&o.skip, "skip", "", "`regular expression` of tests to leave out, as go test -skip: those that fail without a mutant, until they do not")
	reverts := flag.Bool("reverts", false, "revert the fixes of test/mutation/reverts.yaml, or those whose name matches -only, and play -schedules of test/model with each")
	overlay := flag.String("overlay", "", "`directory`: write there what builds programs without the safeguards of test/mutation/safeguards.yaml")
	schedules := flag.Int("schedules", 500, "of test/model, with -reverts; up to ten times as many until a fault is found")
	flag.BoolVar(&o.verbose, "v", false, "print each mutant as it is run")
	flag.Parse()
	o.packages = strings.Split(*packages, ",")
	if *only != "" {
		var err error
		if o.only, err = regexp.Compile(*only); err != nil {
			fmt.Fprintln(os.Stderr, "mutation: -only:", err)
			os.Exit(2)
		}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 2
	err := func() error {
		var err error
		if o.root, err = moduleRoot(ctx); err != nil {
			return err
		}
		if *overlay != "" {
			if err := overlaySafeguards(ctx, o.root, *overlay, os.Stdout); err != nil {
				return err
			}
			code = 0
			return nil
		}
		if *reverts {
			code, err = playReverts(ctx, o, "test/mutation/reverts.yaml", *schedules, os.Stdout)
			return err
		}
		result, err := measure(ctx, o, os.Stdout)
		if err != nil {
			return err
		}
		code = result.print(os.Stdout, o)
		return nil
	}()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutation:", err)
	}
	os.Exit(code)
}
