package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/model"
)

// bus is a job in the likeness of trigger-sync: it deletes links, and what follows from each,
// the channel that it is on. It works only while the controller is at 0.
type bus struct {
	s *sandbox
	n int
	// keeps are links whose recheck says no, or which no plan wants to delete.
	keeps, unwanted map[int]bool
	// looks is how long a recheck takes.
	looks time.Duration
	// expand: a unit first makes a trigger.
	expand bool
	// unready: the trigger that is there is to be waited for.
	unready bool
	// patience is how long the channel's last subscriber may take to go.
	patience time.Duration
}

func newBus(s *sandbox, n int) *bus {
	for i := range n {
		s.put(fmt.Sprintf("link-%d", i), map[string]any{"k": "v"})
		s.put(fmt.Sprintf("channel-%d", i), map[string]any{"k": "v"})
	}
	s.put("controller", map[string]any{"replicas": "1"})
	return &bus{s: s, n: n, keeps: map[int]bool{}, unwanted: map[int]bool{}, patience: time.Minute}
}

func (b *bus) job() *rechecked {
	return &rechecked{&scripted{plan: b.plan, await: b.await}, b.recheck}
}

func (b *bus) plan() *migration.Plan {
	p := &migration.Plan{Parallelism: 4}
	for i := range b.n {
		link, channel, trigger := fmt.Sprintf("link-%d", i), fmt.Sprintf("channel-%d", i), fmt.Sprintf("trigger-%d", i)
		if b.s.get(link) == nil || b.unwanted[i] {
			continue
		}
		u := unit(link, migration.Change{Verb: migration.Await, Ref: ref("controller")}, guarded(b.s.deletion(link)))
		u.Independent = true
		switch {
		case b.expand && b.s.get(trigger) == nil:
			u.ID, u.Changes = trigger, append([]migration.Change{b.s.creation(trigger)}, u.Changes...)
		case b.unready:
			u.ID = trigger
		}
		after := unit(channel, migration.Change{Verb: migration.Await, Ref: ref(channel)}, guarded(b.s.deletion(channel)))
		after.Independent, after.Follows = true, []string{u.ID}
		p.Units = append(p.Units, u, after)
	}
	if len(p.Units) > 0 {
		down, up := patching("controller", `{"data":{"replicas":"0"}}`), patching("controller", `{"data":{"replicas":"1"}}`)
		down.Object, up.Object = b.s.object("controller", map[string]any{"replicas": "1"}), b.s.object("controller", map[string]any{"replicas": "0"})
		first := unit("down", down)
		last := unit("up", up)
		first.Independent, last.Independent = true, true
		p.Units, p.Last = append([]migration.Unit{first}, p.Units...), []migration.Unit{last}
	}
	return p
}

func (b *bus) await(ch *migration.Change) []migration.Condition {
	if ch.Verb != migration.Await {
		return nil
	}
	subject, gone := ref("controller"), false
	if name, ok := strings.CutPrefix(ch.Ref.Name, "channel-"); ok {
		subject, gone = ref("link-"+name), true
	}
	return []migration.Condition{{
		Text: "the way to be free", On: []migration.Subject{subject.Subject()}, Timeout: b.patience,
		Eval: func(v migration.View) migration.Status {
			obj := v.Get(subject.Subject())
			if gone && obj == nil || !gone && obj != nil && data(obj.Object)["replicas"] == "0" {
				return migration.Status{State: migration.Met}
			}
			return migration.Status{Message: "it is not"}
		},
	}}
}

func (b *bus) recheck(u *migration.Unit, i int) (*migration.Finding, error) {
	time.Sleep(b.looks)
	ref := u.Changes[i].Ref
	no := &migration.Finding{Severity: migration.Deferred, Object: ref.String(), Problem: "it is used"}
	var n int
	if _, err := fmt.Sscanf(ref.Name, "link-%d", &n); err == nil && (b.keeps[n] || data(b.s.get("controller"))["replicas"] != "0") {
		return no, nil
	}
	if _, err := fmt.Sscanf(ref.Name, "channel-%d", &n); err == nil && b.s.get(fmt.Sprintf("link-%d", n)) != nil {
		return no, nil
	}
	return nil, nil
}

