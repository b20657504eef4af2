package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Values of the flags that take one of a few words.
const (
	onFailureRollback = "rollback"
	onFailureLeave    = "leave"
	outputText        = "text"
	outputWide        = "wide"
	outputJSON        = "json"
	outputYAML        = "yaml"
	outputName        = "name"
	logAuto           = "auto"
	logJSON           = "json"
	logConsole        = "console"
)

// words are the flags that take one of a few words, in the order of the help.
var words = map[string][]string{
	"on-failure": {onFailureRollback, onFailureLeave},
	"resume":     {"forward", "back"},
	"defer":      {"allow", "fail"},
	"output":     {outputText, outputWide, outputJSON, outputYAML, outputName},
	"log-format": {logAuto, logJSON, logConsole},
	"log-level":  {"debug", "info", "warn", "error"},
}

// lockGrace is how much longer than a lease a run waits for the lock by
// default: the Lease of a killed run has to expire first, and then be taken.
const lockGrace = 30 * time.Second

// minLease is the shortest lease. Below a second its holder could not renew it
// through one slow request, and the Lease object counts in seconds.
const minLease = time.Second

// options are what the flags common to all jobs set.
type options struct {
	kubeconfig, context string
	qps                 float32
	burst               int

	stateNamespace    string
	excludeNamespaces []string
	timeout           time.Duration
	rollbackTimeout   time.Duration
	lockWait          time.Duration
	helmTimeout       time.Duration
	leaseDuration     time.Duration
	maxUnready        int
	onFailure         string
	resume            string
	deferral          string
	acceptLeft        bool

	output, logFormat, logLevel string
	verbose, quiet, noColor     bool
}

func defaultOptions() options {
	return options{
		qps:             -1,
		burst:           -1,
		stateNamespace:  kyma.StateNamespace,
		timeout:         15 * time.Minute,
		rollbackTimeout: 5 * time.Minute,
		lockWait:        lockWaitFromLease,
		leaseDuration:   30 * time.Second,
		maxUnready:      50,
		onFailure:       onFailureRollback,
		resume:          "forward",
		deferral:        "allow",
		output:          outputText,
		logFormat:       logAuto,
		logLevel:        "info",
	}
}

// lockWaitFromLease means the default of --lock-wait, which follows
// --lease-duration. No flag can be set to it: a negative wait is refused.
const lockWaitFromLease = time.Duration(-1 << 63)

// validate completes the options and returns everything that is wrong with
// them.
func (o *options) validate() []string {
	var bad []string
	badf := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }

	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"timeout", o.timeout}, {"rollback-timeout", o.rollbackTimeout}} {
		if d.value <= 0 {
			badf("--%s %s: must be longer than 0, like 90s or 5m", d.flag, duration(d.value))
		}
	}
	switch {
	case o.leaseDuration < minLease:
		badf("--lease-duration %s: must be at least %s", duration(o.leaseDuration), duration(minLease))
	case o.leaseDuration%time.Second != 0:
		badf("--lease-duration %s: must be whole seconds", duration(o.leaseDuration))
	}
	switch {
	case o.lockWait == lockWaitFromLease:
		o.lockWait = o.leaseDuration + lockGrace
	case o.lockWait < 0:
		badf("--lock-wait %s: must not be negative; 0 means no wait", duration(o.lockWait))
	}
	switch {
	case o.verbose && o.quiet:
		badf("-v and -q: give one of them")
	case o.verbose:
		o.logLevel = "debug"
	case o.quiet:
		o.logLevel = "error"
	}
	if o.maxUnready < 1 {
		badf("--max-unready %d: must be at least 1", o.maxUnready)
	}
	switch {
	case o.qps == 0:
		badf("--qps 0: must be more than 0, or negative for no limit")
	case o.qps < 0 && o.burst >= 0:
		badf("--burst %d: has no effect without --qps; give both or none", o.burst)
	case o.burst == 0:
		badf("--burst 0: must be at least 1, or negative for twice the --qps")
	}
	for _, ns := range slices.Concat([]string{o.stateNamespace}, o.excludeNamespaces) {
		flag := "exclude-namespaces"
		if ns == o.stateNamespace {
			flag = "state-namespace"
		}
		if len(validation.IsDNS1123Label(ns)) > 0 {
			badf("--%s %q: not a valid namespace name (lower-case letters, digits and inner dashes, at most 63)", flag, ns)
		}
	}
	return bad
}

// Names are those of what the jobs keep and mark in a cluster. Earlier versions have them, so that
// their runs are known.
var Names = migration.Names{Program: kyma.StateNamespace, Domain: kyma.Domain}

// engineOptions are those that are the engine's business.
func (o *options) engineOptions() engine.Options {
	return engine.Options{
		Names:           Names,
		StateNamespace:  o.stateNamespace,
		Timeout:         o.timeout,
		RollbackTimeout: o.rollbackTimeout,
		OnFailure:       engine.OnFailure(o.onFailure),
		Resume:          engine.Resume(o.resume),
		Defer:           engine.Defer(o.deferral),
		AcceptLeft:      o.acceptLeft,
		// For the engine 0 means its default; here it means not to wait.
		LockWait:          max(o.lockWait, time.Nanosecond),
		LeaseDuration:     o.leaseDuration,
		MaxUnready:        o.maxUnready,
		ExcludeNamespaces: o.excludeNamespaces,
	}
}

// logJSON says whether logs are for a machine.
func (o *options) logJSON(terminal bool) bool {
	return o.logFormat == logJSON || o.logFormat == logAuto && !terminal
}

// zapLevel returns the level that the flag has accepted.
func zapLevel(word string) zapcore.Level {
	level, err := zapcore.ParseLevel(word)
	if err != nil {
		return zapcore.InfoLevel
	}
	return level
}

// usageError is everything that is wrong with how the process was called.
type usageError struct{ problems []string }

func (e *usageError) Error() string { return strings.Join(e.problems, "; ") }

func (e *usageError) text(name string) string {
	var b strings.Builder
	if len(e.problems) == 1 {
		fmt.Fprintf(&b, "%s: %s\n", name, e.problems[0])
	} else {
		fmt.Fprintf(&b, "%s: %s:\n", name, migration.Count(len(e.problems), "problem"))
		for _, p := range e.problems {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	fmt.Fprintf(&b, "Nothing was changed. \"%s --help\" explains every flag.\n", name)
	return b.String()
}

// problemsOf takes an errors.Join apart again.
func problemsOf(err error) []string {
	if err == nil {
		return nil
	}
	// Not errors.As: what wraps a list says something about all of it.
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []string{err.Error()}
	}
	var out []string
	for _, e := range joined.Unwrap() {
		out = append(out, problemsOf(e)...)
	}
	return out
}

// anyOf lists words as people do: "a, b or c".
func anyOf(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// duration is d without its empty minutes and seconds: 15m, not 15m0s.
func duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
