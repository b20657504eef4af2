package engine

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
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Names of the journal's labels and of the mark on created objects.
const (
	labelPrefix = "eventmesh-migration.kyma-project.io/"
	labelJob    = labelPrefix + "job"
	labelRun    = labelPrefix + "run"
	labelPhase  = labelPrefix + "phase"
	labelNumber = labelPrefix + "number"
	// MarkAnnotation is on every object that a run creates anew, in the create
	// call itself: "<run>/<unit>/<change>". It tells ours from foreign when the
	// outcome of the call is unknown.
	MarkAnnotation = labelPrefix + "change"
)

// phase of a journal, in a label of its first Secret.
type phase string

const (
	phaseForward    phase = "forward"
	phaseRollback   phase = "rollback"
	phaseUndo       phase = "undo"
	phaseDone       phase = "done"
	phaseRolledBack phase = "rolled-back"
	phaseUndone     phase = "undone"
)

const (
	// chunkChanges is how many changes one write of the journal covers.
	chunkChanges = 100
	// chunkBytes is how much compressed data goes into one Secret; the API
	// server's limit is 1 MiB for all of its data.
	chunkBytes = 900 << 10
	// keepRuns is how many closed journals of a job are kept for undo.
	historyLimit = 5
	// begunAhead is by how many units a chunk's watermark is ahead of the unit that
	// begins: after a kill, so many may have to be looked at for nothing.
	begunAhead = 50
	// undoneAhead is by how many units a rollback's watermark is ahead of the unit that
	// it undoes: after a kill, of so many nobody can tell whether it had undone them.
	undoneAhead = 50
)

// preimage is what a change found.
type preimage struct {
	// Object as it was before Delete and Patch.
	Object *unstructured.Unstructured `json:"object,omitempty"`
	// Absent are the side effects that did not exist.
	Absent []migration.Ref `json:"absent,omitempty"`
	// Pods are those that Restart replaces.
	Pods []types.UID `json:"pods,omitempty"`
}

// entry is one unit in the journal.
type entry struct {
	Seq  int            `json:"seq"`
	Unit migration.Unit `json:"unit"`
	Pre  []preimage     `json:"pre"`
	// Last: it is one of Plan.Last, and is made after all others.
	Last bool `json:"last,omitempty"`

	// done: nothing of it is left to make, and what must hold after it held.
	done bool
	// read: an earlier process wrote it.
	read bool
	// steps are what is known of each change, in the order of the unit.
	steps []step
	chunk *chunk
	// latest is the object of a change as the answer to its last write showed it.
	latest map[migration.Ref]*unstructured.Unstructured
	// reports of the changes, in the order of the unit.
	reports []migration.ChangeReport
	// discarded are objects that an earlier attempt made again, and that this one
	// deletes once more, by change.
	unusable map[int]types.UID
	// forgotten, if not nil: the objects of the changes and pre-images are in the stored
	// journal only. It has the UIDs of the pre-images.
	unloaded []types.UID
}

// stepState is what is known of one change.
type stepState byte

const (
	// stepUnknown: an earlier process may have begun it. There is no proof.
	stepUnknown stepState = '?'
	// stepNotBegun: no request was sent for it.
	stepNotBegun stepState = '-'
	// stepBegun: a request was sent for it.
	stepBegun stepState = 'b'
	// stepDone: it was made, and what must hold after it held.
	stepDone stepState = 'd'
	// stepLeft: it is not made, since its reason does not hold any more, or since
	// another unit makes it.
	stepLeft stepState = 'l'
	// stepFound: what it was to do was found done by a process that resumed it. There is
	// no proof that this job did it.
	stepFound stepState = 'f'
	// stepReverting: a rollback has begun to undo it.
	stepReverting stepState = 'r'
	// stepRevertingUnproven: the same, and there is no proof that this job did it.
	stepRevertingUnproven stepState = 'R'
)

