package wait

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

const (
	// sharedFor is how long after its end a shared read serves those who ask: the rest of
	// FreshFor is for the request.
	sharedFor = FreshFor / 2
	// freshEvery is the shortest time between the beginnings of two reads of the
	// same key: rechecks make at most two requests a second for each kind.
	freshEvery = 500 * time.Millisecond
)

// Fresh is what one recheck reads.
type Fresh struct {
	shared *SharedReads
	waiter *Waiter
	// after is when the unit's last wait ended: reads that began before do not count.
	// Zero if the unit has waited for nothing.
	after time.Time
	// asked is when the recheck began.
	asked time.Time

	mu sync.Mutex
	// oldest is the first of the shared reads that the recheck was given, watched when it
	// looked at a watch for the first time.
	oldest  span
	watched time.Time
}

// span is when a read began and ended.
type span struct{ began, ended time.Time }

// NewFresh returns what one recheck reads that begins now. after is when the unit's last wait
// ended, zero if it has waited for nothing.
func NewFresh(shared *SharedReads, w *Waiter, after time.Time) *Fresh {
	return &Fresh{shared: shared, waiter: w, after: after, asked: time.Now()}
}

// Answer is that of the recheck, which is given now.
func (f *Fresh) Answer() Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := Answer{Read: f.watched, Given: time.Now()}
	if one := f.oldest; !one.began.IsZero() && (a.Read.IsZero() || one.began.Before(a.Read)) {
		a.Read, a.Idle = one.began, max(0, f.asked.Sub(one.ended))
	}
	if a.Read.IsZero() {
		a.Read = f.asked
	}
	return a
}

// Served implements Fresh.
func (f *Fresh) Served(ctx context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	return f.waiter.cluster.Resolve(ctx, gk)
}

// Shared implements Fresh.
func (f *Fresh) Shared(ctx context.Context, key string, read func(context.Context, *migration.Cluster) (any, error)) (any, error) {
	v, of, err := f.shared.get(ctx, key, f.after, read)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.oldest.began.IsZero() || of.began.Before(f.oldest.began) {
		f.oldest = of
	}
	return v, err
}

// Watched implements Fresh.
func (f *Fresh) Watched(ctx context.Context, r migration.Resource, namespace string) ([]*unstructured.Unstructured, error) {
	if err := f.watch(ctx, r, namespace); err != nil {
		return nil, err
	}
	return f.waiter.list(r, namespace), nil
}

// WatchedEach implements Fresh.
func (f *Fresh) WatchedEach(ctx context.Context, r migration.Resource, namespace string, fn func(*unstructured.Unstructured)) error {
	if err := f.watch(ctx, r, namespace); err != nil {
		return err
	}
	if collection := f.waiter.cluster.Known(r, namespace); collection != nil {
		collection.Each(func(obj *unstructured.Unstructured) {
			if namespace == "" || obj.GetNamespace() == namespace {
				fn(obj)
			}
		})
	}
	return nil
}

// WatchedOne implements Fresh.
func (f *Fresh) WatchedOne(ctx context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	if err := f.watch(ctx, ref.Resource, ref.Namespace); err != nil {
		return nil, err
	}
	return f.waiter.get(ref), nil
}

func (f *Fresh) watch(ctx context.Context, r migration.Resource, namespace string) error {
	f.mu.Lock()
	if f.watched.IsZero() {
		f.watched = time.Now()
	}
	f.mu.Unlock()
	collection, err := f.waiter.cluster.Collection(ctx, r, namespace)
	if err != nil {
		return err
	}
	// A collection that nobody watches yet is as old as the plan: it is listed once
	// more, for all who ask at the same time: one collection may hold the objects of
	// all namespaces.
	_, err, _ = f.shared.first.Do(fmt.Sprintf("%p", collection), func() (any, error) {
		if collection.Watching() {
			return nil, nil
		}
		if err := collection.List(ctx); err != nil {
			return nil, err
		}
		f.waiter.follow(collection, r.GroupKind())
		return nil, nil
	})
	return err
}

// SharedReads are the reads of one run's rechecks, by key.
type SharedReads struct {
	cluster func() *migration.Cluster
	// first makes callers who begin to watch the same collection at once share that.
	first singleflight.Group

	mu   sync.Mutex
	keys map[string]*sharedRead
	// open is how many units have not ended, asking how many of them wait for a read.
	open, asking int
	// onlyReads is closed when nothing but such reads is left to wait for.
	onlyReads chan struct{}
	closed    bool
}

// Counted adds to the units that have not ended, and to those that wait for a read.
// When all of them wait, no later one can share the next read: its pause is of no use.
func (s *SharedReads) Counted(open, asking int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += open
	s.asking += asking
	if s.open > 0 && s.asking == s.open && !s.closed {
		s.closed = true
		close(s.onlyReads)
	}
}

// pause waits until a key may be read again, and but once until nothing else is under
// way: a read more than freshEvery allows, which is the run's last one.
func (s *SharedReads) pause(ctx context.Context, one *sharedRead) error {
	rest := freshEvery - time.Since(one.began)
	if one.began.IsZero() || rest <= 0 {
		return nil
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	var early <-chan struct{}
	if !one.early {
		early = s.onlyReads
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
	case <-early:
		one.early = true
	}
	return nil
}

// sharedRead is one key: what was read last, and the read that is under way.
type sharedRead struct {
	// turn is held while the key is read.
	turn chan struct{}
	span
	value any
	err   error
	// early says that the key was read once before its pause had ended.
	early bool
}

// NewSharedReads returns reads that nobody has made yet. cluster returns a view of the
// cluster that has read nothing.
func NewSharedReads(cluster func() *migration.Cluster) *SharedReads {
	return &SharedReads{cluster: cluster, keys: map[string]*sharedRead{}, onlyReads: make(chan struct{})}
}

func (s *SharedReads) get(ctx context.Context, key string, after time.Time, read func(context.Context, *migration.Cluster) (any, error)) (any, span, error) {
	s.mu.Lock()
	one := s.keys[key]
	if one == nil {
		one = &sharedRead{turn: make(chan struct{}, 1)}
		s.keys[key] = one
	}
	s.mu.Unlock()
	s.Counted(0, 1)
	defer s.Counted(0, -1)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, span{}, context.Cause(ctx)
	}
	defer func() { <-one.turn }()
	// One that was under way serves all who came meanwhile, however long it took: see Answer.
	if !one.began.IsZero() && one.began.After(after) && time.Since(one.ended) <= sharedFor {
		return one.value, one.span, one.err
	}
	if err := s.pause(ctx, one); err != nil {
		return nil, span{}, err
	}
	one.began = time.Now()
	one.value, one.err = read(ctx, s.cluster())
	one.ended = time.Now()
	if ctx.Err() != nil {
		// Another recheck must not take the end of this one for an answer.
		one.span = span{}
		return one.value, span{}, one.err
	}
	return one.value, one.span, one.err
}
