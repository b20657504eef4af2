//go:build slow

package eventing_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// TestWalk: sinks answer 400 and 503, hang, and have no host. On a screen of 80 columns and 24
// lines, kubectl eventing status alone shows a person which Subscriptions these are, since when,
// how many events wait, why, and the next command. Each printed command can be pasted. The
// person repairs the sinks, delivers again, and each accepted event is at its sink.
func TestWalk(t *testing.T) {
	r := newRig(t, true)
	(&meshRig{rig: r}).asInChart()
	api := newLettersAPI(r)
	why := map[string]string{
		"bad": "the sink answers 400", "down": "the sink answers 503", "hangs": "the sink does not answer in time", "missing": "the host of the sink is not known",
	}
	answers := map[string]http.HandlerFunc{
		"bad":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) },
		"down":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"hangs": func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
	}
	for name := range why {
		r.subscribe(name, "a.b", "")
		if name != "missing" { // there is no DNS entry for it
			r.sinks.Answer(name, answers[name])
		}
	}
	r.controller("c-0", api.flag(), "--dead-letter-after=60s")
	for name := range why {
		r.await(name, "it is ready", ready)
	}
	ids := numbers("e", 3)
	r.publish("a.b", ids...)
	person := newPerson(t, r)

	poll.Until(t, 2*limit, "a person sees it", func(context.Context) error {
		screen := person.screen("status")
		for name, text := range why {
			// The namespace of a test has a long name, and the reason gets what is left of a line.
			row := regexp.MustCompile(fmt.Sprintf(`(?m)^  %s/%s +\d+[smh]\S* +%d +0 +(.+?)…?$`, r.namespace, name, len(ids)))
			if m := row.FindStringSubmatch(screen); m == nil || !strings.HasPrefix(text, m[1]) && !strings.HasPrefix(m[1], text) {
				return fmt.Errorf("%s: no %q in\n%s", name, text, screen)
			}
		}
		return nil
	})
	person.paste(person.screen("status"))
	for name, text := range why {
		screen := person.screen("subscriptions", name, "-n", r.namespace)
		if !strings.Contains(strings.Join(strings.Fields(screen), " "), text) {
			t.Errorf("%s: no %q in\n%s", name, text, screen)
		}
		person.paste(screen)
	}

	api.awaitLetters(api.config(cluster.Kubeconfig), len(ids)*len(why))
	poll.Until(t, limit, "a person sees that events are dead letters", func(context.Context) error {
		screen := person.screen("status")
		if !strings.Contains(screen, "kubectl eventing dead-letters") {
			return fmt.Errorf("no way to dead letters in\n%s", screen)
		}
		return nil
	})
	person.paste(person.screen("status"))
	for name := range answers {
		r.sinks.Answer(name, nil)
	}
	r.patch("missing", fmt.Sprintf(`{"spec":{"sink":%q}}`, r.sinks.URL("found", r.namespace)))
	list := person.screen(append([]string{"dead-letters", "list", "-n", r.namespace}, api.flags()...)...)
	if !strings.Contains(list, "kubectl eventing dead-letters redeliver") {
		t.Fatalf("no way to deliver again in\n%s", list)
	}
	poll.Until(t, limit, "all are delivered again", func(context.Context) error {
		if said := person.paste(list, api.flags()...); !strings.Contains(said, fmt.Sprintf("%d dead letters: %[1]d delivered", len(ids)*len(why))) {
			return fmt.Errorf("it says\n%s", said)
		}
		return nil
	})
	for _, name := range []string{"bad", "down", "hangs", "found"} {
		r.sinks.Await(t, name, limit, ids...)
	}
}

// person has a terminal of 80 columns and 24 lines, and kubectl with the plugin.
type person struct {
	t   *testing.T
	env []string
}

func newPerson(t *testing.T, r *rig) *person {
	t.Helper()
	is := object(t, "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing}, spec: {backend: {type: NATS, config: {natsStreamReplicas: 1}}}}")
	if _, err := r.client.Resource(eventings).Namespace(r.control).Create(t.Context(), is, strict); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // others look for the oldest one
		_ = r.client.Resource(eventings).Namespace(r.control).Delete(context.WithoutCancel(t.Context()), "eventing", metav1.DeleteOptions{})
	})
	return &person{t, append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig, "PATH="+process.OnPath(t, "./cmd/kubectl-eventing"), "COLUMNS=80", "LINES=24", "KUBE_EDITOR=true")}
}

// screen is what kubectl eventing prints, which has to fit into the terminal. A command that is
// printed to be pasted may be longer than a line, and so may a line of a table: it is cut in a real
// terminal only.
func (p *person) screen(args ...string) string {
	p.t.Helper()
	out, _ := p.command(append([]string{"kubectl", "eventing"}, args...)...).CombinedOutput()
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) > 23 {
		p.t.Errorf("%q: %d lines do not fit into a screen:\n%s", args, len(lines), out)
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 && !strings.Contains(line, "kubectl") && !strings.HasPrefix(line, "Cluster ") && args[0] != "dead-letters" {
			p.t.Errorf("%q: more than 80 columns: %s", args, line)
		}
	}
	return string(out)
}

// paste does what a screen says, with more arguments for kubectl eventing, and returns what that
// prints.
func (p *person) paste(screen string, more ...string) string {
	p.t.Helper()
	var said strings.Builder
	var done []string
	for _, command := range regexp.MustCompile(`(?m)(?:^ +|: )(kubectl .+)$`).FindAllStringSubmatch(screen, -1) {
		if slices.Contains(done, command[1]) {
			continue
		}
		done = append(done, command[1])
		text := command[1]
		if strings.HasPrefix(text, "kubectl eventing dead-letters") {
			text += " " + strings.Join(more, " ")
		}
		out, err := p.command("bash", "-c", text).CombinedOutput()
		said.Write(out)
		var exit *exec.ExitError
		if err != nil && (!strings.HasPrefix(text, "kubectl eventing") || !errors.As(err, &exit) || exit.ExitCode() == 2) {
			p.t.Errorf("%s: %v\n%s", text, err, out)
		}
	}
	if len(done) == 0 {
		p.t.Errorf("no command in\n%s", screen)
	}
	return said.String()
}

func (p *person) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(p.t.Context(), args[0], args[1:]...)
	cmd.Env = p.env
	return cmd
}
