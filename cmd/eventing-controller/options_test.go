package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/controller"
)

func TestParse(t *testing.T) {
	pod := map[string]string{"POD_NAME": "eventing-controller-1", "POD_NAMESPACE": "events"}
	defaults := controller.Options{
		Namespace: "events", Pod: "eventing-controller-1", Names: "eventing", Version: "devel",
		SeedFile: "/etc/eventing/nats-user/controller", CAFile: "/etc/eventing/nats-ca/ca.crt", DeadLetterAfter: 24 * time.Hour,
		MetricsAddress: ":8080", HealthAddress: ":8081", DeliverAddress: ":8082", LettersAddress: "localhost:8085", KeepConsumers: time.Hour, Lease: 15 * time.Second,
	}
	for _, tc := range []struct {
		reason, args string
		env          map[string]string
		change       func(*controller.Options)
		problem      string
	}{
		{reason: "in a pod", env: pod},
		{reason: "outside of a pod", change: func(o *controller.Options) { o.Namespace, o.Pod = "kyma-system", "eventing-controller" }},
		{reason: "as the chart calls it", env: pod, args: "--resource-prefix=shop --version=1.2.3 --log-level=Info --dead-letter-after=1h", change: func(o *controller.Options) {
			o.Names, o.Version, o.DeadLetterAfter = "shop", "1.2.3", time.Hour
		}},
		{reason: "a flag nobody knows", env: pod, args: "--prefix=x", problem: "unknown flag: --prefix"},
		{
			reason: "every mistake is told", env: pod,
			args:    "--namespace=A --resource-prefix=b_ --dead-letter-sink=letters --dead-letter-after=-1s --lease-duration=0s --log-level=loud --dns-server=dns now",
			problem: `unexpected arguments: ["now"]; --namespace "A" is no name of a namespace; --resource-prefix "b_" cannot begin a name; --dead-letter-after must not be negative; --lease-duration must be at least 1s; --log-level: unrecognized level: "loud"; --dns-server "dns" is not of the form host:port; --dead-letter-sink is not of the form http://<host>`,
		},
	} {
		got, level, err := parse(strings.Fields(tc.args), func(name string) string { return tc.env[name] }, io.Discard)
		problem := ""
		if err != nil {
			problem = err.Error()
		}
		if diff := cmp.Diff(tc.problem, problem); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if err != nil {
			continue
		}
		want := defaults
		if tc.change != nil {
			tc.change(&want)
		}
		if diff := cmp.Diff(want, got); diff != "" || level != zapcore.InfoLevel {
			t.Errorf("%s: level %s, options (-want +got):\n%s", tc.reason, level, diff)
		}
	}
	got, _, err := parse([]string{"--dead-letter-sink=https://letters.shop.svc.cluster.local/a?b=c"}, func(string) string { return "" }, io.Discard)
	if err != nil || got.DeadLetterSink.String() != "https://letters.shop.svc.cluster.local/a?b=c" {
		t.Errorf("a dead letter sink: %v, %v", got.DeadLetterSink, err)
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		reason, args string
		env          map[string]string
		want         int
		said         string
	}{
		{"help is no mistake", "--help", nil, program.OK, "--dead-letter-sink"},
		{"a mistake", "--log-level=loud", nil, program.Usage, "--help lists the flags"},
		{"no cluster", "", map[string]string{"KUBECONFIG": "/does/not/exist"}, program.Failed, "cannot find the cluster"},
	} {
		var stderr strings.Builder
		if code := run(t.Context(), strings.Fields(tc.args), func(name string) string { return tc.env[name] }, &stderr); code != tc.want || !strings.Contains(stderr.String(), tc.said) {
			t.Errorf("%s: exit code %d, want %d; stderr:\n%s", tc.reason, code, tc.want, &stderr)
		}
	}
}
