package command

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"

	"github.com/kyma-project/eventmesh-migration/internal/command/commandtest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

func TestFlagsBecomeOptions(t *testing.T) {
	defaults := func(change func(*engine.Options)) engine.Options {
		o := engine.Options{
			Names: tools.Names, Version: tools.Version, StateNamespace: "hatters", Timeout: 15 * time.Minute, RollbackTimeout: 5 * time.Minute,
			OnFailure: engine.OnFailureRollback, Resume: engine.ResumeForward, Defer: engine.DeferAllow,
			LeaseDuration: 30 * time.Second, LockWait: time.Minute, MaxUnready: 50,
		}
		if change != nil {
			change(&o)
		}
		return o
	}
	for name, tc := range map[string]struct {
		reason  string
		args    []string
		command string
		want    engine.Options
		undo    string
		job     *commandtest.Hats
	}{
		"Nothing": {
			reason:  "a bare call runs with the defaults of the contract",
			command: "run",
			want:    defaults(nil),
		},
		"FlagsAlone": {
			reason:  "flags without a command belong to run",
			args:    []string{"--timeout", "5m"},
			command: "run",
			want:    defaults(func(o *engine.Options) { o.Timeout = 5 * time.Minute }),
		},
		"FlagsBeforeTheCommand": {
			reason:  "a flag may stand on either side of the command",
			args:    []string{"--timeout", "5m", "plan", "--resume=back"},
			command: "plan",
			want: defaults(func(o *engine.Options) {
				o.Timeout, o.Resume = 5*time.Minute, engine.ResumeBack
			}),
		},
		"LockWaitFollowsTheLease": {
			reason:  "a killed run's lease must expire first, however long it is",
			args:    []string{"undo", "--lease-duration=2m"},
			command: "undo",
			want: defaults(func(o *engine.Options) {
				o.LeaseDuration, o.LockWait = 2*time.Minute, 2*time.Minute+30*time.Second
			}),
		},
		"NoLockWait": {
			reason:  "0 is a wait of the user's choice, not the engine's default",
			args:    []string{"--lock-wait=0"},
			command: "run",
			want:    defaults(func(o *engine.Options) { o.LockWait = 1 }),
		},
		"All": {
			reason: "each flag reaches its field",
			args: []string{
				"run", "--state-namespace=state", "--exclude-namespaces=a,b", "--exclude-namespaces=c", "--rollback-timeout=90s",
				"--on-failure=leave", "--resume=back", "--defer=fail", "--lock-wait=3s", "--lease-duration=1s", "--max-unready=7",
			},
			command: "run",
			want: engine.Options{
				Names: tools.Names, Version: tools.Version, StateNamespace: "state", Timeout: 15 * time.Minute, RollbackTimeout: 90 * time.Second,
				OnFailure: engine.OnFailureLeave, Resume: engine.ResumeBack, Defer: engine.DeferFail,
				LeaseDuration: time.Second, LockWait: 3 * time.Second, MaxUnready: 7, ExcludeNamespaces: []string{"a", "b", "c"},
			},
			undo: "hat-tool undo test-job --state-namespace=state --exclude-namespaces=a,b,c",
		},
		"TheJobsOwn": {
			reason:  "settings of every type are bound to the job's fields",
			args:    []string{"--mode", "rough", "--force", "--workers=9", "--hat-timeout=3s", "--skip=x,y"},
			command: "run",
			want:    defaults(nil),
			undo:    "hat-tool undo test-job --test-job.mode=rough --test-job.force=true --test-job.workers=9 --test-job.hat-timeout=3s --test-job.skip=x,y",
			job:     &commandtest.Hats{Mode: "rough", Force: true, Workers: 9, Wait: 3 * time.Second, Skip: []string{"x", "y"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			if code := tr.main(); code != 0 {
				t.Fatalf("%s: exit code %d, want 0; stderr:\n%s", tc.reason, code, &tr.stderr)
			}
			if tr.command != tc.command {
				t.Errorf("%s: did %q, want %q", tc.reason, tr.command, tc.command)
			}
			if tr.options.Log == nil || tr.options.Identity == "" || tr.options.Version == "" || tr.options.User != "me" || tr.options.Host == "" {
				t.Errorf("%s: the engine got no logger, identity, version, user or host: %+v", tc.reason, tr.options)
			}
			ignored := cmpopts.IgnoreFields(engine.Options{}, "Log", "Identity", "Version", "User", "Host", "Undo", "Grant")
			if diff := cmp.Diff(tc.want, tr.options, ignored, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: options (-want +got):\n%s", tc.reason, diff)
			}
			if got := tr.options.Undo("test-job"); tc.undo != "" && got != tc.undo {
				t.Errorf("%s: undo is %q, want %q", tc.reason, got, tc.undo)
			}
			if tc.job != nil {
				if diff := cmp.Diff(tc.job, tr.job); diff != "" {
					t.Errorf("%s: job (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestIdentitiesDiffer(t *testing.T) {
	if a, b := identity(), identity(); a == b {
		t.Errorf("two processes would both be %q: each would take the other's lock for its own", a)
	}
}

func TestUsageErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"UnknownFlag": {
			reason: "a typing error is recognised",
			args:   []string{"--time-out=5m"},
			want:   "test-job: unknown flag: --time-out; did you mean --timeout?\n",
		},
		"UnknownFlagOfACommand": {
			reason: "the same after a command, with its value apart",
			args:   []string{"plan", "--defere", "fail"},
			want:   "test-job: unknown flag: --defere; did you mean --defer?\n",
		},
		"SingleDash": {
			reason: "Go's own flag package takes one dash; ours says what is expected",
			args:   []string{"-timeout=5m"},
			want:   "test-job: unknown shorthand flag: 't' in -timeout=5m; did you mean --timeout?\n",
		},
		"Several": {
			reason: "a value of an unknown flag is no problem of its own, and one with one dash hides no other",
			args:   []string{"plan", "--time-out", "5m", "-xyz", "-q", "--colour"},
			want: "test-job: 3 problems:\n  unknown flag: --time-out; did you mean --timeout?\n" +
				"  unknown shorthand flag: 'x' in -xyz\n  unknown flag: --colour\n",
		},
		"StartOfSeveral": {
			reason: "every flag that begins so is named",
			args:   []string{"--lo"},
			want:   "test-job: unknown flag: --lo; did you mean --lock-wait, --log-format or --log-level?\n",
		},
		"NothingLikeIt": {
			reason: "no far-fetched proposals",
			args:   []string{"--colour"},
			want:   "test-job: unknown flag: --colour\n",
		},
		"CommandWithDashes": {
			reason: "a command is often taken for a flag",
			args:   []string{"--plan"},
			want:   "test-job: unknown flag: --plan; did you mean plan?\n",
		},
		"HiddenCommand": {
			reason: "the command of the charts is not suggested",
			args:   []string{"--create-state-namespace"},
			want:   "test-job: unknown flag: --create-state-namespace\n",
		},
		"UnknownCommand": {
			reason: "the same for commands",
			args:   []string{"paln"},
			want:   "test-job: \"paln\": unknown command; did you mean plan?\n",
		},
		"NoCommandLikeIt": {
			reason: "a reader of the message sees what there is",
			args:   []string{"migrate"},
			want:   "test-job: \"migrate\": unknown command (valid: run, plan, undo)\n",
		},
		"UnexpectedArgument": {
			reason: "an argument that is ignored would be taken for a filter",
			args:   []string{"run", "my-app"},
			want:   "test-job: \"my-app\": unexpected argument; a job chooses its objects by itself\n",
		},
		"MissingValue": {
			reason: "the flag is named",
			args:   []string{"--timeout"},
			want:   "test-job: flag needs an argument: --timeout\n",
		},
		"NoDuration": {
			reason: "a number without a unit is refused",
			args:   []string{"--timeout=5"},
			want:   "test-job: invalid argument \"5\" for \"--timeout\" flag: time: missing unit in duration \"5\"\n",
		},
		"NoInteger": {
			reason: "a bad limit is not taken for the default",
			args:   []string{"--max-unready=many"},
			want:   "test-job: invalid argument \"many\" for \"--max-unready\" flag: strconv.ParseInt: parsing \"many\": invalid syntax\n",
		},
		"NoNumber": {
			reason: "a bad limit is not taken for no limit",
			args:   []string{"--qps=fast"},
			want:   "test-job: invalid argument \"fast\" for \"--qps\" flag: strconv.ParseFloat: parsing \"fast\": invalid syntax\n",
		},
		"NoBool": {
			reason: "a bad value is not taken for true",
			args:   []string{"--force=perhaps"},
			want:   "test-job: invalid argument \"perhaps\" for \"--force\" flag: strconv.ParseBool: parsing \"perhaps\": invalid syntax\n",
		},
		"OnFailure": {
			reason: "the words that are allowed are named",
			args:   []string{"--on-failure=restore"},
			want:   "test-job: invalid argument \"restore\" for \"--on-failure\" flag: must be rollback or leave\n",
		},
		"Resume": {
			reason: "a flag of its own", args: []string{"--resume=sideways"},
			want: "test-job: invalid argument \"sideways\" for \"--resume\" flag: must be forward or back\n",
		},
		"Defer": {
			reason: "a flag of its own", args: []string{"--defer=never"},
			want: "test-job: invalid argument \"never\" for \"--defer\" flag: must be allow or fail\n",
		},
		"Output": {
			reason: "a flag of its own", args: []string{"--output=xml"},
			want: "test-job: invalid argument \"xml\" for \"-o, --output\" flag: must be text, wide, json, yaml or name\n",
		},
		"LogFormat": {
			reason: "a flag of its own", args: []string{"--log-format=csv"},
			want: "test-job: invalid argument \"csv\" for \"--log-format\" flag: must be auto, json or console\n",
		},
		"LogLevel": {
			reason: "a flag of its own", args: []string{"--log-level=loud"},
			want: "test-job: invalid argument \"loud\" for \"--log-level\" flag: must be debug, info, warn or error\n",
		},
		"AllErrors": {
			reason: "the parser ends at the first problem, and all are reported; values are checked after it",
			args:   []string{"plan", "extra", "--timeout=x", "--bogus", "--max-unready=0", "--lock-wait"},
			want: "test-job: 3 problems:\n  invalid argument \"x\" for \"--timeout\" flag: time: invalid duration \"x\"\n" +
				"  unknown flag: --bogus\n  flag needs an argument: --lock-wait\n",
		},
		"EveryValue": {
			reason: "values that parse, and are wrong, are reported together",
			args: []string{
				"plan", "--rollback-timeout=-1s", "--max-unready=0", "--lease-duration=10ms", "--lock-wait=-1s",
				"--burst=3", "--state-namespace=Kyma_System", "--exclude-namespaces=good,Bad", "--mode=wild", "--workers=0",
			},
			want: `test-job: 9 problems:
  --rollback-timeout -1s: must be longer than 0, like 90s or 5m
  --lease-duration 10ms: must be at least 1s
  --lock-wait -1s: must not be negative; 0 means no wait
  --max-unready 0: must be at least 1
  --burst 3: has no effect without --qps; give both or none
  --state-namespace "Kyma_System": not a valid namespace name (lower-case letters, digits and inner dashes, at most 63)
  --exclude-namespaces "Bad": not a valid namespace name (lower-case letters, digits and inner dashes, at most 63)
  --mode must be gentle or rough
  --workers must be 1 at least
`,
		},
		"LeaseFraction": {
			reason: "a Lease object would round it, and two processes disagree about its end",
			args:   []string{"--lease-duration=1500ms"},
			want:   "test-job: --lease-duration 1.5s: must be whole seconds\n",
		},
		"QPSZero": {
			reason: "0 would be client-go's own limit of 5 requests per second",
			args:   []string{"--qps=0"},
			want:   "test-job: --qps 0: must be more than 0, or negative for no limit\n",
		},
		"UnknownFlagOfVersion": {
			reason: "commands that are not ours end with the same exit code",
			args:   []string{"version", "--output=json"},
			want:   "test-job: unknown flag: --output\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := newTrial(t, tc.args...)
			writeFile(t, tr.terminationLog, "")
			if code := tr.main(); code != migration.ExitUsage {
				t.Errorf("%s: exit code %d, want %d", tc.reason, code, migration.ExitUsage)
			}
			if tr.command != "" {
				t.Errorf("%s: the engine was called", tc.reason)
			}
			if tr.stdout.Len() > 0 {
				t.Errorf("%s: on stdout, which is for reports:\n%s", tc.reason, &tr.stdout)
			}
			want := tc.want + "Nothing was changed. \"test-job --help\" explains every flag.\n"
			if diff := cmp.Diff(want, tr.stderr.String()); diff != "" {
				t.Errorf("%s: stderr (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(want, readFile(t, tr.terminationLog)); diff != "" {
				t.Errorf("%s: termination message (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	tr := newTrial(t, "--help")
	if code := tr.main(); code != 0 {
		t.Fatalf("exit code %d, want 0", code)
	}
	golden(t, "help.golden", tr.stdout.String())

	newCommandLine(tools, tr.job).flagSet().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(tr.stdout.String(), "--"+f.Name+" ") {
			t.Errorf("the help says nothing about --%s", f.Name)
		}
	})
	for _, args := range [][]string{{"plan", "--help"}, {"help"}, {"help", "undo"}, {"-h"}} {
		other := newTrial(t, args...)
		if code := other.main(); code != 0 || other.stdout.String() != tr.stdout.String() {
			t.Errorf("%q: exit code %d; should show what --help shows, shows:\n%s", args, code, &other.stdout)
		}
	}
}

func TestVersionAndCompletion(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"the first question in every report of a bug", []string{"version"}, "test-job v1.2.3"},
		{"the shell asks for the values of a flag", []string{"__complete", "plan", "--on-failure", ""}, "rollback\nleave\n"},
		{"a script for the shell", []string{"completion", "bash"}, "bash completion"},
	} {
		tr := newTrial(t, tc.args...)
		if code := tr.main(); code != 0 || !strings.Contains(tr.stdout.String(), tc.want) {
			t.Errorf("%s: exit code %d, no %q in:\n%s%s", tc.reason, code, tc.want, &tr.stdout, &tr.stderr)
		}
		if tr.command != "" {
			t.Errorf("%s: the engine was called", tc.reason)
		}
	}
}

func TestHelmTimeout(t *testing.T) {
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"lock 60, work 900, rollback 300, reserve 60", nil, `\"helm upgrade --timeout 1320s\"`},
		{"the chart knows better", []string{"--helm-timeout=1620s"}, `\"helm upgrade --timeout 1620s\"`},
		{"a part of a second would be cut off by Helm", []string{"--timeout=100ms", "--rollback-timeout=1s", "--lock-wait=0"}, `--timeout 62s\"`},
	} {
		tr := newTrial(t, tc.args...)
		tr.main()
		first, _, _ := strings.Cut(tr.stderr.String(), "\n")
		for _, want := range []string{tc.want, "Give every Application a hat", "If Helm gives up earlier, this Job continues"} {
			if !strings.Contains(first, want) {
				t.Errorf("%s: no %s in the first line:\n%s", tc.reason, want, first)
			}
		}
	}
}
