package migration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// Resource is a kind as one API server serves it.
type Resource struct {
	schema.GroupVersionResource
	Kind string `json:"kind"`
}

// GVK returns the group, version and kind of r.
func (r Resource) GVK() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

// RefTo is the Ref of an object of r.
func (r Resource) RefTo(obj *unstructured.Unstructured) Ref {
	return Ref{Resource: r, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// In returns the client for objects of r in the namespace, "" for cluster-scoped kinds.
func (r Resource) In(client dynamic.Interface, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(r.GroupVersionResource)
	}
	return client.Resource(r.GroupVersionResource).Namespace(namespace)
}

// GroupKind returns the kind of r, whatever its version.
func (r Resource) GroupKind() schema.GroupKind { return r.GVK().GroupKind() }

// Ref names one object of the cluster. Namespace is empty for cluster-scoped
// kinds.
type Ref struct {
	Resource
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String spells the object the one way it is spelt everywhere: "Kind
// namespace/name", or "Kind name" for a cluster-scoped kind.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// Subject returns the object as a Condition names it.
func (r Ref) Subject() Subject {
	return Subject{GroupKind: r.GroupKind(), Namespace: r.Namespace, Name: r.Name}
}

// Verb is what a Change does to its object.
type Verb string

const (
	// Create makes Change.Object. Reversed by deleting it. After a Delete of the same Ref in the
	// unit, it is another object of that name: a rollback deletes it and restores the former one.
	Create Verb = "create"
	// Recreate creates again what an earlier Delete of the same Ref in the unit deletes: from
	// Change.Object, or without one from the pre-image of that Delete. It gets no mark, and
	// references to owners that were restored get their new UIDs. An object of that content
	// that exists already is taken for the recreated one.
	//
	// Delete and Recreate are reversed as one, when the rollback comes to the Delete: an object
	// that was not deleted stays, one that was recreated stays if it can be used (see
	// Recreator), and otherwise it is recreated from the same content, with a new UID.
	Recreate Verb = "recreate"
	// Delete removes the object. Reversed by creating it again from its
	// pre-image, which gives it a new UID.
	Delete Verb = "delete"
	// Patch applies Change.Patch, an RFC 7386 merge patch. Reversed by restoring
	// the fields it changed, and only those.
	Patch Verb = "patch"
	// Restart deletes the pods of a Deployment that exist when the change is
	// journaled, so that their controller replaces them. Nothing to reverse.
	Restart Verb = "restart"
	// Await writes nothing: the unit goes on once the job's conditions for the
	// object hold. It is how a plan waits for what exists already.
	Await Verb = "await"
)

// Reversible says what is left of an object's identity once its change is
// rolled back.
type Reversible string

const (
	ReversibleYes    Reversible = "yes"
	ReversibleNewUID Reversible = "new-uid"
	ReversibleNo     Reversible = "no"
)

// Change is one write (or, for Await, one wait) left to make. It is plain data:
// it goes into the journal and comes back out of it in another process.
type Change struct {
	Verb Verb `json:"verb"`
	Ref  Ref  `json:"ref"`
	// Object is what Create and Recreate make, complete but for status. A Recreate may go
	// without one.
	//
	// For Delete it is the whole object as the plan read it, which is also its
	// pre-image. The deletion insists on its resource version: an object that
	// somebody edited since is not deleted. Without it, the pre-image is read when
	// the change is journaled.
	//
	// For Patch it is the object as the plan read it, or of that: the metadata's
	// name and uid and every field that Patch changes. The patch is made only while
	// those fields have these values, or have those of the patch already.
	Object *unstructured.Unstructured `json:"object,omitempty"`
	// Build makes Object of a Create when it is needed, where thousands of objects of
	// one plan would take much memory. Object is nil then. It must return an equal object
	// each time.
	Build func() *unstructured.Unstructured `json:"-"`
	// Explain tells which object the object of this change replaces, and which field becomes
	// which. A job sets it for a preview only, if there is something to tell.
	Explain func() *Replacement `json:"-"`
	// Expect is what the job's conditions for this change need to know, in a form that only
	// the job reads. It goes through the journal.
	Expect json.RawMessage `json:"expect,omitempty"`
	// Patch is an RFC 7386 merge patch, for Patch. It must not hold lists that
	// others add to (finalizers, owner references): see Lists.
	Patch json.RawMessage `json:"patch,omitempty"`
	// Lists are entries that a Patch adds to and removes from lists. They are
	// applied to the list as it is when the patch is made, so that what others added
	// or removed meanwhile stays so. Patch may be empty then.
	Lists []ListEdit `json:"lists,omitempty"`
	// Guard: the job is asked once more, right before this change is made, whether
	// its reason still holds (see Rechecker). The changes behind it, up to the next
	// guarded one, belong to it: if the reason does not hold, none of them is made.
	Guard bool `json:"guard,omitempty"`
	// Turn of a guarded change: those of equal turns are made one after the other, with
	// the changes that belong to each and all that they wait for. "" waits for no other.
	Turn string `json:"turn,omitempty"`
	// Subresource of Patch: "" or "scale".
	Subresource string `json:"subresource,omitempty"`
	// Hidden keeps Object out of what a plan shows: it may hold a password.
	Hidden bool `json:"hidden,omitempty"`
	// Late is for a Restart that is decided when its turn comes.
	Late *DeferredRestart `json:"late,omitempty"`
	// Timeout of a Delete, until the object is really gone, and of a Restart, until
	// its pods are replaced; 0: the run's own.
	Timeout time.Duration `json:"timeout,omitempty"`
	// UID the object had when the plan was made, for Delete and Patch: the
	// change refuses another object of the same name. "" accepts any.
	UID types.UID `json:"uid,omitempty"`
	// SideEffects are objects that a controller makes because of this change.
	// Those that do not exist when the change is journaled are deleted when it
	// is rolled back.
	SideEffects []Ref `json:"sideEffects,omitempty"`
	// SideEffectLabels are labels that the controller gives to all SideEffects. An object
	// without them is somebody else's, and is never deleted for one; default: none, so that
	// only the time tells.
	SideEffectLabels map[string]string `json:"sideEffectLabels,omitempty"`
	// Irreversible changes are not rolled back; a plan puts them last.
	Irreversible bool `json:"irreversible,omitempty"`
	// Why is one clause for the plan: why this change is left to make.
	Why string `json:"why,omitempty"`
}

// Makes says whether a controller may have made the object because of the change: it has all
// SideEffectLabels.
func (c *Change) Makes(obj *unstructured.Unstructured) bool {
	labels := obj.GetLabels()
	for key, value := range c.SideEffectLabels {
		if has, ok := labels[key]; !ok || has != value {
			return false
		}
	}
	return true
}

// Reversible says whether the change can be undone.
func (c *Change) Reversible() Reversible {
	switch {
	case c.Irreversible:
		return ReversibleNo
	case c.Verb == Delete, c.Verb == Recreate:
		return ReversibleNewUID
	default:
		return ReversibleYes
	}
}

// Built returns what a Create makes, or else Object.
func (c *Change) Built() *unstructured.Unstructured {
	if c.Object == nil && c.Build != nil {
		return c.Build()
	}
	return c.Object
}

// Writes says whether the change writes to the cluster at all.
func (c *Change) Writes() bool { return c.Verb != Await }

// Unit is a sequence of changes made in order; units run side by side.
type Unit struct {
	// ID is the same in every plan for the same purpose, whatever process makes
	// it: what an interrupted run left open is recognised by it.
	ID      string   `json:"id"`
	Changes []Change `json:"changes"`
	// Commit units stay when the run fails later, once all their changes are
	// done (a finished ServiceInstance recreation).
	Commit bool `json:"commit,omitempty"`
	// Independent units are right one by one: when the run times out, those that are
	// finished stay, the journal stays open, and the next run goes on with the rest
	// (a deleted Subscription whose Trigger delivers).
	Independent bool `json:"independent,omitempty"`
	// Follows are the IDs of units that are the reason for this one. It begins when all of
	// them have ended, and is left if one of them was left. A run that finishes an interrupted
	// one still does it if each of them was made or goes on, also if no plan shows any
	// more that it is to be done; and postpones it if one of them goes on as the interrupted
	// run began it, without a change that the plan of now gives it.
	Follows []string `json:"follows,omitempty"`
}

// Writes says whether any change of the unit writes.
func (u *Unit) Writes() bool {
	for i := range u.Changes {
		if u.Changes[i].Writes() {
			return true
		}
	}
	return false
}

// ListEdit says which entries are added to a list of an object, and which are
// removed from it. A missing list counts as empty.
type ListEdit struct {
	// Path of the list, such as metadata, finalizers.
	Path []string `json:"path"`
	// Add are appended, unless an equal entry is there; Remove are removed where they
	// are there. Entries are compared whole.
	Add    []any `json:"add,omitempty"`
	Remove []any `json:"remove,omitempty"`
}

// RemoveFinalizer is the edit that removes one finalizer and leaves all others.
func RemoveFinalizer(name string) []ListEdit {
	return []ListEdit{{Path: []string{"metadata", "finalizers"}, Remove: []any{name}}}
}

// Plan is everything that is left to do, decided over one snapshot.
type Plan struct {
	Units []Unit
	// Last are done after all Units are done, in order: what must not come before
	// any of them, such as starting a controller again. They are also done when the
	// run times out and leaves what it finished (see Unit.Independent). They are
	// journaled first, with what there is then; a Patch needs an Object that says what
	// it will find when its turn comes.
	Last []Unit
	// Parallelism is how many writes are under way at once; 0 means 1.
	Parallelism int
	// Serial makes a unit wait until the one before it is done, with all it
	// waits for.
	Serial bool
	// Findings are what a person should know. One of severity error refuses the
	// whole plan before its first write; deferred makes the run's result
	// "deferred".
	Findings []Finding
	// Probe, if set, is called by a run that wrote nothing, when everything that it waited
	// for holds. It tries that out by other means than the API server, and changes nothing.
	// A finding of severity error fails the run.
	Probe func(context.Context) []Finding `json:"-"`
	// Estimate is the longest the plan may take, 0 if it is unknown. A plan
	// that may not fit into the run's timeout is refused, unless all of its units are
	// Independent: then what is finished stays.
	Estimate time.Duration
}

// SortFindings brings them into the order in which a person reads them: what refuses the plan
// first, and what needs no action last.
func (p *Plan) SortFindings() {
	order := []Severity{Error, Deferred, Warning, Info}
	slices.SortStableFunc(p.Findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(order, a.Severity)-slices.Index(order, b.Severity), strings.Compare(a.Object, b.Object))
	})
}

