package wait

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// Both does two reads at once.
func Both(ctx context.Context, one, other func(context.Context) error) error {
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return one(gctx) })
	g.Go(func() error { return other(gctx) })
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}
