package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

func subscriptionsCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "subscriptions [NAME]", Aliases: []string{"subscription", "subs"}, Short: "Show which events wait, and what the sinks answer", Args: oneArgument,
		Long: `Show the Subscriptions, the ones in trouble first. BACKLOG is how many events wait, and
OLDEST how old the oldest is. REPEATING of them were refused, and are sent again. DEAD
were given up. LAST ANSWER is that of the sink. The numbers are those of
status.delivery, which are up to 30 seconds old. A - is what nobody has looked at.

With a name, show one of them with its problem and the next command. The name is
NAMESPACE/NAME, or NAME with -n. It only reads. -o wide adds source, types and sink.`,
		Example: "  {name} subscriptions\n  {name} subscriptions -n shop -o wide\n  {name} subscriptions shop/orders",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 || a.namespace == "" {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return frame.CompleteNames(inspect.Subscriptions, func() string { return a.namespace }, a.config)(cmd, args, word)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.reach(nil, a.listSubscriptions)
			}
			namespace, name, err := a.nameOf(args[0])
			if err != nil {
				return err
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				s, err := c.Subscription(ctx, namespace, name, now())
				switch {
				case err != nil:
					return err
				case s == nil:
					return frame.Usage(fmt.Sprintf("there is no Subscription %s/%s (see %q)", namespace, name, a.next(program+" subscriptions -n "+namespace)))
				}
				return a.writeSubscription(c, s)
			})
		},
	}
	a.namespaceFlags(cmd)
	a.flags(cmd, forms, true)
	return cmd
}

// nameOf reads NAMESPACE/NAME, or NAME with -n.
func (a *app) nameOf(text string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(text, "/")
	if !both {
		namespace, name = a.namespace, text
	}
	switch {
	case namespace == "" || name == "":
		return "", "", frame.Usage(fmt.Sprintf("%q has no namespace: name the namespace, too, as NAMESPACE/%s or by -n NAMESPACE", text, text))
	case a.namespace != "" && namespace != a.namespace:
		return "", "", frame.Usage(fmt.Sprintf("%q: is not in the namespace of -n, %s", text, a.namespace))
	}
	return namespace, name, nil
}

func (a *app) listSubscriptions(ctx context.Context, c *connection) error {
	all, err := c.Subscriptions(ctx, a.namespace, now())
	if err != nil {
		return err
	}
	if len(all) == 0 && a.namespace != "" {
		if err := a.existing(ctx, c, a.namespace); err != nil {
			return err
		}
	}
	switch {
	case a.structured():
		if all == nil {
			all = []inspect.Subscription{}
		}
		return a.print(struct {
			where
			Subscriptions []inspect.Subscription `json:"subscriptions"`
		}{whereOf(c), all})
	case a.output == frame.FormName:
		var names []string
		for _, s := range all {
			names = append(names, frame.KubectlName(inspect.Subscriptions.Group, "Subscription", s.Namespace, s.Name))
		}
		return frame.WriteNames(a.Stdout, names)
	case len(all) == 0:
		return a.write(c, "There is no Subscription. To make one: docs/eventing/subscriptions.md")
	}
	t := &frame.Table{Width: a.tableWidth()}
	head := []string{"NAMESPACE", "NAME", "READY", "BACKLOG", "OLDEST", "REPEATING", "DEAD", "LAST ANSWER"}
	if a.output == frame.FormWide {
		head = append(head, "SOURCE", "TYPES", "SINK")
	}
	t.Row(head...)
	for i := range all {
		t.Row(a.subscriptionRow(&all[i])...)
	}
	if err := t.Write(a.Stdout, frame.Painter(c.color, colours)); err != nil {
		return &frame.OutputError{Err: err}
	}
	if worst := all[0]; worst.Problem != nil {
		return a.write(nil, "", "Next: "+a.next(program+" subscriptions "+worst.Namespace+"/"+worst.Name))
	}
	return nil
}

func (a *app) subscriptionRow(s *inspect.Subscription) []string {
	ready := "no"
	if s.Ready {
		ready = "yes"
	}
	row := []string{s.Namespace, s.Name, ready, "-", "-", "-", "-", "-"}
	if d := s.Delivery; d != nil {
		row[3], row[4], row[5], row[6] = strconv.FormatInt(d.Backlog, 10), age(d.Oldest), strconv.FormatInt(d.Repeating, 10), strconv.FormatInt(d.DeadLetters, 10)
	}
	if answer := s.LastAnswer(); answer != "" {
		row[7] = answer
	}
	if a.output == frame.FormWide {
		row = append(row, s.Source, strings.Join(s.Types, ","), s.Sink)
	}
	return row
}

func (a *app) writeSubscription(c *connection, s *inspect.Subscription) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			*inspect.Subscription
		}{whereOf(c), s})
	case a.output == frame.FormName:
		return frame.WriteNames(a.Stdout, []string{frame.KubectlName(inspect.Subscriptions.Group, "Subscription", s.Namespace, s.Name)})
	}
	ready := "is not ready: it gets no new events"
	if s.Ready {
		ready = "is ready: each event that is accepted from now on reaches the sink"
	}
	lines := append([]string{}, frame.Wrap(s.String()+" "+ready+".", a.width())...)
	add := func(title, value string) {
		if value == "" {
			return
		}
		for _, part := range frame.Wrap(value, a.width()-15) {
			lines = append(lines, fmt.Sprintf("  %-12s %s", title, part))
			title = ""
		}
	}
	add("Source", s.Source)
	add("Types", strings.Join(s.Types, ", "))
	add("Sink", s.Sink)
	if d := s.Delivery; d != nil {
		add("Backlog", wording.Count(int(d.Backlog), "event"))
		add("Oldest", age(d.Oldest))
		add("Repeating", wording.Number(int(d.Repeating)))
		add("Dead letters", wording.Number(int(d.DeadLetters)))
	} else {
		add("Backlog", "- (nobody has looked)")
	}
	add("Last answer", s.LastAnswer())
	if p := s.Problem; p != nil {
		lines = append(lines, "")
		head := p.Message
		if p.Condition != "" {
			head = fmt.Sprintf("%s (%s)%s: %s", p.Condition, p.Reason, since(p.Since), p.Message)
		}
		lines = append(lines, frame.Wrap(head, a.width())...)
		lines = append(lines, "", "Next: "+a.next(p.Next))
		if p.Reason != "" {
			lines = append(lines, "About it: "+a.next(program+" explain "+strings.ReplaceAll(p.Reason, " ", "-")))
		}
	}
	return a.write(c, lines...)
}

// existing refuses a namespace that does not exist: nothing would be there. Who may not look is
// believed.
func (a *app) existing(ctx context.Context, c *connection, name string) error {
	if found, err := c.NamespaceExists(ctx, name); err == nil && !found {
		return frame.Usage(fmt.Sprintf("--namespace %q: the cluster has no such namespace (see \"kubectl get namespaces\")", name))
	}
	return nil
}
