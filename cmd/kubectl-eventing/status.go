package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// screen is how many lines status prints: those of a terminal, without the prompt.
const screen = 23

func statusCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "status", Short: "Show how eventing is, in one screen", Args: frame.NoArguments,
		Long: `Show how eventing is, in one screen. It has the state, the conditions that are not good,
the backend with its storage, and the pods of each program. Below are the Subscriptions that
have a problem, the worst first, each with the next command. It only reads. What
this account may not read is named, and the rest is shown.

-o wide shows all of it, however long. -o name lists the objects that have a problem.
Exit code 0: all is well. 6: something is wrong, or there is no Eventing. 7: something
could not be read, and the rest is well.`,
		Example: "  {name} status\n  {name} status -o wide\n  {name} status -o json",
		RunE: func(*cobra.Command, []string) error {
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				o, err := c.Overview(ctx, now())
				if err != nil {
					return err
				}
				switch {
				case o.Bad():
					a.code = frame.ExitFindings
				case !o.Well():
					a.code = frame.ExitNotChecked
				}
				return writeStatus(a, c, o)
			})
		},
	}
	a.flags(cmd, forms, true)
	return cmd
}

func writeStatus(a *app, c *connection, o *inspect.Overview) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			Well bool `json:"well"`
			*inspect.Overview
		}{whereOf(c), o.Well(), o})
	case a.output == frame.FormName:
		return frame.WriteNames(a.Stdout, troubledNames(o))
	}
	lines := append([]string{"Cluster " + c.name()}, statusHead(a, o)...)
	most := screen
	if a.output == frame.FormWide {
		most = 1 << 20
	}
	end := statusEnd(o)
	lines = append(lines, statusBody(a, o, most-len(lines)-len(end))...)
	return a.write(c, append(lines, end...)...)
}

func troubledNames(o *inspect.Overview) (names []string) {
	for _, e := range o.Eventings {
		if !e.Good() {
			names = append(names, frame.KubectlName(inspect.Eventings.Group, "Eventing", e.Namespace, e.Name))
		}
	}
	for _, p := range o.Programs {
		if p.Ready < p.Wanted {
			names = append(names, frame.KubectlName("apps", p.Kind, o.Home.Namespace, p.Object))
		}
	}
	for _, s := range o.Troubled {
		names = append(names, frame.KubectlName(inspect.Subscriptions.Group, "Subscription", s.Namespace, s.Name))
	}
	return names
}

// statusHead has the state of each Eventing, its backend and the pods.
func statusHead(a *app, o *inspect.Overview) (lines []string) {
	for i := range o.Eventings {
		e := &o.Eventings[i]
		state := e.State
		if state == "" {
			state = "no operator has looked at it"
		}
		if !e.Served && i > 0 {
			state += " (not served: there is an older one)"
		}
		backend := "no backend"
		if e.Backend != "" {
			backend = "backend " + e.Backend
		}
		if e.Active != "" && e.Active != e.Backend {
			backend += ", events still go to " + e.Active
		}
		lines = append(lines, fmt.Sprintf("Eventing %s/%s: %s, %s", e.Namespace, e.Name, state, backend))
		if s := e.Switch; s != nil {
			lines = append(lines, frame.Fit(fmt.Sprintf("  Switch    from %s to %s: step %s for %s, %s left", s.From, s.To, s.Step, age(&s.Since), wording.Count(int(s.Pending), "event")), a.width()))
		}
		if n := e.NATS; n != nil {
			lines = append(lines, frame.Fit("  Storage   "+storage(n), a.width()))
		}
	}
	if len(o.Programs) > 0 {
		var pods []string
		for _, p := range o.Programs {
			pods = append(pods, fmt.Sprintf("%s %d/%d", p.Name, p.Ready, p.Wanted))
		}
		lines = append(lines, "  Pods      "+strings.Join(pods, ", "))
	}
	for _, problem := range o.NotRead {
		lines = append(lines, frame.Indented("Not read: "+problem, "  ", a.width(), 2)...)
	}
	return lines
}

