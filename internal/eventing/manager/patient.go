package manager

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// patient reads again when the API server fails for a moment. A look needs about 15 reads, and one
// that fails ends it: with one failure in five requests, hardly any look would come to its end.
// That nothing is served under a name is an answer.
type patient struct{ client.Reader }

func (p patient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return again(ctx, func(ctx context.Context) error { return p.Reader.Get(ctx, key, obj, opts...) })
}

func (p patient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return again(ctx, func(ctx context.Context) error { return p.Reader.List(ctx, list, opts...) })
}

func again(ctx context.Context, read func(context.Context) error) error {
	var answer error
	err := k8sutil.Retry(ctx, dependency.ReadBudget, nil, func(ctx context.Context) error {
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
