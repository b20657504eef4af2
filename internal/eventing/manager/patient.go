package manager

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// readBudget is how long one read is repeated. A look needs about 15 of them, and one that fails ends it: with one failure in five requests,
// hardly any look would come to its end.
const readBudget = 5 * time.Second

// patient reads again when the API server fails for a moment. That nothing is served under a name is an answer.
type patient struct{ client.Reader }

func (p patient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return again(ctx, func(ctx context.Context) error { return p.Reader.Get(ctx, key, obj, opts...) })
}

func (p patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return again(ctx, func(ctx context.Context) error { return p.Reader.List(ctx, list, opts...) })
}

func again(ctx context.Context, read func(context.Context) error) error {
	var answer error
	err := k8sutil.Retry(ctx, readBudget, nil, func(ctx context.Context) error {
		if answer = read(ctx); meta.IsNoMatchError(answer) || discoveryFailed(answer) {
			return nil
		}
		return answer
	})
	if err == nil {
		return answer
	}
	return err
}
