package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// mostData is the largest body that the publisher takes.
const mostData = 1 << 20

// sent is what came of an event.
type sent struct {
	where
	ID     string         `json:"id"`
	Source string         `json:"source"`
	Type   string         `json:"type"`
	Answer *remote.Answer `json:"answer"`
	// WantedBy are the Subscriptions that ask for it; nil if they could not be read.
	WantedBy []string `json:"wantedBy"`
}

func sendCommand(a *app) *cobra.Command {
	f := &eventFlags{}
	cmd := &cobra.Command{
		Use: "send", Short: "Send a test event, and show who wants it", Args: frame.NoArguments,
		Long: `Send a CloudEvent to the publisher, through a port-forward to one of its pods, and show
its answer, and which Subscriptions ask for the event. An event that nobody asks for is
accepted and not stored: the command says so.

It is a real event: the sinks get it. You need the Role eventing-kubectl in eventing's
namespace. If you may not view all namespaces, name one with -n: Subscriptions of others
are left out. -o name lists the Subscriptions that want it.
Exit code 0: it was taken. 1: it was not taken.`,
		Example: "  {name} send --type order.created.v1 --source commerce\n  {name} send --type order.created.v1 --source commerce --data '{\"order\": 7}'\n  {name} send --type order.created.v1 --source commerce --file order.json --id 4711",
		RunE: func(*cobra.Command, []string) error {
			a.writes = true
			e, err := f.read(a)
			if err != nil {
				return err
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error { return send(ctx, a, c, e, f) })
		},
	}
	f.bind(a, cmd)
	a.namespaceFlags(cmd)
	a.flags(cmd, forms, true)
	return cmd
}

// eventFlags say what to send, and where.
type eventFlags struct {
	event                 remote.Event
	data, file, publisher string
	home                  string // the namespace of the operator
}

func (f *eventFlags) bind(a *app, cmd *cobra.Command) {
	e := &f.event
	fs := cmd.Flags()
	fs.StringVar(&e.Type, "type", "", "`type` of the event. It is needed.")
	fs.StringVar(&e.Source, "source", "", "`source` of the event. It is needed.")
	fs.StringVar(&e.ID, "id", "", "`id` of the event. Default: a new one.")
	fs.StringVarP(&f.data, "data", "d", "{}", "`data` of the event.")
	fs.StringVarP(&f.file, "file", "f", "", "`file` with the data; - for stdin.")
	fs.StringVar(&e.ContentType, "content-type", "application/json", "`type` of the data.")
	fs.StringVar(&f.publisher, "publisher", "", "`URL` of the publisher, instead of a port-forward.")
	_ = fs.MarkHidden("publisher") // the flag exists
	bindHome(cmd, &f.home)
	cmd.MarkFlagsMutuallyExclusive("data", "file")
	a.common.Checks.Add(cmd, func() (bad []string) {
		for _, flag := range []frame.Flag{{Name: "type", Value: e.Type}, {Name: "source", Value: e.Source}} {
			if flag.Value == "" {
				bad = append(bad, "--"+flag.Name+": is needed, such as --type order.created.v1 --source commerce")
			}
		}
		return bad
	})
}

// read returns the event, with an ID in any case.
func (f *eventFlags) read(a *app) (e remote.Event, err error) {
	e = f.event
	if e.ID == "" {
		e.ID = uuid.NewString()
	}
	e.Data, err = dataOf(a, f.data, f.file)
	return e, err
}

// dataOf is what --data and --file say.
func dataOf(a *app, data, file string) ([]byte, error) {
	var raw []byte
	var err error
	switch file {
	case "":
		return []byte(data), nil
	case "-":
		raw, err = io.ReadAll(io.LimitReader(a.in, mostData+1))
	default:
		raw, err = os.ReadFile(file)
	}
	switch {
	case err != nil:
		return nil, frame.Usage(fmt.Sprintf("--file %s: %v", file, err))
	case len(raw) > mostData:
		return nil, frame.Usage(fmt.Sprintf("--file %s: has more than 1 MiB, which the publisher does not take", file))
	}
	return raw, nil
}

