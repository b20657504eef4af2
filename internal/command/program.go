package command

import (
	"github.com/kyma-project/eventmesh-migration/internal/command/present"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Program is what a program of jobs says of itself, and what its surroundings are. Of fields
// without a value nothing is said.
type Program struct {
	// Names are those of what jobs keep and mark in a cluster.
	Names migration.Names
	// StateNamespace is the default of --state-namespace; "" is Names.Program.
	StateNamespace string
	// Version of the program.
	Version string
	// Project ends the user agent, by which the audit log of the API server knows the programs of
	// one project.
	Project string
	// Tool is the program that a person uses for all jobs, if there is one: its commands plan, run
	// and undo name a job, "explain" has IDs and exit codes, and "check --role" prints a Role.
	// Without it, a person uses the binary of the job.
	Tool string
	// Charts: the program is a hook of Helm charts of its own, which create the state namespace
	// and the permissions.
	Charts bool
	// LeftOut are the namespaces that jobs leave out without being told, such as "the system
	// namespaces".
	LeftOut string
	// Kept says which objects an undo leaves in addition to those that were edited: those that
	// "carry live events", for example. Without it, those of a migration.Protector "are protected".
	Kept string
	// Next returns what to do after a command; nil: present.Next.
	Next func(*migration.Report, present.Caller) []present.Step
}

// explain is the command that explains an ID, "" if there is none. It needs no cluster.
func (p *Program) explain(id string) string {
	return present.Caller{Program: p.Tool, Explains: p.Tool != ""}.Explain(id)
}

// explanation is the command that explains an exit code.
func (p *Program) explanation(code int) string { return p.explain(migration.ExitCodeOf(code).ID()) }

// next is what to do after a command of one job.
func (p *Program) next(r *migration.Report, c present.Caller) []present.Step {
	if p.Next != nil {
		return p.Next(r, c)
	}
	return present.Next(present.StateOfJob(r, c))
}

// exitCodes are those that the program ends with. Only a tool has commands that do nothing but
// read.
func (p *Program) exitCodes() []migration.ExitCode {
	all := migration.ExitCodes()
	if p.Tool != "" {
		return all
	}
	var some []migration.ExitCode
	for _, c := range all {
		if c.Rank > 0 {
			some = append(some, c)
		}
	}
	return some
}

// textIf is a text for a condition, "" if it does not hold.
func textIf(holds bool, text string) string {
	if holds {
		return text
	}
	return ""
}
