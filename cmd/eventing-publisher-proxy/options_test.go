package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
)

func TestParse(t *testing.T) {
	const needed = "--namespace=kyma-system --nats-seed-file=/seed --nats-ca-file=/ca "
	for _, tc := range []struct {
		reason, args string
		change       func(*options)
		problem      string
	}{
		{reason: "what is needed", args: needed},
		{
			reason: "as the chart gives it", args: needed + "--backend=NATS --resource-prefix=shop --port=8080 --metrics-port=9090 --log-level=debug",
			change: func(o *options) { o.prefix, o.logLevel = "shop", zapcore.DebugLevel },
		},
		{reason: "the other spelling of the backend", args: needed + "--backend=nats"},
		{reason: "nothing is guessed", problem: "--namespace is required; --nats-seed-file is required; --nats-ca-file is required"},
		{
			reason: "the mesh needs no files", args: "--namespace=kyma-system --backend=eventmesh",
			change: func(o *options) {
				o.backend, o.seedFile, o.caFile, o.server.Metrics.Backend, o.server.Metrics.Taken = "EventMesh", "", "", "EventMesh", "delivered"
			},
		},
		{reason: "another backend", args: needed + "--backend=Kafka", problem: `--backend "Kafka": use NATS or EventMesh`},
		{reason: "a flag nobody knows", args: needed + "--sourceId=x", problem: "unknown flag: --sourceId"},
		{reason: "an argument nobody knows", args: needed + "run", problem: `unexpected arguments: ["run"]`},
		{reason: "more than NATS takes", args: needed + "--max-request-size=1048577", problem: "--max-request-size must be from 1 to 1048576"},
		{
			reason:  "every mistake is told",
			args:    needed + "--resource-prefix= --port=-1 --metrics-port=65536 --request-timeout=0s --max-in-flight=0 --max-connections=0 --shutdown-delay=-1s --log-level=loud",
			problem: `--resource-prefix must not be empty; --port -1: not a valid port; --metrics-port 65536: not a valid port; --request-timeout must be more than 0; --max-in-flight must be at least 1; --max-connections must be at least 1; --shutdown-delay must not be negative; --log-level: unrecognized level: "loud"`,
		},
	} {
		got, err := parse(strings.Fields(tc.args), io.Discard)
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
		want := &options{
			server: eventservice.Options{
				Routes: eventservice.All, Metrics: eventservice.Metrics{Prefix: "eventing_publisher", Backend: "NATS", Taken: "stored"}, MaxRequestSize: 1 << 20,
				RequestTimeout: 10 * time.Second, MaxInFlight: 512, MaxConnections: 1024, ShutdownDelay: 3 * time.Second,
			},
			backend: "NATS", namespace: "kyma-system", prefix: "eventing", seedFile: "/seed", caFile: "/ca", port: 8080, metricsPort: 9090,
		}
		if tc.change != nil {
			tc.change(want)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		reason, args string
		want         int
		said         string
	}{
		{"help is no mistake", "--help", program.OK, "--nats-seed-file"},
		{"a flag is missing", "", program.Usage, "--namespace is required"},
		{"no cluster", "--namespace=x --nats-seed-file=/seed --nats-ca-file=/ca --port=0 --metrics-port=0", program.Failed, "cannot find the cluster"},
	} {
		var stderr strings.Builder
		code := run(t.Context(), strings.Fields(tc.args), func(string) string { return "/nonexistent/kubeconfig" }, &stderr)
		if code != tc.want || !strings.Contains(stderr.String(), tc.said) {
			t.Errorf("%s: exit code %d, want %d; stderr:\n%s", tc.reason, code, tc.want, &stderr)
		}
	}
}

// TestThePodOutlivesItsRequests: what a publisher has taken is answered before it is killed,
// whatever the backend needs.
func TestThePodOutlivesItsRequests(t *testing.T) {
	o, err := parse(strings.Fields("--namespace=kyma-system --backend=EventMesh"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.server.SendTimeout = backend.MeshTimeout
	if o.server.LongestEnd() >= backend.PodGrace {
		t.Errorf("the pod is killed after %s, and requests may take %s", backend.PodGrace, o.server.LongestEnd())
	}
}
