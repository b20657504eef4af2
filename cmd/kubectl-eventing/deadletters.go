package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/inspect"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/letters/wire"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/remote"
	"github.com/kyma-project/eventmesh-migration/internal/frame"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// letterFlags choose dead letters, and how the controller is reached.
type letterFlags struct {
	filter        wire.Filter
	after, before string
	limit         int
	// all: no other choice is needed.
	all bool
	// controller and certificate replace the port-forward, for tests.
	controller, certificate string
	home                    string // the namespace of the operator
}

func deadLettersCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "dead-letters", Aliases: []string{"dead-letter", "dl"}, Short: "See, deliver again and delete events that were given up",
		Long: `A dead letter is an event that a sink has refused for as long as deadLetterAfter of the
Eventing says. It is stored, and stays until somebody delivers it again or deletes it,
or it is older than deadLetterMaxAge.

They are reached through a port-forward to the controller's pod. For that you need the
Role eventing-kubectl in eventing's namespace. Your rights in the namespace of the
Subscription decide what you may see and do: list, update and delete
subscriptions/deadletters. The role view has the first, and edit has all. What is in an
event needs get subscriptions/events, of the ClusterRole kyma-system:eventing-read-events.`,
		Args: frame.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listLettersCommand(a), showLetterCommand(a), workCommand(a, remote.Redeliver), workCommand(a, remote.Delete))
	return cmd
}

func bindLetters(a *app, cmd *cobra.Command, f *letterFlags, chooses bool) {
	fs := cmd.Flags()
	if chooses {
		fs.StringVar(&f.filter.Subscription, "subscription", "", "only those of this `Subscription`; it needs -n.")
		_ = cmd.RegisterFlagCompletionFunc("subscription", frame.CompleteNames(inspect.Subscriptions, func() string { return a.namespace }, a.config)) // the flag exists
		fs.StringVar(&f.filter.Type, "type", "", "only events of this `type`.")
		fs.StringVar(&f.filter.Answer, "answer", "", "only those with this last `answer` of the sink: a status such as 400, error (no answer), or invalid (no event).")
		fs.StringVar(&f.after, "after", "", "only those given up after this `time`: 2026-01-31T12:00:00Z, or an age such as 24h.")
		fs.StringVar(&f.before, "before", "", "only those given up before this `time`, or longer ago than this age.")
		a.namespaceFlags(cmd)
		a.common.Checks.Add(cmd, func() []string { return f.problems(a) })
	}
	bindHome(cmd, &f.home)
	fs.StringVar(&f.controller, "controller", "", "`URL` of the controller's API, instead of a port-forward.")
	fs.StringVar(&f.certificate, "controller-certificate", "", "`SHA-256` of the certificate of --controller.")
	_ = fs.MarkHidden("controller")             // the flag exists
	_ = fs.MarkHidden("controller-certificate") // the flag exists
}

// problems completes the filter.
func (f *letterFlags) problems(a *app) (bad []string) {
	f.filter.Namespace = a.namespace
	if f.filter.Subscription != "" && a.namespace == "" {
		bad = append(bad, fmt.Sprintf("--subscription %q: name its namespace with -n", f.filter.Subscription))
	}
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"after", f.after, &f.filter.After}, {"before", f.before, &f.filter.Before}} {
		if t.text == "" {
			continue
		}
		if ago, err := time.ParseDuration(t.text); err == nil && ago > 0 {
			*t.to = now().Add(-ago)
		} else if *t.to, err = time.Parse(time.RFC3339, t.text); err != nil {
			bad = append(bad, fmt.Sprintf("--%s %q: must be a time such as 2026-01-31T12:00:00Z, or an age such as 24h", t.flag, t.text))
		}
	}
	return bad
}

// chooses tells whether some dead letters are chosen, and not only a namespace.
func (f *letterFlags) chooses() bool {
	return f.filter.Subscription+f.filter.Type+f.filter.Answer+f.after+f.before != ""
}

// given are the flags that choose the same dead letters.
func (f *letterFlags) given(a *app) (words []string) {
	for _, flag := range []frame.Flag{{Name: "namespace", Value: a.namespace}, {Name: "subscription", Value: f.filter.Subscription}, {Name: "type", Value: f.filter.Type}, {Name: "answer", Value: f.filter.Answer}, {Name: "after", Value: f.after}, {Name: "before", Value: f.before}} {
		if flag.Value != "" {
			words = append(words, flag.Word())
		}
	}
	if f.all {
		words = append(words, "--all")
	}
	return words
}