// isDone says whether nothing is left to do for the change.
func (s stepState) isDone() bool { return s == stepDone || s == stepFound }

// isProven says whether it is known that this job made the change, if it was made.
func (s stepState) isProven() bool {
	return s != stepUnknown && s != stepFound && s != stepRevertingUnproven
}

// isReverting says whether a rollback has begun to undo the change.
func (s stepState) isReverting() bool { return s == stepReverting || s == stepRevertingUnproven }

// begun says whether a request was, or may have been, sent for the change.
func (s stepState) begun() bool { return s != stepNotBegun && s != stepLeft }

// step is what is known of one change of an entry.
type step struct {
	state stepState
	// made: an earlier process may have begun it, and the cluster shows it made.
	made bool
	// hash of the object as the change left it, for undo; "" if it is not known.
	hash string
	// effects are the objects that a controller made because of the change, as they
	// were when the unit ended.
	effects []effectMark
}

// effectMark tells one object that a controller made.
type effectMark struct {
	Ref  migration.Ref `json:"ref"`
	UID  types.UID     `json:"uid"`
	Hash string        `json:"hash"`
}

// marks is what the journal keeps of an entry besides the entry itself: format 2.
type marks struct {
	// Steps has one byte for each change, a stepState.
	Steps  string   `json:"steps"`
	Hashes []string `json:"hashes,omitempty"`
	// Effects by change.
	Effects map[int][]effectMark `json:"effects,omitempty"`
}

func (e *entry) marks() marks {
	m := marks{}
	for i := range e.steps {
		s := &e.steps[i]
		m.Steps += string(rune(s.state))
		if s.hash != "" && m.Hashes == nil {
			m.Hashes = make([]string, len(e.steps))
		}
		if s.hash != "" {
			m.Hashes[i] = s.hash
		}
		if len(s.effects) > 0 {
			if m.Effects == nil {
				m.Effects = map[int][]effectMark{}
			}
			m.Effects[i] = s.effects
		}
	}
	return m
}

// known says whether there is anything to mark.
func (e *entry) known() bool {
	return slices.ContainsFunc(e.steps, func(s step) bool { return s.state != stepNotBegun && s.state != stepUnknown })
}

func (e *entry) readMarks(m marks) error {
	if len(m.Steps) != len(e.Unit.Changes) {
		return fmt.Errorf("the marks of unit %d are for %d changes, and it has %d", e.Seq, len(m.Steps), len(e.Unit.Changes))
	}
	e.done = true
	for i := range e.steps {
		s := &e.steps[i]
		s.state = stepState(m.Steps[i])
		if len(m.Hashes) > i {
			s.hash = m.Hashes[i]
		}
		s.effects = m.Effects[i]
		if s.state != stepDone && s.state != stepLeft && s.state != stepFound {
			e.done = false
		}
		if s.state == stepNotBegun && e.mayHaveBegun() {
			s.state = stepUnknown // it was so when the mark was written
		}
	}
	return nil
}

// mayHaveBegun says whether an earlier process may have begun the entry.
func (e *entry) mayHaveBegun() bool { return e.Seq < e.chunk.begun }

// chunk is one Secret of the journal (with further ones, if it is too large).
type chunk struct {
	index   int
	name    string
	entries []*entry
	parts   int
	// begun: the units before this sequence number may have begun. It is written
	// before the first of them begins, for several at once.
	begun int
	// created is when the API server stored it: what is older is none of its
	// changes' doing.
	created metav1.Time
	// left are the entries that are not done yet, in this process' view.
	left int
}

// journal of one run. The pre-images of a chunk are durable before the first
// change it covers; marks of what is done may lag behind what is done.
type journal struct {
	header
	phase phase
	// undone: a rollback may have begun with the units from this sequence number on. It
	// is written before it begins with the first of them, for several at once.
	undone int

	mu     sync.Mutex
	chunks []*chunk
}

type header struct {
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
}

