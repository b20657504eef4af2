package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

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

// Labels of the journal's Secrets, and of the report's ConfigMap, after the program's domain.
const (
	LabelJob    = "job"
	LabelRun    = "run"
	LabelPhase  = "phase"
	labelNumber = "number"
)

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

// Selects is the label selector of the Secrets of one run.
func Selects(names migration.Names, job, run string) string {
	return names.Key(LabelJob) + "=" + job + "," + names.Key(LabelRun) + "=" + run
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

// Mark writes what is known of the entries of a chunk. Those who wait for a write share the next
// one.
func (s *Store) Mark(ctx context.Context, c *Chunk) error {
	mine := c.wanted.Add(1)
	c.marking.Lock()
	defer c.marking.Unlock()
	if c.written >= mine {
		return nil
	}
	all := c.wanted.Load()
	if err := s.patchMarks(ctx, c.Name, "", c.Marks()); err != nil {
		return err
	}
	c.written = all
	return nil
}

// Enter moves the journal to a phase, and writes the marks of its first chunk
// on the way.
func (s *Store) Enter(ctx context.Context, j *Journal, p Phase) error {
	open := slices.Contains(OpenPhases, p)
	if open {
		s.keep(j.Run, true) // whatever the answer will be
	}
	first := j.All()[0]
	first.marking.Lock()
	defer first.marking.Unlock()
	if err := s.patchMarks(ctx, first.Name, p, first.Marks()); err != nil {
		return err
	}
	j.Phase = p
	s.keep(j.Run, open)
	return nil
}

// patchMarks writes marks, and the phase if it is not "". The marks of a chunk fit by its
// construction; those of an earlier build's chunk may not. Then it loses first what tells edits
// from what the run left, and then stays as it was marked before: an open journal that cannot be
// closed is worse than an undo that has to look, and says so.
func (s *Store) patchMarks(ctx context.Context, name string, p Phase, known map[int]Marks) error {
	err := patchWith(ctx, s, name, p, known)
	if k8sutil.IsTooLarge(err) {
		err = patchWith(ctx, s, name, p, statesOnly(known))
	}
	if k8sutil.IsTooLarge(err) && p != "" {
		err = s.patch(ctx, name, p, nil)
	}
	return err
}

func patchWith(ctx context.Context, s *Store, name string, p Phase, known map[int]Marks) error {
	raw, err := json.Marshal(known)
	if err != nil {
		return fmt.Errorf("cannot encode the journal: %w", err)
	}
	return s.patch(ctx, name, p, map[string][]byte{"marks": raw})
}

// statesOnly are marks without hashes and effects.
func statesOnly(known map[int]Marks) map[int]Marks {
	short := make(map[int]Marks, len(known))
	for seq, m := range known {
		short[seq] = Marks{Steps: m.Steps, Unusable: m.Unusable, RecreatedAs: m.RecreatedAs}
	}
	return short
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

// StateGoneError says that the journal, or its namespace, was deleted during a run.
type StateGoneError struct {
	Namespace string
	Err       error
}

func (e *StateGoneError) Error() string {
	return fmt.Sprintf("the journal in namespace %s was deleted during the run, or the namespace itself: %v", e.Namespace, e.Err)
}

func (e *StateGoneError) Unwrap() error { return e.Err }