// command is one of dead-letters with the same choice.
func (f *letterFlags) command(a *app, verb string, more ...string) string {
	words := append(append([]string{"dead-letters", verb}, more...), f.given(a)...)
	return frame.Line(program, words, a.given())
}

// askLetters asks the controller. If another pod leads by now, that one is asked, once.
func askLetters(ctx context.Context, c *connection, f *letterFlags, ask func(context.Context, *remote.Letters) error) error {
	var home inspect.Home
	once := func() error {
		api, err := lettersAPI(ctx, c, f, &home)
		if err != nil {
			return err
		}
		return ask(ctx, api)
	}
	err := once()
	if refused, ok := errors.AsType[*remote.RefusedError](err); ok && refused.Status == http.StatusMisdirectedRequest && f.controller == "" {
		err = once()
	}
	return allowed(home, err)
}

func lettersAPI(ctx context.Context, c *connection, f *letterFlags, home *inspect.Home) (*remote.Letters, error) {
	if f.controller != "" {
		return remote.NewLetters(c.way.Config, f.controller, f.certificate)
	}
	var err error
	if *home, err = homeOf(ctx, c, f.home); err != nil {
		return nil, err
	}
	pod, certificate, err := c.Controller(ctx, *home)
	if err != nil {
		return nil, err
	}
	address, err := remote.Forward(ctx, c.way.Config, home.Namespace, pod, remote.APIPort)
	if err != nil {
		return nil, err
	}
	return remote.NewLetters(c.way.Config, "https://"+address, certificate)
}

// allowed adds who can give the right that is missing.
func allowed(home inspect.Home, err error) error {
	refused, ok := errors.AsType[*remote.RefusedError](err)
	if !ok || refused.Status != http.StatusForbidden || home.Namespace == "" {
		return err
	}
	role := "edit"
	switch {
	case strings.Contains(refused.Text, "/events"):
		role = fmt.Sprintf("%s:%s-read-events", home.Namespace, home.Names)
	case strings.Contains(refused.Text, "not list"):
		role = "view"
	}
	return fmt.Errorf("%w. An administrator gives the right in a namespace by: kubectl create rolebinding NAME --clusterrole=%s --user=USER --namespace=NAMESPACE", err, role)
}

func listLettersCommand(a *app) *cobra.Command {
	f := &letterFlags{}
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters", Args: frame.NoArguments,
		Long: `List dead letters, without what is in the events, as they were stored. SEQUENCE is the
name of a dead letter for the other commands. -o wide adds source, sink and times.
-o name prints the sequences only.`,
		Example: "  {name} dead-letters list\n  {name} dead-letters list -n shop --subscription orders\n  {name} dead-letters list --answer 400 --after 24h -o wide",
		RunE: func(*cobra.Command, []string) error {
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				var all []wire.Letter
				total := 0
				err := askLetters(ctx, c, f, func(ctx context.Context, api *remote.Letters) (err error) {
					all = []wire.Letter{}
					total, err = api.List(ctx, f.filter, f.limit, func(l wire.Letter) error {
						all = append(all, l)
						return nil
					})
					return err
				})
				if err != nil {
					return err
				}
				return writeLetters(a, c, f, all, total)
			})
		},
	}
	bindLetters(a, cmd, f, true)
	cmd.Flags().IntVar(&f.limit, "limit", 500, "list at most so `many`; 0: all.")
	a.flags(cmd, forms, true)
	return cmd
}

