package backend_test

import (
	"io/fs"
	"regexp"
	"strconv"
	"testing"
	"time"

	eventingchart "github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// inTemplate is the number that a template of the chart has for a key.
func inTemplate(t *testing.T, template, key string) int {
	t.Helper()
	text, err := fs.ReadFile(eventingchart.Chart, "templates/"+template)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\s*`+key+`: (?:PT)?([0-9]+)S?$`).FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("%s has %s %d times, want once", template, key, len(found))
	}
	n, err := strconv.Atoi(found[0][1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTimesOfTheChart: what the templates say is what the programs count on.
func TestTimesOfTheChart(t *testing.T) {
	if wait := time.Duration(inTemplate(t, "broker.yaml", "timeout")) * time.Second; wait != backend.MeshWait {
		t.Errorf("the Broker waits %s for a sink, and MeshWait is %s", wait, backend.MeshWait)
	}
	if retries := inTemplate(t, "broker.yaml", "retry"); retries != backend.MeshRetries {
		t.Errorf("the Broker repeats %d times, and MeshRetries is %d", retries, backend.MeshRetries)
	}
	for _, template := range []string{"controller.yaml", "publisher.yaml"} {
		if grace := time.Duration(inTemplate(t, template, "terminationGracePeriodSeconds")) * time.Second; grace != backend.PodGrace {
			t.Errorf("%s lets a pod end within %s, and PodGrace is %s", template, grace, backend.PodGrace)
		}
	}
	for what, needed := range map[string]time.Duration{
		"sinks of NATS": backend.ControllerGrace, "requests of the mesh": backend.MeshDelay + backend.MeshEnd,
	} {
		if needed >= backend.PodGrace {
			t.Errorf("a controller is killed after %s, and may wait %s for %s", backend.PodGrace, needed, what)
		}
	}
}

// TestTimes: what waits for something waits longer than that takes.
func TestTimes(t *testing.T) {
	for _, tc := range []struct {
		reason        string
		longer, times time.Duration
		n             int
	}{
		{"what a process that died had is at another one and its sink within ten seconds", 10*time.Second - 500*time.Millisecond, backend.AckWait, 1},
		{"two lost messages that an event is being delivered make no duplicate", backend.AckWait - backend.ProgressAfter, backend.ProgressEvery, 2},
		{"nor do two that are lost later", backend.AckWait, backend.ProgressEvery, 3},
		{"the sink of the mesh has its time if no slot is waited for", backend.MeshAnswer, backend.MeshSinkTimeout, 1},
		{"Knative hears the answer", backend.MeshWait, backend.MeshAnswer, 1},
		{"the publisher hears the answer after the last try", backend.MeshTimeout, backend.MeshWait, backend.MeshRetries + 1},
		{"the publisher hears that an event is a dead letter", backend.MeshTimeout - (backend.MeshRetries+1)*backend.MeshWait, backend.MeshLetterTimeout, 1},
		{"a controller that ends answers what Knative waits for", backend.MeshEnd, backend.MeshWait, 1},
		{"a controller that ends tells NATS what sinks have answered", backend.ControllerEnd, backend.SinkTimeout, 1},
	} {
		if tc.longer <= time.Duration(tc.n)*tc.times {
			t.Errorf("%s: %s is not longer than %d times %s", tc.reason, tc.longer, tc.n, tc.times)
		}
	}
}