// journalFormat is written into each journal; a newer one is refused. Format 1
// marked units and not changes, and had neither number, count nor watermark: what
// it did not mark as done is unknown.
const journalFormat = 2

func newJournal(job, version string, number int, plan *migration.Plan) *journal {
	now := time.Now().UTC()
	return &journal{phase: phaseForward, header: header{
		Format: journalFormat, Job: job, Version: version, Number: number, StartedAt: now.Truncate(time.Second),
		Run:         now.Format("20060102150405") + now.Format(".000")[1:] + "-" + rand.String(5),
		Parallelism: plan.Parallelism, Serial: plan.Serial,
	}}
}

// newer puts the newest run first: by number, and those of format 1 by their clock.
func newer(a, b header) int {
	return cmp.Or(cmp.Compare(b.Number, a.Number), cmp.Compare(b.Run, a.Run))
}

// empty says whether nothing was written into the journal yet.
func (j *journal) empty() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.chunks) == 0
}

func (j *journal) all() []*chunk {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.chunks)
}

// entries are all units of the journal, in the order in which they were planned.
func (j *journal) entries() []*entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var all []*entry
	for _, c := range j.chunks {
		all = append(all, c.entries...)
	}
	return all
}

// changes are all changes of the journal, in order.
func (j *journal) changes() []migration.Change {
	var all []migration.Change
	for _, e := range j.entries() {
		all = append(all, e.Unit.Changes...)
	}
	return all
}

// recorder is the journal of one run, and what is known of each of its changes.
type recorder struct {
	log      *zap.Logger
	ignored  map[string]bool
	journals *journals
	// journal is nil until there is something to write.
	journal *journal

	// marking keeps marks of one journal in order.
	marking sync.Mutex
	// mu guards what is known of the entries.
	mu sync.Mutex
}

// journals is the store of one job's journals.
type journals struct {
	job, namespace string
	secrets        corev1client.SecretInterface
	meta           metadata.ResourceInterface
	// highest number of a journal that was seen.
	highest int
	// open are the runs whose journals are open, as far as this process knows: those
	// that it found, and those that it may have begun to write. Nil: it has not looked,
	// or what it saw may be stale.
	open   map[string]bool
	openMu sync.Mutex
	// read and write repeat a call that failed for a moment; write also holds
	// it against the lock.
	read, write func(context.Context, func(context.Context) error) error
}

// stored is one journal as its Secrets' metadata tell.
type stored struct {
	run   string
	phase phase
}

// openJournal is the beginning of a journal: all but its units.
type openJournal struct {
	header header
	phase  phase
}

// find returns the beginnings of the journals in the given phases, newest first.
// It is an error if a journal lost its first Secret: nobody could tell then what
// the run did.
func (s *journals) find(ctx context.Context, phases ...phase) ([]openJournal, error) {
	complete := slices.Contains(phases, phaseForward)
	if complete {
		s.know(nil)
	}
	runs, err := s.runs(ctx)
	if err != nil {
		return nil, err
	}
	var found []openJournal
	for _, one := range runs {
		if !slices.Contains(phases, one.phase) {
			continue
		}
		h, exists, err := s.header(ctx, one)
		if err != nil {
			return nil, err
		}
		if exists { // it may have been pruned meanwhile
			found = append(found, openJournal{h, one.phase})
		}
	}
	slices.SortFunc(found, func(a, b openJournal) int { return newer(a.header, b.header) })
	if complete {
		open := map[string]bool{}
		for _, one := range found {
			if slices.Contains(openPhases, one.phase) {
				open[one.header.Run] = true
			}
		}
		s.know(open)
	}
	return found, nil
}

// know replaces what is known of open journals; nil: nothing.
func (s *journals) know(open map[string]bool) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	s.open = open
}

// keep notes whether the journal of a run is open now.
func (s *journals) keep(run string, open bool) {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	switch {
	case !open:
		delete(s.open, run)
	case s.open != nil:
		s.open[run] = true
	}
}

