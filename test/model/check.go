package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// freshFor is how old what a recheck saw may be when its change is made.
const freshFor = 2*time.Second + onTheWay

// onTheWay is what the watch and the call take on their way, which is more on a real server.
const onTheWay = 150 * time.Millisecond

// reading is how long after the moment that it is about an answer may be read.
func (c *checker) reading() time.Duration {
	switch {
	case c.s.World.Quick:
		return onTheWay + 2*time.Second
	case c.s.costly():
		return onTheWay + dear // what reading took is added
	}
	return onTheWay
}

func (c *checker) freshFor() time.Duration { return 2*time.Second + c.reading() }

// content is what users write, by path: an object without what the server, the engine
// and the controllers add. Entries of finalizers are paths of their own, since each
// has its owner.
func content(obj Object) map[string]string {
	if obj == nil {
		return nil
	}
	all := map[string]string{}
	var flatten func(path string, v any)
	flatten = func(path string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, value := range m {
				flatten(path+"."+k, value)
			}
			return
		}
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte(err.Error())
		}
		all[path] = string(raw)
	}
	u := unstructured.Unstructured{Object: obj}
	for k, v := range u.GetLabels() {
		if k != "kubernetes.io/metadata.name" {
			all["labels."+k] = v
		}
	}
	for k, v := range u.GetAnnotations() {
		if !strings.HasPrefix(k, "mover.example.com/") {
			all["annotations."+k] = v
		}
	}
	for _, f := range u.GetFinalizers() {
		if f != controlled && f != "kubernetes" {
			all["finalizers."+f] = "there"
		}
	}
	for k, v := range obj {
		switch k {
		case "metadata", "status", "apiVersion", "kind":
		default:
			if k != "spec" || u.GetKind() != "Namespace" {
				flatten(k, v)
			}
		}
	}
	return all
}

// changed are the paths in which two contents differ, sorted.
func changed(a, b map[string]string) []string {
	paths := map[string]bool{}
	for p, v := range a {
		if w, ok := b[p]; !ok || v != w {
			paths[p] = true
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			paths[p] = true
		}
	}
	return sortedKeys(paths)
}

// owner is who wrote a field last.
type owner struct {
	user bool
	at   time.Time
	name string
}

// record is what is known of one object at one point of the history.
type record struct {
	obj    Object
	owners map[string]owner
	// ours is what a run wrote last, by path, and was what it found there: "" if nothing;
	// theirs are the users who had written that.
	ours, was, theirs map[string]string
	// creator, with the version of the creation.
	creator string
	created Write
	// gone is the write that began its deletion, and remains what it deleted.
	gone    *Write
	remains Object
	// original is what a run deleted last that was not its own.
	original Object
}

// loss is an edit of a user that a run has undone.
type loss struct {
	key  Key
	kind string
	text string
}

// checker goes through the history of a schedule.
type checker struct {
	s       *Schedule
	past    []Write
	records map[Key]*record
	wrong   []string
	losses  []loss
	// purged are the deletions of a Registry by a run, by namespace.
	purged map[string]Write
}

func isRun(actor string) bool  { return strings.HasPrefix(actor, "run-") }
func isUser(actor string) bool { return actor == "alice" || actor == "bob" }

// check returns the invariants that a schedule broke.
func check(s *Schedule) []string {
	c := &checker{s: s, past: s.place.Past(), records: map[Key]*record{}, purged: map[string]Write{}}
	for _, w := range c.past {
		if !c.concerns(w.Key) {
			continue
		}
		r := c.records[w.Key]
		if r == nil {
			r = &record{owners: map[string]owner{}, ours: map[string]string{}, was: map[string]string{}, theirs: map[string]string{}}
			c.records[w.Key] = r
		}
		switch {
		case isRun(w.Actor):
			c.runWrites(w, r)
		case w.Key.Plural == "namespaces" && begins(w):
			delete(c.purged, w.Key.Name) // what is in it goes with it
		case w.Actor == "controllers" || w.Actor == "gc":
			c.cascades(w, r)
		}
		c.apply(w, r)
	}
	told := map[string]bool{}
	var findings []string
	for _, p := range s.ran {
		if p.report == nil {
			// What a killed process has to say is in its log.
			findings = append(findings, p.log.String())
			continue
		}
		for _, f := range p.report.Findings {
			told[f.Object] = true
			findings = append(findings, f.String())
		}
		c.asBefore(p)
		c.exit(p)
		c.happened(p)
		c.limits(p)
		c.causes(p)
		c.follows(p)
	}
	for _, p := range s.ran {
		c.shares(p)
	}
	for _, l := range c.losses {
		name := l.kind + " " + strings.TrimPrefix(l.key.Namespace+"/"+l.key.Name, "/")
		if !told[name] && !slices.ContainsFunc(findings, func(f string) bool { return strings.Contains(f, name) }) {
			c.fail("(i) %s, and no finding names it: %s", name, l.text)
		}
	}
	return c.wrong
}

