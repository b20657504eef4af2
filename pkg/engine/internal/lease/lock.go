package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationapi "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// CallTimeout bounds one API call; with a short lease, what is left of it does.
const CallTimeout = 20 * time.Second

// LockedError says that another run holds the lock.
type LockedError struct {
	Holder string
	// Lost is set if this run held the lock and it was taken.
	Lost bool
	// Deleted is set if this run held the lock and its Lease was deleted.
	Deleted bool
}

func (e *LockedError) Error() string {
	if e.Deleted {
		return "the lock of this run, its Lease, was deleted"
	}
	if e.Lost {
		return fmt.Sprintf("the lock was taken from this run by %q", e.Holder)
	}
	return fmt.Sprintf("another run holds the lock: %q", e.Holder)
}

// refusedFor is how long the renewal of a Lease may be refused on the merits until this process
// counts it as lost: an API server that starts, or that learns late of a Role, refuses for a
// moment. retryRefused is the pause between two attempts then.
const (
	refusedFor   = 5 * time.Second
	retryRefused = time.Second
)

// RefusedError says that this run held the lock, and that the API server does not let it renew its
// Lease any more: a permission, a quota or a policy.
type RefusedError struct {
	// Lease is its namespace and name.
	Lease string
	// Account is whom the API server took the request to come from; "" if it did not say.
	Account string
	Err     error
}

