package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Schedule is what happens to a world, made from a seed: processes one after the
// other, and what two users do between any two of their calls.
type Schedule struct {
	Seed  uint64
	World *World
	// Blunt: see Job.
	Blunt bool

	processes []*process
	// convergence are the users' last deeds, after which everybody leaves the cluster
	// alone.
	converge []deed
	// undo, if any, comes last.
	undo *process
	// haste, if any, is done right after the first plan: before the journal is written.
	haste *deed
	// pressure is where time passes.
	pressure pressure
	// hurried: see hurry.
	hurried bool

	place       Place
	users       map[string]*user
	controllers *controllers
	ran         []*process
	// all are the processes. A bubble's clock stands still when its test has ended, so
	// that one which was killed, and goes on trying for a while, has to end before.
	all sync.WaitGroup
	// emptying are the namespaces that are being deleted, and will be created again.
	emptying sync.WaitGroup
	mu       sync.Mutex
	notes    []note
	problems []string
}

// note is a line of the story beside the history.
type note struct {
	at   time.Time
	text string
}

// moment is when something happens: at a call of a process, or at a write, each
// counted from 1; 0: before it begins.
type moment struct {
	n     int
	write bool
}

// deed is what a user does.
type deed struct {
	who  string
	at   moment
	text string
	do   func(ctx context.Context, u *user) error
}

// process is one run or undo.
type process struct {
	name    string
	command string
	opts    engine.Options
	deeds   []deed
	// kill and term say when the process is killed, or asked to stop.
	kill, term *moment
	// after: when the call that kills it took effect, but before it is answered.
	after bool
	// spite: a user edits the object of that call.
	spite bool
	// broken: nothing becomes ready while it runs.
	broken bool
	// pause comes before it.
	pause time.Duration

	// log are its warnings and errors.
	log    logged
	job    *Job
	report *migration.Report
	began  time.Time
	ended  time.Time
	// limit is what the process met, if anything.
	limit *refusal
	// before and until are versions.
	until int64
}

// logged is the log of a process.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements zapcore.WriteSyncer.
func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Sync implements zapcore.WriteSyncer.
func (l *logged) Sync() error { return nil }

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// NewSchedule makes the schedule of a seed. The prefix is that of its namespaces.
func NewSchedule(seed uint64, prefix string) *Schedule {
	r := rand.New(rand.NewPCG(seed, 0x6d6f64656c))
	s := &Schedule{Seed: seed, World: newWorld(seed, prefix, r), users: map[string]*user{}}
	n := 1 + r.IntN(3)
	for i := range n {
		p := s.process(r, "run")
		if i > 0 && r.IntN(5) == 0 {
			p = s.process(r, "undo")
		}
		s.processes = append(s.processes, p)
	}
	if r.IntN(3) > 0 {
		s.converge = append(s.converge, deed{who: "alice", text: "the switch says mesh", do: s.setSwitch("mesh")})
	}
	first := s.processes[0]
	if r.IntN(8) == 0 {
		// What was made by the call that a process was killed at has no note in the
		// journal: somebody edits it before the next run.
		first.kill, first.after, first.term, first.spite = &moment{2 + r.IntN(7), true}, true, nil, true
	}
	// Not from r: what the seed made before stays as it was.
	switch space, source := s.World.Spaces[0], s.World.Sources[0]; mix(seed^0x6861737465) % 10 {
	case 0:
		s.haste = &deed{who: "bob", text: "edits Instance i0", do: func(ctx context.Context, u *user) error {
			return u.merge(ctx, instances, space, "i0", `{"spec":{"size":"hasty"}}`)
		}}
	case 1:
		s.haste = &deed{who: "bob", text: "labels Source " + source, do: func(ctx context.Context, u *user) error {
			return u.merge(ctx, sources, space, source, `{"metadata":{"labels":{"edited":"hasty"}}}`)
		}}
	}
	if first.spite || r.IntN(2) == 0 {
		s.undo = s.process(r, "undo")
		s.undo.kill, s.undo.term, s.undo.broken = nil, nil, false
		s.undo.opts.Timeout = 0
	}
	s.press()
	s.rush(r)
	s.restrict()
	s.hurry()
	s.again()
	return s
}

