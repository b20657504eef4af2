package wait

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// grantPause is the time between two questions whether a permission is there now.
const grantPause = 500 * time.Millisecond

// Grant waits for permissions that may have been granted a moment ago: an API server learns of
// Roles and their bindings by a watch, and refuses until it has. It is for what comes before the
// first write only.
type Grant struct {
	// Until is when a missing permission is taken for what it is.
	Until time.Time
	Log   *zap.Logger

	say sync.Once
}

// Do calls read again as long as a permission is missing for it.
func (g *Grant) Do(ctx context.Context, read func(context.Context) error) error {
	for {
		err := read(ctx)
		if k8sutil.RefusalOf(err).Kind != k8sutil.NoPermission || !g.Again(ctx, err.Error()) {
			return err
		}
	}
}

// Again waits for a moment, and says whether to ask again for what is missing. The log has it once.
func (g *Grant) Again(ctx context.Context, missing string) bool {
	left := time.Until(g.Until)
	if left <= 0 {
		return false
	}
	g.say.Do(func() {
		g.Log.Info("a permission is missing; waiting, as it may have been granted a moment ago",
			zap.String("missing", missing), zap.Duration("limit", left.Round(time.Second)))
	})
	return k8sutil.Sleep(ctx, min(left, grantPause)) == nil
}
