package kubernetes

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// startLimit bounds what is started before the tests: Kubernetes may have to be built, once.
const startLimit = 20 * time.Minute

// MainOption changes what Main does around the tests.
type MainOption func(*frame)

// frame is what happens around the tests of a package.
type frame struct {
	needs  string
	short  bool
	with   []Option
	before []func(context.Context) error
	after  []func() error
}

// Main is the TestMain of a package that tests on a real API server. With -short it runs no test,
// and says why. Otherwise it starts what the tests share, runs them, stops it, and ends the
// process: a test process that cannot stop what it started has failed. A test binary that only runs
// itself as a child needs no cluster, and has a TestMain of its own.
func Main(m *testing.M, opts ...MainOption) {
	f := frame{needs: "need a real API server"}
	for _, opt := range opts {
		opt(&f)
	}
	flag.Parse()
	os.Exit(f.run(m.Run, testing.Short(), os.Stdout, os.Stderr))
}

// Shared starts the one control plane of a package's tests. If a version is given, the kinds of
// Kyma are installed, with Knative's at that version.
func Shared(into **ControlPlane, versions ...KnativeVersion) MainOption {
	return func(f *frame) {
		Before(func(ctx context.Context) (err error) {
			if *into, err = Start(ctx, f.with...); err != nil {
				return err
			}
			for _, version := range versions {
				if err := (*into).InstallCRDs(ctx, version); err != nil {
					return err
				}
			}
			return nil
		})(f)
		After(func() error {
			if *into == nil {
				return nil
			}
			return (*into).Stop()
		})(f)
	}
}

// With has the options of the control plane that Shared starts.
func With(opts ...Option) MainOption {
	return func(f *frame) { f.with = append(f.with, opts...) }
}

// Before adds what is done before the tests, not with -short. Its context bounds it. If it fails,
// no test runs.
func Before(start func(context.Context) error) MainOption {
	return func(f *frame) { f.before = append(f.before, start) }
}

// After adds what is done after the tests, the last one first. It is done also if something before
// the tests has failed, so it must not rely on what that would have started.
func After(stop func() error) MainOption {
	return func(f *frame) { f.after = append(f.after, stop) }
}

// Needs says what -short leaves out, instead of "need a real API server".
func Needs(what string) MainOption {
	return func(f *frame) { f.needs = what }
}

// AlsoShort is for packages some of whose tests need no cluster: they run with -short, and the
// others skip themselves.
func AlsoShort() MainOption {
	return func(f *frame) { f.short = true }
}

// SkipAll is returned by what is done before the tests if none of them can run here. That is no
// failure.
func SkipAll(reason string) error { return skipAll(reason) }

type skipAll string

func (s skipAll) Error() string { return string(s) }

// run returns the exit code of the process.
func (f *frame) run(tests func() int, short bool, stdout, stderr io.Writer) (code int) {
	if short && !f.short {
		fmt.Fprintf(stdout, "skipped: these tests %s, which -short leaves out\n", f.needs)
		return 0
	}
	defer func() {
		for i := len(f.after) - 1; i >= 0; i-- {
			if err := f.after[i](); err != nil {
				fmt.Fprintln(stderr, err)
				code = max(code, 1)
			}
		}
	}()
	if !short {
		err := f.start()
		if why, skip := errors.AsType[skipAll](err); skip {
			fmt.Fprintf(stdout, "skipped: %s\n", why)
			return 0
		}
		if err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	return tests()
}

func (f *frame) start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for _, start := range f.before {
		if err := start(ctx); err != nil {
			return err
		}
	}
	return nil
}