func (c *checker) fail(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(c.wrong, text) {
		c.wrong = append(c.wrong, text)
	}
}

func (c *checker) lost(w Write, format string, args ...any) {
	c.losses = append(c.losses, loss{w.Key, w.Kind, fmt.Sprintf("version %d, %s (%s): ", w.Version, w.Actor, c.process(w).command) + fmt.Sprintf(format, args...)})
}

// concerns says whether an object is of the world, not of the engine's state.
func (c *checker) concerns(k Key) bool {
	if k.Plural == "events" || k.Plural == "leases" || k.Plural == "secrets" {
		return false
	}
	return slices.Contains(c.s.World.Spaces, k.Namespace) || k.Plural == "namespaces" && slices.Contains(c.s.World.Spaces, k.Name)
}

// begins says whether a write begins the deletion of its object.
func begins(w Write) bool {
	return w.Before != nil && !deleting(w.Before) && (w.After == nil || deleting(w.After))
}

// apply brings a record up to date.
func (c *checker) apply(w Write, r *record) {
	before, after := content(w.Before), content(w.After)
	if w.Before == nil {
		r.owners, r.ours, r.was, r.theirs = map[string]owner{}, map[string]string{}, map[string]string{}, map[string]string{}
		r.creator, r.created = w.Actor, w
	}
	if begins(w) {
		gone := w
		r.gone, r.remains = &gone, w.Before
		// What is of class new is what a run had created; an edit of what a rollback had
		// restored counts.
		if isRun(w.Actor) && (!isRun(r.creator) || r.original == nil || before["spec.class"] != `"new"`) {
			r.original = w.Before
		}
	}
	r.obj = w.After
	if w.After == nil {
		return
	}
	for _, path := range changed(before, after) {
		value, set := after[path]
		o := owner{user: isUser(w.Actor), at: w.Time, name: w.Actor}
		switch {
		case isRun(w.Actor) && w.Before == nil:
			// What a run creates goes as a whole.
		case isRun(w.Actor):
			if mine, forward := aim(w, after); !forward || mine != path {
				delete(r.ours, path)
				delete(r.was, path)
				break
			}
			if ours, known := r.ours[path]; !known || ours != before[path] {
				r.was[path], r.theirs[path] = before[path], ""
				if o := r.owners[path]; o.user {
					r.theirs[path] = o.name
				}
			}
			r.ours[path] = value
		case o.user:
			// Somebody who sets again what the run had set cannot be told from the run.
			if ours, ok := r.ours[path]; ok && (ours == value && set || ours == "" && !set) {
				o.user = false
			}
		}
		r.owners[path] = o
	}
}

// process is the one that made a write.
func (c *checker) process(w Write) *process {
	i := slices.IndexFunc(c.s.ran, func(p *process) bool { return p.name == w.Actor })
	return c.s.ran[i]
}

// planned is the last plan that a process made before a write.
func (c *checker) planned(w Write) span {
	var last span
	p := c.process(w)
	last = span{p.began, p.began}
	for _, plan := range p.job.plans() {
		if !plan.ended.After(w.Time) {
			last = plan
		}
	}
	return last
}

// runWrites judges a write of a run.
func (c *checker) runWrites(w Write, r *record) {
	switch {
	case w.Before == nil:
		c.creates(w, r)
	case begins(w):
		c.deletes(w, r)
	default:
		c.patches(w, r)
	}
}

