package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/takeover"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/version"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// takeOverState is the namespace of the journal, and the name of the program for the engine.
const takeOverState = "eventing-take-over"

// takeOver is one command of take-over.
type takeOver struct {
	*app
	to           takeover.Direction
	namespace    string
	leaveGivenUp bool
	stepTimeout  time.Duration
	drainTimeout time.Duration
	// monitors replace the port-forward, for tests: <pod>=<address>.
	monitors []string
}

func takeOverCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "take-over", Short: "Move from Kyma's own eventing to this one, and back",
		Long: `Move a live cluster from Kyma's eventing-manager and nats-manager to this eventing, and
back, without losing an event. Clients keep the address of Kyma's Service. Begin with
plan, which writes nothing. run does one step after the other, and can be stopped and
repeated at any time; undo goes back from any step. docs/eventing/coming-from-kyma.md
has all of it.`,
		Args: frame.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(takeOverPlan(a), takeOverRun(a, "run", takeover.Over), takeOverVerify(a), takeOverRun(a, "undo", takeover.Back))
	return cmd
}

func (t *takeOver) bind(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVarP(&t.namespace, "namespace", "n", takeover.Namespace, "`namespace` of both.")
	_ = cmd.RegisterFlagCompletionFunc("namespace", frame.CompleteNamespaces(t.config)) // the flag exists
	fs.BoolVar(&t.leaveGivenUp, "leave-given-up", false, "go on although Kyma's NATS holds events that its operator has given up.")
	fs.StringArrayVar(&t.monitors, "monitor", nil, "`POD=ADDRESS` of the monitoring of a NATS server, instead of a port-forward.")
	_ = fs.MarkHidden("monitor") // the flag exists
	t.flags(cmd, []string{frame.FormText, frame.FormJSON, frame.FormYAML}, true)
}

func takeOverPlan(a *app) *cobra.Command {
	t := &takeOver{app: a, to: takeover.Over}
	var back bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what is in the way, and each step; it writes nothing", Args: frame.NoArguments,
		Long: `Show what is in the way of a take-over, by name, and each step that is left, with who
accepts and who delivers events meanwhile. It writes nothing.
Exit code 0: run can begin, or nothing is left. 6: something is in the way. 7: the
cluster could not be read.`,
		Example: "  {name} take-over plan\n  {name} take-over plan --back\n  {name} take-over plan -o json",
		RunE: func(*cobra.Command, []string) error {
			if back {
				t.to = takeover.Back
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error { return t.show(ctx, c, false) })
		},
	}
	cmd.Flags().BoolVar(&back, "back", false, "the way from this eventing to Kyma's.")
	t.bind(cmd)
	return cmd
}

func takeOverVerify(a *app) *cobra.Command {
	t := &takeOver{app: a, to: takeover.Over}
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that the take-over is finished; it writes nothing", Args: frame.NoArguments,
		Long: `Check that this eventing accepts and delivers all events, and that Kyma's NATS holds
none. It writes nothing.
Exit code 0: finished. 6: a step is left. 7: the cluster could not be read.`,
		Example: "  {name} take-over verify",
		RunE: func(*cobra.Command, []string) error {
			return a.reach(nil, func(ctx context.Context, c *connection) error { return t.show(ctx, c, true) })
		},
	}
	t.bind(cmd)
	return cmd
}

// show prints the way that is left.
func (t *takeOver) show(ctx context.Context, c *connection, finished bool) error {
	e, err := t.engine(c)
	if err != nil {
		return err
	}
	o, err := t.job(c).Look(ctx, e.Cluster())
	if err != nil {
		return err
	}
	errors := 0
	for _, f := range o.Findings {
		if f.Severity == migration.Error {
			errors++
		}
	}
	if errors > 0 || finished && len(o.Steps) > 0 {
		t.code = frame.ExitFindings
	}
	if t.structured() {
		return t.print(struct {
			where
			*takeover.Outlook
		}{whereOf(c), o})
	}
	lines := append(frame.Wrap("Way from Kyma's eventing in "+c.name()+". Nothing was written.", t.width()), t.described(o, finished)...)
	if errors > 0 {
		lines = append(lines, "", wording.Count(errors, "error")+". Next: do what is named above, then look again:", "  "+t.next(program+" take-over plan"))
	}
	return t.write(c, lines...)
}

// described are the findings and steps for people.
func (t *takeOver) described(o *takeover.Outlook, finished bool) (lines []string) {
	if t.to == takeover.Back {
		lines = append(lines, "Direction: back to Kyma's.")
	}
	line := wording.Count(o.Subscriptions, "Subscription")
	for _, b := range []struct {
		whose string
		is    *takeover.Backlog
	}{{"Kyma's NATS", o.Theirs}, {"our NATS", o.Ours}} {
		if b.is != nil {
			line += fmt.Sprintf("; %s holds %s", b.whose, wording.Count(int(b.is.Messages), "event"))
		}
	}
	lines = append(lines, line+".")
	for _, f := range o.Findings {
		lines = append(lines, frame.Indented(fmt.Sprintf("%s: %s: %s: %s", f.Severity, f.ID, f.Object, f.Problem), "  ", t.width(), 8)...)
		if f.Note != "" {
			lines = append(lines, frame.Indented(f.Note, "    ", t.width(), 3)...)
		}
		if f.Command != "" {
			lines = append(lines, "    "+t.next(f.Command))
		}
	}
	if len(o.Steps) == 0 {
		return append(lines, "No step is left.")
	}
	lines = append(lines, "", "Steps that are left:")
	for i, s := range o.Steps {
		lines = append(lines, frame.Indented(fmt.Sprintf("%d. %s (%s)", i+1, s.Does, s.Meanwhile), "  ", t.width(), 4)...)
	}
	verb := "run"
	if t.to == takeover.Back {
		verb = "undo"
	}
	if !finished {
		lines = append(lines, "", "Next:", "  "+t.next(program+" take-over "+verb))
	}
	return lines
}

