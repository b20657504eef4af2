// Package engine carries out the plans of jobs (package migration). A job decides, the
// engine acts: it turns any plan into journaled, resumable, reversible writes, or into a
// dry run. Safety is written once, here:
//
//   - what a change destroys is stored in the journal before the change;
//   - a failed run is rolled back, newest change first;
//   - a killed run is finished by the next one;
//   - before a change that loses data if its reason is gone, the job is asked again;
//   - one Lease keeps writers apart, and nothing is written when nothing is left to do.
//
// An installer makes one [Engine] for a cluster, and runs jobs with it:
//
//	e, err := engine.New(restConfig, engine.Options{
//		Names:    migration.Names{Program: "installer", Domain: "installer.example.com"},
//		Identity: "installer-" + string(podUID),
//	})
//	if err != nil {
//		return err
//	}
//	report := e.Run(ctx, job)
//	if report.ExitCode() != migration.ExitOK {
//		return errors.New(report.Message)
//	}
//
// [Engine.Plan] shows what a run would do, and writes nothing. [Engine.Undo] undoes the
// newest run of a job. [Engine.State] reads what runs have stored.
//
// Package command makes a program for people of a job. Package migrationtest proves that a job
// survives kills and faults. The directory examples/installer has an installer with several
// workers, which share one [SharedLock].
package engine
