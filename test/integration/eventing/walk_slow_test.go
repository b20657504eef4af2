//go:build slow

package eventing_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// TestWalk: sinks answer 400 and 503, hang, and have no host. On a screen of 80 columns a person
// sees which, why and how many events, repairs them, delivers again, and each accepted event is at
// its sink.
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
	r.controller("c-0", api.flag(), "--dead-letter-after=45s")
	for name := range why {
		r.await(name, "it is ready", ready)
	}
	ids := numbers("e", 3)
	r.publish("a.b", ids...)
	run := func(args ...string) (int, string) {
		t.Helper()
		p := process.Run(t, process.Program{
			Binary: process.BuildPlain(t, "./cmd/kubectl-eventing"), Args: args,
			Env: []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH"), "COLUMNS=80"},
		})
		return p.Wait(), strings.Join(strings.Fields(p.Stdout()+p.Stderr()), " ")
	}
	poll.Until(t, 2*limit, "a person sees why", func(context.Context) error {
		for name, text := range why {
			if _, says := run("subscriptions", name, "-n", r.namespace); !strings.Contains(says, text) {
				return fmt.Errorf("%s: no %q in %s", name, text, says)
			}
		}
		return nil
	})
	api.awaitLetters(api.config(cluster.Kubeconfig), len(ids)*len(why))
	for name := range answers {
		r.sinks.Answer(name, nil)
	}
	r.patch("missing", fmt.Sprintf(`{"spec":{"sink":%q}}`, r.sinks.URL("found", r.namespace)))
	poll.Until(t, limit, "all are delivered again", func(context.Context) error {
		code, says := run(append([]string{"dead-letters", "redeliver", "-n", r.namespace, "--all"}, api.flags()...)...)
		if code != 0 {
			return fmt.Errorf("exit code %d: %s", code, says)
		}
		return nil
	})
	for _, name := range []string{"bad", "down", "hangs", "found"} {
		r.sinks.Await(t, name, limit, ids...)
	}
}
