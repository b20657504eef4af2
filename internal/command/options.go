package command

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
)

// Values of the flags that take one of a few words.
const (
	onFailureRollback = "rollback"
	onFailureLeave    = "leave"
	outputText        = frame.FormText
	outputWide        = frame.FormWide
	outputJSON        = frame.FormJSON
	outputYAML        = frame.FormYAML
	outputName        = frame.FormName
)

// words are the flags that take one of a few words, in the order of the help.
var words = map[string][]string{
	"on-failure": {onFailureRollback, onFailureLeave},
	"resume":     {"forward", "back"},
	"defer":      {"allow", "fail"},
	"output":     {outputText, outputWide, outputJSON, outputYAML, outputName},
}

// lockGrace is how much longer than a lease a run waits for the lock by
// default: the Lease of a killed run has to expire first, and then be taken.
const lockGrace = 30 * time.Second

// minLease is the shortest lease. Below a second its holder could not renew it
// through one slow request, and the Lease object counts in seconds.
const minLease = time.Second

// options are what the flags common to all jobs set.
type options struct {
	place frame.Place

	stateNamespace    string
	excludeNamespaces []string
	timeout           time.Duration
	rollbackTimeout   time.Duration
	lockWait          time.Duration
	permissionWait    time.Duration
	helmTimeout       time.Duration
	leaseDuration     time.Duration
	maxUnready        int
	onFailure         string
	resume            string
	deferral          string
	acceptLeft        bool

	output string
	log    frame.LogOptions
}

func defaultOptions(program *Program) options {
	return options{
		place:           frame.Place{QPS: -1, Burst: -1},
		stateNamespace:  cmp.Or(program.StateNamespace, program.Names.Program),
		timeout:         15 * time.Minute,
		rollbackTimeout: 5 * time.Minute,
		lockWait:        lockWaitFromLease,
		leaseDuration:   30 * time.Second,
		maxUnready:      50,
		onFailure:       onFailureRollback,
		resume:          "forward",
		deferral:        "allow",
		output:          outputText,
		log:             frame.DefaultLog(),
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
			badf("--%s %s: must be longer than 0, like 90s or 5m", d.flag, frame.Duration(d.value))
		}
	}
	switch {
	case o.leaseDuration < minLease:
		badf("--lease-duration %s: must be at least %s", frame.Duration(o.leaseDuration), frame.Duration(minLease))
	case o.leaseDuration%time.Second != 0:
		badf("--lease-duration %s: must be whole seconds", frame.Duration(o.leaseDuration))
	}
	switch {
	case o.lockWait == lockWaitFromLease:
		o.lockWait = o.leaseDuration + lockGrace
	case o.lockWait < 0:
		badf("--lock-wait %s: must not be negative; 0 means no wait", frame.Duration(o.lockWait))
	}
	if o.permissionWait < 0 {
		badf("--permission-wait %s: must not be negative; 0 means no wait", frame.Duration(o.permissionWait))
	}
	bad = append(bad, o.log.Problems()...)
	if o.maxUnready < 1 {
		badf("--max-unready %d: must be at least 1", o.maxUnready)
	}
	switch {
	case o.place.QPS == 0:
		badf("--qps 0: must be more than 0, or negative for no limit")
	case o.place.QPS < 0 && o.place.Burst >= 0:
		badf("--burst %d: has no effect without --qps; give both or none", o.place.Burst)
	case o.place.Burst == 0:
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

// engineOptions are those that are the engine's business.
func (o *options) engineOptions(program *Program) engine.Options {
	return engine.Options{
		Names:           program.Names,
		Version:         program.Version,
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
		PermissionWait:    o.permissionWait,
		MaxUnready:        o.maxUnready,
		ExcludeNamespaces: o.excludeNamespaces,
	}
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