// allClosed says whether it is known that the job has no open journal.
func (s *journals) allClosed() bool {
	s.openMu.Lock()
	defer s.openMu.Unlock()
	return s.open != nil && len(s.open) == 0
}

// past is what the journals of all jobs tell: which jobs have an open one, and the
// highest number.
func (s *journals) past(ctx context.Context) (open []string, highest int, err error) {
	list, err := s.metadata(ctx, labelJob+","+labelPhase)
	if err != nil {
		return nil, 0, err
	}
	for i := range list {
		labels := list[i].Labels
		if slices.Contains(openPhases, phase(labels[labelPhase])) {
			open = append(open, labels[labelJob])
		}
		if n, err := strconv.Atoi(labels[labelNumber]); err == nil {
			highest = max(highest, n)
		}
	}
	return open, highest, nil
}

// runs lists the metadata of the job's journals.
func (s *journals) runs(ctx context.Context) ([]*stored, error) {
	list, err := s.metadata(ctx, labelJob+"="+s.job+","+labelRun)
	if err != nil {
		return nil, err
	}
	byRun := map[string]*stored{}
	for i := range list {
		run := list[i].Labels[labelRun]
		one := byRun[run]
		if one == nil {
			one = &stored{run: run}
			byRun[run] = one
		}
		if p := list[i].Labels[labelPhase]; p != "" {
			one.phase = phase(p)
		}
		if n, err := strconv.Atoi(list[i].Labels[labelNumber]); err == nil {
			s.highest = max(s.highest, n)
		}
	}
	runs := make([]*stored, 0, len(byRun))
	for _, run := range slices.Sorted(maps.Keys(byRun)) {
		one := byRun[run]
		if one.phase == "" {
			return nil, s.damaged(run, chunkName(s.job, run, 0))
		}
		runs = append(runs, one)
	}
	return runs, nil
}

func (s *journals) header(ctx context.Context, one *stored) (h header, found bool, err error) {
	// A list: no account needs to get Secrets besides.
	list, err := s.list(ctx, labelJob+"="+s.job+","+labelRun+"="+one.run+","+labelPhase)
	if err != nil || len(list) == 0 {
		return h, false, err
	}
	if err := json.Unmarshal(list[0].Data["run"], &h); err != nil {
		return h, false, fmt.Errorf("cannot read journal Secret %s/%s: %w", s.namespace, list[0].Name, err)
	}
	if h.Format > journalFormat {
		return h, false, fmt.Errorf("cannot read the journal of run %s: it was written by a newer version (%s): use that one", h.Run, h.Version)
	}
	return h, true, nil
}

// damagedError says that a Secret of a journal is missing.
type damagedError struct{ job, run, namespace, missing string }

func (e *damagedError) Error() string {
	return fmt.Sprintf("the journal of run %s of %s is damaged: Secret %s/%s is missing", e.run, e.job, e.namespace, e.missing)
}

// hint is the way out: restore the Secret, or give the journal up.
func (e *damagedError) hint() string {
	return fmt.Sprintf("restore that Secret from a backup. Without one, what the run did cannot be undone by this tool: list the objects that carry the annotation %s with the value %s/…, "+
		"then give the journal up: kubectl -n %s delete secrets -l %s=%s", MarkAnnotation, e.run, e.namespace, labelRun, e.run)
}

func (s *journals) damaged(run, missing string) error {
	return k8sutil.Permanent(&damagedError{s.job, run, s.namespace, missing})
}