func send(ctx context.Context, a *app, c *connection, e remote.Event, f *eventFlags) error {
	publisher, err := f.publisherAt(ctx, c)
	if err != nil {
		return err
	}
	// Before it is sent: a Subscription that is made meanwhile has not asked for it.
	all, unknown := c.Subscriptions(ctx, a.namespace, now())
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	answer, err := remote.Publish(ctx, publisher, e)
	if err != nil {
		return err
	}
	if !answer.Taken() {
		a.code = frame.ExitFailed
	}
	wanted := slices.DeleteFunc(all, func(s inspect.Subscription) bool { return !s.Wants(e.Source, e.Type) })
	return writeSent(a, c, e, answer, wanted, unknown)
}

// publisherAt is the URL of the publisher, by default at the end of a port-forward.
func (f *eventFlags) publisherAt(ctx context.Context, c *connection) (string, error) {
	if f.publisher != "" {
		return f.publisher, nil
	}
	home, err := homeOf(ctx, c, f.home)
	if err != nil {
		return "", err
	}
	pod, err := c.Publisher(ctx, home)
	if err != nil {
		return "", err
	}
	address, err := remote.Forward(ctx, c.way.Config, home.Namespace, pod, remote.PublisherPort)
	return "http://" + address, err
}

func writeSent(a *app, c *connection, e remote.Event, answer *remote.Answer, wanted []inspect.Subscription, unknown error) error {
	var names []string
	for _, s := range wanted {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	switch {
	case a.structured():
		if unknown == nil && names == nil {
			names = []string{}
		}
		return a.print(sent{whereOf(c), e.ID, e.Source, e.Type, answer, names})
	case a.output == frame.FormName:
		var objects []string
		for _, s := range wanted {
			objects = append(objects, frame.KubectlName(inspect.Subscriptions.Group, "Subscription", s.Namespace, s.Name))
		}
		return frame.WriteNames(a.Stdout, objects)
	}
	what := fmt.Sprintf("Event %s, type %s, source %s", e.ID, e.Type, e.Source)
	lines := frame.Wrap(fmt.Sprintf("%s: %s.", what, said(answer)), a.width())
	if !answer.Taken() {
		lines = append(lines, frame.Indented(frame.OneLine(answer.Text), "  ", a.width(), 6)...)
		lines = append(lines, "About it: "+a.next(fmt.Sprintf("%s explain %d", program, answer.Status)))
	}
	switch {
	case unknown != nil:
		lines = append(lines, frame.Wrap("Who wants it is not known: "+unknown.Error(), a.width())...)
	case len(wanted) == 0 && a.namespace != "":
		lines = append(lines, frame.Wrap(fmt.Sprintf("No Subscription in namespace %s asks for this type of this source. Those of other namespaces were not looked at.", a.namespace), a.width())...)
		lines = append(lines, "Next: "+a.next(program+" subscriptions -n "+a.namespace+" -o wide"))
	case len(wanted) == 0:
		lines = append(lines, frame.Wrap("Nobody wants it: no Subscription asks for this type of this source. An event that nobody wants is accepted, and not stored.", a.width())...)
		lines = append(lines, "Next: "+a.next(program+" subscriptions -o wide"))
	default:
		verb := map[bool]string{true: "It is wanted by ", false: "It would be wanted by "}[answer.Taken()]
		lines = append(lines, verb+wording.Count(len(wanted), "Subscription")+":")
		for _, s := range wanted {
			text := "  " + s.Namespace + "/" + s.Name
			if s.Problem != nil {
				text += ": " + s.Problem.Message
			}
			lines = append(lines, frame.Fit(text, a.width()))
		}
		lines = append(lines, "Next: "+a.next(program+" subscriptions "+names[0]))
	}
	return a.write(c, lines...)
}

// said is the answer of the publisher in words.
func said(answer *remote.Answer) string {
	switch {
	case answer.Repeated:
		return fmt.Sprintf("%d, the same event was stored before", answer.Status)
	case answer.Taken():
		return fmt.Sprintf("%d, the publisher has taken it", answer.Status)
	}
	text := fmt.Sprintf("%d, the publisher has not taken it", answer.Status)
	if after := strings.TrimSpace(answer.RetryAfter); after != "" {
		text += ", and asks to try again after " + after + " s"
	}
	return text
}
