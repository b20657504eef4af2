// Package migrationtest is the suite that every job (package migration) must survive. It
// runs the job in the test's own process, with the real engine, against a real API
// server, and disturbs it in all the ways in which a cluster and its people do:
//
//	Plan             a plan writes nothing
//	NoWriteWhenDone  a second run, and a run without any stored state, only read
//	Undo             an undo restores what was there, and the next run migrates again
//	Rollback         each write of the job is refused once: the state before is restored
//	Edit             somebody edits each object after the plan has read it
//	Faults           one request in five fails: 429, 500, lost answers, resets
//	KillForward      the run is killed before and after each of its writes, and run again
//	KillBack         the run is killed after each of its writes, and undone
//	KillRollback     a failing run is killed after each of its writes, and run again
//	KillUndo         an undo is killed after each of its writes, and repeated
//
// A test describes the job as a [Subject] and calls [Survives]:
//
//	func TestIngressClassSurvives(t *testing.T) {
//		migrationtest.Survives(t, restConfig, migrationtest.Subject{
//			Job:     func() migration.Job { return ingressclass.New() },
//			Prepare: createTwoIngressesWithTheAnnotation,
//			Done:    bothHaveTheField,
//			Kinds:   []schema.GroupVersionResource{{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}},
//		})
//	}
//
// All it needs is a [rest.Config]. Use a cluster that you can lose: a control plane of
// envtest or kind, since the suite removes what the engine stores, and calls Prepare some
// hundred times.
//
// # What killed means
//
// At the chosen write the transport of the run closes permanently, before the request is
// sent or after it was answered. Nothing of the run reaches the API server any more: no
// rollback, no mark in the journal, no release of the lock. The lock is then freed as if
// its Lease had expired.
//
// # What equal means
//
// States are compared object by object, for the kinds that the Subject names, in all
// namespaces. Not compared are status, uid, resourceVersion, generation, timestamps and
// managedFields, and what [migration.EditIgnorer] ignores. The mark of the run that
// created an object is compared by its presence.
//
// # A failure
//
// A subtest that fails prints its own command line, the requests that the run wrote, and
// the log of the engine. Each subtest starts from Prepare, so that it can run alone:
//
//	go test -run '^TestIngressClassSurvives$/^KillForward$/^After$/^Write07$'
//
// With -short the kill loops are left out.
package migrationtest
