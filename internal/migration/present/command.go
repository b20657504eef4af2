package present

import "github.com/kyma-project/eventmesh-migration/internal/frame"

// Flag is a flag as it was given.
type Flag = frame.Flag

// Caller is how the program was called.
type Caller struct {
	// Program is what a person has typed: one word, or "kubectl eventmesh-migrate".
	Program string
	// Cluster are the flags of every command that reaches the cluster, if they were given.
	Cluster []Flag
	// Work are the other flags that the next run needs, such as the settings of jobs.
	Work []Flag
}

// line returns a command line of the program, with the flags of the cluster.
func (c Caller) line(words ...string) string {
	return frame.Line(c.Program, words, c.Cluster)
}

// work is line for plan, run and undo.
func (c Caller) work(words ...string) string {
	for _, f := range c.Work {
		words = append(words, f.Word())
	}
	return c.line(words...)
}

// Undo is the command that undoes the newest run of a job.
func (c Caller) Undo(job string) string { return c.work("undo", job) }

// Explain is the command that explains an ID or an exit code. It needs no cluster.
func (c Caller) Explain(id string) string { return c.Program + " explain " + id }

// Complete adds the flags of the cluster to a command of a finding, which knows only its
// object. A flag that the command has already is not added.
func (c Caller) Complete(line string) string {
	return frame.Complete(line, "eventmesh-migrate", c.Program, c.Cluster)
}
