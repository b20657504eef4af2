package eventing_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/test/process"
)

// TestDeadLettersOfPeople: kubectl eventing and the controller understand each other.
func TestDeadLettersOfPeople(t *testing.T) {
	r := newRig(t, true)
	(&meshRig{rig: r}).asInChart()
	api := newLettersAPI(r)
	r.subscribe("orders", "a.b", "")
	r.sinks.Answer("orders", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	r.controller("c-0", api.flag(), "--dead-letter-after=0s")
	r.await("orders", "it is ready", ready)
	ids := numbers("e", 3)
	r.publish("a.b", ids...)
	list := api.awaitLetters(api.config(cluster.Kubeconfig), len(ids))
	called := func(code int, wants []string, args ...string) {
		t.Helper()
		p := process.Run(t, process.Program{
			Binary: process.BuildPlain(t, "./cmd/kubectl-eventing"),
			Args:   slices.Concat([]string{"dead-letters"}, args, api.flags()),
			Env:    []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH")},
		})
		if got := p.Wait(); got != code {
			t.Errorf("%q: exit code %d, want %d\n%s%s", args, got, code, p.Stdout(), p.Stderr())
		}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(p.Stdout()), " "), want) {
				t.Errorf("%q: no %q in\n%s", args, want, p.Stdout())
			}
		}
	}
	namespace := "--namespace=" + r.namespace
	called(0, []string{r.namespace + "/orders", "the sink answers 404"}, "list", namespace)
	called(0, []string{"3"}, "list", namespace, "--limit=1", "-o", "wide")
	called(0, []string{"ce-type: a.b"}, "show", fmt.Sprint(list[0].Sequence), "--payload")
	called(1, []string{"3 dead letters: 3 refused by their sinks."}, "redeliver", namespace, "--subscription=orders")
	called(0, []string{"1 dead letter: 1 deleted."}, "delete", namespace, fmt.Sprint(list[0].Sequence), "--yes")
	r.sinks.Answer("orders", nil)
	called(0, []string{"2 dead letters: 2 delivered."}, "redeliver", namespace, "--all")
	called(0, []string{"There is no dead letter"}, "list", namespace)
	called(0, []string{"There is no dead letter"}, "redeliver", namespace, "--all")
}

// TestTrace: kubectl eventing trace shows each try to deliver an event, and who has not taken it.
func TestTrace(t *testing.T) {
	r := newRig(t, true)
	(&meshRig{rig: r}).asInChart()
	api := newLettersAPI(r)
	for _, name := range []string{"orders", "bills"} {
		r.subscribe(name, "a.b", "")
	}
	r.sinks.Answer("bills", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	r.controller("c-0", api.flag())
	for _, name := range []string{"orders", "bills"} {
		r.await(name, "it is ready", ready)
	}
	publisher := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, err := r.publisher.PublishMsg(q.Context(), event(q.Header.Get("Ce-Type"), q.Header.Get("Ce-Id"), "{}")); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer publisher.Close()
	for _, tc := range []struct {
		reason string
		repair bool
		code   int
		wants  []string
	}{
		{"a sink that refuses", false, 1, []string{
			"publisher: 204, the publisher has taken it", "stored, and with the controller", r.namespace + "/orders, try 1: its sink answers 200, after",
			r.namespace + "/bills, try 1: the sink answers 404, after", "have not taken it: " + r.namespace + "/bills Next: kubectl eventing subscriptions " + r.namespace + "/bills",
		}},
		{"both take it", true, 0, []string{r.namespace + "/bills, try 1: its sink answers 200", "Each sink that wants it has taken it: 2 Subscriptions."}},
	} {
		if tc.repair {
			r.sinks.Answer("bills", nil)
		}
		p := process.Run(t, process.Program{
			Binary: process.BuildPlain(t, "./cmd/kubectl-eventing"),
			Args:   append([]string{"trace", "--type=a.b", "--source=commerce", "--wait=5s", "--publisher=" + publisher.URL}, api.flags()...),
			Env:    []string{"KUBECONFIG=" + cluster.Kubeconfig, "PATH=" + os.Getenv("PATH")},
		})
		if got := p.Wait(); got != tc.code {
			t.Errorf("%s: exit code %d, want %d\n%s%s", tc.reason, got, tc.code, p.Stdout(), p.Stderr())
		}
		for _, want := range tc.wants {
			if !strings.Contains(strings.Join(strings.Fields(p.Stdout()), " "), want) {
				t.Errorf("%s: no %q in\n%s", tc.reason, want, p.Stdout())
			}
		}
	}
}