// edited are the paths that a user wrote after a time. A finalizer is none: it holds
// its object when that is deleted, too.
func (r *record) edited(since time.Time) []string {
	var paths []string
	for _, p := range sortedKeys(r.owners) {
		if o := r.owners[p]; !strings.HasPrefix(p, "finalizers.") && o.user && o.at.After(since) {
			paths = append(paths, fmt.Sprintf("%s by %s", p, o.name))
		}
	}
	return paths
}

func (c *checker) creates(w Write, r *record) {
	after := content(w.After)
	switch w.Key.Plural {
	case "sinks":
		plan := c.planned(w)
		source := Key{Group, "sources", w.Key.Namespace, w.Key.Name}
		made := maps.Clone(w.After["spec"].(Object))
		delete(made, protocol) // the API server's
		for _, state := range c.states(source, plan.began, w.Time) {
			if state != nil && reflect.DeepEqual(state["spec"], made) {
				return
			}
		}
		c.fail("(i) version %d: %s creates %s for an endpoint that its Source has not had since the plan was made at %s: %v", w.Version, w.Actor, w.Key, plan.began.UTC().Format("04:05.000"), w.After["spec"])
	case "instances":
		c.sameNamespace(w, r)
		if r.gone == nil || !isRun(r.gone.Actor) && !c.unanswered(r.gone.Time) {
			c.lost(w, "it is created, and was deleted by somebody else")
			return
		}
		want := content(r.original)
		if after["spec.class"] == `"new"` {
			want = content(r.remains)
			want["spec.class"] = `"new"`
		}
		c.restored(w, r, want, after)
	case "sources", "entries", "registries", "channels":
		c.sameNamespace(w, r)
		if isUser(r.creator) && r.original != nil && !isRun(r.gone.Actor) {
			// A user created another one in the meantime, and deleted that.
			c.restored(w, r, content(r.original), after)
			return
		}
		if r.gone == nil || !isRun(r.gone.Actor) && !c.unanswered(r.gone.Time) {
			c.lost(w, "it is created again, and was deleted by somebody else")
			return
		}
		c.restored(w, r, content(r.remains), after)
	default:
		c.fail("(iv) version %d: %s creates %s", w.Version, w.Actor, w.Key)
	}
}

// restored compares what was deleted with what is there again.
func (c *checker) restored(w Write, r *record, want, got map[string]string) {
	for _, path := range changed(want, got) {
		if strings.HasPrefix(path, "finalizers.") {
			// The job removes the dead one before the deletion; the owners of all others
			// have done what they are for.
			continue
		}
		if got[path] == fmt.Sprintf("%q", altered) {
			c.lost(w, "%s is %q, and was %q, for a webhook has altered it", path, got[path], want[path])
			continue
		}
		if r.owners[path].user {
			c.lost(w, "%s is %q, and was %q, as %s had set it, when it was deleted", path, got[path], want[path], r.owners[path].name)
			continue
		}
		c.fail("(iii) version %d: %s creates %s again otherwise than it was: %s is %q, and was %q", w.Version, w.Actor, w.Key, path, got[path], want[path])
	}
}

func (c *checker) deletes(w Write, r *record) {
	plan := c.planned(w)
	before := content(w.Before)
	notOurs := func() {
		c.fail("(ii) version %d: %s (%s) deletes %s, which %s created", w.Version, w.Actor, c.process(w).command, w.Key, r.creator)
	}
	switch w.Key.Plural {
	case "sinks":
		if !isRun(r.creator) {
			notOurs()
		}
		if edits := r.edited(time.Time{}); len(edits) > 0 {
			c.lost(w, "it is deleted, and was edited: %s", strings.Join(edits, ", "))
		}
	case "sources", "channels":
		c.guarded(w)
		c.decided(w, r, plan)
	case "registries":
		c.guarded(w)
		c.decided(w, r, plan)
		c.purged[w.Key.Namespace] = w
	case "entries":
		c.decided(w, r, plan)
	case "instances":
		if before["spec.class"] != `"new"` {
			c.decided(w, r, plan)
			return
		}
		if !isRun(r.creator) {
			notOurs()
		}
		if edits := r.edited(time.Time{}); len(edits) > 0 {
			c.lost(w, "it is deleted, and was edited: %s", strings.Join(edits, ", "))
		}
	case "brokers", "serviceaccounts", "rolebindings":
		copied := isUser(r.creator) && content(r.created.After)["labels."+injected] != ""
		switch {
		case copied && c.labelledDuring(Key{Plural: "namespaces", Name: w.Key.Namespace}, r.created.Time, r.created.Time):
			// A user made what a controller was to make, and in its words.
		case c.labelledAt(w.Key.Namespace, r.created):
		case c.warned(w):
			// After a kill nobody can tell whether the label was the run's.
		default:
			notOurs()
		}
		if edits := r.edited(c.noted(w, r)); len(edits) > 0 {
			c.lost(w, "it is deleted, and was edited: %s", strings.Join(edits, ", "))
		}
	default:
		c.fail("(ii) version %d: %s deletes %s", w.Version, w.Actor, w.Key)
	}
}