// Severity of a Finding.
type Severity string

const (
	// Info needs no action.
	Info Severity = "info"
	// Warning is a risk that does not stop the run.
	Warning Severity = "warning"
	// Deferred is work left for a later run of the same job.
	Deferred Severity = "deferred"
	// Error refuses a plan, or says why a run failed.
	Error Severity = "error"
)

// Finding is one thing a person should know about one object, and what to do about it.
type Finding struct {
	// ID names the kind of finding, in kebab-case. It never changes, and it is the anchor of its
	// entry in the runbook. "" in reports of earlier versions.
	ID       string   `json:"id,omitempty"`
	Severity Severity `json:"severity"`
	// Object is "Kind namespace/name"; empty if the finding is about the run.
	Object string `json:"object,omitempty"`
	// Problem is one clause, starting in lower case.
	Problem string `json:"problem"`
	// Command is the next command: one, complete, with all names filled in, and quoted for a shell
	// (see ShellQuote). "" if no command helps.
	Command string `json:"command,omitempty"`
	// Note is a sentence for people: what to do, or what the command is for. It holds no command.
	Note string `json:"note,omitempty"`
	// Hint is the next action as one text, for readers of reports that know neither Command nor
	// Note. The engine derives it from them; nothing else sets it.
	Hint string `json:"hint,omitempty"`
}