func (s *Schedule) process(r *rand.Rand, command string) *process {
	p := &process{command: command, after: r.IntN(2) == 0, broken: r.IntN(7) == 0, pause: time.Duration(r.Int64N(int64(3 * time.Second)))}
	p.opts.LeaseDuration = 15 * time.Second
	if r.IntN(5) == 0 {
		p.opts.Timeout = []time.Duration{5 * time.Second, 30 * time.Second, time.Minute}[r.IntN(3)]
	}
	if r.IntN(6) == 0 {
		p.opts.OnFailure = engine.OnFailureLeave
	}
	if r.IntN(4) == 0 {
		p.opts.Resume = engine.ResumeBack
	}
	switch r.IntN(5) {
	case 0, 1:
		p.kill = s.moment(r)
	case 2:
		p.term = s.moment(r)
	}
	for range r.IntN(4) {
		d := s.deed(r)
		if m := s.moment(r); r.IntN(3) > 0 {
			d.at = *m
		}
		p.deeds = append(p.deeds, d)
	}
	return p
}

func (s *Schedule) moment(r *rand.Rand) *moment {
	if r.IntN(2) == 0 {
		return &moment{1 + r.IntN(18), true}
	}
	return &moment{1 + r.IntN(110), false}
}

// deed is something that a user may do to the world.
func (s *Schedule) deed(r *rand.Rand) deed {
	w := s.World
	d := deed{who: []string{"alice", "bob"}[r.IntN(2)]}
	space := w.Spaces[0]
	source := w.Sources[r.IntN(len(w.Sources))]
	n := r.IntN(1000)
	merge := func(text string, res migration.Resource, namespace, name, patch string) {
		d.text = text
		d.do = func(ctx context.Context, u *user) error { return u.merge(ctx, res, namespace, name, patch) }
	}
	remove := func(text string, res migration.Resource, namespace, name string) {
		d.text = text
		d.do = func(ctx context.Context, u *user) error {
			return u.of(res, namespace).Delete(ctx, name, metav1.DeleteOptions{})
		}
	}
	create := func(text string, res migration.Resource, namespace, name string, content map[string]any) {
		d.text = text
		d.do = func(ctx context.Context, u *user) error {
			_, err := u.of(res, namespace).Create(ctx, object(res, namespace, name, content), metav1.CreateOptions{})
			return err
		}
	}
	b := w.Spaces[r.IntN(len(w.Spaces))]
	effect := sideEffects(b)[r.IntN(3)]
	switch r.IntN(24) {
	case 0, 1, 2:
		mode := []string{"bus", "mesh"}[r.IntN(2)]
		d.text, d.do = "the switch says "+mode, s.setSwitch(mode)
	case 3, 4:
		merge("edits Source "+source, sources, space, source, fmt.Sprintf(`{"spec":{"endpoint":"http://edited-%d"}}`, n))
	case 5:
		merge("labels Source "+source, sources, space, source, fmt.Sprintf(`{"metadata":{"labels":{"edited":"%d"}}}`, n))
	case 6, 7:
		d.text = "puts a finalizer on Source " + source
		d.do = func(ctx context.Context, u *user) error { return hold(ctx, u, space, source, d.who+holding) }
	case 8:
		remove("deletes Source "+source, sources, space, source)
	case 9:
		again := map[string]any{"spec": map[string]any{"endpoint": fmt.Sprintf("http://new-%d", n)}}
		if n%2 == 0 { // as it was, and more
			again = map[string]any{"metadata": map[string]any{"labels": map[string]any{"own": "1", "team": "x"}}, "spec": map[string]any{"endpoint": "http://" + source}}
		}
		create("creates Source "+source, sources, space, source, again)
	case 10, 11:
		merge("edits Sink "+source, sinks, space, source, fmt.Sprintf(`{"spec":{"endpoint":"http://sink-%d"}}`, n))
	case 12:
		remove("deletes Sink "+source, sinks, space, source)
	case 13:
		create("creates Sink "+source, sinks, space, source, map[string]any{"spec": map[string]any{"endpoint": "http://" + source}})
	case 14, 15:
		value := []string{`"enabled"`, `"disabled"`, `null`}[r.IntN(3)]
		merge("sets the label of Namespace "+b+" to "+value, namespaces, "", b, `{"metadata":{"labels":{"`+label+`":`+value+`}}}`)
	case 16:
		obj := sideEffect(effect)
		if effect.Kind == "Broker" {
			obj.Object["spec"] = map[string]any{"class": fmt.Sprintf("own-%d", n)}
		}
		obj.SetLabels(map[string]string{"own": "1"})
		d.text = "creates " + effect.String()
		d.do = func(ctx context.Context, u *user) error {
			_, err := u.of(effect.Resource, b).Create(ctx, obj, metav1.CreateOptions{})
			return err
		}
	case 17:
		merge("edits "+effect.String(), effect.Resource, b, effect.Name, fmt.Sprintf(`{"metadata":{"labels":{"edited":"%d"}}}`, n))
	case 18:
		remove("deletes "+effect.String(), effect.Resource, b, effect.Name)
	case 19:
		merge("edits the image of the Worker", workers, space, "bus", fmt.Sprintf(`{"spec":{"image":"bus:%d"}}`, n))
	case 20:
		merge("scales the Worker", workers, space, "bus", fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+n%5))
	case 21:
		merge("edits Instance i0", instances, space, "i0", fmt.Sprintf(`{"spec":{"size":"%d"}}`, n))
	case 22:
		create("creates an Entry", entries, space, fmt.Sprintf("n%d", n), map[string]any{"spec": map[string]any{"registry": "r", "n": fmt.Sprint(n)}})
	default:
		if w.Registry && n%2 == 0 {
			create("creates an Entry", entries, space, fmt.Sprintf("m%d", n), map[string]any{"spec": map[string]any{"registry": "r", "n": fmt.Sprint(n)}})
			break
		}
		merge("edits ConfigMap bystander", configMaps, space, "bystander", fmt.Sprintf(`{"data":{"k":"%d"}}`, n))
	}
	return d
}

