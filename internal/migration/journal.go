package migration

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/pager"
)

// Names of the journal's labels and of the mark on created objects.
const (
	labelPrefix = "eventmesh-migration.kyma-project.io/"
	labelJob    = labelPrefix + "job"
	labelRun    = labelPrefix + "run"
	labelPhase  = labelPrefix + "phase"
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
	keepRuns = 5
)

// preimage is what a change found.
type preimage struct {
	// Object as it was before Delete and Patch.
	Object *unstructured.Unstructured `json:"object,omitempty"`
	// Absent are the side effects that did not exist.
	Absent []Ref `json:"absent,omitempty"`
	// Pods are those that Restart replaces.
	Pods []types.UID `json:"pods,omitempty"`
}

// entry is one unit in the journal.
type entry struct {
	Seq  int        `json:"seq"`
	Unit Unit       `json:"unit"`
	Pre  []preimage `json:"pre"`

	// done: every change was made and what must hold after it held.
	done bool
	// read: an earlier process wrote it.
	read bool
	// hashes of the objects as the changes left them, for undo.
	hashes []string
	chunk  *chunk
	// reports of the changes, in the order of the unit.
	reports []ChangeReport
	// discarded are objects that an earlier attempt made again, and that this one
	// deletes once more, by change.
	discarded map[int]types.UID
}

// chunk is one Secret of the journal (with further ones, if it is too large).
type chunk struct {
	index   int
	name    string
	entries []*entry
	parts   int
	// left are the entries that are not done yet, in this process' view.
	left int
}

// journal of one run. The pre-images of a chunk are durable before the first
// change it covers; marks of what is done may lag behind what is done.
type journal struct {
	header
	phase  phase
	chunks []*chunk
}

type header struct {
	Format      int       `json:"format"`
	Job         string    `json:"job"`
	Run         string    `json:"run"`
	Version     string    `json:"version"`
	StartedAt   time.Time `json:"startedAt"`
	Parallelism int       `json:"parallelism"`
	Serial      bool      `json:"serial,omitempty"`
}

// journalFormat is written into each journal; a newer one is refused.
const journalFormat = 1

func newJournal(job, version string, plan *Plan) *journal {
	now := time.Now().UTC()
	return &journal{phase: phaseForward, header: header{
		Format: journalFormat, Job: job, Version: version, StartedAt: now.Truncate(time.Second),
		// Runs are told apart, and put in order, by the millisecond.
		Run:         now.Format("20060102150405") + now.Format(".000")[1:] + "-" + rand.String(5),
		Parallelism: plan.Parallelism, Serial: plan.Serial,
	}}
}

func (j *journal) entries() []*entry {
	var all []*entry
	for _, c := range j.chunks {
		all = append(all, c.entries...)
	}
	return all
}

// changes are all changes of the journal, in order.
func (j *journal) changes() []Change {
	var all []Change
	for _, e := range j.entries() {
		all = append(all, e.Unit.Changes...)
	}
	return all
}

// journals is the store of one job's journals.
type journals struct {
	job     string
	secrets corev1client.SecretInterface
	// read and write repeat a call that failed for a moment; write also holds
	// it against the lock.
	read, write func(context.Context, func(context.Context) error) error
}

// find returns the names of the journals in the given phases, newest first.
func (s *journals) find(ctx context.Context, phases ...phase) ([]header, []phase, error) {
	selector := labelJob + "=" + s.job + "," + labelPhase
	if len(phases) > 0 {
		selector += " in ("
		for i, p := range phases {
			if i > 0 {
				selector += ","
			}
			selector += string(p)
		}
		selector += ")"
	}
	type found struct {
		header
		phase
	}
	var all []found
	list, err := s.list(ctx, selector)
	if err != nil {
		return nil, nil, err
	}
	for i := range list {
		h := found{phase: phase(list[i].Labels[labelPhase])}
		if err := json.Unmarshal(list[i].Data["run"], &h.header); err != nil {
			return nil, nil, fmt.Errorf("cannot read journal Secret %s/%s: %w", list[i].Namespace, list[i].Name, err)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.Run, a.Run) })
	headers, phaseOf := make([]header, len(all)), make([]phase, len(all))
	for i := range all {
		headers[i], phaseOf[i] = all[i].header, all[i].phase
	}
	return headers, phaseOf, nil
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