// Advice is what to do about a problem: see Note and Command of a Finding. The zero value is none.
type Advice struct{ Note, Command string }

// Advice is the next action.
func (f Finding) Advice() Advice { return Advice{f.Note, f.Command} }

// String is the advice as one text.
func (a Advice) String() string {
	if a.Note == "" || a.Command == "" {
		return a.Note + a.Command
	}
	return strings.TrimRight(a.Note, ".:") + ": " + a.Command
}

func (f Finding) String() string {
	s := f.Problem
	if f.Object != "" {
		s = f.Object + ": " + s
	}
	if advice := f.Advice().String(); advice != "" {
		s = fmt.Sprintf("%s (%s)", s, advice)
	}
	return s
}

// ShellQuote returns a word as a shell reads it back: unchanged if it is plain, or in single
// quotes.
func ShellQuote(word string) string { return wording.ShellQuote(word) }

// CommandLine returns a command as it can be pasted into a shell.
func CommandLine(words ...string) string { return wording.CommandLine(words...) }

// Kubectl returns the command of kubectl in a namespace, "" for none.
func Kubectl(namespace string, words ...string) string {
	command := []string{"kubectl"}
	if namespace != "" {
		command = append(command, "-n", namespace)
	}
	return CommandLine(append(command, words...)...)
}

