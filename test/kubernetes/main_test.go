package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFrame(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		opts   []MainOption
		start  error
		stop   error
		tests  int
		short  bool

		code           int
		did            []string
		stdout, stderr string
	}{
		"Passed": {reason: "what is started is stopped, the last one first", did: []string{"start", "tests", "stop again", "stop"}},
		"Failed": {reason: "the tests' own exit code counts", tests: 2, code: 2, did: []string{"start", "tests", "stop again", "stop"}},
		"CannotStart": {
			reason: "no test runs, and what was started half is stopped", start: errors.New("no etcd"),
			code: 1, did: []string{"start", "stop again", "stop"}, stderr: "no etcd\n",
		},
		"CannotStop": {
			reason: "tests that passed do not hide what is left behind", stop: errors.New("it stays"),
			code: 1, did: []string{"start", "tests", "stop again", "stop"}, stderr: "it stays\n",
		},
		"CannotStopAfterFailure": {
			reason: "the worse exit code counts", stop: errors.New("it stays"), tests: 2,
			code: 2, did: []string{"start", "tests", "stop again", "stop"}, stderr: "it stays\n",
		},
		"Skipped": {
			reason: "a cluster that cannot do it is no failure", start: SkipAll("somebody else's cluster"),
			did: []string{"start", "stop again", "stop"}, stdout: "skipped: somebody else's cluster\n",
		},
		"Short": {
			reason: "nothing is started for nothing", short: true,
			stdout: "skipped: these tests need a real API server, which -short leaves out\n",
		},
		"ShortNeeds": {
			reason: "the package says what it needs", short: true, opts: []MainOption{Needs("need Helm")},
			stdout: "skipped: these tests need Helm, which -short leaves out\n",
		},
		"AlsoShort": {
			reason: "tests without a cluster run, and none is started", short: true, opts: []MainOption{AlsoShort()}, tests: 1,
			code: 1, did: []string{"tests", "stop again", "stop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var did []string
			note := func(what string, err error) error {
				did = append(did, what)
				return err
			}
			f := frame{needs: "need a real API server"}
			for _, opt := range slices.Concat(tc.opts, []MainOption{
				Before(func(context.Context) error { return note("start", tc.start) }),
				After(func() error { return note("stop", tc.stop) }),
				After(func() error { return note("stop again", nil) }),
			}) {
				opt(&f)
			}
			var stdout, stderr bytes.Buffer
			code := f.run(func() int { _ = note("tests", nil); return tc.tests }, tc.short, &stdout, &stderr)
			if diff := cmp.Diff(tc.did, did); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if code != tc.code || stdout.String() != tc.stdout || stderr.String() != tc.stderr {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q; want %d, %q, %q", tc.reason, code, &stdout, &stderr, tc.code, tc.stdout, tc.stderr)
			}
		})
	}
}
