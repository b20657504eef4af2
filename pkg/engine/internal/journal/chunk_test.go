//go:build !race

// Megabytes take ten times as long with the race detector. make test runs them without.

package journal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// limitedJournals is fakeJournals whose Secrets take 1 MiB.
func limitedJournals() *Store {
	s := fakeJournals()
	s.Secrets = enginetest.Limited{SecretInterface: s.Secrets}
	return s
}

// full are entries of that many units, with effects, whose pre-images take so many bytes
// compressed.
func full(t *testing.T, units, changes, packed int) []*Entry {
	t.Helper()
	var entries []*Entry
	for n := range units {
		u, pre := migration.Unit{ID: fmt.Sprint(n)}, make([]Preimage, changes)
		for i := range changes {
			ref := enginetest.Ref("Thing", fmt.Sprintf("t-%d-%d", n, i))
			u.Changes = append(u.Changes, migration.Change{Verb: migration.Delete, Ref: ref})
			pre[i].Absent = []migration.Ref{ref, enginetest.Ref("Broker", strings.Repeat("b", 60))}
		}
		pre[0].Object = noise(t, packed/units*4/3)
		entries = append(entries, NewEntry(n, u, pre))
	}
	return entries
}

// know makes all known of the entries that there can be.
func know(entries []*Entry) {
	for _, e := range entries {
		e.unusable = map[int]types.UID{}
		for i := range e.known {
			e.unusable[i] = types.UID(strings.Repeat("u", 36))
			e.known[i] = known{state: StepDone, hash: strings.Repeat("h", 32)}
			for _, ref := range e.Pre[i].Absent {
				e.known[i].effects = append(e.known[i].effects, EffectMark{Ref: ref, UID: types.UID(strings.Repeat("u", 36)), Hash: strings.Repeat("h", 32)})
			}
		}
	}
}