func (e *RefusedError) Error() string {
	by := ""
	if e.Account != "" {
		by = fmt.Sprintf(" by account %s", e.Account)
	}
	return fmt.Sprintf("cannot renew Lease %s%s: %v", e.Lease, by, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// GoneIn is what to tell of an account that is gone: with the Lease, if its renewal said so.
func GoneIn(err error, gone *k8sutil.AccountGoneError) error {
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused
	}
	return gone
}

// Lock is the Lease as this process holds it. The API server checks no fencing
// token, so the holder does: a write may begin only while the lease it renewed
// last is good, and must end before that. Two clocks of this process must agree: the
// monotonic one, which nobody can set but which stops while the machine is suspended,
// and the wall clock, which goes on.
type Lock struct {
	names               migration.Names
	client              coordinationv1.LeaseInterface
	namespace, identity string
	log                 *zap.Logger
	// read repeats a read that failed for a moment.
	read func(context.Context, func(context.Context) error) error
	// account judges the answers to writes: whether this account is gone.
	account *k8sutil.Account
	// MakeNamespace creates the namespace of the Lease, for the answer that refused the
	// Lease's own creation. Nil: it is not created.
	MakeNamespace func(ctx context.Context, refused error) error
	// Past is asked when the Lease has to be created, since the one before may have been
	// deleted: the jobs with an open journal, and the highest number of a journal. Nil:
	// there is no past.
	Past func(context.Context) (open []string, highest int, err error)

	// Waiting is told who holds the lock that is waited for, and "" when the wait has ended; nil:
	// nobody is.
	Waiting func(holder string)

	// turn is taken, for as long as a call takes, by the one that reads or writes the Lease:
	// while it is held, the renewal and the jobs that share it.
	turn chan struct{}
	// Live is the Lease as it was read or written last, nil if there was none; seen is
	// its record, and seenAt when it was read.
	Live   *coordinationapi.Lease
	Seen   *resourcelock.LeaderElectionRecord
	seenAt time.Time
	// marks are the jobs whose mark is to be on the Lease from the next write on, or
	// (false) is not to be on it any more: see marks.go.
	marks map[string]bool

	// About tells people who this process is, and working are the jobs that it works on:
	// see holder.go.
	About   About
	working map[string]bool

	// number of this acquisition, which puts runs in order: the transitions that the
	// Lease counts.
	number int
	// refusedSince is when the API server began to refuse the renewals; the zero time: it does not.
	refusedSince time.Time

	holding
	stop    context.CancelFunc
	stopped chan struct{}
}

// New returns a lock that is not held. It keeps the Lease for duration at a time.
func New(client coordinationv1.CoordinationV1Interface, names migration.Names, namespace, identity string, duration time.Duration, log *zap.Logger,
	read func(context.Context, func(context.Context) error) error, account *k8sutil.Account,
) *Lock {
	return &Lock{
		names: names, client: client.Leases(namespace), namespace: namespace, identity: identity, log: log, read: read, account: account,
		marks: map[string]bool{}, working: map[string]bool{}, turn: make(chan struct{}, 1),
		holding: holding{duration: duration, renewed: make(chan struct{}), over: make(chan struct{})},
	}
}

// String is where the Lease is.
func (l *Lock) String() string { return l.namespace + "/" + l.names.Program }

func (l *Lock) enter() { l.turn <- struct{}{} }

func (l *Lock) leave() { <-l.turn }

// isOurs says whether this process is the holder of the Lease as seen.
func (l *Lock) isOurs() bool { return l.Seen != nil && l.Seen.HolderIdentity == l.identity }

// Peek reads the Lease. An acquisition that builds on what peek saw succeeds only
// if nobody acquired it since: what was read of the cluster after peek is then
// still true.
func (l *Lock) Peek(ctx context.Context) error {
	return l.read(ctx, func(ctx context.Context) error {
		live, err := l.client.Get(ctx, l.names.Program, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			l.Live, l.Seen, l.seenAt = nil, nil, time.Now()
			return nil
		case err != nil:
			return fmt.Errorf("cannot read Lease %s: %w", l, err)
		}
		record := resourcelock.LeaseSpecToLeaderElectionRecord(&live.Spec)
		if !sameRecord(l.Seen, record) {
			l.seenAt = time.Now()
		}
		l.Live, l.Seen = live, record
		return nil
	})
}

// free says when the Lease as seen may be taken. A foreign Lease is over when it
// was not renewed for its duration while we looked: clocks are not compared.
func (l *Lock) free() (at time.Time, holder string) {
	if l.Seen == nil || l.Seen.HolderIdentity == "" || l.isOurs() {
		return time.Time{}, ""
	}
	return l.seenAt.Add(time.Duration(l.Seen.LeaseDurationSeconds)*time.Second + l.grace()), l.Seen.HolderIdentity
}

// grace covers a last call of the previous holder that is still on its way.
func (l *Lock) grace() time.Duration { return min(l.duration/4, time.Second) }

// Acquire takes the Lease, and marks on it that a run of the job is open; it waits
// up to patience for another holder. contended is true if anybody held it since peek:
// then what was read before is stale.
func (l *Lock) Acquire(ctx context.Context, job string, patience time.Duration) (contended bool, err error) {
	l.enter()
	defer l.leave()
	l.marks, l.working = map[string]bool{job: true}, map[string]bool{job: true}
	giveUp := time.Now().Add(patience)
	waits := func(holder string) {
		if l.Waiting != nil {
			l.Waiting(holder)
		}
	}
	for {
		at, holder := l.free()
		if !time.Now().Before(at) {
			began := time.Now()
			highest, err := l.restore(ctx)
			if err == nil {
				err = l.write(ctx, l.take(highest))
			}
			if err == nil {
				l.number = l.Seen.LeaderTransitions + 1
				l.hold(began)
				return contended || holder != "", nil
			}
			contended = true
			moved := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
			if !moved && !k8sutil.IsTransient(err) {
				return contended, fmt.Errorf("cannot take the lock, Lease %s: %w", l, err)
			}
			if time.Now().After(giveUp) {
				return contended, fmt.Errorf("cannot take the lock, Lease %s: %w", l, err)
			}
			// After an unknown outcome the Lease may be ours: look.
			if err := l.Peek(ctx); err != nil {
				return contended, err
			}
			if l.isOurs() {
				continue
			}
			if at, _ := l.free(); time.Now().Before(at) {
				continue
			}
			if err := k8sutil.Sleep(ctx, 50*time.Millisecond); err != nil {
				return contended, err
			}
			continue
		}
		contended = true
		if !time.Now().Before(giveUp) {
			return true, &LockedError{Holder: holder}
		}
		l.log.Info("waiting for the lock", zap.Stringer("lease", l), zap.String("holder", holder),
			zap.Duration("atMost", time.Until(giveUp).Round(time.Second)))
		waits(holder)
		err := l.awaitChange(ctx, at, giveUp)
		waits("")
		if err != nil {
			return true, err
		}
	}
}

// take is the record of this process as the holder. highest is the number of the last
// acquisition, if there is no Lease that tells it.
func (l *Lock) take(highest int) *resourcelock.LeaderElectionRecord {
	now := metav1.Now()
	record := &resourcelock.LeaderElectionRecord{
		HolderIdentity:       l.identity,
		LeaseDurationSeconds: int(l.duration / time.Second),
		AcquireTime:          now,
		RenewTime:            now,
		LeaderTransitions:    highest,
	}
	if l.Seen != nil {
		record.LeaderTransitions = l.Seen.LeaderTransitions + 1
	}
	return record
}

func (l *Lock) write(ctx context.Context, record *resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(CallTimeout, l.renewDeadline()))
	defer cancel()
	lease := &coordinationapi.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.names.Program, Namespace: l.namespace}}
	if l.Live != nil {
		lease = l.Live.DeepCopy()
	}
	lease.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(record)
	applyMarks(lease, l.names, l.marks, record.RenewTime)
	l.introduce(lease, record.HolderIdentity)
	err := l.account.Watch(func(ctx context.Context) (err error) {
		if l.Live != nil {
			lease, err = l.client.Update(ctx, lease, metav1.UpdateOptions{})
			return err
		}
		created, err := l.client.Create(ctx, lease, metav1.CreateOptions{})
		if k8sutil.NamespaceGone(err) && l.MakeNamespace != nil {
			if err := l.MakeNamespace(ctx, err); err != nil {
				return err
			}
			created, err = l.client.Create(ctx, lease, metav1.CreateOptions{})
		}
		lease = created
		return err
	})(ctx)
	if err == nil {
		l.Live, l.Seen = lease, record
	}
	return err
}