// decided: what is deleted is what the plan saw.
func (c *checker) decided(w Write, r *record, plan span) {
	if edits := r.edited(plan.ended); len(edits) > 0 {
		c.lost(w, "it is deleted, and was edited after the plan was made: %s", strings.Join(edits, ", "))
	}
}

// labelledAt says whether an object is one that the controllers created while a run's label was
// there. What a user creates seldom has their mark (see Schedule.rush).
func (c *checker) labelledAt(space string, created Write) bool {
	if isUser(created.Actor) {
		return false
	}
	for _, w := range c.past {
		if w.Key.Plural != "namespaces" || w.Key.Name != space || w.After == nil || !isRun(w.Actor) {
			continue
		}
		before, after := content(w.Before)["labels."+label], content(w.After)["labels."+label]
		if before == after || after != "enabled" {
			continue
		}
		// A user who removes the label and sets it again cannot be told from the run. A
		// reconciliation that began while it was set may end later.
		if created.Version > w.Version && created.Time.Before(c.unlabelled(w).Add(time.Second)) &&
			c.labelledDuring(w.Key, created.Time.Add(-time.Second), created.Time) {
			return true
		}
	}
	return false
}

// noted is when a run may have taken note of a side effect at the latest: what was
// edited before is not known to it.
func (c *checker) noted(w Write, r *record) time.Time {
	at := r.created.Time
	for _, past := range c.past {
		if past.Key == w.Key && past.Actor == "controllers" && past.Version < w.Version {
			// Its unit ended then; it shares the read with units that end up to half a second
			// later, and a read takes its time.
			at = past.Time.Add(500*time.Millisecond + c.reading())
		}
	}
	deleting := c.process(w)
	for _, p := range c.s.ran {
		if p == deleting {
			break
		}
		if p.report == nil || deleting.report == nil || p.report.Run == deleting.report.Run {
			at = p.ended
		}
	}
	return at
}

// unlabelled is when a run removed the label that a run had set.
func (c *checker) unlabelled(labelled Write) time.Time {
	for _, w := range c.past {
		if w.Version > labelled.Version && w.Key == labelled.Key && isRun(w.Actor) && content(w.After)["labels."+label] != "enabled" {
			return w.Time
		}
	}
	return time.Unix(1<<40, 0)
}

func (c *checker) labelledDuring(namespace Key, from, to time.Time) bool {
	return slices.ContainsFunc(c.states(namespace, from, to), func(obj Object) bool { return content(obj)["labels."+label] == "enabled" })
}

// warned says whether a finding names the object of a write, or the namespace whose
// label it came with.
func (c *checker) warned(w Write) bool {
	return slices.ContainsFunc(c.s.ran, func(p *process) bool {
		if p.report == nil {
			// What a killed process has to say is in its log.
			return strings.Contains(p.log.String(), w.Kind+" "+w.Key.Namespace+"/"+w.Key.Name)
		}
		return slices.ContainsFunc(p.report.Findings, func(f migration.Finding) bool {
			return f.Object == w.Kind+" "+w.Key.Namespace+"/"+w.Key.Name || f.Severity == migration.Warning && f.Object == "Namespace "+w.Key.Namespace
		})
	})
}

// states are what an object was between two times, the state at the first included.
func (c *checker) states(key Key, from, to time.Time) []Object {
	var all []Object
	var first Object
	for _, w := range c.past {
		if w.Key != key {
			continue
		}
		switch {
		case !w.Time.After(from):
			first = w.After
		case !w.Time.After(to):
			all = append(all, w.After)
		}
	}
	return append([]Object{first}, all...)
}

