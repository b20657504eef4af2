package journal

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Journal of one run. The pre-images of a chunk are durable before the first
// change it covers; marks of what is done may lag behind what is done.
type Journal struct {
	Header
	Phase Phase
	// Undone: a rollback may have begun with the units from this sequence number on. It
	// is written before it begins with the first of them, for several at once.
	Undone int

	mu     sync.Mutex
	chunks []*Chunk
}

// Header is what the first Secret of a journal says of its run.
type Header struct {
	Format int    `json:"format"`
	Job    string `json:"job"`
	Run    string `json:"run"`
	// Number puts the runs of all jobs in order, whatever the clocks of the machines
	// say on which they ran: it is the number of the lock's acquisition. 0 in format 1.
	Number      int       `json:"number,omitempty"`
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"startedAt"`
	Parallelism int       `json:"parallelism"`
	Serial      bool      `json:"serial,omitempty"`
	// OnlyNamespace is the one that the run was limited to.
	OnlyNamespace string `json:"onlyNamespace,omitempty"`
}

// Phase of a journal, in a label of its first Secret.
type Phase string

const (
	PhaseForward    Phase = "forward"
	PhaseRollback   Phase = "rollback"
	PhaseUndo       Phase = "undo"
	PhaseDone       Phase = "done"
	PhaseRolledBack Phase = "rolled-back"
	PhaseUndone     Phase = "undone"
	// PhaseIncomplete is that of a journal whose first chunk is being written, in several
	// Secrets: no change of its run has begun, nor will one.
	PhaseIncomplete Phase = "incomplete"
)

// OpenPhases are those of a run that somebody has to finish.
var OpenPhases = []Phase{PhaseForward, PhaseRollback, PhaseUndo}

// journalFormat is written into each journal; a newer one is refused. Format 1
// marked units and not changes, and had neither number, count nor watermark: what
// it did not mark as done is unknown.
// Up to format 2 there was no Recreate: see formerRecord. A run of this build may go on with
// a journal of an earlier one, so each chunk says its format, and one that does not is of an
// earlier build.
const (
	journalFormat = 3
	formerFormat  = 2
)

// New returns the journal of a new run. Nothing of it is stored before the first Append.
func New(job, version string, number int, plan *migration.Plan) *Journal {
	now := time.Now().UTC()
	return &Journal{Phase: PhaseForward, Header: Header{
		Format: journalFormat, Job: job, Version: version, Number: number, StartedAt: now.Truncate(time.Second),
		Run:         now.Format("20060102150405") + now.Format(".000")[1:] + "-" + rand.String(5),
		Parallelism: plan.Parallelism, Serial: plan.Serial,
	}}
}

// LimitTo notes that the run was limited to a namespace; "": it was not.
func (j *Journal) LimitTo(namespace string) { j.OnlyNamespace = namespace }

// BeginUndoing returns the sequence number of the unit from which on an earlier process may have
// undone units. A rollback that begins has undone none.
func (j *Journal) BeginUndoing(resumed bool) int {
	if !resumed {
		j.Undone = math.MaxInt
	}
	return j.Undone
}

// newer puts the newest run first: by number, and those of format 1 by their clock.
func newer(a, b Header) int {
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.Run, a.Run))
}

// Empty says whether nothing was written into the journal yet.
func (j *Journal) Empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.chunks) == 0
}

// All returns the chunks, in order.
func (j *Journal) All() []*Chunk {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.chunks)
}

// Entries are all units of the journal, in the order in which they were planned.
func (j *Journal) Entries() []*Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*Entry
	for _, c := range j.chunks {
		all = append(all, c.entries...)
	}
	return all
}

// Changes are all changes of the journal, in order.
func (j *Journal) Changes() []migration.Change {
	var all []migration.Change
	for _, e := range j.Entries() {
		all = append(all, e.Unit.Changes...)
	}
	return all
}