func writeLetters(a *app, c *connection, f *letterFlags, all []wire.Letter, total int) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			Total int           `json:"total"`
			Items []wire.Letter `json:"items"`
		}{whereOf(c), total, all})
	case a.output == frame.FormName:
		var names []string
		for i := range all {
			names = append(names, strconv.FormatUint(all[i].Sequence, 10))
		}
		return frame.WriteNames(a.Stdout, names)
	case len(all) == 0:
		return a.write(c, "There is no dead letter"+chosen(f.given(a))+".")
	}
	t := &frame.Table{Width: a.tableWidth()}
	head := []string{"SEQUENCE", "SUBSCRIPTION", "ID", "TYPE", "AGE", "TRIES", "WHY"}
	if a.output == frame.FormWide {
		head = append(head, "SOURCE", "SINK", "PUBLISHED", "LAST TRY", "BYTES")
	}
	t.Row(head...)
	for i := range all {
		l := &all[i]
		row := []string{strconv.FormatUint(l.Sequence, 10), l.Namespace + "/" + l.Subscription, dash(l.ID), dash(l.Type), ageOf(l.Stored), strconv.FormatUint(l.Tries, 10), why(l)}
		if a.output == frame.FormWide {
			row = append(row, dash(l.Source), dash(l.Sink), at(l.Published), at(l.Last), strconv.Itoa(l.Bytes))
		}
		t.Row(row...)
	}
	if err := t.Write(a.Stdout, frame.Painter(c.color, colours)); err != nil {
		return &frame.OutputError{Err: err}
	}
	lines := []string{""}
	if total > len(all) {
		lines = append(lines, fmt.Sprintf("%s of %s are shown: use --limit, or choose fewer.", wording.Number(len(all)), wording.Number(total)))
	}
	again := *f
	again.all = !f.chooses()
	return a.write(nil, append(lines, "When the sink takes events again: "+again.command(a, "redeliver"))...)
}

// chosen says that a choice was made.
func chosen(given []string) string {
	if len(given) == 0 {
		return ""
	}
	return " of those that were asked for (" + strings.Join(given, " ") + ")"
}

// why a letter was given up.
func why(l *wire.Letter) string {
	if l.Problem != "" {
		return l.Problem
	}
	return "the answer was " + l.Answer
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func ageOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return ageSince(t)
}

func showLetterCommand(a *app) *cobra.Command {
	f := &letterFlags{}
	payload := false
	cmd := &cobra.Command{
		Use: "show SEQUENCE", Short: "Show one dead letter", Args: oneArgument,
		Long: `Show one dead letter: its event's attributes, and why it was given up. --payload
shows what is in the event, too, which needs a right of its own. -o name prints only its
sequence.`,
		Example: "  {name} dead-letters show 17\n  {name} dead-letters show 17 --payload -o json",
		RunE: func(_ *cobra.Command, args []string) error {
			sequence, err := sequenceOf(args)
			if err != nil {
				return err
			}
			return a.reach(nil, func(ctx context.Context, c *connection) error {
				var shown *wire.Shown
				if err := askLetters(ctx, c, f, func(ctx context.Context, api *remote.Letters) (err error) {
					shown, err = api.Show(ctx, sequence, payload)
					return err
				}); err != nil {
					return err
				}
				return writeLetter(a, c, shown, payload)
			})
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "show the data of the event, and its attributes.")
	bindLetters(a, cmd, f, false)
	a.flags(cmd, forms, true)
	return cmd
}

// sequenceOf reads the argument of show.
func sequenceOf(args []string) (uint64, error) {
	if len(args) == 0 {
		return 0, frame.Usage("name the sequence of a dead letter (see \"" + program + " dead-letters list\")")
	}
	sequences, err := sequencesOf(args)
	if err != nil {
		return 0, err
	}
	return sequences[0], nil
}

func sequencesOf(args []string) (all []uint64, err error) {
	for _, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return nil, frame.Usage(fmt.Sprintf("%q is no sequence of a dead letter, which is a number (see %q)", arg, program+" dead-letters list"))
		}
		all = append(all, n)
	}
	return all, nil
}

func writeLetter(a *app, c *connection, l *wire.Shown, payload bool) error {
	switch {
	case a.structured():
		return a.print(struct {
			where
			*wire.Shown
		}{whereOf(c), l})
	case a.output == frame.FormName:
		return frame.WriteNames(a.Stdout, []string{strconv.FormatUint(l.Sequence, 10)})
	}
	lines := frame.Wrap(fmt.Sprintf("Dead letter %d of Subscription %s/%s: %s.", l.Sequence, l.Namespace, l.Subscription, why(&l.Letter)), a.width())
	for _, row := range [][2]string{
		{"ID", l.ID}, {"Source", l.Source}, {"Type", l.Type}, {"Sink", l.Sink},
		{"Tries", strconv.FormatUint(l.Tries, 10)}, {"Published", at(l.Published)}, {"First try", at(l.First)}, {"Last try", at(l.Last)}, {"Given up", at(l.Stored)}, {"Data", wording.Bytes(int64(l.Bytes))},
	} {
		lines = append(lines, fmt.Sprintf("  %-10s %s", row[0], dash(row[1])))
	}
	if a.output == frame.FormWide || payload {
		lines = append(lines, "", "Attributes:")
		for _, name := range sorted(l.Headers) {
			lines = append(lines, "  "+name+": "+l.Headers[name])
		}
	}
	if payload {
		lines = append(lines, "", printable(l.Data))
	}
	again := frame.Line(program, []string{"dead-letters", "redeliver", strconv.FormatUint(l.Sequence, 10), "--namespace=" + l.Namespace}, a.given())
	return a.write(c, append(lines, "", "To deliver it again: "+again)...)
}