// guarded says whether the reason of a write held at some moment shortly before.
func (c *checker) guarded(w Write) {
	from := w.Time.Add(-c.freshFor())
	moments := []time.Time{from}
	for _, past := range c.past {
		if past.Time.After(from) && past.Version < w.Version {
			moments = append(moments, past.Time)
		}
	}
	why := ""
	for _, at := range moments {
		if why = c.reason(w, at); why == "" {
			return
		}
	}
	c.fail("(ii) version %d: %s changes %s (%s) although its reason did not hold in the %s before: %s", w.Version, w.Actor, w.Key, w.Verb, c.freshFor(), why)
}

// reason says why the reason of a write did not hold at a time.
func (c *checker) reason(w Write, at time.Time) string {
	last := func(k Key) Object {
		all := c.states(k, at, at)
		return all[len(all)-1]
	}
	space := c.s.World.Spaces[0]
	sw := last(Key{"", "configmaps", space, "switch"})
	if data, _ := sw["data"].(map[string]any); data["mode"] != "mesh" {
		return fmt.Sprintf("the switch says %v", data["mode"])
	}
	switch w.Key.Plural {
	case "sources":
		// A patch of finalizers loses nothing by itself: what is deleted must fit as it
		// is deleted, what is patched as it was when it was looked at.
		source := w.Before
		if w.Verb == "patch" {
			source = last(w.Key)
		}
		sink := last(Key{Group, "sinks", space, w.Key.Name})
		switch {
		case sink == nil || deleting(sink):
			return "its Sink does not exist"
		case !isReady(&unstructured.Unstructured{Object: sink}):
			return "its Sink is not ready"
		case source == nil || !reflect.DeepEqual(sink["spec"], source["spec"]):
			return "its Sink is for another endpoint"
		}
	case "channels":
		for _, name := range c.s.World.sourcesOf(w.Key.Name) {
			if last(Key{Group, "sources", space, name}) != nil {
				return "Source " + name + " is on it"
			}
		}
	case "registries":
		for key := range c.records {
			if key.Plural == "entries" && last(key) != nil {
				return key.String() + " exists"
			}
		}
	}
	return ""
}

// aim is the path that a run's patch of such an object is for, and whether it sets it
// or restores it.
func aim(w Write, after map[string]string) (path string, forward bool) {
	switch w.Key.Plural {
	case "namespaces":
		return "labels." + label, after["labels."+label] == "enabled"
	case "workers":
		return "spec.replicas", after["spec.replicas"] == "0"
	case "sources":
		return "finalizers." + dead, after["finalizers."+dead] == ""
	}
	return "", false
}

func (c *checker) patches(w Write, r *record) {
	before, after := content(w.Before), content(w.After)
	if w.After == nil {
		return // its last finalizer: the object was being deleted already
	}
	plan := c.planned(w)
	mine, forward := aim(w, after)
	for _, path := range changed(before, after) {
		o := r.owners[path]
		switch {
		case path != mine:
			c.lost(w, "%s becomes %q, and was %q, as %s had set it", path, after[path], before[path], o.name)
			if !o.user {
				c.fail("(iv) version %d: %s changes %s of %s", w.Version, w.Actor, path, w.Key)
			}
		case forward && o.user && o.at.After(plan.ended) && content(c.states(w.Key, plan.ended, plan.ended)[0])[path] == before[path]:
			// It was edited forth and back: it is what was decided on.
		case forward && o.user && o.at.After(plan.ended):
			c.lost(w, "%s becomes %q, and was %q, as %s had set it after the plan was made", path, after[path], before[path], o.name)
		case !forward && o.user && c.unanswered(o.at):
			// Our request for the same may have been made.
		case !forward && o.user:
			c.lost(w, "%s is restored to %q, and was %q, as %s had set it", path, after[path], before[path], o.name)
		case !forward:
			if was, ours := r.was[path]; !ours {
				c.fail("(iii) version %d: %s restores %s of %s, which no run had changed", w.Version, w.Actor, path, w.Key)
			} else if who := r.theirs[path]; was != after[path] && who != "" {
				c.lost(w, "%s is restored to %q, and was %q, as %s had set it, when a run changed it", path, after[path], was, who)
			} else if was != after[path] {
				c.fail("(iii) version %d: %s restores %s of %s to %q, and it was %q", w.Version, w.Actor, path, w.Key, after[path], was)
			}
		}
	}
	if forward && w.Key.Plural != "namespaces" {
		c.guarded(w)
	}
}

