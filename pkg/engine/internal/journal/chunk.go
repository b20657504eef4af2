package journal

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
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

	// marking keeps the writes of its marks in order: each has all marks, and a later one that
	// arrived earlier would be lost. wanted counts who has asked for one, and written those whose
	// marks are stored.
	marking sync.Mutex
	wanted  atomic.Int64
	written int64
}

// AllDone says whether nothing of the chunk is left to make.
func (c *Chunk) AllDone() bool { return c.left.Load() == 0 }

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

const (
	// secretBytes is how much data the API server takes in one Secret.
	secretBytes = 1 << 20
	// chunkBytes is how much compressed data goes into one Secret at most.
	chunkBytes = 900 << 10
	// ownBytes is room for what the Secret of a chunk has beside units and marks: the header
	// of the journal, watermarks, numbers.
	ownBytes = 16 << 10
	// marksBytes is how large the marks of one chunk may become: of more changes, there are
	// several chunks.
	marksBytes = 512 << 10
)

// room is how much of the units' compressed data goes into the Secret of a chunk: so much that its
// marks fit when all is known that there can be.
func room(entries []*Entry) int {
	marks := 0
	for _, e := range entries {
		marks += e.marksSize()
	}
	return min(chunkBytes, max(secretBytes-ownBytes-marks, chunkBytes/16))
}

// oneChunk is how many of the entries go into the next chunk: one at least.
func oneChunk(entries []*Entry) int {
	size := 0
	for n, e := range entries {
		if size += e.marksSize(); size > marksBytes && n > 0 {
			return n
		}
	}
	return len(entries)
}

// marksSize is an upper bound of how much the marks of the entry take, encoded.
func (e *Entry) marksSize() int {
	uid, hash := types.UID(strings.Repeat("u", 36)), strings.Repeat("h", 32)
	m := Marks{Effects: map[int][]EffectMark{}, Unusable: map[int]types.UID{}, RecreatedAs: map[int]types.UID{}}
	for i, s := range e.Steps() {
		m.Steps += string(rune(StepDone))
		m.Hashes = append(m.Hashes, hash)
		switch s.Verb {
		case migration.Delete:
			m.Unusable[i] = uid
		case migration.Recreate:
			m.RecreatedAs[i] = uid
		}
		for _, ref := range s.Pre().Absent {
			m.Effects[i] = append(m.Effects[i], EffectMark{Ref: ref, UID: uid, Hash: hash})
		}
	}
	raw, err := json.Marshal(map[int]Marks{e.Seq: m})
	if err != nil {
		return 0 // it has texts and numbers only
	}
	return len(raw) * 5 / 4
}

