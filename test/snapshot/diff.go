package snapshot

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// Diff says how after differs from before, "" if it does not: "+" in front of an
// object that came, "-" one that went, "~" one that changed, with its fields.
func Diff(before, after Snapshot) string {
	keys := slices.Concat(before.Keys(""), after.Keys(""))
	slices.SortFunc(keys, compareKeys)
	keys = slices.Compact(keys)

	// Kyma and Knative both have Subscriptions: such kinds need their group.
	groups := map[string]string{}
	ambiguous := map[string]bool{}
	for _, k := range keys {
		if group, ok := groups[k.Kind]; ok && group != k.Group {
			ambiguous[k.Kind] = true
		}
		groups[k.Kind] = k.Group
	}

	var b strings.Builder
	for _, k := range keys {
		name := k.text(ambiguous[k.Kind])
		was, wasThere := before.objects[k]
		is, isThere := after.objects[k]
		switch {
		case !wasThere:
			fmt.Fprintf(&b, "+ %s\n", name)
		case !isThere:
			fmt.Fprintf(&b, "- %s\n", name)
		case !reflect.DeepEqual(was, is): // which is much faster than a diff that is empty
			fmt.Fprintf(&b, "~ %s\n    %s\n", name, strings.ReplaceAll(strings.TrimSpace(cmp.Diff(was, is)), "\n", "\n    "))
		}
	}
	return b.String()
}

// settleTime bounds the wait for controllers and the garbage collector.
const settleTime = 30 * time.Second

// AwaitEqual returns "" once the cluster equals before. It gives controllers and
// the garbage collector half a minute, then returns what still differs.
func AwaitEqual(ctx context.Context, config *rest.Config, before Snapshot, opts Options) (diff string, err error) {
	now, err := Take(ctx, config, opts)
	if err != nil {
		return "", err
	}
	if diff = Diff(before, now); diff == "" {
		return "", nil
	}
	err = retake(ctx, config, opts, func(now Snapshot) bool {
		diff = Diff(before, now)
		return diff == ""
	})
	return diff, err
}

// Stable takes snapshots until two in a row are equal, and returns the last: a
// cluster whose controllers have come to rest. Its error names what does not.
func Stable(ctx context.Context, config *rest.Config, opts Options) (Snapshot, error) {
	last, err := Take(ctx, config, opts)
	if err != nil {
		return Snapshot{}, err
	}
	diff := ""
	err = retake(ctx, config, opts, func(now Snapshot) bool {
		diff = Diff(last, now)
		last = now
		return diff == ""
	})
	if err == nil && diff != "" {
		err = fmt.Errorf("cannot take a stable snapshot: the cluster goes on changing:\n%s", diff)
	}
	return last, err
}

// retake takes snapshots with growing pauses until one is good or settleTime is
// over. There is no one thing to watch: any kind may be the last to become stable.
func retake(ctx context.Context, config *rest.Config, opts Options, good func(Snapshot) bool) error {
	giveUp := time.Now().Add(settleTime)
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		now, err := Take(ctx, config, opts)
		if err != nil {
			return err
		}
		if good(now) || time.Now().After(giveUp) {
			return nil
		}
	}
}