// TestMarksFit holds that whatever can be known of a chunk fits into its Secret. On f3299ef the
// Secret of a chunk took 900 KiB of units, and its marks made it larger than the API server takes:
// two runs had ended well, and the journal was open for ever.
func TestMarksFit(t *testing.T) {
	for name, tc := range map[string]struct {
		reason                 string
		units, changes, packed int
		chunks                 int
	}{
		"Usual":    {"most journals", 100, 1, 100 << 10, 1},
		"900KiB":   {"all that goes into one Secret", 100, 3, 900 << 10, 1},
		"1000KiB":  {"more than that", 100, 3, 1000 << 10, 1},
		"OneLarge": {"one unit", 1, 1, 900 << 10, 1},
		"Effects":  {"what comes last is one batch, of any number of units: its marks alone are larger than a Secret", 1000, 1, 600 << 10, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := limitedJournals()
			j := New("job", "v1", 1, &migration.Plan{})
			entries := full(t, tc.units, tc.changes, tc.packed)
			if err := s.Append(t.Context(), j, entries); err != nil {
				t.Fatal(err)
			}
			know(entries)
			if got := len(j.All()); got != tc.chunks {
				t.Errorf("%s: %d chunks, want %d", tc.reason, got, tc.chunks)
			}
			for _, c := range j.All()[1:] {
				if err := s.Mark(t.Context(), c); err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
			}
			if err := s.Enter(t.Context(), j, PhaseDone); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			read := s.mustLoad(t, PhaseDone).Entries()
			if len(read) != tc.units {
				t.Fatalf("%d units", len(read))
			}
			for n, e := range read {
				if diff := cmp.Diff(entries[n].known, e.known, cmp.AllowUnexported(known{})); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

// TestFullJournalOfAnEarlierBuild: one that has no room for marks is closed without them. An undo
// looks at the objects then.
func TestFullJournalOfAnEarlierBuild(t *testing.T) {
	s := limitedJournals()
	j := New("job", "v1", 1, &migration.Plan{})
	entries := full(t, 20, 40, 100<<10)
	if err := s.Append(t.Context(), j, entries); err != nil {
		t.Fatal(err)
	}
	name := j.All()[0].Name
	for _, tc := range []struct {
		reason string
		// left is what an earlier build has left for marks.
		left int
		want known
	}{
		{"states are the last to go", 200 << 10, known{state: StepDone}},
		{"and without room for them, what was marked before stays", 100, known{state: StepUnknown}},
	} {
		secret, err := s.Secrets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		delete(secret.Data, "padding")
		delete(secret.Data, "marks")
		n := 0
		for _, value := range secret.Data {
			n += len(value)
		}
		secret.Data["padding"] = make([]byte, corev1.MaxSecretSize-n-tc.left)
		if _, err := s.Secrets.Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		know(entries)
		if err := s.Enter(t.Context(), j, PhaseDone); err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, s.mustLoad(t, PhaseDone).Entries()[0].known[0], cmp.AllowUnexported(known{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestFirstChunkIsIncomplete plays a kill, or a refusal, before each write of a first chunk in
// several Secrets. No change can have begun then. On f3299ef a kill between them left parts without
// a first Secret, so that each later run was refused: the journal is damaged.
func TestFirstChunkIsIncomplete(t *testing.T) {
	entries := full(t, 2, 1, 1000<<10)
	for name, refused := range map[string]bool{"Killed": false, "Refused": true} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				s := fakeJournals()
				writes := 0
				s.Write = func(ctx context.Context, op func(context.Context) error) error {
					if writes++; writes > n && (!refused || writes == n+1) {
						return k8sutil.Permanent(errors.New("no"))
					}
					return op(ctx)
				}
				j := New("job", "v1", 1, &migration.Plan{})
				if err := s.Append(t.Context(), j, entries); err == nil {
					if n != 3 { // two Secrets, and the phase
						t.Errorf("it took %d writes", n)
					}
					if got := len(s.mustLoad(t, PhaseForward).Entries()); got != 2 {
						t.Errorf("%d units", got)
					}
					return
				}
				if !j.Empty() {
					t.Fatalf("%d writes: a journal that is not complete has no units", n)
				}
				next := fakeJournals()
				next.Secrets, next.Meta = s.Secrets, s.Meta
				found, err := next.Find(t.Context(), OpenPhases...)
				if err != nil || len(found) > 0 || !next.AllClosed() {
					t.Fatalf("%d writes: found %v, %v", n, found, err)
				}
				if open, _, err := next.Past(t.Context()); err != nil || len(open) > 0 {
					t.Errorf("%d writes: open %v, %v", n, open, err)
				}
				if list, _ := s.Secrets.List(t.Context(), metav1.ListOptions{}); refused && len(list.Items) > 0 {
					t.Errorf("%d writes: %d Secrets are left", n, len(list.Items))
				}
				if err := next.Prune(t.Context()); err != nil {
					t.Error(err)
				}
				if list, _ := s.Secrets.List(t.Context(), metav1.ListOptions{}); len(list.Items) > 0 {
					t.Errorf("%d writes: %d Secrets are left behind", n, len(list.Items))
				}
			}
		})
	}
}

// TestTooLarge: what may not fit into etcd when it is restored is not even begun. On f3299ef it was
// deleted.
func TestTooLarge(t *testing.T) {
	deletion := migration.Change{Verb: migration.Delete, Ref: enginetest.Ref("Thing", "a")}
	for name, tc := range map[string]struct {
		reason string
		size   int
		want   bool
	}{
		"Small":  {"most are", 100, false},
		"900KiB": {"a Secret takes it", 900 << 10, false},
		"1MiB":   {"it goes into two Secrets", 1 << 20, false},
		"1.4MiB": {"etcd takes 1.5 MiB", 1433 << 10, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, obj := fakeJournals(), noise(t, tc.size)
			j := New("job", "v1", 1, &migration.Plan{})
			err := s.Append(t.Context(), j, []*Entry{NewEntry(0, migration.Unit{Changes: []migration.Change{deletion}}, []Preimage{{Object: obj}})})
			large, ok := errors.AsType[*TooLargeError](err)
			if ok != tc.want || ok && (large.Ref != deletion.Ref || !j.Empty()) || !ok && err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			planned := deletion
			planned.Object = obj
			if found := TooLarge(&migration.Unit{Changes: []migration.Change{planned}}); (len(found) == 1) != tc.want {
				t.Errorf("%s: %v", tc.reason, found)
			}
			planned.Verb = migration.Patch
			if found := TooLarge(&migration.Unit{Changes: []migration.Change{planned}}); len(found) > 0 {
				t.Errorf("a patch has a part of its object: %v", found)
			}
		})
	}
}
