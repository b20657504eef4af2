package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventservice"
)

// TestParse: the flags that Kyma's took are taken. On f3299ef no limit of time, a size of 0, a
// stray argument and "--requestLogging true" ended with exit code 2.
func TestParse(t *testing.T) {
	defaults := eventservice.Options{
		MeshURL: "http://shop.kyma-integration", SourceID: "shop", MaxRequestSize: 65536, RequestTimeout: 10 * time.Second,
		MaxInFlight: 512, MaxConnections: 1024, ShutdownDelay: 3 * time.Second,
	}
	const needed = "--eventMeshURL=http://shop.kyma-integration --sourceId=shop "
	for _, tc := range []struct {
		reason, args string
		change       func(*eventservice.Options)
		ignored      []string
		problem      string
		warned       string
	}{
		{reason: "what is needed", args: needed},
		{
			reason: "the arguments of the chart of 1.11, the program's path and the Event Bus's URLs included",
			args: "/eventservice --externalAPIPort=8081 --eventMeshURL=http://shop.kyma-integration --maxRequestSize=1000 --requestTimeout=7" +
				" --requestLogging=true --sourceId=shop --eventsTargetURLV1=http://a/v1/events --eventsTargetURLV2=http://a/v2/events",
			change: func(o *eventservice.Options) {
				o.MaxRequestSize, o.RequestTimeout, o.RequestLogging = 1000, 7*time.Second, true
			},
			ignored: []string{"eventsTargetURLV1", "eventsTargetURLV2"},
		},
		{
			reason: "one dash is as good as two, with a value in the same word",
			args:   "/eventservice -externalAPIPort=8081 -eventMeshURL=http://shop.kyma-integration -maxRequestSize=1000 -requestLogging=true -sourceId=shop -eventsTargetURL=http://a/v1/events",
			change: func(o *eventservice.Options) { o.MaxRequestSize, o.RequestLogging = 1000, true }, ignored: []string{"eventsTargetURL"},
		},
		{reason: "one dash, with a value in the next word", args: "-eventMeshURL http://shop.kyma-integration -sourceId shop"},
		{reason: "nothing is guessed of where events go", args: "", problem: "--eventMeshURL is required; --sourceId is required"},
		{reason: "a flag nobody knows", args: needed + "--sourceID=x", problem: "unknown flag: --sourceID"},
		{reason: "an argument nobody knows, as Kyma's took it", args: needed + "run --maxInFlight=7 -- now", change: func(o *eventservice.Options) { o.MaxInFlight = 7 }, ignored: []string{`"run"`, `"now"`}},
		{reason: "a truth value in a word of its own", args: "--requestLogging true " + needed, change: func(o *eventservice.Options) { o.RequestLogging = true }},
		{reason: "the other one", args: "--requestLogging false " + needed},
		{reason: "a word behind it that is none", args: "--requestLogging yes " + needed, change: func(o *eventservice.Options) { o.RequestLogging = true }, ignored: []string{`"yes"`}},
		{reason: "a truth value behind nothing", args: "true " + needed, ignored: []string{`"true"`}},
		{reason: "no limit of time, which is ours", args: needed + "--requestTimeout=0", warned: "--requestTimeout=0: there must be a limit, it is 10 seconds"},
		{reason: "less than none", args: needed + "--requestTimeout=-1", warned: "--requestTimeout=-1: there must be a limit, it is 10 seconds"},
		{reason: "a size that no event has", args: needed + "--maxRequestSize=0", change: func(o *eventservice.Options) { o.MaxRequestSize = 0 }, warned: "--maxRequestSize=0: every event is refused as too large"},
		{reason: "a limit that is none", args: needed + "--maxRequestSize=9223372036854775807", problem: "--maxRequestSize must be at most 1073741824"},
		{reason: "every mistake is told", args: needed + "--maxConnections=0 --maxInFlight=0 --logLevel=loud", problem: `--maxInFlight must be at least 1; --maxConnections must be at least 1; --logLevel: unrecognized level: "loud"`},
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
		want := defaults
		if tc.change != nil {
			tc.change(&want)
		}
		if diff := cmp.Diff(want, got.server); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
		}
		if diff := cmp.Diff(tc.ignored, got.ignored); diff != "" {
			t.Errorf("%s: ignored (-want +got):\n%s", tc.reason, diff)
		}
		if diff := cmp.Diff(tc.warned, strings.Join(got.warnings, "\n")); diff != "" {
			t.Errorf("%s: warned (-want +got):\n%s", tc.reason, diff)
		}
	}
}

func TestExitCodes(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	const quick = "--shutdownDelay=0 --externalAPIPort=0 --metricsPort=0 --sourceId=shop --eventMeshURL="
	for _, tc := range []struct {
		reason, args string
		want         int
		said         string
	}{
		{"ended before it serves", quick + "http://localhost:1", program.OK, "every request is answered"},
		{"help is no mistake", "--help", program.OK, "--eventMeshURL"},
		{"no URL", "--sourceId=shop", program.Usage, "--eventMeshURL is required"},
		{"a URL that is none", quick + "shop.kyma-integration", program.Usage, "not of the form"},
		{"a source that is none", quick + "http://localhost:1 --sourceId=%zz", program.Usage, "no URI reference"},
	} {
		var stderr strings.Builder
		code := run(ended, strings.Fields(tc.args), func(string) string { return "" }, &stderr)
		// The logger may be asked to listen by a context that has ended.
		if code != tc.want || !strings.Contains(stderr.String(), tc.said) {
			t.Errorf("%s: exit code %d, want %d; stderr:\n%s", tc.reason, code, tc.want, &stderr)
		}
	}
}