func takeOverRun(a *app, verb string, to takeover.Direction) *cobra.Command {
	t := &takeOver{app: a, to: to}
	cmd := &cobra.Command{
		Use: verb, Short: "Move to this eventing, step by step", Args: frame.NoArguments,
		Long: `Do each step that plan shows, and wait for what it needs. Each write is in a journal
first, in namespace ` + takeOverState + `. It can be stopped, or killed, at any time: events
are accepted and kept meanwhile, and the next run, or undo, goes on.
Exit code 0: at the end of the way. 1: a step has failed, or events are still being
delivered when --drain-timeout is over. 5: another one runs. 6: something is in the way.`,
		Example: "  {name} take-over run\n  {name} take-over run --drain-timeout 2h",
		RunE: func(*cobra.Command, []string) error {
			a.writes = true
			return a.reach(nil, t.run)
		},
	}
	if to == takeover.Back {
		cmd.Short, cmd.Example = "Move back to Kyma's eventing, from any step", "  {name} take-over undo"
	}
	cmd.Flags().DurationVar(&t.stepTimeout, "step-timeout", 10*time.Minute, "how long one step may take.")
	cmd.Flags().DurationVar(&t.drainTimeout, "drain-timeout", time.Hour, "how long the last events may take to be delivered.")
	t.bind(cmd)
	return cmd
}

// stepAttempts is how often a step may be made in succession: an operator may undo it once.
const stepAttempts = 3

// pause is how long is waited between two looks at a NATS that still holds events.
const pause = 2 * time.Second

// run does one step after the other.
func (t *takeOver) run(ctx context.Context, c *connection) error {
	e, err := t.engine(c)
	if err != nil {
		return err
	}
	job, deadline, made := t.job(c), now().Add(t.drainTimeout), lastStep{}
	for {
		report := e.Run(ctx, job)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case report.Result == migration.NothingToDo:
			return t.write(c, "At the end of the way: no step is left.")
		case report.Result == migration.Succeeded && !made.tooOften(report):
			for _, line := range made.lines {
				fmt.Fprintf(t.Stderr, "%s: %s\n", program, line)
			}
		case report.Result == migration.DeferredResult && now().Before(deadline):
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pause):
			}
		default:
			switch t.code = frame.ExitFailed; report.Result {
			case migration.Refused:
				t.code = frame.ExitFindings
			case migration.Locked:
				t.code = frame.ExitLocked
			}
			lines := []string{report.Message}
			if report.Result == migration.Succeeded {
				lines[0] = fmt.Sprintf("This step was made %d times in succession. Something undoes it, such as a policy of the cluster or a GitOps tool: %s", made.times, strings.Join(made.lines, "; "))
			}
			for _, f := range report.Findings {
				lines = append(lines, "  "+f.String())
			}
			return t.write(c, append(lines, "Events are accepted and kept. Next:", "  "+t.next(program+" take-over plan"))...)
		}
	}
}

// lastStep is the step that was made last, and how often without another one in between.
type lastStep struct {
	lines []string
	times int
}

// tooOften notes a step that was made, and says whether it was made once more than it may be: what
// it does is undone.
func (l *lastStep) tooOften(report *migration.Report) bool {
	var lines []string
	for i := range report.Changes {
		if ch := &report.Changes[i]; ch.Change != nil {
			lines = append(lines, fmt.Sprintf("%s %s: %s", ch.Result, ch.Change.Ref, ch.Change.Why))
		}
	}
	if !slices.Equal(lines, l.lines) {
		l.times = 0
	}
	l.lines = lines
	l.times++
	return l.times > stepAttempts
}

func (t *takeOver) engine(c *connection) (*engine.Engine, error) {
	host, _ := os.Hostname()
	return engine.New(c.way.Config, engine.Options{
		Names:   migration.Names{Program: takeOverState, Domain: "take-over.eventing.kyma-project.io"},
		Timeout: max(t.stepTimeout, time.Second), User: c.way.User, Host: host, Version: version.String(), Log: c.log,
	})
}

func (t *takeOver) job(c *connection) *takeover.Job {
	return takeover.New(takeover.Options{To: t.to, Namespace: t.namespace, LeaveGivenUp: t.leaveGivenUp, Get: t.getter(c.way.Config)})
}

// getter asks a port of a pod, through a port-forward.
func (t *takeOver) getter(cfg *rest.Config) takeover.Get {
	return func(ctx context.Context, namespace, pod string, port int, path string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		address := ""
		for _, m := range t.monitors {
			if of, at, ok := strings.Cut(m, "="); ok && of == pod {
				address = at
			}
		}
		if address == "" {
			var err error
			if address, err = remote.Forward(ctx, cfg, namespace, pod, port); err != nil {
				return nil, err
			}
		}
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
		if err != nil {
			return nil, err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("port %d of Pod %s/%s answers %s", port, namespace, pod, res.Status)
		}
		return io.ReadAll(io.LimitReader(res.Body, 64<<20))
	}
}