// workCommand is redeliver and delete.
func workCommand(a *app, verb string) *cobra.Command {
	f := &letterFlags{}
	yes := false
	cmd := &cobra.Command{
		Use: verb + " [SEQUENCE...]", SuggestFor: map[string][]string{remote.Redeliver: {"retry", "replay"}, remote.Delete: {"remove", "purge"}}[verb],
		RunE: func(_ *cobra.Command, args []string) error {
			a.writes = true
			var err error
			if f.filter.Sequences, err = sequencesOf(args); err != nil {
				return err
			}
			if len(args) == 0 && !f.chooses() && !f.all {
				return frame.Usage("choose dead letters by their sequences, or by --subscription, --type, --answer, --after or --before. --all is all of the namespace of -n, or of the cluster")
			}
			p := &working{verb: verb}
			return a.reach(p.describe, func(ctx context.Context, c *connection) error { return work(ctx, a, c, f, p, yes) })
		},
	}
	if verb == remote.Redeliver {
		cmd.Short = "Deliver dead letters to their sinks again"
		cmd.Long = `Deliver dead letters to the sinks of their Subscriptions again: those that are named, or
all that the flags choose. One that the sink takes is no dead letter any more. One that
it refuses stays, and the report says why. Ctrl-C stops; what is left stays, and the
same command goes on. The sink gets events with the same id as before.

Exit code 0: none is left. 1: some are left. 5: somebody else does the same.`
		cmd.Example = "  {name} dead-letters redeliver -n shop --subscription orders\n  {name} dead-letters redeliver 17 18\n  {name} dead-letters redeliver --all\n  {name} dead-letters redeliver -n shop --after 24h"
	} else {
		cmd.Short = "Delete dead letters"
		cmd.Long = `Delete dead letters: those that are named, or all that the flags choose. The events are
lost. It asks before; without a terminal, it needs --yes.

Exit code 0: they are deleted, or you said no. 1: some are left. 5: somebody else works
on dead letters.`
		cmd.Example = "  {name} dead-letters delete 17\n  {name} dead-letters delete -n shop --subscription orders --before 168h --yes"
		cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation.")
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "all dead letters of the namespace of -n, or of the whole cluster.")
	bindLetters(a, cmd, f, true)
	a.flags(cmd, forms, true)
	return cmd
}

// working is how far the work is, for the status line.
type working struct {
	verb string

	mu    sync.Mutex
	total int
	sum   wire.Summary
	last  wire.Done
	// problems are the dead letters that are left, the first ones.
	left []wire.Done
}

// describe is what the status line shows.
func (w *working) describe(time.Time) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := w.sum.Delivered + w.sum.Refused + w.sum.Gone + w.sum.Deleted + w.sum.Failed
	text := fmt.Sprintf("%s %d", w.verb, done)
	if w.total > 0 {
		text += fmt.Sprintf("/%d", w.total)
	}
	if n := w.sum.Refused + w.sum.Failed; n > 0 {
		text += fmt.Sprintf(", %d left: %s", n, w.left[len(w.left)-1].Problem)
	}
	if w.last.ID != "" {
		text += " | " + w.last.Result + " " + w.last.ID
	}
	return text
}

// mostLeft is how many that are left are kept for the report.
const mostLeft = 1000

func (w *working) note(d wire.Done) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = d
	w.sum.Add(d)
	if d.Left() && len(w.left) < mostLeft {
		w.left = append(w.left, d)
	}
}

