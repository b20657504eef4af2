package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// traced is what became of an event.
type traced struct {
	sent
	// Deliveries are all tries to deliver it that were seen.
	Deliveries []wire.Delivery `json:"deliveries"`
	// Left are the Subscriptions that want it and whose sinks have not taken it.
	Left []string `json:"left"`
}

func traceCommand(a *app) *cobra.Command {
	var wait time.Duration
	what, f := &eventFlags{}, &letterFlags{}
	cmd := &cobra.Command{
		Use: "trace", Short: "Send a test event, and follow it to its sinks", Args: frame.NoArguments,
		Long: `Send a CloudEvent to the publisher, and show each station on its way as it gets there:
the publisher, NATS, the controller, and each sink that wants it with its answer. It ends
when all sinks have taken the event, or after --wait.

It is a real event: the sinks get it. You need the Role eventing-kubectl in eventing's
namespace, and list subscriptions/deliveries, which is in the role view. If you may not view all
namespaces, name one with -n: Subscriptions of others are left out. On the mesh, Knative delivers, and only
what the leader of the controller has got is seen.
Exit code 0: each sink has taken it. 1: some have not, or the publisher has not.`,
		Example: "  {name} trace --type order.created.v1 --source commerce\n  {name} trace --type order.created.v1 --source commerce --wait 2m -o json",
		RunE: func(*cobra.Command, []string) error {
			a.writes = true
			f.home = what.home
			e, err := what.read(a)
			if err != nil {
				return err
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				return askLetters(ctx, c, f, func(ctx context.Context, api *remote.Letters) error {
					return trace(ctx, a, c, api, e, what, wait)
				})
			})
		},
	}
	what.bind(a, cmd)
	bindLetters(a, cmd, f, false)
	a.namespaceFlags(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 30*time.Second, "how long to wait for the sinks.")
	a.flags(cmd, []string{frame.FormText, frame.FormJSON, frame.FormYAML}, true)
	return cmd
}

// trace sends an event when its deliveries are watched, and shows them.
func trace(ctx context.Context, a *app, c *connection, api *remote.Letters, e remote.Event, f *eventFlags, wait time.Duration) error {
	publisher, err := f.publisherAt(ctx, c)
	if err != nil {
		return err
	}
	all, err := c.Subscriptions(ctx, a.namespace, now())
	switch {
	case apierrors.IsForbidden(err) && a.namespace == "":
		return fmt.Errorf("%w. With -n, only the Subscriptions of a namespace are looked at", err)
	case err != nil:
		return err
	}
	watching, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	seen, err := api.Watch(watching, e.Source, e.ID)
	if err != nil {
		return err
	}
	began := now()
	answer, err := remote.Publish(ctx, publisher, e)
	if err != nil {
		return err
	}
	t := traced{sent: sent{whereOf(c), e.ID, e.Source, e.Type, answer, []string{}}, Deliveries: []wire.Delivery{}, Left: []string{}}
	wanted := slices.DeleteFunc(all, func(s inspect.Subscription) bool { return !s.Wants(e.Source, e.Type) })
	for _, s := range wanted {
		t.WantedBy = append(t.WantedBy, s.Namespace+"/"+s.Name)
	}
	tell := func(format string, args ...any) {
		if !a.structured() {
			fmt.Fprintln(a.Stdout, frame.Fit(fmt.Sprintf(format, args...), a.width()))
		}
	}
	tell("Event %s, type %s, source %s", e.ID, e.Type, e.Source)
	tell("%9s  publisher: %s", took(now().Sub(began)), said(answer))
	if !answer.Taken() {
		a.code = frame.ExitFailed
		tell("About it: %s", a.next(fmt.Sprintf("%s explain %d", program, answer.Status)))
		return a.printTrace(t)
	}
	t.Left = slices.Clone(t.WantedBy)
	for len(t.Left) > 0 {
		d, ok := <-seen
		if !ok {
			break
		}
		if len(t.Deliveries) == 0 {
			tell("%9s  stored, and with the controller", "+"+took(d.Received.Sub(d.Stored)))
		}
		t.Deliveries = append(t.Deliveries, d)
		name := d.Namespace + "/" + d.Subscription
		what := "its sink answers " + d.Answer
		if d.Problem == "" {
			t.Left = slices.DeleteFunc(t.Left, func(left string) bool { return left == name })
		} else {
			what = d.Problem
		}
		tell("%9s  %s, try %d: %s, after %s", "+"+took(d.Answered.Sub(d.Stored)), name, d.Try, what, took(d.Answered.Sub(d.Posted)))
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case len(t.WantedBy) == 0:
		tell("Nobody wants it: no Subscription that you may see asks for this type of this source.")
		tell("Next: %s", a.next(program+" subscriptions -o wide"))
	case len(t.Left) == 0:
		tell("Each sink that wants it has taken it: %s.", wording.Count(len(t.WantedBy), "Subscription"))
	default:
		a.code = frame.ExitFailed
		tell("After %s, these have not taken it:", frame.Duration(wait))
		for _, name := range t.Left {
			tell("  %s", name)
		}
		tell("Next: %s", a.next(program+" subscriptions "+t.Left[0]))
	}
	return a.printTrace(t)
}

// printTrace is for programs: people have read each line as it came.
func (a *app) printTrace(t traced) error {
	if !a.structured() {
		return nil
	}
	return a.print(t)
}

// took is a short time for people.
func took(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", max(d, 0).Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
