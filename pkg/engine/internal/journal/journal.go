package journal

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Labels of the journal's Secrets, and of the report's ConfigMap, after the program's domain.
const (
	LabelJob    = "job"
	LabelRun    = "run"
	LabelPhase  = "phase"
	labelNumber = "number"
)

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

const (
	// ChunkChanges is how many changes one write of the journal covers.
	ChunkChanges = 100
	// historyLimit is how many closed journals of a job are kept for undo.
	historyLimit = 5
	// begunAhead is by how many units a chunk's watermark is ahead of the unit that
	// begins: after a kill, so many may have to be looked at for nothing.
	begunAhead = 50
	// undoneAhead is by how many units a rollback's watermark is ahead of the unit that
	// it undoes: after a kill, of so many nobody can tell whether it had undone them.
	undoneAhead = 50
)

// Chunk is one Secret of the journal (with further ones, if it is too large).
type Chunk struct {
	index   int
	Name    string
	entries []*Entry
	parts   int
	// begun: the units before this sequence number may have begun. It is written
	// before the first of them begins, for several at once.
	begun int
	// Created is when the API server stored it: what is older is none of its
	// changes' doing.
	Created metav1.Time
	// left is how many entries are not done yet, in this process' view.
	left atomic.Int32
}

// AllDone says whether nothing of the chunk is left to make.
func (c *Chunk) AllDone() bool { return c.left.Load() == 0 }

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

// Store is the store of one job's journals.
type Store struct {
	Names          migration.Names
	Job, Namespace string
	Secrets        corev1client.SecretInterface
	Meta           metadata.ResourceInterface
	// Highest number of a journal that was seen.
	Highest int
	// open are the runs whose journals are open, as far as this process knows: those
	// that it found, and those that it may have begun to write. Nil: it has not looked,
	// or what it saw may be stale.
	open   map[string]bool
	openMu sync.Mutex
	// read and write repeat a call that failed for a moment; write also holds
	// it against the lock.
	Read, Write func(context.Context, func(context.Context) error) error
}

// stored is one journal as its Secrets' metadata tell.
type stored struct {
	run   string
	phase Phase
}

// OpenJournal is the beginning of a journal: all but its units.
type OpenJournal struct {
	Header Header
	Phase  Phase
}

// Find returns the beginnings of the journals in the given phases, newest first.
// It is an error if a journal lost its first Secret: nobody could tell then what
// the run did.
func (s *Store) Find(ctx context.Context, phases ...Phase) ([]OpenJournal, error) {
	complete := slices.Contains(phases, PhaseForward)
	if complete {
		s.Know(nil)
	}
	runs, err := s.runs(ctx)
	if err != nil {
		return nil, err
	}
	var found []OpenJournal
	for _, one := range runs {
		if !slices.Contains(phases, one.phase) {
			continue
		}
		h, exists, err := s.header(ctx, one)
		if err != nil {
			return nil, err
		}
		if exists { // it may have been pruned meanwhile
			found = append(found, OpenJournal{h, one.phase})
		}
	}
	slices.SortFunc(found, func(a, b OpenJournal) int { return newer(a.Header, b.Header) })
	if complete {
		open := map[string]bool{}
		for _, one := range found {
			if slices.Contains(OpenPhases, one.Phase) {
				open[one.Header.Run] = true
			}
		}
		s.Know(open)
	}
	return found, nil
}

// Know replaces what is known of open journals; nil: nothing.
func (s *Store) Know(open map[string]bool) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.open = open
}

// keep notes whether the journal of a run is open now.
func (s *Store) keep(run string, open bool) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	switch {
	case !open:
		delete(s.open, run)
	case s.open != nil:
		s.open[run] = true
	}
}

// AllClosed says whether it is known that the job has no open journal.
func (s *Store) AllClosed() bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.open != nil && len(s.open) == 0
}

