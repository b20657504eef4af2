package engine

import (
	"cmp"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/execute"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/lease"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// OnFailure says what a failed run does with what it changed.
type OnFailure string

const (
	OnFailureRollback OnFailure = "rollback"
	OnFailureLeave    OnFailure = "leave"
)

// Resume says which way an interrupted run is finished.
type Resume string

const (
	ResumeForward Resume = "forward"
	ResumeBack    Resume = "back"
)

// Defer says whether work that is left for later is a failure.
type Defer string

const (
	DeferAllow Defer = "allow"
	DeferFail  Defer = "fail"
)

// Options of an Engine. The zero value of a field means its default.
type Options struct {
	// Names are those of the program. There is no default: two programs must not take each other's
	// lock, or journals, for their own.
	Names migration.Names
	// StateNamespace holds the Lease, the journal and the reports, and nothing else: who may read
	// and create Secrets there reaches no secret of anybody else, and no ServiceAccount. Default
	// Names.Program. All processes of the program must agree on it.
	StateNamespace string
	// Timeout bounds the forward work, default 15m. LockWait comes before it,
	// RollbackTimeout (default 5m) after it.
	Timeout, RollbackTimeout time.Duration
	OnFailure                OnFailure // default rollback
	Resume                   Resume    // default forward
	Defer                    Defer     // default allow
	// AcceptLeft lets an undo close a run of which it cannot restore everything.
	AcceptLeft bool
	// UndoOnly are the runs, by job, that somebody has agreed to undo: an undo is refused if
	// another one is the newest by then. A job that is not in it has its newest run undone.
	UndoOnly map[string]string
	// LeaseDuration is how long a killed run's lock lasts, in whole seconds;
	// default 30s. LockWait is how long to wait for the lock; default
	// LeaseDuration + 30s.
	LeaseDuration, LockWait time.Duration
	// PermissionWait is how long a run, before its first write, asks again for a permission that it
	// lacks: for an account that is created right before it. Default 0: it ends at once.
	PermissionWait time.Duration
	// MaxUnready is how many new objects may be waited for at once; default 50.
	MaxUnready int
	// ExcludeNamespaces are those of which migration.Cluster.LeavesOut tells a job.
	ExcludeNamespaces []string
	// OnlyNamespace limits a run or a plan to one namespace; "": none. A job that is no
	// migration.NamespaceLimiter is refused. Undo ignores it: it undoes a whole run.
	OnlyNamespace string
	// Identity names this process in the Lease; it must be unique. Default: a random name.
	Identity string
	// User and Host tell people, on the Lease, who holds it. Neither is secret.
	User, Host string
	// Version of the program, for the journal and the report.
	Version string
	// Grant is the command that prints a Role for this account, for findings about missing
	// permissions; "" if there is none.
	Grant string
	// Undo returns the command that undoes the newest run of a job, as it is pasted into a
	// shell; nil: messages name no command.
	Undo func(job string) string
	// Log takes one line for each change; nil: none.
	Log *zap.Logger
	// Progress is told how far a run is; nil: nobody.
	Progress execute.Progress
	// Seat is this engine's place at a lock that several share; nil: each run has
	// its own.
	Seat *lease.Seat
}

func (o *Options) setDefaults() {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	o.StateNamespace = cmp.Or(o.StateNamespace, o.Names.Program)
	o.Identity = cmp.Or(o.Identity, o.Names.Program+"-"+string(uuid.NewUUID())) // without a holder, a Lease is free
	def(&o.Timeout, 15*time.Minute)
	def(&o.RollbackTimeout, 5*time.Minute)
	def(&o.LeaseDuration, 30*time.Second)
	def(&o.LockWait, o.LeaseDuration+30*time.Second)
	o.OnFailure = cmp.Or(o.OnFailure, OnFailureRollback)
	o.Resume = cmp.Or(o.Resume, ResumeForward)
	o.Defer = cmp.Or(o.Defer, DeferAllow)
	o.MaxUnready = cmp.Or(o.MaxUnready, 50)
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Progress == nil {
		o.Progress = noProgress{}
	}
}

type noProgress struct{}

// Start implements Progress.
func (noProgress) Start(int) {}

// Step implements Progress.
func (noProgress) Step(int, int, execute.Wait, string) {}

// Stop implements Progress.
func (noProgress) Stop() {}
