package act

import (
	"context"
	"slices"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var namespaces = migration.CoreResource("", "namespaces", "Namespace")

// Namespaces tells namespaces of one name apart, which are deleted and created again. Each is read
// once, since pre-images are many and namespaces few. A job that may not read them does without.
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
}

// NewNamespaces returns namespaces of which none was read yet.
func NewNamespaces(w *write.Writer, job migration.Job, applicable func(context.Context, []migration.Access) ([]migration.Access, error)) *Namespaces {
	return &Namespaces{w: w, job: job, applicable: applicable, turn: make(chan struct{}, 1), known: map[string]Namespace{}}
}

// Afresh forgets what was read.
func (n *Namespaces) Afresh() *Namespaces { return NewNamespaces(n.w, n.job, n.applicable) }

// verb is the one with which the job may read a namespace, by its own table; "" if it may not. One
// that has no table may be able to get it.
func (n *Namespaces) verb(ctx context.Context, name string) (string, error) {
	accessor, ok := n.job.(migration.Accessor)
	if !ok {
		return "get", nil
	}
	rows, err := n.applicable(ctx, accessor.Access())
	for _, verb := range []string{"list", "get"} {
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

// Of returns a namespace; false if nobody can tell, or there is none.
func (n *Namespaces) Of(ctx context.Context, name string) (Namespace, bool) {
	n.turn <- struct{}{}
	defer func() { <-n.turn }()
	if one, ok := n.known[name]; ok || n.listed || n.refused || name == "" {
		return one, ok
	}
	note := func(obj *unstructured.Unstructured) error {
		n.known[obj.GetName()] = Namespace{obj.GetUID(), obj.GetCreationTimestamp()}
		return nil
	}
	verb, err := n.verb(ctx, name)
	switch verb {
	case "list":
		err = n.w.Cluster.Each(ctx, namespaces, "", migration.ListOptions{}, note)
		n.listed = err == nil
	case "get":
		var obj *unstructured.Unstructured
		if obj, err = n.w.Get(ctx, migration.Ref{Resource: namespaces, Name: name}); obj != nil {
			err = note(obj)
		}
	}
	if err != nil {
		n.refused = apierrors.IsForbidden(err)
		n.w.Log.Debug("cannot read the namespace; whether it is the same one later is not looked at", zap.String("namespace", name), zap.Error(err))
	}
	one, ok := n.known[name]
	return one, ok
}
