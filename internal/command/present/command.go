package present

import (
	"cmp"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/frame"
)

// Flag is a flag as it was given.
type Flag = frame.Flag

// Caller is how the program was called.
type Caller struct {
	// Program is what a person has typed: one word, or two of a plugin of kubectl.
	Program string
	// Name is what commands of findings call the program by; "" is Program.
	Name string
	// OneJob: the program has one job, which its commands do not name.
	OneJob bool
	// Explains: the program has a command "explain" for IDs.
	Explains bool
	// Cluster are the flags of every command that reaches the cluster, if they were given.
	Cluster []Flag
	// Work are the other flags that the next run needs, such as the settings of jobs.
	Work []Flag
	// Timeout is the time limit of the work.
	Timeout time.Duration
}

// Line returns a command line of the program, with the flags of the cluster.
func (c Caller) Line(words ...string) string {
	return frame.Line(c.Program, words, c.Cluster)
}

// WorkLine is Line for plan, run and undo.
func (c Caller) WorkLine(words ...string) string {
	for _, f := range c.Work {
		words = append(words, f.Word())
	}
	return c.Line(words...)
}

// Undo is the command that undoes the newest run of a job.
func (c Caller) Undo(job string) string {
	if c.OneJob {
		return c.WorkLine("undo")
	}
	return c.WorkLine("undo", job)
}

// Explain is the command that explains an ID or an exit code, "" if there is none. It needs no
// cluster.
func (c Caller) Explain(id string) string {
	if !c.Explains {
		return ""
	}
	return c.Program + " explain " + id
}

// Complete adds the flags of the cluster to a command of a finding, which knows only its
// object. A flag that the command has already is not added.
func (c Caller) Complete(line string) string {
	return frame.Complete(line, cmp.Or(c.Name, c.Program), c.Program, c.Cluster)
}
