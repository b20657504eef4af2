package journal

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

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

// stored is one journal as its Secrets' metadata tell.
type stored struct {
	run   string
	phase Phase
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
