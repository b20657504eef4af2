package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap/zapcore"

	"github.com/kyma-project/eventmesh-migration/cmd/internal/program"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/manager"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

func TestParse(t *testing.T) {
	const image = "registry/x@sha256:0123456789012345678901234567890123456789012345678901234567890123"
	pod := map[string]string{"POD_NAMESPACE": "events", "NATS_IMAGE": image, "PUBLISHER_IMAGE": image, "CONTROLLER_IMAGE": image}
	defaults := manager.Options{
		Namespace: "events", Prefix: "eventing", NATSImage: image, PublisherImage: image, ControllerImage: image, Version: version.String(),
		MetricsAddress: ":8080", ProbeAddress: ":8081", PageAddress: "0", DependencyTimeout: 5 * time.Minute, BackendTimeout: 10 * time.Minute,
		DrainDelay: 6 * time.Second, DrainWatch: 15 * time.Second, MeshDelay: 5 * time.Minute,
	}
	chart := func(o *manager.Options) {
		o.Prefix, o.PullSecrets, o.DependencyTimeout, o.PageAddress = "shop", []string{"a,b", "c"}, time.Minute, "localhost:8086"
	}
	const args = "--resource-prefix=shop --image-pull-secret=a,b --image-pull-secret=c --dependency-timeout=1m0s --backend-timeout=10m0s --log-level=debug" +
		" --metrics-bind-address=:8080 --health-probe-bind-address=:8081 --page-bind-address=localhost:8086"
	for _, tc := range []struct {
		reason, args string
		env          map[string]string
		level        zapcore.Level
		change       func(*manager.Options)
		kubeconfig   string
		problem      string
	}{
		{reason: "in a pod", env: pod},
		{reason: "as the chart calls it", env: pod, args: args, level: zapcore.DebugLevel, change: chart},
		{reason: "the same with one dash", env: pod, args: strings.ReplaceAll(" "+args, " --", " -"), level: zapcore.DebugLevel, change: chart},
		{reason: "outside of a pod", env: pod, args: "-namespace mine --kubeconfig file", change: func(o *manager.Options) { o.Namespace = "mine" }, kubeconfig: "file"},
		{
			reason: "Kyma has moved the images to a registry with a secret", args: "--image-pull-secret=a",
			env:    map[string]string{"POD_NAMESPACE": "events", "NATS_IMAGE": image, "PUBLISHER_IMAGE": image, "CONTROLLER_IMAGE": image, pullSecretVariable: "moved"},
			change: func(o *manager.Options) { o.PullSecrets = []string{"a", "moved"} },
		},
		{reason: "an argument nobody knows", env: pod, args: "now", problem: `unexpected argument "now"`},
		{reason: "a flag nobody knows", env: pod, args: "--prefix=x", problem: "unknown flag: --prefix"},
	} {
		got, err := parse(strings.Fields(tc.args), func(name string) string { return tc.env[name] }, &strings.Builder{})
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
		if diff := cmp.Diff(want, got.manager); diff != "" || got.level != tc.level || got.kubeconfig != tc.kubeconfig {
			t.Errorf("%s: level %s, kubeconfig %q, options (-want +got):\n%s", tc.reason, got.level, got.kubeconfig, diff)
		}
	}
}

func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		reason, args string
		want         int
		said         string
	}{
		{"help is no mistake", "--help", program.OK, "--image-pull-secret"},
		{"help says what to do next", "-help", program.OK, "kubectl get eventings.operator.kyma-project.io -A"},
		{"the version needs no flag", "-version", program.OK, version.String()},
		{"images are missing", "", program.Usage, "--nats-image"},
		{"a mistake", "--log-level=loud", program.Usage, "--help lists the flags"},
	} {
		var out strings.Builder
		if code := run(t.Context(), strings.Fields(tc.args), func(string) string { return "" }, &out, &out); code != tc.want || !strings.Contains(out.String(), tc.said) {
			t.Errorf("%s: exit code %d, want %d; output:\n%s", tc.reason, code, tc.want, &out)
		}
	}
}