// cascades: what the controllers delete because a run deleted what it belonged to is
// the run's doing.
func (c *checker) cascades(w Write, r *record) {
	purge, ok := c.purged[w.Key.Namespace]
	if w.Key.Plural != "entries" || !begins(w) || !ok {
		return
	}
	if isUser(r.creator) && r.created.Time.Before(purge.Time.Add(-c.freshFor())) {
		c.lost(purge, "%s, which %s had created before, goes with it", w.Key, r.creator)
		c.losses[len(c.losses)-1].kind, c.losses[len(c.losses)-1].key = w.Kind, w.Key
	}
}

// asBefore holds a report that says so to it: every object is as it was when the run's
// journal was begun, but for what users did. An undo says so of the objects of its run.
func (c *checker) asBefore(p *process) {
	says := strings.Contains(p.report.Message, "everything is as it was before")
	ofRun := strings.HasSuffix(p.report.Message, "all changes of run "+p.report.Run+" are undone")
	if !says && !ofRun || p.report.Run == "" {
		return
	}
	reported := map[string]bool{}
	for _, ch := range p.report.Changes {
		if ch.Result == migration.ChangeLeft || ch.Result == migration.ChangeNotStarted {
			continue
		}
		reported[strings.ToLower(ch.Kind)+" "+ch.Namespace+"/"+ch.Name] = true
	}
	from, at := int64(-1), time.Time{}
	for _, w := range c.past {
		if w.Key.Plural != "secrets" || w.Before != nil {
			continue
		}
		u := unstructured.Unstructured{Object: w.After}
		if u.GetLabels()["mover.example.com/run"] == p.report.Run {
			from, at = w.Version, w.Time
			break
		}
	}
	if from < 0 {
		return
	}
	then, now := map[Key]Object{}, map[Key]Object{}
	touched := map[Key]bool{}
	recreated := map[string]bool{} // namespaces
	for _, w := range c.past {
		if !c.concerns(w.Key) || w.Version > p.until {
			continue
		}
		if w.Version <= from {
			then[w.Key] = w.After
		} else if isUser(w.Actor) {
			touched[w.Key] = true
			recreated[w.Key.Name] = recreated[w.Key.Name] || w.Key.Plural == "namespaces" && begins(w)
		}
		if isUser(w.Actor) && w.After == nil && w.Version <= from && at.Sub(w.Time) < time.Second {
			touched[w.Key] = true // the journal was written after what is in it was read
		}
		now[w.Key] = w.After
	}
	told := map[string]bool{}
	left := map[string]bool{}
	for _, f := range p.report.Findings {
		told[strings.ToLower(f.Object)] = true
		left[f.Object] = left[f.Object] || strings.HasPrefix(f.Problem, "left: ")
	}
	for key, how := range c.madeOtherwise(p, from) {
		object := strings.TrimSuffix(key.Plural, "s") + " " + key.Namespace + "/" + key.Name
		if key.Plural == "entries" || key.Plural == "registries" {
			object = strings.TrimSuffix(key.Plural, "ies") + "y " + key.Namespace + "/" + key.Name
		}
		if !recreated[key.Namespace] && !told[object] && now[key] != nil && len(c.otherwise(then[key], now[key])) > 0 {
			c.fail("(iii) %s says that everything is as it was before, and not that of %s: %s", p.name, key, how)
		}
	}
	for key := range now {
		namespace := Key{Plural: "namespaces", Name: key.Namespace}
		kind := strings.ToUpper(key.Plural[:1]) + strings.TrimSuffix(key.Plural[1:], "s")
		effect := slices.Contains([]string{"brokers", "serviceaccounts", "rolebindings"}, key.Plural)
		if ofRun && !effect && !reported[strings.ToLower(kind)+" "+key.Namespace+"/"+key.Name] {
			continue
		}
		if then[key] != nil && deleting(then[key]) {
			continue // it had to go, whichever actor wanted it
		}
		if effect && slices.ContainsFunc(slices.Collect(maps.Keys(left)), func(object string) bool {
			return left[object] && strings.EqualFold(object, strings.TrimSuffix(key.Plural, "s")+" "+key.Namespace+"/"+key.Name)
		}) {
			continue // it says so
		}
		if recreated[key.Namespace] {
			continue
		}
		if touched[key] || effect && (touched[namespace] || content(then[namespace])["labels."+label] == "enabled") {
			continue
		}
		was, is := content(then[key]), content(now[key])
		if then[key] != nil && now[key] == nil || then[key] == nil && now[key] != nil {
			c.fail("(iii) %s says that everything is as it was before, and %s was %s, and is %s", p.name, key, brief(then[key]), brief(now[key]))
			continue
		}
		paths := slices.DeleteFunc(changed(was, is), func(p string) bool {
			// The owners of other finalizers have done what they are for.
			return strings.HasPrefix(p, "finalizers.") && p != "finalizers."+dead
		})
		if len(paths) > 0 {
			c.fail("(iii) %s says that everything is as it was before, and %s differs in %s", p.name, key, strings.Join(paths, ", "))
		}
	}
}

