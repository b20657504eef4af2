package lease

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationapi "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// A mark on the Lease says that a run of a job is open: it goes on, or was
// interrupted. Journals say that, too, and more; but they hold pre-images, and who
// only has to know whether there is one needs no permission to read them.
//
// The mark is written with the Lease itself, before the job's journal. It is removed
// when the Lease is released and the journal is closed. So it may be there without a
// journal (the process was killed between the two), never the other way round: a Lease
// that has to be created again gets the marks of all open journals. Who may read
// journals believes them.

// markKey begins the annotation of a job, after the program's domain: the job's name follows. Its
// value is since when.
const markKey = "open-"

// applyMarks puts on the Lease the marks that are to be there.
func applyMarks(lease *coordinationapi.Lease, names migration.Names, marks map[string]bool, now metav1.Time) {
	for job, open := range marks {
		key := names.Key(markKey + job)
		switch _, there := lease.Annotations[key]; {
		case open && !there:
			if lease.Annotations == nil {
				lease.Annotations = map[string]string{}
			}
			lease.Annotations[key] = now.UTC().Format(time.RFC3339)
		case !open:
			delete(lease.Annotations, key)
		}
	}
}

// restore marks the jobs with open journals on a Lease that does not exist, and returns
// the highest number of a journal: the Lease was deleted, unless this is the first run.
func (l *Lock) restore(ctx context.Context) (highest int, err error) {
	if l.Live != nil || l.Past == nil {
		return 0, nil
	}
	open, highest, err := l.Past(ctx)
	for _, job := range open {
		l.marks[job] = true
	}
	return highest, err
}

// mark marks one more job on the Lease, which this process holds: before its journal
// is written.
func (l *Lock) mark(ctx context.Context, job string) error {
	l.setMark(job, true)
	return k8sutil.Retry(ctx, k8sutil.RetryBudget, nil, func(ctx context.Context) error {
		if l.isOnLease(job) {
			return nil
		}
		return l.renewOnce(ctx)
	})
}

// unmark lets the next write of the Lease remove the mark: a renewal, or the release.
func (l *Lock) unmark(job string) { l.setMark(job, false) }

func (l *Lock) setMark(job string, open bool) {
	l.enter()
	defer l.leave()
	l.marks[job], l.working[job] = open, open
}

func (l *Lock) isOnLease(job string) bool {
	l.enter()
	defer l.leave()
	return l.Live != nil && l.Live.Annotations[l.names.Key(markKey+job)] != ""
}

// IsMarked says whether the Lease as seen says that a run of the job is open, or will
// say so.
func (l *Lock) IsMarked(job string) bool {
	l.enter()
	open, known := l.marks[job]
	l.leave()
	if known {
		return open
	}
	return l.isOnLease(job)
}

// OpenRun is what a mark tells.
type OpenRun struct {
	Job   string
	Since time.Time
}

// OpenRuns are the marks on the Lease as seen, by job.
func (l *Lock) OpenRuns() []OpenRun {
	if l.Live == nil {
		return nil
	}
	var open []OpenRun
	for _, key := range slices.Sorted(maps.Keys(l.Live.Annotations)) {
		if job, ok := strings.CutPrefix(key, l.names.Key(markKey)); ok {
			since, _ := time.Parse(time.RFC3339, l.Live.Annotations[key]) // a mark counts, whatever somebody made of it
			open = append(open, OpenRun{job, since})
		}
	}
	return open
}