// awaitChange waits until the Lease changes, may be taken, or patience ends.
func (l *Lock) awaitChange(ctx context.Context, freeAt, giveUp time.Time) error {
	until := freeAt
	if giveUp.Before(until) {
		until = giveUp
	}
	watchCtx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	w, err := l.client.Watch(watchCtx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", l.names.Program).String(),
	})
	if err != nil {
		if !k8sutil.IsTransient(err) {
			return fmt.Errorf("cannot watch Lease %s: %w", l, err)
		}
		if err := k8sutil.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		return l.Peek(ctx)
	}
	defer w.Stop()
	for {
		select {
		case <-watchCtx.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return l.Peek(ctx)
		case _, open := <-w.ResultChan():
			// Whatever happened, the Lease itself says how it stands.
			before := l.Seen
			if err := l.Peek(ctx); err != nil {
				return err
			}
			if !open || !sameRecord(l.Seen, before) {
				return nil
			}
		}
	}
}

// hold starts renewing.
func (l *Lock) hold(began time.Time) {
	ctx, cancel := context.WithCancel(context.Background())
	l.stop, l.stopped = cancel, make(chan struct{})
	l.begin(began)
	go l.renew(ctx)
}

func (l *Lock) renew(ctx context.Context) {
	defer close(l.stopped)
	every := time.NewTicker(l.duration / 5)
	defer every.Stop()
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		case <-again:
		}
		again = nil
		if err := l.renewOnce(ctx); err != nil {
			if l.LossCause() != nil {
				return
			}
			if isRefusal(err) {
				again = time.After(retryRefused)
			}
			l.log.Debug("cannot renew the lock yet", zap.Error(err))
		}
	}
}