// exit holds the exit code to what is known of the run.
func (c *checker) exit(p *process) {
	code, result := p.report.ExitCode(), p.report.Result
	switch code {
	case migration.ExitOK:
		for _, f := range p.report.Findings {
			if f.Severity == migration.Error {
				c.fail("(vi) %s ends with exit code 0 and an error: %s", p.name, f)
			}
		}
	case migration.ExitPartlyRestored:
		if len(p.report.Findings) == 0 && !p.report.Unrestored {
			c.fail("(vi) %s ends with exit code 3, and no finding says why", p.name)
		}
	case migration.ExitFailed:
		if result != migration.RolledBack && strings.Contains(p.report.Message, "nothing was changed") {
			for _, w := range c.past {
				if w.Actor == p.name && c.concerns(w.Key) {
					c.fail("(vi) %s says that nothing was changed, and wrote version %d: %s", p.name, w.Version, w.Key)
				}
			}
		}
	}
}

// limits holds what a report calls a missing permission to the limit that the process met.
func (c *checker) limits(p *process) {
	if p.limit == nil || p.limit.name == "permission" || p.limit.name == "account" {
		return
	}
	for _, f := range p.report.Findings {
		if strings.HasPrefix(f.ID, "permission-") {
			c.fail("(viii) %s met the limit %q, and calls it a permission: %s", p.name, p.limit.name, f)
		}
	}
}

// happened holds a report to the history: what it calls done, some run has written, or, of a patch,
// a user in the same words. If the object of a request is gone whose answer an interrupted process
// has not noted, or none has seen, nobody can tell who removed it.
func (c *checker) happened(p *process) {
	resumed := c.s.hurried || slices.ContainsFunc(c.s.ran[:slices.Index(c.s.ran, p)], func(earlier *process) bool {
		return earlier.report == nil || earlier.report.Run == p.report.Run
	})
	for _, ch := range p.report.Changes {
		if ch.Result != migration.ChangeDone || ch.Verb == migration.Restart || ch.Verb == migration.Await {
			continue
		}
		if !slices.ContainsFunc(c.past, func(w Write) bool {
			switch {
			case w.Version > p.until || w.Kind != ch.Kind || w.Key.Namespace != ch.Namespace || w.Key.Name != ch.Name:
				return false
			case resumed && !isRun(w.Actor) && (ch.Verb == migration.Delete || ch.Verb == migration.Patch) && w.After == nil:
				return true
			case !isRun(w.Actor) && (ch.Verb != migration.Patch || !isUser(w.Actor)):
				return false
			case ch.Verb == migration.Delete:
				return w.After == nil || deleting(w.After)
			case ch.Verb == migration.Patch:
				return w.Before != nil && w.After != nil
			default:
				return w.Before == nil
			}
		}) {
			c.fail("(vii) %s says that %s of %s %s/%s is done, and nobody has done it", p.name, ch.Verb, ch.Kind, ch.Namespace, ch.Name)
		}
	}
}