// load reads a whole journal.
func (s *journals) load(ctx context.Context, h header, p phase) (*journal, error) {
	list, err := s.list(ctx, labelJob+"="+s.job+","+labelRun+"="+h.Run)
	if err != nil {
		return nil, err
	}
	if h.Format > journalFormat {
		return nil, fmt.Errorf("cannot read the journal of run %s: it was written by a newer version (%s): use that one", h.Run, h.Version)
	}
	byName := map[string]*corev1.Secret{}
	for i := range list {
		byName[list[i].Name] = &list[i]
	}
	j := &journal{header: h, phase: p}
	for i := 0; ; i++ {
		name := j.chunkName(s.job, i)
		secret := byName[name]
		if secret == nil {
			return j, nil
		}
		c, err := readChunk(i, secret, byName)
		if err != nil {
			return nil, fmt.Errorf("cannot read journal Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
		j.chunks = append(j.chunks, c)
	}
}

func readChunk(index int, secret *corev1.Secret, byName map[string]*corev1.Secret) (*chunk, error) {
	c := &chunk{index: index, name: secret.Name}
	packed := secret.Data["units"]
	c.parts, _ = strconv.Atoi(string(secret.Data["parts"]))
	for i := 1; i <= c.parts; i++ {
		part := byName[partName(c.name, i)]
		if part == nil {
			return nil, fmt.Errorf("part %d of %d is missing", i, c.parts)
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
	done := map[int][]string{}
	if raw := secret.Data["done"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &done); err != nil {
			return nil, err
		}
	}
	for _, e := range c.entries {
		e.chunk, e.read = c, true
		if hashes, ok := done[e.Seq]; ok {
			e.done, e.hashes = true, hashes
		} else {
			e.hashes = make([]string, len(e.Unit.Changes))
			c.left++
		}
	}
	return c, nil
}

func (j *journal) chunkName(job string, i int) string {
	return fmt.Sprintf("eventmesh-migration-%s-%s-%04d", job, j.Run, i)
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
	c := &chunk{index: len(j.chunks), name: j.chunkName(s.job, len(j.chunks)), entries: entries, left: len(entries)}
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
		if i == 0 && len(j.chunks) == 0 {
			secret.Labels[labelPhase] = string(j.phase)
			if secret.Data["run"], err = json.Marshal(j.header); err != nil {
				return fmt.Errorf("cannot encode the journal: %w", err)
			}
		}
		err := s.write(ctx, func(ctx context.Context) error {
			_, err := s.secrets.Create(ctx, secret, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				// Names hold the run: it is this call's own earlier attempt, or
				// a leftover part of a chunk that was never finished.
				_, err = s.secrets.Update(ctx, secret, metav1.UpdateOptions{})
			}
			return again(err)
		})
		if err != nil {
			return fmt.Errorf("cannot write journal Secret %s: %w", secret.Name, err)
		}
	}
	for _, e := range entries {
		e.chunk = c
	}
	j.chunks = append(j.chunks, c)
	return nil
}

// mark writes which entries of a chunk are done.
func (s *journals) mark(ctx context.Context, chunk string, done map[int][]string) error {
	return s.patch(ctx, chunk, "", done)
}

// enter moves the journal to a phase, and writes the marks of its first chunk
// on the way.
func (s *journals) enter(ctx context.Context, j *journal, p phase) error {
	if err := s.patch(ctx, j.chunks[0].name, p, j.chunks[0].doneMarks()); err != nil {
		return err
	}
	j.phase = p
	return nil
}

func (c *chunk) doneMarks() map[int][]string {
	done := map[int][]string{}
	for _, e := range c.entries {
		if e.done {
			done[e.Seq] = e.hashes
		}
	}
	return done
}

func (s *journals) patch(ctx context.Context, name string, p phase, done map[int][]string) error {
	marks, err := json.Marshal(done)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	patch := map[string]any{"data": map[string][]byte{"done": marks}}
	if p != "" {
		patch["metadata"] = map[string]any{"labels": map[string]string{labelPhase: string(p)}}
	}
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	err = s.write(ctx, func(ctx context.Context) error {
		_, err := s.secrets.Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return err // somebody deleted the journal
		}
		return again(err)
	})
	if err != nil {
		return fmt.Errorf("cannot write journal Secret %s: %w", name, err)
	}
	return nil
}

// prune deletes all but the newest closed journals.
func (s *journals) prune(ctx context.Context) error {
	headers, _, err := s.find(ctx, phaseDone, phaseRolledBack, phaseUndone)
	if err != nil {
		return err
	}
	for _, h := range headers[min(keepRuns, len(headers)):] {
		list, err := s.list(ctx, labelJob+"="+s.job+","+labelRun+"="+h.Run)
		if err != nil {
			return err
		}
		// Last chunk first: what is left of a journal must still be found.
		slices.SortFunc(list, func(a, b corev1.Secret) int { return cmp.Compare(b.Name, a.Name) })
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