func (s *Schedule) setSwitch(mode string) func(context.Context, *user) error {
	return func(ctx context.Context, u *user) error {
		return u.merge(ctx, configMaps, s.World.Spaces[0], "switch", `{"data":{"mode":"`+mode+`"}}`)
	}
}

// hold puts a finalizer on a Source.
func hold(ctx context.Context, u *user, space, name, finalizer string) error {
	for range 3 {
		obj, err := u.of(sources, space).Get(ctx, name, metav1.GetOptions{})
		if err != nil || has(obj.GetFinalizers(), finalizer) {
			return err
		}
		obj.SetFinalizers(append(obj.GetFinalizers(), finalizer))
		if _, err = u.of(sources, space).Update(ctx, obj, metav1.UpdateOptions{}); err == nil {
			return nil
		}
	}
	return errors.New("always in conflict")
}

func (s *Schedule) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, note{time.Now(), fmt.Sprintf(format, args...)})
}

func (s *Schedule) problem(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
}

func (s *Schedule) deal(ctx context.Context, d deed) {
	err := d.do(ctx, s.users[d.who])
	if err != nil {
		s.note("%s: %s: %v", d.who, d.text, err)
		return
	}
	s.note("%s: %s", d.who, d.text)
}

// Play runs the schedule on a place. What it found wrong is in Problems.
func (s *Schedule) Play(ctx context.Context, place Place) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.place = place
	if err := s.World.build(ctx, place); err != nil {
		return err
	}
	for _, name := range []string{"alice", "bob"} {
		u, err := newUser(place, name)
		if err != nil {
			return err
		}
		s.users[name] = u
	}
	var err error
	if s.controllers, err = s.World.startControllers(ctx, place); err != nil {
		return err
	}
	for _, p := range s.processes {
		if err := s.start(ctx, p); err != nil {
			return err
		}
	}
	s.emptying.Wait()
	for _, d := range s.converge {
		s.deal(ctx, d)
	}
	for _, source := range s.World.Sources {
		s.deal(ctx, deed{who: "alice", text: "removes the dead finalizer from Source " + source + " if somebody deleted it", do: func(ctx context.Context, u *user) error {
			obj, err := u.of(sources, s.World.Spaces[0]).Get(ctx, source, metav1.GetOptions{})
			if err != nil || obj.GetDeletionTimestamp() == nil || !has(obj.GetFinalizers(), dead) {
				return err
			}
			obj.SetFinalizers(without(obj.GetFinalizers(), dead))
			_, err = u.of(sources, s.World.Spaces[0]).Update(ctx, obj, metav1.UpdateOptions{})
			return err
		}})
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	if s.undo != nil {
		if err := s.start(ctx, s.undo); err != nil {
			return err
		}
	}
	cancel()
	if !s.World.Quick {
		s.all.Wait()
	}
	s.problems = append(s.problems, check(s)...)
	return nil
}

