package present

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// OfJob is the report of one job on a cluster.
func OfJob(r *migration.Report, cluster string) Report {
	title := fmt.Sprintf("%s %s: %s on %s, in %.1f s (%s, %s", r.Job, r.Command, r.Result, cluster, r.Seconds, migration.Count(int(r.Requests.Reads), "read"), migration.Count(int(r.Requests.Writes), "write"))
	if r.Run != "" {
		title += ", run " + r.Run
	}
	title += ")"
	failed := r.ExitCode() != migration.ExitOK
	if r.Message != "" && !failed {
		title += ". " + strings.ToUpper(r.Message[:1]) + r.Message[1:]
	}
	return Report{Title: title, Jobs: []Job{{
		Name: r.Job, Result: r.Result, Message: r.Message, Failed: failed, Changes: r.Changes, Findings: r.Findings,
	}}}
}

// StateOfJob is what the next command depends on after one job.
func StateOfJob(r *migration.Report, c Caller) State {
	return State{
		Caller: c, Command: r.Command, ExitCode: r.ExitCode(),
		Changes: Changes([]Job{{Name: r.Job, Changes: r.Changes}}).Writes, Findings: Of(r.Findings), Unready: Unready(r),
	}
}

// ofTheServer are errors that each object would have: to leave one out is no way out.
var ofTheServer = []string{"webhook-down", "api-server-trouble", "permission-missing"}

// Unready is the first change whose object was not ready in time, nil if there is none. The
// result of the change does not tell: the run may have rolled it back.
func Unready(r *migration.Report) *migration.ChangeReport {
	for _, f := range r.Findings {
		if f.Severity != migration.Error || slices.Contains(ofTheServer, f.ID) {
			continue
		}
		for i := range r.Changes {
			ch := &r.Changes[i]
			waits := ch.Verb == migration.Create || ch.Verb == migration.Await || ch.Verb == migration.Recreate
			if ref := (migration.Ref{Resource: migration.Resource{Kind: ch.Kind}, Namespace: ch.Namespace, Name: ch.Name}); waits && ref.String() == f.Object {
				return ch
			}
		}
	}
	return nil
}