func work(ctx context.Context, a *app, c *connection, f *letterFlags, p *working, yes bool) error {
	total := len(f.filter.Sequences)
	if err := askLetters(ctx, c, f, func(ctx context.Context, api *remote.Letters) (err error) {
		if total == 0 {
			if total, err = api.List(ctx, f.filter, 1, func(wire.Letter) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if total == 0 {
		return writeWork(a, c, f, p, &wire.Summary{Done: true}, nil)
	}
	if p.verb == remote.Delete && !yes {
		if err := frame.CanConfirm(a.in, a.isTerminal, "--yes"); err != nil {
			return err
		}
		ok, err := frame.Confirm(a.in, a.Stderr, fmt.Sprintf("Delete %s on %s? The events are lost.", wording.Count(total, "dead letter"), c.name()))
		if err != nil {
			return err
		}
		if !ok {
			fmt.Fprintln(a.Stderr, "Nothing was changed.")
			return nil
		}
	}
	p.total = total
	var sum *wire.Summary
	err := askLetters(ctx, c, f, func(ctx context.Context, api *remote.Letters) (err error) {
		sum, err = api.Work(ctx, p.verb, f.filter, func(d wire.Done) {
			c.status.Note(func() {}) // begins the drawing
			p.note(d)
			if d.Left() {
				a.code = frame.ExitFailed
			}
		})
		return err
	})
	if sum == nil && p.sum.Total == 0 {
		return err // nothing was begun
	}
	return writeWork(a, c, f, p, sum, err)
}

// writeWork is the report; sum is nil if the work was interrupted, which err says.
func writeWork(a *app, c *connection, f *letterFlags, p *working, sum *wire.Summary, err error) error {
	interrupted := sum == nil
	if interrupted {
		told := p.sum
		told.Left = max(0, p.total-told.Delivered-told.Deleted-told.Gone)
		sum = &told
	}
	if sum.Left > 0 {
		a.code = frame.ExitFailed
	}
	switch {
	case a.structured():
		if printed := a.print(struct {
			where
			wire.Summary
			Letters []wire.Done `json:"notDone"`
		}{whereOf(c), *sum, append([]wire.Done{}, p.left...)}); printed != nil {
			return printed
		}
		return err
	case a.output == frame.FormName:
		var names []string
		for _, d := range p.left {
			names = append(names, strconv.FormatUint(d.Sequence, 10))
		}
		return errors.Join(frame.WriteNames(a.Stdout, names), err)
	case sum.Total == 0 && !interrupted:
		return a.write(c, "There is no dead letter"+chosen(f.given(a))+".")
	}
	c.status.Close()
	var parts []string
	for _, n := range []struct {
		n    int
		what string
	}{{sum.Delivered, "delivered"}, {sum.Deleted, "deleted"}, {sum.Gone, "gone already"}, {sum.Refused, "refused by their sinks"}, {sum.Failed, "failed"}} {
		if n.n > 0 {
			parts = append(parts, wording.Number(n.n)+" "+n.what)
		}
	}
	line := fmt.Sprintf("%s: %s.", wording.Count(sum.Total, "dead letter"), strings.Join(parts, ", "))
	if interrupted {
		line += fmt.Sprintf(" The work was interrupted; %s are left.", wording.Number(sum.Left))
	}
	lines := frame.Wrap(line, a.width())
	lines = append(lines, notDone(a, p.left)...)
	if sum.Left > 0 {
		next := f.command(a, p.verb, numbers(f.filter.Sequences)...)
		if p.verb == remote.Delete {
			next += " --yes"
		}
		note := "When that is repaired, go on:"
		if interrupted {
			note = "Go on:"
		}
		lines = append(lines, "", "Next: "+note, "  "+next)
	}
	if printed := a.write(c, lines...); printed != nil {
		return printed
	}
	return err
}

// notDone are the reasons of what is left, each with how often.
func notDone(a *app, left []wire.Done) (lines []string) {
	const most = 10
	count := map[string]int{}
	var kinds []string
	for _, d := range left {
		kind := fmt.Sprintf("%s/%s: %s", d.Namespace, d.Subscription, d.Problem)
		if count[kind]++; count[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	shown := kinds[:min(len(kinds), most)]
	if a.output == frame.FormWide {
		for _, d := range left {
			lines = append(lines, fmt.Sprintf("  %d  %s  %s/%s  %s: %s", d.Sequence, d.Result, d.Namespace, d.Subscription, dash(d.ID), d.Problem))
		}
		return lines
	}
	for _, kind := range shown {
		lines = append(lines, frame.Indented(wording.Number(count[kind])+" × "+kind, "  ", a.width(), 3)...)
	}
	if more := len(kinds) - len(shown); more > 0 {
		lines = append(lines, fmt.Sprintf("  %d more kinds: add -o wide", more))
	}
	return lines
}

func numbers(all []uint64) (words []string) {
	for _, n := range all {
		words = append(words, strconv.FormatUint(n, 10))
	}
	return words
}