// EventsIn returns the command that shows what happened in a namespace, the newest last. It works
// also after the objects are deleted.
func EventsIn(namespace string) string {
	return Kubectl(namespace, "get", "events", "--sort-by=.lastTimestamp")
}

// AfterRollback is the advice about an object that a run creates: a rollback deletes it, so that
// nothing can describe it.
func AfterRollback(namespace, note string) Advice {
	return Advice{Note: note + " The Events stay after a rollback:", Command: EventsIn(namespace)}
}

// State of a Condition.
type State int

const (
	// Pending may still become true.
	Pending State = iota
	// Met holds now.
	Met
	// Failed can never become true; the wait ends at once.
	Failed
)

// Status is how a condition stands.
type Status struct {
	State State
	// Message is the last state in words: what is missing, or why it failed.
	Message string
	// ID, Command and Note are those of the Finding that says that the wait failed or timed out. An
	// empty ID stands for the general one of the engine.
	ID, Command, Note string
	// Stays, of a condition that failed after a deletion: a rollback could not restore the object
	// either. The run ends as if its time were over: what is finished stays, and a later run
	// goes on.
	Stays bool
}

// Subject names what a Condition looks at: one object, or with an empty Name every object
// of the kind in the namespace, or with an empty Namespace too, of the whole cluster.
// It has no version: the engine reads the best one that the API server serves.
type Subject struct {
	schema.GroupKind
	Namespace, Name string
}

// SubjectOf returns the Subject of that kind, namespace and name.
func SubjectOf(gk schema.GroupKind, namespace, name string) Subject {
	return Subject{GroupKind: gk, Namespace: namespace, Name: name}
}

// String spells the object as Ref.String does.
func (s Subject) String() string {
	if s.Namespace == "" {
		return s.Kind + " " + s.Name
	}
	return s.Kind + " " + s.Namespace + "/" + s.Name
}

// View is what conditions are evaluated over: the objects that a condition looks at, as last
// listed or watched. Of a kind that is not served, there are none.
type View interface {
	// Get returns the object, nil if there is none.
	Get(s Subject) *unstructured.Unstructured
	// List returns all objects of the kind in the namespace, "" for all, in no order.
	List(gk schema.GroupKind, namespace string) []*unstructured.Unstructured
}

// Condition is something that must become true after a change.
type Condition struct {
	// Text completes the sentence "waiting for …"; a noun phrase.
	Text string
	// On are the objects it looks at. It is evaluated again when one of them changes. If
	// the API server does not serve one of these kinds, the wait fails at once.
	On []Subject
	// OnIfServed are objects that it looks at, too, of kinds that need not be served.
	OnIfServed []Subject
	// Unserved returns what to do about a kind of On that is not served, such as which
	// component installs it. It may be nil: then the hint is a general one.
	Unserved func(schema.GroupKind) string
	// Timeout counts from the moment the change's write returned, or for Await
	// from the start of the wait. 0: only the run's own timeout.
	Timeout time.Duration
	// Eval reads the state off the view. It must be quick, and must use nothing but the
	// view, what the change says, and the job's settings.
	//
	// It may remember one thing, since a view lags behind a write: what it has seen in a
	// former call. So it can tell an object that the view does not show yet from one that was
	// deleted. Each call of Job.Await must return conditions that remember nothing yet.
	// Calls of one condition come one after the other, but not all from one goroutine.
	Eval func(View) Status
}

// DeferredRestart says which pods a Restart replaces, when its turn comes: those that
// exist then, and not those that existed when the change was journaled.
type DeferredRestart struct {
	// Unless this object exists: then what the restart is for has been done.
	Unless *Ref `json:"unless,omitempty"`
	// After spares pods all of whose containers have run since before; zero: none.
	After time.Time `json:"after,omitzero"`
	// Leftovers are objects that the pods remove if they still remember the operation:
	// while one of them is left, no pod is spared.
	Leftovers *Leftovers `json:"traces,omitempty"`
}

// Leftovers are objects of one kind and namespace with the given labels.
type Leftovers struct {
	Ref           Ref    `json:"ref"`
	LabelSelector string `json:"labelSelector"`
}
