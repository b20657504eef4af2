package migration

import (
	"context"
)

type dryRunKey struct{}

// WithDryRun returns the context of a plan that is only shown.
func WithDryRun(ctx context.Context) context.Context {
	return context.WithValue(ctx, dryRunKey{}, true)
}

// DryRun says whether a job plans for somebody who only wants to see the plan:
// it need not wait for anything then.
func DryRun(ctx context.Context) bool {
	dry, _ := ctx.Value(dryRunKey{}).(bool)
	return dry
}