// converged are the results after which a run has nothing more to do.
var converged = []migration.Result{migration.Succeeded, migration.NothingToDo, migration.DeferredResult, migration.RolledBack}

// finish runs until nothing is open any more, which must not take more than five runs.
func (s *Schedule) finish(ctx context.Context) error {
	var told []string
	for range 5 {
		p := &process{command: "run", pause: time.Second, opts: engine.Options{LeaseDuration: 15 * time.Second}}
		if err := s.start(ctx, p); err != nil {
			return err
		}
		told = append(told, string(p.report.Result))
		if slices.Contains(converged, p.report.Result) && len(s.open(ctx)) == 0 {
			return nil
		}
	}
	s.problem("(v) five runs without a kill did not come to an end: %s; open journals: %s", strings.Join(told, ", "), strings.Join(s.open(ctx), ", "))
	return nil
}

// open returns the journals that some run left open.
func (s *Schedule) open(ctx context.Context) []string {
	secrets := migration.CoreResource("", "secrets", "Secret")
	list, err := s.users["alice"].of(secrets, s.World.State).List(ctx, metav1.ListOptions{
		LabelSelector: "mover.example.com/phase in (forward,rollback,undo)",
	})
	if err != nil {
		return []string{err.Error()}
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

// start runs a process to its end, or until it is killed.
func (s *Schedule) start(ctx context.Context, p *process) error {
	p.name = fmt.Sprintf("run-%d", len(s.ran)+1)
	s.ran = append(s.ran, p)
	if p.broken {
		s.controllers.broken.Store(true)
	} else {
		s.controllers.repair()
	}
	if err := wait(ctx, s.World.shorter(p.pause)); err != nil {
		return err
	}
	left := slices.Clone(p.deeds)
	var mu sync.Mutex
	// due returns the deeds whose turn it is.
	due := func(is func(moment) bool) []deed {
		mu.Lock()
		defer mu.Unlock()
		var now []deed
		left = slices.DeleteFunc(left, func(d deed) bool {
			if is(d.at) {
				now = append(now, d)
				return true
			}
			return false
		})
		return now
	}
	for _, d := range due(func(m moment) bool { return m.n == 0 }) {
		s.deal(ctx, d)
	}
	client := s.place.Process(p.name)
	runCtx, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	killed := make(chan struct{})
	writes := 0
	var last Key
	counted := map[*Request]int{}
	hits := func(m *moment, r *Request, n int) bool {
		return m != nil && (m.write && r.Writes() && m.n == n || !m.write && m.n == r.N)
	}
	kill := func(r *Request) {
		if !client.Killed() {
			s.note("%s is killed: after=%t %s", p.name, p.after, r)
			last = r.Key()
			client.Kill()
			stop(errors.New("killed"))
			close(killed)
		}
	}
	client.Before(func(r *Request) {
		mu.Lock()
		n := 0
		if r.Writes() && r.Plural != "leases" {
			writes++
			n = writes
			counted[r] = n
		}
		mu.Unlock()
		for _, d := range due(func(m moment) bool { return hits(&m, r, n) }) {
			s.deal(ctx, d)
		}
		if hits(p.kill, r, n) && !p.after {
			kill(r)
		}
		if hits(p.term, r, n) {
			s.note("%s is asked to stop: %s", p.name, r)
			stop(engine.SignalError{Signal: syscall.SIGTERM})
		}
	})
	client.After(func(r *Request) {
		mu.Lock()
		n := counted[r]
		delete(counted, r)
		mu.Unlock()
		if hits(p.kill, r, n) && p.after {
			kill(r)
		}
	})
	s.pressed(ctx, p, client, stop)
	s.limited(p, client)
	s.alter(p, client)
	opts := p.opts
	opts.Names = Names
	s.hurries(client, &opts)
	s.costs(client)
	opts.Identity, opts.StateNamespace = p.name, s.World.State
	opts.Log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), &p.log, zapcore.WarnLevel))
	if s.World.Quick {
		opts.LeaseDuration = 2 * time.Second
		opts.Timeout = 20 * time.Second
		if p.opts.Timeout > 0 {
			opts.Timeout = max(p.opts.Timeout/15, 2*time.Second)
		}
		opts.RollbackTimeout = 20 * time.Second
	}
	engine, err := engine.New(client.Config(), opts)
	if err != nil {
		return err
	}
	p.job = &Job{World: s.World, Blunt: s.Blunt}
	if p == s.processes[0] && s.haste != nil {
		var once sync.Once
		p.job.then = func() { once.Do(func() { s.deal(ctx, *s.haste) }) }
	}
	s.turnBack(ctx, p)
	p.began = time.Now()
	s.note("%s begins: %s, resume %q, timeout %s, on failure %q, nothing becomes ready: %t", p.name, p.command, opts.Resume, opts.Timeout, opts.OnFailure, p.broken)
	done := make(chan *migration.Report, 1)
	s.all.Add(1)
	go func() {
		defer s.all.Done()
		if p.command == "undo" {
			done <- engine.Undo(runCtx, s.jobOf(p))
		} else {
			done <- engine.Run(runCtx, s.jobOf(p))
		}
		stop(nil)
	}()
	select {
	case <-killed:
		if p.spite && last.Plural == "sinks" {
			s.deal(ctx, deed{who: "bob", text: "edits Sink " + last.Name, do: func(ctx context.Context, u *user) error {
				return u.merge(ctx, sinks, last.Namespace, last.Name, `{"spec":{"endpoint":"http://spite"}}`)
			}})
		}
	case report := <-done:
		if !client.Killed() {
			p.report = report
			s.note("%s ends: %s (exit code %d): %s", p.name, report.Result, report.ExitCode(), report.Message)
			for _, f := range report.Findings {
				s.note("    %s: %s", f.Severity, f)
			}
		}
	}
	p.ended = time.Now()
	p.until = newest(s.place.Past())
	for _, d := range due(func(moment) bool { return true }) {
		s.deal(ctx, d)
	}
	return nil
}

