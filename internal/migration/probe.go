package migration

import "context"

// Prober is a job that tries out what its plan waited for, by other means than
// the API server. It changes nothing.
type Prober interface {
	// Probe is called when everything that was waited for holds. A finding of
	// severity error fails the run.
	Probe(ctx context.Context) []Finding
}

// probed is the outcome of a run that only waits, after the job has tried it out.
func (r *run) probed(ctx context.Context, out outcome) outcome {
	prober, ok := r.job.(Prober)
	if !ok || out.result != NothingToDo {
		return out
	}
	findings := prober.Probe(ctx)
	for _, f := range findings {
		r.addFinding(f)
	}
	if refused(&Plan{Findings: findings}) {
		return outcome{result: FailedResult, message: firstError(findings) + "; nothing was changed"}
	}
	return out
}
