package act

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Namespaces tells namespaces of one name apart, which are deleted and created again. For
// pre-images each is read once, since those are many and namespaces few; before something is
// created in one, it is read again. A job that may not read them does without.
type Namespaces struct {
	w   *write.Writer
	job migration.Job
	// applicable are the rows of the job's table that apply to this cluster.
	applicable func(context.Context, []migration.Access) ([]migration.Access, error)

	// turn is held while one is read.
	turn  chan struct{}
	known map[string]Namespace
	// listed: known has all of them. refused: this account may not read them.
	listed, refused bool
}

// Namespace is one that exists.
type Namespace struct {
	UID     types.UID
	Created metav1.Time
	// asked is when the read of it began.
	asked time.Time
}

// NewNamespaces returns namespaces of which none was read yet.
func NewNamespaces(w *write.Writer, job migration.Job, applicable func(context.Context, []migration.Access) ([]migration.Access, error)) *Namespaces {
	return &Namespaces{w: w, job: job, applicable: applicable, turn: make(chan struct{}, 1), known: map[string]Namespace{}}
}

// namespaceAge is how old an answer may be when something is about to be created in a namespace.
const namespaceAge = time.Second

var namespaces = migration.CoreResource("", "namespaces", "Namespace")

// verb is the first of some with which the job may read a namespace, by its own table; "" if it may
// not. One that has no table may be able to get it.
func (n *Namespaces) verb(ctx context.Context, name string, verbs ...string) (string, error) {
	accessor, ok := n.job.(migration.Accessor)
	if !ok {
		return "get", nil
	}
	rows, err := n.applicable(ctx, accessor.Access())
	for _, verb := range verbs {
		allows := func(row migration.Access) bool {
			named := len(row.Names) == 0 || verb == "get" && slices.Contains(row.Names, name)
			return row.Group == "" && row.Resource == "namespaces" && named && slices.Contains(row.Verbs, verb)
		}
		if slices.ContainsFunc(rows, allows) {
			return verb, err
		}
	}
	return "", err
}

// Of returns a namespace as it was at some time of the run; false if nobody can tell, or there was
// none.
func (n *Namespaces) Of(ctx context.Context, name string) (Namespace, bool) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	one, ok := n.known[name]
	if ok || n.listed || n.refused || name == "" {
		return one, ok
	}
	verb, err := n.verb(ctx, name, "list", "get")
	switch verb {
	case "list":
		err = n.w.Cluster.Each(ctx, namespaces, "", migration.ListOptions{}, n.noting())
		n.listed = err == nil
	case "get":
		err = n.get(ctx, name)
	}
	n.cannot(name, err)
	one, ok = n.known[name]
	return one, ok
}

// now returns a namespace as it was a moment ago.
func (n *Namespaces) now(ctx context.Context, name string) (Namespace, bool) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	one, ok := n.known[name]
	if n.refused || name == "" || ok && time.Since(one.asked) < namespaceAge {
		return one, ok
	}
	delete(n.known, name)
	verb, err := n.verb(ctx, name, "get", "list")
	switch verb {
	case "list":
		err = n.w.Cluster.Each(ctx, namespaces, "", migration.ListOptions{FieldSelector: "metadata.name=" + name}, n.noting())
	case "get":
		err = n.get(ctx, name)
	}
	n.cannot(name, err)
	one, ok = n.known[name]
	return one, ok
}

// noting returns what notes the namespaces of a read that begins now.
func (n *Namespaces) noting() func(*unstructured.Unstructured) error {
	asked := time.Now()
	return func(obj *unstructured.Unstructured) error {
		n.known[obj.GetName()] = Namespace{obj.GetUID(), obj.GetCreationTimestamp(), asked}
		return nil
	}
}

// get reads a namespace.
func (n *Namespaces) get(ctx context.Context, name string) error {
	note := n.noting()
	obj, err := n.w.Get(ctx, migration.Ref{Resource: namespaces, Name: name})
	if obj != nil {
		err = note(obj)
	}
	return err
}

func (n *Namespaces) cannot(name string, err error) {
	if err == nil {
		return
	}
	n.refused = apierrors.IsForbidden(err)
	n.w.Log.Debug("cannot read the namespace; whether it is the same one later is not looked at", zap.String("namespace", name), zap.Error(err))
}

// Same refuses to create an object, which a step has deleted, in another namespace of the same
// name: that has another owner, or other contents, and who deleted the former one deleted
// the object with it. Without the UID, which journals of earlier builds and of jobs that may not
// read it lack, a namespace that is younger than the journal is another one.
func (n *Namespaces) Same(ctx context.Context, s journal.Step) error {
	ref, was := s.Ref, s.Pre().NamespaceUID
	is, ok := n.now(ctx, ref.Namespace)
	problem := ""
	switch {
	case !ok:
	case was != "" && was != is.UID:
		problem = fmt.Sprintf("the former one had the UID %s, that of now has %s", was, is.UID)
	case was == "" && !s.Entry.Chunk.Created.IsZero() && is.Created.After(s.Entry.Chunk.Created.Time):
		problem = fmt.Sprintf("that of now has the UID %s, and was created after the journal", is.UID)
	}
	if problem == "" {
		return nil
	}
	return &write.ChangedError{Ref: ref, ForGood: true, Problem: "cannot be restored: its namespace " + ref.Namespace + " was deleted and created again; " + problem}
}

// sameAsDeleted is Same for a step that creates what an earlier one of its unit has deleted.
func (n *Namespaces) sameAsDeleted(ctx context.Context, s journal.Step) error {
	if deletion, ok := s.Deletion(); ok && deletion.Pre().Object != nil {
		return n.Same(ctx, deletion)
	}
	return nil
}