// storage is what the stream holds.
func storage(n *inspect.NATS) string {
	text := wording.Count(int(n.Messages), "event") + ", " + wording.Bytes(n.Bytes)
	if n.MaxBytes > 0 {
		text += fmt.Sprintf(" of %s (%d %%)", wording.Bytes(n.MaxBytes), n.Bytes*100/n.MaxBytes)
	}
	text += fmt.Sprintf("; servers %d/%d", n.Servers, n.Wanted)
	if n.DeadLetters > 0 {
		text += "; " + wording.Count(int(n.DeadLetters), "dead letter")
	}
	return text
}

// statusBody has the conditions and the Subscriptions, in so many lines.
func statusBody(a *app, o *inspect.Overview, most int) (lines []string) {
	for i := range o.Eventings {
		for _, p := range o.Eventings[i].Problems {
			head := fmt.Sprintf("%s (%s)%s: %s", p.Condition, p.Reason, since(p.Since), p.Message)
			lines = append(lines, frame.Indented(head, "  ", a.width(), 3)...)
			if p.Reason != "" {
				lines = append(lines, "    "+a.next(p.Next))
			}
		}
	}
	if len(lines) > 0 {
		lines = append([]string{"", "Conditions that are not good:"}, lines...)
	}
	// Half of the screen at least is for Subscriptions, if any have a problem.
	if room := most - 2*min(len(o.Troubled), 3) - 4; len(o.Troubled) > 0 && len(lines) > room {
		lines = append(lines[:max(0, room-1)], "  More: "+a.next(program+" status -o wide"))
	}
	if len(o.Troubled) == 0 {
		return lines
	}
	lines = append(lines, "", fmt.Sprintf("Subscriptions with a problem (%s):", wording.Number(len(o.Troubled))))
	shown := min(len(o.Troubled), max(1, (most-len(lines)-2)/2))
	t := [][]string{{"NAME", "SINCE", "WAIT", "DEAD", "WHY"}}
	for _, s := range o.Troubled[:shown] {
		t = append(t, []string{s.Namespace + "/" + s.Name, age(s.Problem.Since), waits(s.Delivery), dead(s.Delivery), s.Problem.Message})
	}
	for i, row := range frame.Columns(t, a.width()-2) {
		if lines = append(lines, "  "+row); i > 0 {
			lines = append(lines, "    "+a.next(o.Troubled[i-1].Problem.Next))
		}
	}
	if more := len(o.Troubled) - shown; more > 0 {
		lines = append(lines, fmt.Sprintf("  %s more: %s", wording.Number(more), a.next(program+" subscriptions")))
	}
	return lines
}

func statusEnd(o *inspect.Overview) []string {
	good := fmt.Sprintf("%s: no problem is known.", wording.Count(o.Good, "Subscription"))
	if len(o.Troubled) > 0 {
		good = fmt.Sprintf("No problem is known of %s.", wording.Count(o.Good, "other Subscription"))
	}
	switch {
	case o.Well():
		return []string{good, "All is well."}
	case !o.Bad():
		return []string{"What could be read is well."}
	}
	return []string{"", good}
}

// waits is how many events wait, "-" if nobody has looked.
func waits(d *inspect.Delivery) string {
	if d == nil {
		return "-"
	}
	return wording.Number(int(d.Backlog))
}

// dead is how many events are dead letters, "-" if nobody has looked.
func dead(d *inspect.Delivery) string {
	if d == nil {
		return "-"
	}
	return wording.Number(int(d.DeadLetters))
}

// since is " for 5m", "" if it is not known.
func since(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return " for " + age(t)
}

// age of a time, "-" if it is not known.
func age(t *metav1.Time) string {
	if t == nil || t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(max(0, now().Sub(t.Time)))
}
