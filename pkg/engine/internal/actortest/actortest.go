// Package actortest makes what the changes of one run are made by, for the unit tests of the
// engine.
package actortest

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/act"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/findings"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/journal"
	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/write"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// New returns the actor of a run of the job on the API. Its lock is always held.
func New(api *enginetest.API, job migration.Job) *act.Actor {
	log := zap.NewNop()
	found := findings.New(log)
	secrets := fake.NewClientset().CoreV1().Secrets("state")
	ignored := map[string]bool{enginetest.Names.Mark(): true}
	rec := &journal.Recorder{Log: log, Ignored: ignored, Journals: &journal.Store{
		Names: enginetest.Names,
		Job:   job.Name(), Namespace: "state", Secrets: secrets, Meta: enginetest.Metadata{Secrets: secrets}, Read: enginetest.Direct,
	}}
	w := &write.Writer{
		Log: log, Job: job, Names: enginetest.Names, Ignored: ignored, Client: api, Reader: api, Cluster: api.Cluster(), Findings: found, Read: enginetest.Direct,
		Notify: func() func(error) { return nil }, Account: &k8sutil.Account{}, Restored: rec.RestoredUID,
		Guard: func(ctx context.Context) (context.Context, context.CancelFunc, error) {
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			return call, cancel, nil
		},
	}
	rec.Journals.Write = w.Write
	rec.Journal = journal.New(job.Name(), "v1", 1, &migration.Plan{Parallelism: 2})
	return &act.Actor{Findings: found, Writer: w, Recorder: rec, Job: job, Log: log, NewCluster: api.Cluster, StateNamespace: "state",
		Namespaces: act.NewNamespaces(w, job, nil)}
}

// Journaled puts units into the journal of the actor, with what there is now as their pre-images.
func Journaled(t *testing.T, a *act.Actor, units ...migration.Unit) []*journal.Entry {
	t.Helper()
	var entries []*journal.Entry
	for _, u := range units {
		journal.Build(&u)
		pre, err := a.Preimages(t.Context(), &u, false)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, journal.NewEntry(a.Recorder.NextSeq()+len(entries), u, pre))
	}
	if err := a.Recorder.Journals.Append(t.Context(), a.Recorder.Journal, entries); err != nil {
		t.Fatal(err)
	}
	return entries
}

// Done makes the changes of entries, as a run that waits for nothing.
func Done(t *testing.T, a *act.Actor, entries ...*journal.Entry) {
	t.Helper()
	for _, e := range entries {
		for _, s := range e.Steps() {
			result, err := a.Apply(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			s.SetState(journal.StepDone)
			s.ReportResult(result)
		}
		e.Complete()
	}
}