func newest(past []Write) int64 {
	if len(past) == 0 {
		return 0
	}
	return past[len(past)-1].Version
}

func (w *World) shorter(d time.Duration) time.Duration {
	if w.Quick {
		return d / 20
	}
	return d
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Quicken makes waits and delays of the schedule short, for a server whose time is
// real.
func (s *Schedule) Quicken() {
	s.World.Quick, s.World.Wait, s.World.Delay = true, 4*time.Second, 300*time.Millisecond
}

// Problems are the invariants that the schedule broke.
func (s *Schedule) Problems() []string { return s.problems }

// Story is the history of the schedule, one line for each write to the world and
// each thing that happened in addition.
func (s *Schedule) Story() string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, n := range s.notes {
		lines = append(lines, line{n.at, "       " + n.text})
	}
	for _, w := range s.place.Past() {
		if w.Key.Plural == "leases" || w.Key.Plural == "events" || w.Key.Namespace == s.World.State && w.Key.Plural == "configmaps" {
			continue
		}
		text := fmt.Sprintf("%6d %s#%d %s %s", w.Version, w.Actor, w.Call, w.Verb, w.Key)
		if w.Key.Namespace == s.World.State {
			was, is := phaseOf(w.Before), phaseOf(w.After)
			if was == is {
				continue // marks of what is done
			}
			text += fmt.Sprintf(" %q -> %q", was, is)
		} else {
			text += " " + brief(w.Before) + " -> " + brief(w.After)
		}
		lines = append(lines, line{w.Time, text})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%s %s\n", l.at.UTC().Format("04:05.000"), l.text)
	}
	return out.String()
}

// phaseOf is that of a journal.
func phaseOf(obj Object) string {
	if obj == nil {
		return ""
	}
	u := unstructured.Unstructured{Object: obj}
	return u.GetLabels()["mover.example.com/phase"]
}

// brief is an object in few words.
func brief(obj Object) string {
	if obj == nil {
		return "nothing"
	}
	u := unstructured.Unstructured{Object: obj}
	short := map[string]any{}
	for _, field := range []string{"spec", "data", "status"} {
		if obj[field] != nil {
			short[field] = obj[field]
		}
	}
	if l := u.GetLabels(); len(l) > 0 {
		short["labels"] = l
	}
	if f := u.GetFinalizers(); len(f) > 0 {
		short["finalizers"] = f
	}
	if u.GetDeletionTimestamp() != nil {
		short["deleting"] = true
	}
	raw, err := json.Marshal(short)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Writes is how many there were.
func (s *Schedule) Writes() int { return len(s.place.Past()) }