// Past is what the journals of all jobs tell: which jobs have an open one, and the
// highest number.
func (s *Store) Past(ctx context.Context) (open []string, highest int, err error) {
	list, err := s.Metadata(ctx, s.Names.Key(LabelJob)+","+s.Names.Key(LabelPhase))
	if err != nil {
		return nil, 0, err
	}
	for i := range list {
		labels := list[i].Labels
		if slices.Contains(OpenPhases, Phase(labels[s.Names.Key(LabelPhase)])) {
			open = append(open, labels[s.Names.Key(LabelJob)])
		}
		if n, err := strconv.Atoi(labels[s.Names.Key(labelNumber)]); err == nil {
			highest = max(highest, n)
		}
	}
	return open, highest, nil
}

// runs lists the metadata of the job's journals.
func (s *Store) runs(ctx context.Context) ([]*stored, error) {
	list, err := s.Metadata(ctx, s.Names.Key(LabelJob)+"="+s.Job+","+s.Names.Key(LabelRun))
	if err != nil {
		return nil, err
	}
	byRun := map[string]*stored{}
	for i := range list {
		run := list[i].Labels[s.Names.Key(LabelRun)]
		one := byRun[run]
		if one == nil {
			one = &stored{run: run}
			byRun[run] = one
		}
		if p := list[i].Labels[s.Names.Key(LabelPhase)]; p != "" {
			one.phase = Phase(p)
		}
		if n, err := strconv.Atoi(list[i].Labels[s.Names.Key(labelNumber)]); err == nil {
			s.Highest = max(s.Highest, n)
		}
	}
	runs := make([]*stored, 0, len(byRun))
	for _, run := range slices.Sorted(maps.Keys(byRun)) {
		one := byRun[run]
		if one.phase == "" {
			return nil, s.damaged(run, s.chunkName(run, 0))
		}
		runs = append(runs, one)
	}
	return runs, nil
}

func (s *Store) header(ctx context.Context, one *stored) (h Header, found bool, err error) {
	// A list: no account needs to get Secrets in addition.
	list, err := s.List(ctx, Selects(s.Names, s.Job, one.run)+","+s.Names.Key(LabelPhase))
	if err != nil || len(list) == 0 {
		return h, false, err
	}
	if err := json.Unmarshal(list[0].Data["run"], &h); err != nil {
		return h, false, fmt.Errorf("cannot read journal Secret %s/%s: %w", s.Namespace, list[0].Name, err)
	}
	if h.Format > journalFormat {
		return h, false, fmt.Errorf("cannot read the journal of run %s, which a newer version (%s) has written: use that version", h.Run, h.Version)
	}
	return h, true, nil
}

// DamagedError says that a Secret of a journal is missing.
type DamagedError struct {
	names                        migration.Names
	job, run, namespace, missing string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the journal of run %s of %s is damaged: Secret %s/%s is missing", e.run, e.job, e.namespace, e.missing)
}

// Advice is the way out: restore the Secret, or give the journal up.
func (e *DamagedError) Advice() migration.Advice {
	return migration.Advice{
		Note: fmt.Sprintf("Restore that Secret from a backup. Without one, no command can undo the run. Check the objects with the annotation %s=%s/…, and delete the journal:",
			e.names.Mark(), e.run),
		Command: migration.Kubectl(e.namespace, "delete", "secrets", "-l", e.names.Key(LabelRun)+"="+e.run),
	}
}

func (s *Store) damaged(run, missing string) error {
	return k8sutil.Permanent(&DamagedError{s.Names, s.Job, run, s.Namespace, missing})
}

// Selects is the label selector of the Secrets of one run.
func Selects(names migration.Names, job, run string) string {
	return names.Key(LabelJob) + "=" + job + "," + names.Key(LabelRun) + "=" + run
}

// Metadata lists the metadata of Secrets: their data may be large.
func (s *Store) Metadata(ctx context.Context, selector string) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var page *metav1.PartialObjectMetadataList
		err := s.Read(ctx, func(ctx context.Context) error {
			var err error
			page, err = s.Meta.List(ctx, opts)
			return err
		})
		return page, err
	})
	list, _, err := p.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list the journal's secrets: %w", err)
	}
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		one, err := meta.Accessor(obj)
		if err != nil {
			return err
		}
		all = append(all, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: one.GetName(), Labels: one.GetLabels()}})
		return nil
	})
	return all, err
}