// metadata lists the metadata of Secrets: their data may be large.
func (s *journals) metadata(ctx context.Context, selector string) ([]metav1.PartialObjectMetadata, error) {
	var all []metav1.PartialObjectMetadata
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var page *metav1.PartialObjectMetadataList
		err := s.read(ctx, func(ctx context.Context) error {
			var err error
			page, err = s.meta.List(ctx, opts)
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

func (s *journals) list(ctx context.Context, selector string) ([]corev1.Secret, error) {
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		var page *corev1.SecretList
		err := s.read(ctx, func(ctx context.Context) error {
			var err error
			page, err = s.secrets.List(ctx, opts)
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

// load reads a whole journal. It is an error if a Secret of it is missing.
func (s *journals) load(ctx context.Context, h header, p phase) (*journal, error) {
	list, err := s.list(ctx, labelJob+"="+s.job+","+labelRun+"="+h.Run)
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
	j := &journal{header: h, phase: p}
	// What was written as the number of chunks may be one behind what there is: the
	// chunk comes first.
	if first := byName[chunkName(s.job, h.Run, 0)]; first != nil {
		if n, err := strconv.Atoi(string(first.Data["chunks"])); err == nil {
			last = max(last, n-1)
		}
		// Without that number, a rollback may have begun with any unit.
		j.undone, _ = strconv.Atoi(string(first.Data["undone"]))
	}
	for i := 0; i <= last; i++ {
		name := chunkName(s.job, h.Run, i)
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

func (s *journals) readChunk(h header, index int, secret *corev1.Secret, byName map[string]*corev1.Secret) (*chunk, error) {
	c := &chunk{index: index, name: secret.Name, created: secret.CreationTimestamp}
	packed := secret.Data["units"]
	c.parts, _ = strconv.Atoi(string(secret.Data["parts"]))
	for i := 1; i <= c.parts; i++ {
		part := byName[partName(c.name, i)]
		if part == nil {
			return nil, s.damaged(h.Run, partName(c.name, i))
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
	if err := json.Unmarshal(raw, &c.entries); err != nil {
		return nil, err
	}
	if c.begun, err = strconv.Atoi(string(secret.Data["begun"])); err != nil {
		c.begun = math.MaxInt // format 1 has no watermark
	}
	done, all := map[int][]string{}, map[int]marks{}
	for key, into := range map[string]any{"done": &done, "marks": &all} {
		if raw := secret.Data[key]; len(raw) > 0 {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, err
			}
		}
	}
	for _, e := range c.entries {
		e.chunk, e.read = c, true
		e.steps = make([]step, len(e.Unit.Changes))
		for i := range e.steps {
			e.steps[i].state = stepNotBegun
			if e.mayHaveBegun() {
				e.steps[i].state = stepUnknown
			}
		}
		if m, ok := all[e.Seq]; ok {
			if err := e.readMarks(m); err != nil {
				return nil, err
			}
		} else if hashes, ok := done[e.Seq]; ok {
			e.done = true
			for i := range e.steps {
				e.steps[i].state = stepDone
				if i < len(hashes) {
					e.steps[i].hash = hashes[i]
				}
			}
		}
		if !e.done {
			c.left++
		}
	}
	return c, nil
}

// loadChunk reads one chunk of a journal.
func (s *journals) loadChunk(ctx context.Context, h header, c *chunk) (*chunk, error) {
	byName := map[string]*corev1.Secret{}
	for part := 0; part <= c.parts; part++ {
		name := c.name
		if part > 0 {
			name = partName(c.name, part)
		}
		err := s.read(ctx, func(ctx context.Context) error {
			// A list: no account needs to get Secrets besides.
			list, err := s.secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
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
			return nil, fmt.Errorf("cannot read journal Secret %s/%s: %w", s.namespace, name, err)
		case byName[name] == nil:
			return nil, s.damaged(h.Run, name)
		}
	}
	return s.readChunk(h, c.index, byName[c.name], byName)
}

func chunkName(job, run string, i int) string {
	return fmt.Sprintf("eventmesh-migration-%s-%s-%04d", job, run, i)
}

// chunkIndex reads the index off the name of a chunk's own Secret; false for its
// further parts.
func chunkIndex(name string) (int, bool) {
	i, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:])
	return i, err == nil
}

func partName(chunk string, i int) string { return fmt.Sprintf("%s-p%d", chunk, i) }

// append makes the entries durable: one write, unless they are very large.
func (s *journals) append(ctx context.Context, j *journal, entries []*entry) error {
	raw, err := json.Marshal(entries)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	if _, err := pack.Write(raw); err != nil {
		return fmt.Errorf("cannot compress the journal: %w", err)
	}
	if err := pack.Close(); err != nil {
		return fmt.Errorf("cannot compress the journal: %w", err)
	}
	s.keep(j.Run, true) // whatever the answer will be
	index := len(j.all())
	c := &chunk{index: index, name: chunkName(s.job, j.Run, index), entries: entries, left: len(entries)}
	c.begun = c.ahead(entries[0].Seq)
	pieces := slices.Collect(slices.Chunk(packed.Bytes(), chunkBytes))
	c.parts = len(pieces) - 1
	labels := map[string]string{labelJob: s.job, labelRun: j.Run}
	// The first piece last: a chunk counts once its own Secret exists.
	for i := c.parts; i >= 0; i-- {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: c.name, Labels: maps.Clone(labels)},
			Data:       map[string][]byte{"units": pieces[i]},
		}
		if i > 0 {
			secret.Name = partName(c.name, i)
		} else if c.parts > 0 {
			secret.Data["parts"] = []byte(strconv.Itoa(c.parts))
		}
		if i == 0 {
			secret.Data["begun"] = []byte(strconv.Itoa(c.begun))
		}
		if i == 0 && index == 0 {
			secret.Labels[labelPhase] = string(j.phase)
			secret.Labels[labelNumber] = strconv.Itoa(j.Number)
			if secret.Data["run"], err = json.Marshal(j.header); err != nil {
				return fmt.Errorf("cannot encode the journal: %w", err)
			}
		}
		err := s.write(ctx, func(ctx context.Context) error {
			live, err := s.secrets.Create(ctx, secret, metav1.CreateOptions{})
			if stateGone(err) {
				return err // of the namespace
			}
			if apierrors.IsAlreadyExists(err) {
				// Names hold the run: it is this call's own earlier attempt, or
				// a leftover part of a chunk that was never finished.
				live, err = s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			if err == nil && i == 0 {
				c.created = live.CreationTimestamp
			}
			return again(err)
		})
		if err != nil {
			return s.failed(secret.Name, err)
		}
	}
	if index > 0 {
		// A chunk that is missing later is noticed by the number.
		data := map[string][]byte{"chunks": []byte(strconv.Itoa(index + 1))}
		if err := s.patch(ctx, chunkName(s.job, j.Run, 0), "", data); err != nil {
			return err
		}
	}
	for _, e := range entries {
		e.chunk = c
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.chunks = append(j.chunks, c)
	return nil
}

// ahead returns the watermark for when the unit of that number begins: so many
// units further, and over those behind that begin with a creation, whose mark
// tells whether they began.
func (c *chunk) ahead(seq int) int {
	for _, e := range c.entries {
		first := firstWrite(e.Unit.Changes)
		creates := first >= 0 && e.Unit.Changes[first].Verb == migration.Create
		if e.Seq >= seq+begunAhead && !creates {
			return e.Seq
		}
	}
	return c.entries[len(c.entries)-1].Seq + 1
}

// raise makes durable that the entry may have begun, and those behind it.
func (s *journals) raise(ctx context.Context, e *entry) error {
	c := e.chunk
	if e.Seq < c.begun {
		return nil
	}
	begun := c.ahead(e.Seq)
	if err := s.patch(ctx, c.name, "", map[string][]byte{"begun": []byte(strconv.Itoa(begun))}); err != nil {
		return err
	}
	c.begun = begun
	return nil
}

// lower makes durable that a rollback may have begun with the entry, and with those
// before it, which come next.
func (s *journals) lower(ctx context.Context, j *journal, e *entry) error {
	if e.Seq >= j.undone {
		return nil
	}
	undone := max(0, e.Seq-undoneAhead+1)
	if err := s.patch(ctx, j.all()[0].name, "", map[string][]byte{"undone": []byte(strconv.Itoa(undone))}); err != nil {
		return err
	}
	j.undone = undone
	return nil
}

// stateGoneError says that the journal, or its namespace, was deleted during a run.
type stateGoneError struct {
	namespace string
	err       error
}

func (e *stateGoneError) Error() string {
	return fmt.Sprintf("the journal in namespace %s was deleted during the run, or the namespace itself: %v", e.namespace, e.err)
}

func (e *stateGoneError) Unwrap() error { return e.err }

// stateGone says whether the API server refuses an object because its namespace
// does not exist or is being deleted.
func stateGone(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func (s *journals) failed(name string, err error) error {
	if stateGone(err) {
		return k8sutil.Permanent(&stateGoneError{s.namespace, err})
	}
	return fmt.Errorf("cannot write journal Secret %s: %w", name, err)
}

// mark writes what is known of the entries of a chunk.
func (s *journals) mark(ctx context.Context, chunk string, known map[int]marks) error {
	return s.patchMarks(ctx, chunk, "", known)
}

// enter moves the journal to a phase, and writes the marks of its first chunk
// on the way.
func (s *journals) enter(ctx context.Context, j *journal, p phase, known map[int]marks) error {
	open := slices.Contains(openPhases, p)
	if open {
		s.keep(j.Run, true) // whatever the answer will be
	}
	if err := s.patchMarks(ctx, j.all()[0].name, p, known); err != nil {
		return err
	}
	j.phase = p
	s.keep(j.Run, open)
	return nil
}

func (c *chunk) marks() map[int]marks {
	known := map[int]marks{}
	for _, e := range c.entries {
		if e.known() {
			known[e.Seq] = e.marks()
		}
	}
	return known
}

func (s *journals) patchMarks(ctx context.Context, name string, p phase, known map[int]marks) error {
	raw, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	return s.patch(ctx, name, p, map[string][]byte{"marks": raw})
}

func (s *journals) patch(ctx context.Context, name string, p phase, data map[string][]byte) error {
	patch := map[string]any{"data": data}
	if p != "" {
		patch["metadata"] = map[string]any{"labels": map[string]string{labelPhase: string(p)}}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	err = s.write(ctx, func(ctx context.Context) error {
		_, err := s.secrets.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
		if stateGone(err) {
			return err // somebody deleted the journal
		}
		return again(err)
	})
	if err != nil {
		return s.failed(name, err)
	}
	return nil
}

// prune deletes closed journals: all but the newest that can be undone, and the
// newest of those that were rolled back or undone.
func (s *journals) prune(ctx context.Context) error {
	found, err := s.find(ctx, phaseDone, phaseRolledBack, phaseUndone)
	if err != nil {
		return err
	}
	left := map[bool]int{true: historyLimit, false: 1}
	for _, one := range found {
		undoable := one.phase == phaseDone
		if left[undoable]--; left[undoable] >= 0 {
			continue
		}
		list, err := s.metadata(ctx, labelJob+"="+s.job+","+labelRun+"="+one.header.Run)
		if err != nil {
			return err
		}
		// Last chunk first: what is left of a journal must still be found.
		slices.SortFunc(list, func(a, b metav1.PartialObjectMetadata) int { return cmp.Compare(b.Name, a.Name) })
		for i := range list {
			err := s.write(ctx, func(ctx context.Context) error {
				err := s.secrets.Delete(ctx, list[i].Name, metav1.DeleteOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return again(err)
			})
			if err != nil {
				return fmt.Errorf("cannot delete journal Secret %s: %w", list[i].Name, err)
			}
		}
	}
	return nil
}
