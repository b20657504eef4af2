package migration

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// freshFor is how old a shared read may be when a recheck uses it.
	freshFor = 2 * time.Second
	// freshEvery is the shortest time between the beginnings of two reads of the
	// same key: rechecks make at most two requests a second for each kind.
	freshEvery = 500 * time.Millisecond
)

// Fresh is what a recheck reads the cluster through. All rechecks of a run share
// their reads, so that a thousand of them cost a few requests.
type Fresh struct {
	shared *sharedReads
	waiter *waiter
	// after is when the unit's last wait ended: reads that began before do not count.
	// Zero if the unit has waited for nothing.
	after time.Time
}

// Shared returns what read returns, from this call or from another recheck's that
// began at most 2 s ago and after everything that the unit waited for. Calls of one
// key share one read at a time, and begin at most two in a second. What is returned
// is shared and must not be changed. The Cluster is a new one in each call of read.
//
// Large kinds are better watched: see Fresh.Watched.
func Shared[T any](ctx context.Context, f *Fresh, key string, read func(context.Context, *Cluster) (T, error)) (T, error) {
	v, err := f.shared.get(ctx, key, f.after, func(ctx context.Context, c *Cluster) (any, error) { return read(ctx, c) })
	if err != nil {
		var none T
		return none, err
	}
	return v.(T), nil
}

// Watched returns all objects of a kind in a namespace ("" for all), as a watch
// shows them now. The first call lists them, unless the plan did. They are shared
// and must not be changed.
func (f *Fresh) Watched(ctx context.Context, r Resource, namespace string) ([]*unstructured.Unstructured, error) {
	if err := f.watch(ctx, r, namespace); err != nil {
		return nil, err
	}
	return f.waiter.List(r, namespace), nil
}

// WatchedOne is Watched of one object; nil if it does not exist.
func (f *Fresh) WatchedOne(ctx context.Context, ref Ref) (*unstructured.Unstructured, error) {
	if err := f.watch(ctx, ref.Resource, ref.Namespace); err != nil {
		return nil, err
	}
	return f.waiter.Get(ref), nil
}

func (f *Fresh) watch(ctx context.Context, r Resource, namespace string) error {
	conditions := []Condition{{On: []Ref{{Resource: r, Namespace: namespace}}}}
	collection, err := f.waiter.cluster.collection(ctx, r, namespace)
	if err != nil {
		return err
	}
	// A collection that nobody watches yet is as old as the plan: it is listed once
	// more, for all who ask at the same time.
	_, err, _ = f.shared.first.Do(r.GroupVersionResource.String()+" "+namespace, func() (any, error) {
		if collection.Watching() {
			return nil, nil
		}
		if err := collection.List(ctx); err != nil {
			return nil, err
		}
		return nil, f.waiter.watch(ctx, conditions)
	})
	return err
}

// sharedReads are the reads of one run's rechecks, by key.
type sharedReads struct {
	cluster func() *Cluster
	// first makes callers who begin to watch the same collection at once share that.
	first singleflight.Group

	mu   sync.Mutex
	keys map[string]*sharedRead
}

// sharedRead is one key: what was read last, and the read that is under way.
type sharedRead struct {
	// turn is held while the key is read.
	turn  chan struct{}
	began time.Time
	value any
	err   error
}

func newSharedReads(cluster func() *Cluster) *sharedReads {
	return &sharedReads{cluster: cluster, keys: map[string]*sharedRead{}}
}

func (s *sharedReads) get(ctx context.Context, key string, after time.Time, read func(context.Context, *Cluster) (any, error)) (any, error) {
	s.mu.Lock()
	one := s.keys[key]
	if one == nil {
		one = &sharedRead{turn: make(chan struct{}, 1)}
		s.keys[key] = one
	}
	s.mu.Unlock()
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-one.turn }()
	if !one.began.IsZero() && one.began.After(after) && time.Since(one.began) <= freshFor {
		return one.value, one.err
	}
	if pause := freshEvery - time.Since(one.began); !one.began.IsZero() && pause > 0 {
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	one.began = time.Now()
	one.value, one.err = read(ctx, s.cluster())
	if ctx.Err() != nil {
		// Another recheck must not take the end of this one for an answer.
		one.began = time.Time{}
	}
	return one.value, one.err
}