// List reads all Secrets that a selector selects, in pages.
func (s *Store) List(ctx context.Context, selector string) ([]corev1.Secret, error) {
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var page *corev1.SecretList
		err := s.Read(ctx, func(ctx context.Context) error {
			var err error
			page, err = s.Secrets.List(ctx, opts)
			return err
		})
		return page, err
	})
	p.PageSize = 50 // a Secret may hold nearly 1 MiB
	list, _, err := p.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("cannot list the journal's secrets: %w", err)
	}
	var all []corev1.Secret
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		all = append(all, *obj.(*corev1.Secret))
		return nil
	})
	return all, err
}

// Load reads a whole journal. It is an error if a Secret of it is missing.
func (s *Store) Load(ctx context.Context, h Header, p Phase) (*Journal, error) {
	list, err := s.List(ctx, Selects(s.Names, s.Job, h.Run))
	if err != nil {
		return nil, err
	}
	byName := map[string]*corev1.Secret{}
	last := 0
	for i := range list {
		byName[list[i].Name] = &list[i]
		if index, ok := chunkIndex(list[i].Name); ok {
			last = max(last, index)
		}
	}
	j := &Journal{Header: h, Phase: p}
	// What was written as the number of chunks may be one behind what there is: the
	// chunk comes first.
	if first := byName[s.chunkName(h.Run, 0)]; first != nil {
		if n, err := strconv.Atoi(string(first.Data["chunks"])); err == nil {
			last = max(last, n-1)
		}
		// Without that number, a rollback may have begun with any unit.
		j.Undone, _ = strconv.Atoi(string(first.Data["undone"]))
	}
	for i := 0; i <= last; i++ {
		name := s.chunkName(h.Run, i)
		secret := byName[name]
		if secret == nil {
			return nil, s.damaged(h.Run, name)
		}
		c, err := s.readChunk(h, i, secret, byName)
		if err != nil {
			return nil, fmt.Errorf("cannot read journal Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		j.chunks = append(j.chunks, c)
	}
	return j, nil
}

func (s *Store) readChunk(h Header, index int, secret *corev1.Secret, byName map[string]*corev1.Secret) (*Chunk, error) {
	c := &Chunk{index: index, Name: secret.Name, Created: secret.CreationTimestamp}
	packed := secret.Data["units"]
	c.parts, _ = strconv.Atoi(string(secret.Data["parts"]))
	for i := 1; i <= c.parts; i++ {
		part := byName[partName(c.Name, i)]
		if part == nil {
			return nil, s.damaged(h.Run, partName(c.Name, i))
		}
		packed = append(packed, part.Data["units"]...)
	}
	unpack, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(unpack)
	if err != nil {
		return nil, err
	}
	format := formerFormat
	if given := secret.Data["format"]; len(given) > 0 {
		if format, err = strconv.Atoi(string(given)); err != nil {
			return nil, err
		}
	}
	records, err := readRecords(format, raw)
	if err != nil {
		return nil, err
	}
	if c.begun, err = strconv.Atoi(string(secret.Data["begun"])); err != nil {
		c.begun = math.MaxInt // format 1 has no watermark
	}
	done, all := map[int][]string{}, map[int]Marks{}
	for key, into := range map[string]any{"done": &done, "marks": &all} {
		if raw := secret.Data[key]; len(raw) > 0 {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, err
			}
		}
	}
	c.entries = make([]*Entry, len(records))
	for n := range records {
		e := &Entry{Record: records[n], Chunk: c, Read: true, known: make([]known, len(records[n].Unit.Changes))}
		c.entries[n] = e
		for i := range e.known {
			e.known[i].state = StepNotBegun
			if e.mayHaveBegun() {
				e.known[i].state = StepUnknown
			}
		}
		if m, ok := all[e.Seq]; ok {
			if err := e.readMarks(m); err != nil {
				return nil, err
			}
		} else if hashes, ok := done[e.Seq]; ok {
			e.Done = true
			for i := range e.known {
				e.known[i].state = StepDone
				if i < len(hashes) {
					e.known[i].hash = hashes[i]
				}
			}
		}
		if !e.Done {
			c.left.Add(1)
		}
	}
	return c, nil
}

// formerRecord is what formats 1 and 2 say of a unit in addition: a Create of what the unit deletes
// before recreates the same object, unless it says that it replaces the former one.
type formerRecord struct {
	Unit struct {
		Changes []struct {
			Replaces bool `json:"replaces"`
		} `json:"changes"`
	} `json:"unit"`
}

// readRecords decodes the units of a chunk, and makes those of former formats ones of this
// format.
func readRecords(format int, raw []byte) ([]Record, error) {
	var records []Record
	if err := json.Unmarshal(raw, &records); err != nil || format > formerFormat {
		return records, err
	}
	var former []formerRecord
	if err := json.Unmarshal(raw, &former); err != nil {
		return nil, err
	}
	for n := range records {
		e := Entry{Record: records[n]}
		for i, s := range e.Steps() {
			if _, deleted := s.Deletion(); deleted && s.Verb == migration.Create && !former[n].Unit.Changes[i].Replaces {
				s.Verb = migration.Recreate
			}
		}
	}
	return records, nil
}

// loadChunk reads one chunk of a journal.
func (s *Store) loadChunk(ctx context.Context, h Header, c *Chunk) (*Chunk, error) {
	byName := map[string]*corev1.Secret{}
	for part := 0; part <= c.parts; part++ {
		name := c.Name
		if part > 0 {
			name = partName(c.Name, part)
		}
		err := s.Read(ctx, func(ctx context.Context) error {
			// A list: no account needs to get Secrets in addition.
			list, err := s.Secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
			if err != nil {
				return err
			}
			for i := range list.Items {
				byName[list.Items[i].Name] = &list.Items[i]
			}
			return nil
		})
		switch {
		case err != nil:
			return nil, fmt.Errorf("cannot read journal Secret %s/%s: %w", s.Namespace, name, err)
		case byName[name] == nil:
			return nil, s.damaged(h.Run, name)
		}
	}
	return s.readChunk(h, c.index, byName[c.Name], byName)
}

func (s *Store) chunkName(run string, i int) string {
	return fmt.Sprintf("%s-%s-%s-%04d", s.Names.Program, s.Job, run, i)
}

// chunkIndex reads the index off the name of a chunk's own Secret; false for its
// further parts.
func chunkIndex(name string) (int, bool) {
	i, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	return i, err == nil
}

func partName(chunk string, i int) string { return fmt.Sprintf("%s-p%d", chunk, i) }

// ahead returns the watermark for when the unit of that number begins: so many
// units further, and over those behind that begin with a creation, whose mark
// tells whether they began.
func (c *Chunk) ahead(seq int) int {
	for _, e := range c.entries {
		first := FirstWrite(e.Unit.Changes)
		creates := first >= 0 && e.Unit.Changes[first].Verb == migration.Create
		if e.Seq >= seq+begunAhead && !creates {
			return e.Seq
		}
	}
	return c.entries[len(c.entries)-1].Seq + 1
}

// Raise makes durable that the entry may have begun, and those behind it.
func (s *Store) Raise(ctx context.Context, e *Entry) error {
	c := e.Chunk
	if e.Seq < c.begun {
		return nil
	}
	begun := c.ahead(e.Seq)
	if err := s.patch(ctx, c.Name, "", map[string][]byte{"begun": []byte(strconv.Itoa(begun))}); err != nil {
		return err
	}
	c.begun = begun
	return nil
}

// Lower makes durable that a rollback may have begun with the entry, and with those
// before it, which come next.
func (s *Store) Lower(ctx context.Context, j *Journal, e *Entry) error {
	if e.Seq >= j.Undone {
		return nil
	}
	undone := max(0, e.Seq-undoneAhead+1)
	if err := s.patch(ctx, j.All()[0].Name, "", map[string][]byte{"undone": []byte(strconv.Itoa(undone))}); err != nil {
		return err
	}
	j.Undone = undone
	return nil
}

// StateGoneError says that the journal, or its namespace, was deleted during a run.
type StateGoneError struct {
	Namespace string
	Err       error
}

func (e *StateGoneError) Error() string {
	return fmt.Sprintf("the journal in namespace %s was deleted during the run, or the namespace itself: %v", e.Namespace, e.Err)
}

func (e *StateGoneError) Unwrap() error { return e.Err }

func (s *Store) failed(name string, err error) error {
	if k8sutil.NamespaceGone(err) {
		return k8sutil.Permanent(&StateGoneError{s.Namespace, err})
	}
	return &WriteError{s.Namespace, name, err}
}

// WriteError says that a Secret of a journal cannot be written.
type WriteError struct {
	Namespace, Name string
	Err             error
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("cannot write journal Secret %s/%s: %v", e.Namespace, e.Name, e.Err)
}

func (e *WriteError) Unwrap() error { return e.Err }

// Mark writes what is known of the entries of a chunk.
func (s *Store) Mark(ctx context.Context, chunk string, known map[int]Marks) error {
	return s.patchMarks(ctx, chunk, "", known)
}

// Enter moves the journal to a phase, and writes the marks of its first chunk
// on the way.
func (s *Store) Enter(ctx context.Context, j *Journal, p Phase, known map[int]Marks) error {
	open := slices.Contains(OpenPhases, p)
	if open {
		s.keep(j.Run, true) // whatever the answer will be
	}
	if err := s.patchMarks(ctx, j.All()[0].Name, p, known); err != nil {
		return err
	}
	j.Phase = p
	s.keep(j.Run, open)
	return nil
}

func (s *Store) patch(ctx context.Context, name string, p Phase, data map[string][]byte) error {
	patch := map[string]any{}
	if len(data) > 0 {
		patch["data"] = data
	}
	if p != "" {
		patch["metadata"] = map[string]any{"labels": map[string]string{s.Names.Key(LabelPhase): string(p)}}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	err = s.Write(ctx, func(ctx context.Context) error {
		_, err := s.Secrets.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
		if k8sutil.NamespaceGone(err) {
			return err // somebody deleted the journal
		}
		return k8sutil.RetryConflict(err)
	})
	if err != nil {
		return s.failed(name, err)
	}
	return nil
}

// Prune deletes closed journals: all but the newest that can be undone, and the
// newest of those that were rolled back or undone. Of those that never were complete,
// nothing was made.
func (s *Store) Prune(ctx context.Context) error {
	found, err := s.Find(ctx, PhaseDone, PhaseRolledBack, PhaseUndone, PhaseIncomplete)
	if err != nil {
		return err
	}
	left := map[bool]int{true: historyLimit, false: 1}
	for _, one := range found {
		undoable := one.Phase == PhaseDone
		if one.Phase != PhaseIncomplete {
			if left[undoable]--; left[undoable] >= 0 {
				continue
			}
		}
		if err := discard(ctx, s, one.Header.Run); err != nil {
			return err
		}
	}
	return nil
}

// discard deletes the journal of a run.
func discard(ctx context.Context, s *Store, run string) error {
	list, err := s.Metadata(ctx, Selects(s.Names, s.Job, run))
	if err != nil {
		return err
	}
	// Last chunk first: what is left of a journal must still be found. The parts of a chunk
	// are named after it.
	slices.SortFunc(list, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(b.Name, a.Name) })
	for i := range list {
		err := s.Write(ctx, func(ctx context.Context) error {
			err := s.Secrets.Delete(ctx, list[i].Name, metav1.DeleteOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return k8sutil.RetryConflict(err)
		})
		if err != nil {
			return fmt.Errorf("cannot delete journal Secret %s: %w", list[i].Name, err)
		}
	}
	return nil
}