func (b *bus) left() (names []string) {
	for name := range b.s.contents() {
		if strings.HasPrefix(name, "link-") || strings.HasPrefix(name, "channel-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// gone fails the test if anything but these is left, or if the controller was not restored.
func (b *bus) leaves(names ...string) {
	b.s.t.Helper()
	if got := b.left(); !slices.Equal(got, names) {
		b.s.t.Errorf("left: %q, want %q", got, names)
	}
	if got := data(b.s.get("controller"))["replicas"]; got != "1" {
		b.s.t.Errorf("the controller has %v replicas", got)
	}
}

// TestEngineFollowers: a unit that follows others exists only as long as its reason does, and takes
// the room of none that it waits for. On f3299ef the unit waited for what nobody did: the runs
// ended with exit code 124, each time again, or were rolled back with all that had been done.
func TestEngineFollowers(t *testing.T) {
	limits := func(timeout time.Duration, unready int) func(*engine.Options) {
		return func(o *engine.Options) { o.Timeout, o.MaxUnready = timeout, unready }
	}
	for name, patience := range map[string]time.Duration{"Left": time.Hour, "LeftFails": time.Minute} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			b := newBus(s, 3)
			b.keeps[1], b.patience = true, patience
			r := s.run("first", b.job())
			want(t, r, migration.DeferredResult)
			b.leaves("channel-1", "link-1")
			for _, ch := range r.Changes {
				if ch.Name == "channel-1" && ch.Result != migration.ChangeLeft {
					t.Errorf("what follows from a unit that was left is left: %+v", ch)
				}
			}
			b.keeps[1] = false
			want(t, s.run("second", b.job()), migration.Succeeded)
			b.leaves()
		})
	}
	bubble(t, "GivenUp", func(t *testing.T, s *sandbox) {
		b := newBus(s, 2)
		b.expand = true
		// Killed when the trigger was made, and the deletion was not begun.
		s.killed(b.job(), false, call("delete", "link-0"))
		b.unwanted[0] = true
		want(t, s.with(s.server.Client("second"), limits(30*time.Second, 50)).Run(t.Context(), b.job()), migration.Succeeded)
		b.leaves("channel-0", "link-0")
	})
	bubble(t, "BegunWithout", func(t *testing.T, s *sandbox) {
		// Killed when the trigger was made, by a run that was not to delete the link: what goes on
		// is the unit of that run, and nobody deletes the link. On a979837 the channel waited for
		// that, and the run was rolled back.
		b := newBus(s, 2)
		b.expand, b.unready = true, true
		s.killed(&scripted{plan: func() *migration.Plan {
			return &migration.Plan{Units: []migration.Unit{unit("trigger-0", s.creation("trigger-0"))}}
		}}, true, call("create", "trigger-0"))
		r := s.with(s.server.Client("second"), limits(30*time.Second, 50)).Run(t.Context(), b.job())
		want(t, r, migration.DeferredResult)
		b.leaves("channel-0", "link-0")
		mustSay(t, r, migration.Deferred, "an interrupted run began trigger-0 without that")
		mustSay(t, r, migration.Deferred, "it follows from trigger-0, which is not done either")
		want(t, s.run("third", b.job()), migration.Succeeded)
		b.leaves()
	})
	for name, edit := range map[string]string{"NotStopped": `{"data":{"replicas":"3"}}`, "NotStoppedInTime": `{"data":{"replicas":"3"}}`} {
		bubble(t, name, func(t *testing.T, s *sandbox) {
			b := newBus(s, 2)
			r := s.meanwhile(b.job(), call("patch", "controller"), func() {
				s.edit("controller", edit)
				if name == "NotStoppedInTime" {
					time.Sleep(2 * time.Second)
				}
			})
			want(t, r, migration.DeferredResult)
			if got := b.left(); len(got) != 4 || data(s.get("controller"))["replicas"] != "3" || len(says(r, "it is used")) != 2 {
				t.Errorf("what waits for a change that was left is deferred: %q, %+v", got, r.Findings)
			}
		})
	}
	bubble(t, "Room", func(t *testing.T, s *sandbox) {
		// As with --timeout 30s and --observe-publishers 30s: the first run can only begin.
		b := newBus(s, 9)
		b.expand, b.looks = true, 40*time.Second
		few := limits(30*time.Second, 3)
		want(t, s.with(s.server.Client("first"), few).Run(t.Context(), b.job()), migration.TimedOut)
		b.looks = 0
		r := s.with(s.server.Client("second"), few).Run(t.Context(), b.job())
		want(t, r, migration.Succeeded)
		b.leaves()
		if got := s.server.History(); !slices.ContainsFunc(got, func(w model.Write) bool { return w.Actor == "second" && w.Key.Name == "controller" }) {
			t.Error("the controller was not stopped in the run that worked in its place")
		}
	})
	bubble(t, "Stays", func(t *testing.T, s *sandbox) {
		b := newBus(s, 4)
		s.edit("link-3", `{"metadata":{"finalizers":["x.test/never"]}}`)
		r := s.with(s.server.Client("first"), limits(30*time.Second, 50)).Run(t.Context(), b.job())
		want(t, r, migration.TimedOut)
		if !strings.Contains(r.Message, "are done and stay") {
			t.Fatal(r.Message)
		}
		b.leaves("channel-3", "link-3")
		s.edit("link-3", `{"metadata":{"finalizers":null}}`)
		bad := b.job()
		plan := bad.plan
		bad.plan = func() *migration.Plan {
			p := plan()
			p.Units = append(p.Units, unit("gate", s.creation("gate")))
			return p
		}
		await := bad.await
		bad.await = func(ch *migration.Change) []migration.Condition { return append(await(ch), gate("gate")(ch)...) }
		r = s.run("second", bad)
		if r.ExitCode() == 0 || !strings.Contains(r.Message, "but for") {
			t.Errorf("exit code %d: %s", r.ExitCode(), r.Message)
		}
		if s.get("gate") != nil || s.get("link-0") != nil || s.get("channel-2") != nil {
			t.Errorf("what a report said to stay is not rolled back, all else is: %v", s.contents())
		}
		s.edit("link-3", `{"metadata":{"finalizers":null}}`) // it came back with it
		want(t, s.run("third", b.job()), migration.Succeeded)
		b.leaves()
		for range 2 {
			s.undo(b.job())
		}
		if got := b.left(); len(got) != 8 {
			t.Errorf("undo takes back all of it: %q", got)
		}
	})
}