// renewOnce writes the Lease once more, with the marks as they are to be. The one that
// finds that somebody else has it has lost it.
func (l *Lock) renewOnce(ctx context.Context) error {
	l.enter()
	defer l.leave()
	if lost := l.LossCause(); lost != nil {
		return k8sutil.Permanent(lost)
	}
	began := time.Now()
	record := *l.Seen
	record.RenewTime = metav1.Now()
	err := l.write(ctx, &record)
	switch {
	case err == nil:
		l.refusedSince = time.Time{}
		l.extend(began)
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		// Somebody wrote it: see who.
		if err := l.Peek(ctx); err != nil {
			return refused(l, began, err)
		}
		if l.isOurs() {
			return k8sutil.Retryable(err)
		}
		lost := &LockedError{Lost: true, Deleted: l.Seen == nil}
		if l.Seen != nil {
			lost.Holder = l.Seen.HolderIdentity
		}
		l.lose(lost)
		return k8sutil.Permanent(lost)
	default:
		if gone, ok := errors.AsType[*k8sutil.AccountGoneError](err); ok {
			l.lose(&RefusedError{Lease: l.String(), Account: l.About.User, Err: gone})
			return err
		}
		return refused(l, began, err)
	}
	return err
}

// isRefusal says whether the API server refuses a renewal on the merits.
func isRefusal(err error) bool {
	return !k8sutil.IsTransient(err) || k8sutil.RefusalOf(err).Kind == k8sutil.NoAccount
}

// refused counts a renewal that the API server refuses on the merits. It is not carried out while
// the reason lasts, and without it nothing may be written: the run ends, and does not wait for the
// end of the Lease.
func refused(l *Lock, began time.Time, err error) error {
	refusal := k8sutil.RefusalOf(err)
	switch {
	case !isRefusal(err):
	case l.refusedSince.IsZero():
		l.refusedSince = began
		l.log.Warn("the API server refuses to renew the lock; trying for "+refusedFor.String(), zap.Stringer("lease", l), zap.Error(err))
	case refusal.Kind == k8sutil.NoAccount:
		// It may be a token that was just rotated: see k8sutil.Account.
	case time.Since(l.refusedSince) >= refusedFor:
		lost := &RefusedError{Lease: l.String(), Account: l.About.User, Err: err}
		if refusal.Kind == k8sutil.NoPermission {
			lost.Account = refusal.By
		}
		l.lose(lost)
		return k8sutil.Permanent(lost)
	}
	return err
}

// Acquisition is the number of the acquisition that this process holds.
func (l *Lock) Acquisition() int { return l.number }

// Release gives the lock back, so that the next run need not wait for it to
// expire. The marks of the closed jobs go with it. Failing to is no error: it expires by
// itself, and a mark without an open journal is removed by the next run of its job.
func (l *Lock) Release(closed ...string) {
	held, lost := l.end()
	if !held {
		return
	}
	l.stop()
	<-l.stopped
	if lost != nil {
		return
	}
	// After the last renewal, so that one write both removes the marks and releases the Lease.
	for _, job := range closed {
		l.unmark(job)
	}
	l.enter()
	defer l.leave()
	err := k8sutil.Retry(context.Background(), l.renewDeadline(), nil, func(ctx context.Context) error {
		if !l.isOurs() {
			return nil // an earlier attempt was carried out, or somebody has it now
		}
		record := *l.Seen
		record.HolderIdentity = ""
		record.RenewTime = metav1.Now()
		err := l.write(ctx, &record)
		if !apierrors.IsConflict(err) {
			return err
		}
		answer := err
		if err := l.Peek(ctx); err != nil {
			return err
		}
		return k8sutil.Retryable(answer)
	})
	l.marks = map[string]bool{}
	if err != nil {
		l.log.Warn("cannot release the lock; it expires by itself", zap.Duration("within", l.duration), zap.Error(err))
	}
}

func sameRecord(a, b *resourcelock.LeaderElectionRecord) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.HolderIdentity == b.HolderIdentity && a.LeaderTransitions == b.LeaderTransitions &&
		a.AcquireTime.Equal(&b.AcquireTime) && a.RenewTime.Equal(&b.RenewTime)
}
