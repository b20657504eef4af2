//go:build linux && slow

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// mostSteps are how many commands a person follows before it is clear what to do.
const mostSteps = 6

// Where a walk ends.
const (
	atTheEnd   = "the migration is finished"
	atUpgrade  = "application-connector has to be upgraded"
	atRun      = "a run would change something"
	unreached  = "the cluster does not answer, and the screen says what to check"
	atOther    = "a command that is not ours"
	atDecision = "a person has to do something that is named"
)

var (
	// afterThat: the command of a step comes after what its note says that a person does.
	afterThat = regexp.MustCompile(`(^|[.:;] )Then( [a-z, ]+)?:$`)
	// names: the note says which finding, object or person it is about.
	names = regexp.MustCompile(`\([A-Z]\w+ \S+\)|\b[A-Z]\w+ [-\w]+/\S+`)
	// acts: the note says what to do.
	acts = regexp.MustCompile(`^Next: (Fix|Follow) `)
	// waits say until when, and how long.
	waits = regexp.MustCompile(`\b[Ww]ait until .*\bat most\b`)
	// unreachable is what is printed instead of a next command, if the cluster does not answer.
	unreachable = regexp.MustCompile(`(?s)cannot reach the API server .*\. Next: (Log in again|Check )`)
)

// walker follows nothing but "Next: ".
type walker struct {
	*operator
	term *terminal
	// looks: the walk ends before the first command that writes.
	looks bool
	// switches: application-connector is upgraded when the screen says so. Otherwise the walk ends
	// there.
	switches bool
	// ran is how long the last run took that failed in this walk, 0 if none did.
	ran time.Duration
}

// walk follows the first command after each "Next: ", and returns where that ends. It fails the
// test if a command finds the cluster as the same command has found it before.
func (w *walker) walk(about, command string) (end string) {
	w.t.Helper()
	var path []string
	seen := map[string]bool{}
	defer func() { w.t.Logf("%s: %s:\n%s", about, end, strings.Join(path, "\n")) }()
	fails := func(why string) string {
		w.t.Errorf("%s: %s:\n%s", about, why, strings.Join(path, "\n"))
		return why
	}
	w.ran = 0
	for range mostSteps + 1 {
		path = append(path, "$ "+command)
		if w.looks && writes.MatchString(command) {
			return atRun
		}
		if !strings.HasPrefix(command, "eventmesh-migrate ") {
			w.try(harmless(command))
			return atOther
		}
		var state string
		if writes.MatchString(command) {
			state = command + "\n" + strings.Join(w.found(), "\n")
		}
		began := time.Now()
		code, lines := w.paste(command)
		w.read(lines)
		if code != 0 && state != "" {
			w.ran = time.Since(began)
		}
		path = append(path, fmt.Sprintf("  [%d] %s", code, w.note))
		if end := w.ends(strings.Join(lines, " ")); end != "" {
			return end
		}
		if state == "" { // the command has changed nothing
			state = command + "\n" + strings.Join(w.found(), "\n")
		}
		if seen[state] {
			return fails("a circle")
		}
		seen[state] = true
		switch {
		case len(w.next) == 0:
			return fails("no next step")
		case strings.Contains(w.note, "upgrade application-connector") && w.switches:
			w.term.types("switch", "Next, in the second terminal:")
		case afterThat.MatchString(w.note):
			return fails("it does not say who does what before the command")
		}
		command = w.next[0]
	}
	return fails(fmt.Sprintf("it does not end within %d steps", mostSteps))
}

// ends says where a walk ends with this screen; "" if it goes on.
func (w *walker) ends(screen string) string {
	switch {
	case w.note == finished:
		return atTheEnd
	case strings.Contains(w.note, "upgrade application-connector") && !w.switches:
		return atUpgrade
	case w.note == "" && unreachable.MatchString(screen):
		return unreached
	case len(w.next) > 0 && strings.HasPrefix(w.next[0], roleCommand) && strings.Contains(w.note, "An administrator applies"),
		waits.MatchString(w.note),
		afterThat.MatchString(w.note) && acts.MatchString(w.note) && names.MatchString(w.note):
		return atDecision
	}
	return ""
}

// found is the state of the cluster, as verify finds it. Runs have other times and names each time.
func (w *walker) found() []string {
	w.t.Helper()
	var seen struct {
		Findings []struct{ ID, Object string }
	}
	if err := json.Unmarshal([]byte(w.run("verify", "-o", "json", "--log-level=error")), &seen); err != nil {
		return []string{"it cannot be read"}
	}
	var all []string
	for _, f := range seen.Findings {
		all = append(all, f.ID+" "+f.Object)
	}
	slices.Sort(all)
	return all
}

// breaks something of the sandbox; false if there is nothing to break now.
func (w *walker) breaks(kind string) bool {
	w.t.Helper()
	return strings.HasPrefix(w.term.typesEither("break "+kind, "Broken: ", "Failed: no "), "Broken: ")
}

