package engine

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// metadataOf lists the metadata of Secrets as the API server would.
type metadataOf struct {
	metadata.ResourceInterface
	secrets corev1client.SecretInterface
}

func (m metadataOf) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	secrets, err := m.secrets.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	list := &metav1.PartialObjectMetadataList{}
	for i := range secrets.Items {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: secrets.Items[i].ObjectMeta})
	}
	return list, nil
}

// fakeJournals is a store of journals without a cluster.
func fakeJournals() *journals {
	secrets := fake.NewClientset().CoreV1().Secrets(DefaultStateNamespace)
	direct := func(ctx context.Context, op func(context.Context) error) error { return op(ctx) }
	return &journals{job: "job", namespace: DefaultStateNamespace, secrets: secrets, meta: metadataOf{secrets: secrets}, read: direct, write: direct}
}

// journaledUnits appends one chunk of units that each create or patch one object.
func (s *journals) journaledUnits(t *testing.T, j *journal, verb migration.Verb, n int) []*entry {
	t.Helper()
	first := 0
	for _, e := range j.entries() {
		first = max(first, e.Seq+1)
	}
	var entries []*entry
	for i := range n {
		u := migration.Unit{ID: fmt.Sprintf("u-%d", first+i), Changes: []migration.Change{{Verb: verb, Ref: ref("Thing", fmt.Sprintf("t-%d", first+i))}}}
		entries = append(entries, newEntry(first+i, u, make([]preimage, 1)))
	}
	if err := s.append(t.Context(), j, entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

func (s *journals) mustLoad(t *testing.T, phases ...phase) *journal {
	t.Helper()
	found, err := s.find(t.Context(), phases...)
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	j, err := s.load(t.Context(), found[0].header, found[0].phase)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestMarksRoundTrip holds that what one process knows of each change reaches the next.
func TestMarksRoundTrip(t *testing.T) {
	s := fakeJournals()
	j := newJournal("job", "v1", 7, &migration.Plan{Parallelism: 3, Serial: true})
	u := migration.Unit{ID: "u", Changes: []migration.Change{
		{Verb: migration.Create, Ref: ref("Thing", "a")}, {Verb: migration.Await, Ref: ref("Thing", "a")}, {Verb: migration.Patch, Ref: ref("Thing", "b"), Guard: true, Lists: migration.RemoveFinalizer("f")},
		{Verb: migration.Delete, Ref: ref("Thing", "b")}, {Verb: migration.Create, Ref: ref("Thing", "c")},
	}}
	e := newEntry(0, u, make([]preimage, len(u.Changes)))
	last := newEntry(1, migration.Unit{ID: "last", Changes: u.Changes[:1]}, make([]preimage, 1))
	last.Last = true
	if err := s.append(t.Context(), j, []*entry{e, last}); err != nil {
		t.Fatal(err)
	}
	want := []step{
		{state: stepDone, hash: "h0"}, {state: stepDone},
		{state: stepBegun, effects: []effectMark{{ref("Broker", "default"), "uid", "hash"}}},
		{state: stepReverting}, {state: stepLeft},
	}
	e.steps = slices.Clone(want)
	if err := s.enter(t.Context(), j, phaseRollback, e.chunk.marks()); err != nil {
		t.Fatal(err)
	}
	read := s.mustLoad(t, phaseRollback)
	if diff := cmp.Diff(j.header, read.header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	got := read.entries()
	allow := cmp.AllowUnexported(step{})
	if diff := cmp.Diff(want, got[0].steps, allow); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(u, got[0].Unit); diff != "" {
		t.Errorf("the unit (-want +got):\n%s", diff)
	}
	if got[0].done || !got[0].read || got[0].Last || !got[1].Last || read.chunks[0].left != 2 {
		t.Errorf("done %t, read %t, last %t and %t, left %d", got[0].done, got[0].read, got[0].Last, got[1].Last, read.chunks[0].left)
	}
	for i := range e.steps {
		e.steps[i].state = stepDone
	}
	e.steps[4].state = stepLeft
	if err := s.mark(t.Context(), e.chunk.name, e.chunk.marks()); err != nil {
		t.Fatal(err)
	}
	if read = s.mustLoad(t, phaseRollback); !read.entries()[0].done || read.chunks[0].left != 1 {
		t.Error("a unit is done when each change is done or left")
	}
}

func TestRead2(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		steps  string
		begun  int
		want   string
		done   bool
		fails  bool
	}{
		"NotBegunAbove": {reason: "above the watermark nothing was begun", steps: "--", begun: 0, want: "--"},
		"NotBegunBelow": {reason: "below it, it may have been begun after the mark was written", steps: "d-", begun: 1, want: "d?"},
		"Done":          {reason: "done and left is all", steps: "dl", begun: 1, want: "dl", done: true},
		"Reverting":     {reason: "a rollback has begun to undo it", steps: "rd", begun: 1, want: "rd"},
		"OtherUnit":     {reason: "marks of another unit are refused", steps: "d", begun: 1, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			e := entryWith("??", "--", migration.Change{Verb: migration.Create, Ref: ref("Thing", "a")}, migration.Change{Verb: migration.Delete, Ref: ref("Thing", "b")})
			e.chunk.begun = tc.begun
			err := e.readMarks(marks{Steps: tc.steps})
			if (err != nil) != tc.fails {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if !tc.fails && (states(e) != tc.want || e.done != tc.done) {
				t.Errorf("%s: got %s, done %t", tc.reason, states(e), e.done)
			}
		})
	}
}

// TestWatermark holds that a unit which begins with a patch or a deletion is below the
// watermark before it begins, and that one write serves several.
func TestWatermark(t *testing.T) {
	stored := func(s *journals, c *chunk) string {
		secret, err := s.secrets.Get(t.Context(), c.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(secret.Data["begun"])
	}
	t.Run("Patches", func(t *testing.T) {
		s := fakeJournals()
		j := newJournal("job", "v1", 1, &migration.Plan{})
		entries := s.journaledUnits(t, j, migration.Patch, 80)
		c := entries[0].chunk
		if c.begun != 50 || stored(s, c) != "50" {
			t.Errorf("at first: %d, stored %s", c.begun, stored(s, c))
		}
		for i, want := range map[int]string{49: "50", 50: "80"} {
			if i == 50 {
				continue
			}
			if err := s.raise(t.Context(), entries[i]); err != nil || stored(s, c) != want {
				t.Errorf("unit %d: %v, stored %s", i, err, stored(s, c))
			}
		}
		if err := s.raise(t.Context(), entries[50]); err != nil || stored(s, c) != "80" || c.begun != 80 {
			t.Errorf("unit 50: %v, stored %s", err, stored(s, c))
		}
		read := s.mustLoad(t, phaseForward)
		if read.chunks[0].begun != 80 || states(read.entries()[79]) != "?" {
			t.Errorf("read: %d, %s", read.chunks[0].begun, states(read.entries()[79]))
		}
	})
	t.Run("AboveIsNotBegun", func(t *testing.T) {
		s := fakeJournals()
		s.journaledUnits(t, newJournal("job", "v1", 1, &migration.Plan{}), migration.Patch, 80)
		read := s.mustLoad(t, phaseForward).entries()
		if states(read[49]) != "?" || states(read[50]) != "-" {
			t.Errorf("unit 49 %s, unit 50 %s; want ?, -", states(read[49]), states(read[50]))
		}
	})
	t.Run("CreationsNeedNone", func(t *testing.T) {
		s := fakeJournals()
		entries := s.journaledUnits(t, newJournal("job", "v1", 1, &migration.Plan{}), migration.Create, 80)
		if c := entries[0].chunk; c.begun != 80 {
			t.Errorf("what begins with a creation tells by its mark: %d", c.begun)
		}
	})
	t.Run("FailedWrite", func(t *testing.T) {
		s := fakeJournals()
		entries := s.journaledUnits(t, newJournal("job", "v1", 1, &migration.Plan{}), migration.Delete, 60)
		s.write = func(context.Context, func(context.Context) error) error { return errors.New("no answer") }
		if err := s.raise(t.Context(), entries[50]); err == nil || entries[0].chunk.begun != 50 {
			t.Errorf("a unit must not begin before its watermark is stored: %v, %d", err, entries[0].chunk.begun)
		}
	})
}

// format1 is a journal as the version before wrote it.
func format1(t *testing.T, s *journals, format int) {
	t.Helper()
	pre := object(t, `{"metadata":{"namespace":"shop","name":"b"},"spec":{"x":1}}`)
	units := []map[string]any{
		{"seq": 0, "unit": migration.Unit{ID: "a", Changes: []migration.Change{{Verb: migration.Create, Ref: ref("Thing", "a")}, {Verb: migration.Delete, Ref: ref("Thing", "b")}}}, "pre": []preimage{{}, {Object: pre}}},
		{"seq": 1, "unit": migration.Unit{ID: "c", Changes: []migration.Change{{Verb: migration.Delete, Ref: ref("Thing", "c")}}}, "pre": []preimage{{Object: pre}}},
	}
	raw, err := json.Marshal(units)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	pack := gzip.NewWriter(&packed)
	_, _ = pack.Write(raw)
	_ = pack.Close()
	const run = "20200301100000.000-abcde"
	_, err = s.secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: chunkName("job", run, 0), Namespace: DefaultStateNamespace,
			Labels: map[string]string{labelJob: "job", labelRun: run, labelPhase: string(phaseForward)},
		},
		Data: map[string][]byte{
			"run":   fmt.Appendf(nil, `{"format":%d,"job":"job","run":"%s","version":"v9","startedAt":"2020-03-01T10:00:00Z","parallelism":2}`, format, run),
			"units": packed.Bytes(), "done": []byte(`{"0":["hash-of-a"]}`),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// TestFormat1 holds that a journal of the version before is still read, and that what
// it does not mark as done is unknown.
func TestFormat1(t *testing.T) {
	s := fakeJournals()
	format1(t, s, 1)
	j := s.mustLoad(t, phaseForward)
	got := j.entries()
	if len(got) != 2 || !got[0].done || states(got[0]) != "dd" || got[0].steps[0].hash != "hash-of-a" || got[0].steps[1].hash != "" {
		t.Errorf("the unit that is done: %+v", got[0])
	}
	if got[1].done || states(got[1]) != "?" || j.chunks[0].begun != math.MaxInt || j.chunks[0].left != 1 {
		t.Errorf("the unit that is not: %+v", got[1])
	}
	if got[1].Pre[0].Object == nil {
		t.Error("no pre-image")
	}
}

// TestNewerFormat: M17.
func TestNewerFormat(t *testing.T) {
	s := fakeJournals()
	format1(t, s, journalFormat+1)
	_, err := s.find(t.Context(), phaseForward)
	if err == nil || !strings.Contains(err.Error(), "newer version (v9)") {
		t.Errorf("a journal of a newer version must be refused: %v", err)
	}
}

// TestNewer holds that the newest run is told by its number, whatever the clock of its
// machine said. Fails on the commit before: runs were told apart by their clocks.
func TestNewer(t *testing.T) {
	early, late := "20200301100000.000-a", "20200301110000.000-b"
	for name, tc := range map[string]struct {
		reason string
		a, b   header
		want   int
	}{
		"ClockAhead": {"an earlier run of a machine whose clock is an hour ahead", header{Number: 2, Run: early}, header{Number: 1, Run: late}, -1},
		"Format1":    {"runs of the format before have their clocks only", header{Run: early}, header{Run: late}, 1},
		"Mixed":      {"a run with a number is newer than those without", header{Number: 1, Run: early}, header{Run: late}, -1},
		"Same":       {"itself", header{Number: 1, Run: early}, header{Number: 1, Run: early}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := newer(tc.a, tc.b); got != tc.want {
				t.Errorf("%s: got %d", tc.reason, got)
			}
		})
	}
	s := fakeJournals()
	for number, run := range map[int]string{1: late, 2: early} {
		j := newJournal("job", "v1", number, &migration.Plan{})
		j.Run = run
		s.journaledUnits(t, j, migration.Create, 1)
	}
	found, err := s.find(t.Context(), phaseForward)
	if err != nil || len(found) != 2 || found[0].header.Number != 2 || s.highest != 2 {
		t.Errorf("%+v, highest %d, %v", found, s.highest, err)
	}
}

// TestDamagedJournal holds that a missing Secret is noticed wherever it is missing.
// Fails on the commit before: reading ended at the first that was missing.
func TestDamagedJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		missing func(run string) string
	}{
		"First":  {"the first one, which says what the run is", func(run string) string { return chunkName("job", run, 0) }},
		"Middle": {"one in the middle", func(run string) string { return chunkName("job", run, 1) }},
		"Last":   {"the last one: the first knows how many there are", func(run string) string { return chunkName("job", run, 3) }},
		"Part":   {"M30: a further part of a large one", func(run string) string { return partName(chunkName("job", run, 2), 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeJournals()
			j := newJournal("job", "v1", 1, &migration.Plan{})
			s.journaledUnits(t, j, migration.Create, 1)
			s.journaledUnits(t, j, migration.Create, 1)
			large := newEntry(2, migration.Unit{ID: "large", Changes: []migration.Change{{Verb: migration.Delete, Ref: ref("Thing", "large")}}}, []preimage{{Object: noise(t)}})
			if err := s.append(t.Context(), j, []*entry{large}); err != nil {
				t.Fatal(err)
			}
			s.journaledUnits(t, j, migration.Create, 1)
			if got := len(s.mustLoad(t, phaseForward).entries()); got != 4 {
				t.Fatalf("%d units", got)
			}
			missing := tc.missing(j.Run)
			if err := s.secrets.Delete(t.Context(), missing, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			found, err := s.find(t.Context(), phaseForward)
			if err == nil {
				_, err = s.load(t.Context(), found[0].header, found[0].phase)
			}
			damaged := isDamaged(err)
			if damaged == nil || damaged.missing != missing || !strings.Contains(damaged.hint(), "kubectl -n eventmesh-migration delete secrets -l "+labelRun+"="+j.Run) {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// noise is an object that does not compress, and that takes two Secrets.
func noise(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	obj := object(t, `{"metadata":{"name":"large"},"spec":{}}`)
	text := make([]byte, 1<<20)
	state := uint32(1)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = letters[state>>26]
	}
	if err := unstructured.SetNestedField(obj.Object, string(text)+strings.Repeat(string(text[:1000]), 1)+string(text), "spec", "noise"); err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestPrune (M23): failed runs do not push out the one that can be undone. Fails on the
// commit before: five journals were kept, of whatever end, and only a success pruned.
func TestPrune(t *testing.T) {
	s := fakeJournals()
	phases := []phase{
		phaseDone, phaseDone, phaseDone, phaseDone, phaseDone, phaseDone, phaseDone,
		phaseUndone, phaseRolledBack, phaseRolledBack, phaseRolledBack, phaseForward,
	}
	for i, p := range phases {
		j := newJournal("job", "v1", i+1, &migration.Plan{})
		j.phase = p
		s.journaledUnits(t, j, migration.Create, 1)
		s.journaledUnits(t, j, migration.Create, 1)
	}
	if err := s.prune(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := s.find(t.Context(), phaseForward, phaseDone, phaseRolledBack, phaseUndone)
	if err != nil {
		t.Fatal(err)
	}
	var left []int
	for _, one := range found {
		left = append(left, one.header.Number)
		if j, err := s.load(t.Context(), one.header, one.phase); err != nil || len(j.entries()) != 2 {
			t.Errorf("run %d is not whole: %v", one.header.Number, err)
		}
	}
	// The open one, the newest that was rolled back, and five that can be undone.
	if diff := cmp.Diff([]int{12, 11, 7, 6, 5, 4, 3}, left); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	list, err := s.secrets.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 14 {
		t.Errorf("%d secrets are left, %v", len(list.Items), err)
	}
}

// TestJournalIsReadWhileItGrows (B6): a recreation looks for the owners that the run deleted,
// in units that are journaled already, while the next ones are being journaled. Without the
// lock in journal.entries, or that in journals.append, -race reports it each time.
func TestJournalIsReadWhileItGrows(t *testing.T) {
	s := fakeJournals()
	j := newJournal("job", "v1", 1, &migration.Plan{})
	rec := &recorder{journal: j}
	s.journaledUnits(t, j, migration.Delete, 1)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if rec.restoredUID("nobody's") || j.empty() {
					t.Error("no unit of it deletes that, and it is not empty")
					return
				}
			}
		})
	}
	for range 5 {
		s.journaledUnits(t, j, migration.Delete, chunkChanges)
	}
	stop()
	readers.Wait()
	if got := len(j.changes()); got != 5*chunkChanges+1 {
		t.Errorf("%d changes", got)
	}
}

// TestLower: a rollback's watermark is written ahead, and read by the next process.
func TestLower(t *testing.T) {
	s := fakeJournals()
	j := newJournal("job", "v1", 1, &migration.Plan{})
	entries := s.journaledUnits(t, j, migration.Delete, 90)
	patches := 0
	write := s.write
	s.write = func(ctx context.Context, op func(context.Context) error) error {
		patches++
		return write(ctx, op)
	}
	if got := s.mustLoad(t, phaseForward).undone; got != 0 {
		t.Errorf("without a watermark, %d is one: any unit may have been undone", got)
	}
	j.undone = math.MaxInt
	for _, tc := range []struct {
		reason               string
		seq, undone, patches int
	}{
		{"the newest unit, and 49 before it", 89, 40, 1},
		{"those are covered", 60, 40, 1},
		{"the last of them", 40, 40, 1},
		{"the next ones", 39, 0, 2},
		{"all are covered", 0, 0, 2},
	} {
		if err := s.lower(t.Context(), j, entries[tc.seq]); err != nil {
			t.Fatal(err)
		}
		if read := s.mustLoad(t, phaseForward).undone; j.undone != tc.undone || read != tc.undone || patches != tc.patches {
			t.Errorf("%s: %d, read as %d, %d patches", tc.reason, j.undone, read, patches)
		}
	}
}