// Append makes the entries durable: one write, unless they are very large.
func (s *Store) Append(ctx context.Context, j *Journal, entries []*Entry) error {
	for _, e := range entries {
		if err := e.tooLarge(); err != nil {
			return k8sutil.Permanent(err)
		}
	}
	for len(entries) > 0 {
		n := oneChunk(entries)
		if err := s.appendChunk(ctx, j, entries[:n:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

func (s *Store) appendChunk(ctx context.Context, j *Journal, entries []*Entry) error {
	packed, err := pack(entries)
	if err != nil {
		return err
	}
	s.keep(j.Run, true) // whatever the answer will be
	index := len(j.All())
	c := &Chunk{index: index, Name: s.chunkName(j.Run, index), entries: entries}
	c.left.Store(int32(len(entries)))
	c.begun = c.ahead(entries[0].Seq)
	pieces := divide(packed, room(entries))
	c.parts = len(pieces) - 1
	if err := s.writeChunk(ctx, j, c, pieces); err != nil {
		if index == 0 && !k8sutil.IsTransient(err) {
			// Nobody needs what was written of it. Failing to delete it is no failure: see Prune.
			_ = discard(ctx, s, j.Run)
		}
		return err
	}
	if index > 0 {
		// A chunk that is missing later is noticed by the number.
		data := map[string][]byte{"chunks": []byte(strconv.Itoa(index + 1))}
		if j.Format < journalFormat {
			// An earlier build must not go on with a journal that it cannot read any more.
			header := j.Header
			header.Format = journalFormat
			if data["run"], err = json.Marshal(header); err != nil {
				return fmt.Errorf("cannot encode the journal: %w", err)
			}
			j.Format = journalFormat
		}
		if err := s.patch(ctx, s.chunkName(j.Run, 0), "", data); err != nil {
			return err
		}
	}
	for _, e := range entries {
		e.Chunk = c
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.chunks = append(j.chunks, c)
	return nil
}

// pack encodes what is stored of entries.
func pack(entries []*Entry) ([]byte, error) {
	records := make([]*Record, len(entries))
	for i, e := range entries {
		records[i] = &e.Record
	}
	raw, err := json.Marshal(records)
	if err != nil {
		return nil, fmt.Errorf("cannot encode the journal: %w", err)
	}
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	if _, err := writer.Write(raw); err != nil {
		return nil, fmt.Errorf("cannot compress the journal: %w", err)
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("cannot compress the journal: %w", err)
	}
	return packed.Bytes(), nil
}

// divide cuts data into pieces, of which the first one has a size of its own.
func divide(data []byte, first int) [][]byte {
	size := min(len(data), first)
	pieces := [][]byte{data[:size]}
	for data = data[size:]; len(data) > 0; data = data[size:] {
		size = min(len(data), chunkBytes)
		pieces = append(pieces, data[:size])
	}
	return pieces
}

// writeChunk writes the Secrets of a chunk. It counts once its own Secret exists, so that this
// one comes last. Of the first chunk it comes first, since what has none is a damaged journal: its
// phase says whether the others are there.
func (s *Store) writeChunk(ctx context.Context, j *Journal, c *Chunk, pieces [][]byte) error {
	own := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: map[string]string{s.Names.Key(LabelJob): s.Job, s.Names.Key(LabelRun): j.Run}},
		Data: map[string][]byte{
			"units": pieces[0], "begun": []byte(strconv.Itoa(c.begun)), "format": []byte(strconv.Itoa(journalFormat)),
		},
	}
	labels := maps.Clone(own.Labels)
	if c.parts > 0 {
		own.Data["parts"] = []byte(strconv.Itoa(c.parts))
	}
	phase := j.Phase
	if c.index == 0 {
		if c.parts > 0 {
			phase = PhaseIncomplete
		}
		header, err := json.Marshal(j.Header)
		if err != nil {
			return fmt.Errorf("cannot encode the journal: %w", err)
		}
		own.Data["run"] = header
		own.Labels[s.Names.Key(LabelPhase)], own.Labels[s.Names.Key(labelNumber)] = string(phase), strconv.Itoa(j.Number)
	}
	secrets := make([]*corev1.Secret, 0, len(pieces))
	for i := 1; i < len(pieces); i++ {
		secrets = append(secrets, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: partName(c.Name, i), Labels: labels}, Data: map[string][]byte{"units": pieces[i]},
		})
	}
	if c.index == 0 {
		secrets = append([]*corev1.Secret{own}, secrets...)
	} else {
		secrets = append(secrets, own)
	}
	for _, secret := range secrets {
		live, err := store(ctx, s, secret)
		if err != nil {
			return err
		}
		if secret == own {
			c.Created = live.CreationTimestamp
		}
	}
	if c.index > 0 || phase != PhaseIncomplete {
		return nil
	}
	return s.patch(ctx, c.Name, j.Phase, nil)
}

// store writes a Secret whose name holds the run: one that exists is this call's own earlier
// attempt, or a leftover part of a chunk that was never finished.
func store(ctx context.Context, s *Store, secret *corev1.Secret) (live *corev1.Secret, err error) {
	err = s.Write(ctx, func(ctx context.Context) error {
		live, err = s.Secrets.Create(ctx, secret, metav1.CreateOptions{})
		if k8sutil.NamespaceGone(err) {
			return err // of the namespace
		}
		if apierrors.IsAlreadyExists(err) {
			live, err = s.Secrets.Update(ctx, secret, metav1.UpdateOptions{})
		}
		return k8sutil.RetryConflict(err)
	})
	if err != nil {
		return nil, s.failed(secret.Name, err)
	}
	return live, nil
}