// settles waits until verify finds the same as before.
func (w *walker) settles(what string, before []string) {
	w.t.Helper()
	poll.Until(w.t, time.Minute, what, func(context.Context) error {
		if now := w.found(); !same(now, before) {
			return errors.New("verify finds " + strings.Join(now, ", "))
		}
		return nil
	})
}

// same compares what verify finds, without the reports of earlier runs.
func same(a, b []string) bool {
	ofRun := func(f string) bool { return strings.HasPrefix(f, "run-") }
	return slices.Equal(slices.DeleteFunc(slices.Clone(a), ofRun), slices.DeleteFunc(slices.Clone(b), ofRun))
}

// patience is how long runs wait for an object. The variable is for the program of impatient.
func (w *walker) patience(d time.Duration) {
	const variable = "READY_TIMEOUT="
	w.env = slices.DeleteFunc(w.env, func(e string) bool { return strings.HasPrefix(e, variable) })
	w.env = append(w.env, variable+d.String())
}

// impatient is a program before the real one, of the same name, with shorter limits: what is broken
// never becomes ready.
const impatient = `#!/bin/bash
case $1 in run)
    for limit in {httpsource-sync,trigger-sync,serviceinstance-recreate}.ready-timeout trigger-sync.activation-timeout; do
        [[ "$*" == *$limit* ]] || set -- "$@" --$limit="$READY_TIMEOUT"
    done
esac
exec %s "$@"
`

// TestWalk: whatever is broken, who follows nothing but "Next: " is never led in a circle. The walk
// ends where the migration is finished, where a person has to act who is told how, or at a command
// that is not ours. Each fault of the sandbox is met before the upgrade, after a run that failed by
// it, and after the migration.
func TestWalk(t *testing.T) {
	term, o, _ := seated(t)
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "eventmesh-migrate"), fmt.Appendf(nil, impatient, process.BuildPlain(t, "./cmd/eventmesh-migrate")), 0o755); err != nil {
		t.Fatal(err)
	}
	for i, e := range o.env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			o.env[i] = "PATH=" + bin + ":" + path
		}
	}
	w := &walker{operator: o, term: term}
	met := map[string]bool{}
	w.before(met)
	w.patience(2 * time.Minute)
	w.switches = true
	if end := w.walk("nothing is broken", "eventmesh-migrate verify"); end != atTheEnd {
		t.Fatalf("nothing is broken: the walk ends where %s", end)
	}
	w.after(met)
	for _, f := range faults {
		if !met[f.kind] {
			t.Errorf("nothing could be broken by %s", f.kind)
		}
	}
}

// before meets each fault before application-connector is upgraded.
func (w *walker) before(met map[string]bool) {
	w.t.Helper()
	poll.Until(w.t, time.Minute, "the adapter that starts is ready", func(context.Context) error {
		if found := strings.Join(w.found(), ", "); strings.Contains(found, "not-ready") {
			return errors.New("verify finds " + found)
		}
		return nil
	})
	fresh := w.found()
	for _, f := range faults {
		if !w.breaks(f.kind) {
			continue
		}
		began := time.Now()
		met[f.kind] = true
		w.patience(4 * time.Second)
		w.walk(f.kind+", before the upgrade", "eventmesh-migrate verify")
		// What a run that failed has left is another state. Some take a while to fail.
		if ran := w.ran; ran > 0 {
			w.walk(f.kind+", after a run that failed, by status", "eventmesh-migrate status")
			if ran < 8*time.Second {
				w.walk(f.kind+", after a run that failed, by verify", "eventmesh-migrate verify")
			}
		}
		w.term.types("heal", "Repaired: ")
		if !same(w.found(), fresh) {
			w.run("undo", "--phase=pre", "--yes")
			w.settles("the run is undone, and the cluster repaired", fresh)
		}
		w.looks = true
		if end := w.walk(f.kind+" repaired", "eventmesh-migrate verify"); end != atRun {
			w.t.Errorf("%s, repaired: the walk ends where %s", f.kind, end)
		}
		w.looks = false
		w.t.Logf("%s: %s", f.kind, time.Since(began))
	}
}

// after meets each fault when the migration is finished.
func (w *walker) after(met map[string]bool) {
	w.t.Helper()
	good := w.found()
	for _, f := range faults {
		if !w.breaks(f.kind) {
			continue
		}
		began := time.Now()
		met[f.kind] = true
		time.Sleep(time.Second) // for controllers; verify cannot see each fault, so there is nothing to poll
		w.patience(4 * time.Second)
		if end := w.walk(f.kind+", after the migration", "eventmesh-migrate verify"); end != unreached {
			w.walk(f.kind+", after the migration, by run", "eventmesh-migrate run")
		}
		w.term.types("heal", "Repaired: ")
		w.settles("the cluster is repaired", good)
		if end := w.walk(f.kind+" repaired", "eventmesh-migrate verify"); end != atTheEnd {
			w.t.Errorf("%s, repaired after the migration: the walk ends where %s", f.kind, end)
		}
		w.t.Logf("%s: %s", f.kind, time.Since(began))
	}
}
