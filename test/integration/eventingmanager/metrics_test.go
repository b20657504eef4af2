package eventingmanager_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/eventingpods"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

var update = flag.Bool("update", false, "write the tables of docs/eventing/metrics.md")

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	sampled = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// byKyma are metrics whose names are Kyma's, and break rules of Prometheus.
var byKyma = []string{"eventing_ec_event_type_subscribed_total", "eventing_epp_backend_duration_milliseconds"}

// families are the metrics of eventing that a program has.
type families map[string]*dto.MetricFamily

// scrape asks a program for its metrics, as Prometheus does, or in its own text format.
func (s *site) scrape(address, accept string) (string, error) {
	request, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", accept)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, raw)
	}
	return string(raw), err
}

func (s *site) families(address string) (families, error) {
	text, err := s.scrape(address, "text/plain")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(text))
	maps.DeleteFunc(all, func(name string, _ *dto.MetricFamily) bool { return !strings.HasPrefix(name, "eventing_") })
	return all, err
}

// value is that of the one metric of a family that has these labels; a histogram's is how many
// values it has.
func (f families) value(name string, labels map[string]string) (value float64, found bool) {
	for _, m := range f[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for key, want := range labels {
			matches = matches && has[key] == want
		}
		if matches {
			return value + m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
		}
	}
	return 0, false
}

// expect returns what is not so.
func (f families) expect(name string, labels map[string]string, want float64) error {
	if got, found := f.value(name, labels); !found || got != want {
		return fmt.Errorf("%s%v is %v (%v), want %v", name, labels, got, found, want)
	}
	return nil
}

// table is what docs/eventing/metrics.md says of them.
func (f families) table() string {
	out := &strings.Builder{}
	out.WriteString("| Metric | Type | Labels | What it is |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(f)) {
		labels := map[string]bool{}
		for _, m := range f[name].GetMetric() {
			for _, l := range m.GetLabel() {
				labels["`"+l.GetName()+"`"] = true
			}
		}
		fmt.Fprintf(out, "| `%s` | %s | %s | %s |\n", name, strings.ToLower(f[name].GetType().String()),
			strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f[name].GetHelp())
	}
	return out.String()
}

// lint returns which names and texts Prometheus would have otherwise.
func (f families) lint(t *testing.T) {
	t.Helper()
	problems, err := promlint.NewWithMetricFamilies(slices.Collect(maps.Values(f))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !slices.Contains(byKyma, p.Metric) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// event publishes one event with a trace, and returns the status of the answer.
func (s *site) event(id, eventType string) int {
	s.t.Helper()
	header := created(id)
	header["Ce-Type"], header["Traceparent"] = eventType, sampled
	status, _, err := ask(s.t.Context(), s.http(), http.MethodPost, "/publish", header, "1")
	s.check(err)
	return status
}

// TestMetrics: after events of each kind, the programs have the metrics that
// docs/eventing/metrics.md names, and no others; and a Prometheus that scrapes them has data for
// each panel of the dashboards. TestAlertsAndPanelsHaveData in charts/eventing-manager takes it
// from there.
func TestMetrics(t *testing.T) {
	s := newSite(t, "metrics")
	to := s.withSinks()
	free, err := process.FreePorts(1)
	s.check(err)
	operator := fmt.Sprintf("127.0.0.1:%d", free[0])
	s.start("--metrics-bind-address", operator)
	to.Answer("bills", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	s.subscribe(to, "orders", "source: commerce, types: [order.created.v1]")
	s.subscribe(to, "bills", "source: commerce, types: [bill.created.v1]")
	s.installed()
	s.awaitSubscription("orders")
	s.awaitSubscription("bills")
	publisher, controller := s.pods.At(eventingpods.Publisher, 9090)[0], s.pods.At(eventingpods.Controller, 8080)[0]
	scrapes := startPrometheus(t, operator, publisher, controller)

	// The publisher has the Subscriptions by a watch.
	poll.Until(t, 30*time.Second, "an event that nobody wants is counted", func(context.Context) error {
		s.event(fmt.Sprint(time.Now().UnixNano()), "nobody.wants.v1")
		f, err := s.families(publisher)
		if err != nil {
			return err
		}
		if n, _ := f.value("eventing_publisher_events_accepted_total", map[string]string{"result": "unsubscribed", "type": "nobody.wants.v1"}); n == 0 {
			return errStill
		}
		return nil
	})
	for _, tc := range []struct {
		id, eventType string
		want          int
	}{{"1", "order.created.v1", 204}, {"1", "order.created.v1", 204}, {"2", "bill.created.v1", 204}, {"3", "order", 400}} {
		if status := s.event(tc.id, tc.eventType); status != tc.want {
			t.Errorf("event %s of %s: %d, want %d", tc.id, tc.eventType, status, tc.want)
		}
	}
	to.Await(t, "orders", 30*time.Second, "1")
	// What is no event becomes a dead letter at once.
	_, err = s.js("publisher").Publish(t.Context(), backend.Subject("commerce", "order.created.v1"), []byte("no event"))
	s.check(err)

	accepted := func(result, eventType string) map[string]string {
		return map[string]string{"backend": "NATS", "result": result, "type": eventType, "source": "commerce"}
	}
	of := func(name string) map[string]string {
		return map[string]string{"subscription": s.namespace + "/" + name}
	}
	var published, delivered, operated families
	poll.Until(t, time.Minute, "all events are counted", func(context.Context) (err error) {
		if published, err = s.families(publisher); err != nil {
			return err
		}
		if delivered, err = s.families(controller); err != nil {
			return err
		}
		for _, err := range []error{
			published.expect("eventing_publisher_events_accepted_total", accepted("stored", "order.created.v1"), 1),
			published.expect("eventing_publisher_events_accepted_total", accepted("repeated", "order.created.v1"), 1),
			published.expect("eventing_publisher_events_accepted_total", accepted("stored", "bill.created.v1"), 1),
			published.expect("eventing_publisher_events_refused_total", map[string]string{"cause": "invalid", "type": "order"}, 1),
			published.expect("eventing_publisher_accepts", nil, 1), published.expect("eventing_publisher_nats_connected", nil, 1),
			delivered.expect("eventing_delivery_latency_seconds", of("orders"), 1), delivered.expect("eventing_controller_nats_connected", nil, 1),
			delivered.expect("eventing_delivery_backlog", of("bills"), 1), delivered.expect("eventing_delivery_repeating", of("bills"), 1),
			delivered.expect("eventing_dead_letters", of("orders"), 1), delivered.expect("eventing_delivery_backlog", of("orders"), 0), delivered.expect("eventing_delivery_oldest_age_seconds", of("orders"), 0), delivered.expect("eventing_delivery_repeating", of("orders"), 0),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	if age, _ := delivered.value("eventing_delivery_oldest_age_seconds", of("bills")); age <= 0 || age > 300 {
		t.Errorf("the event that is refused is %v seconds old", age)
	}
	poll.Until(t, time.Minute, "the operator has seen the event that waits", func(context.Context) (err error) {
		if operated, err = s.families(operator); err != nil {
			return err
		}
		return operated.expect("eventing_manager_pending_messages", nil, 1)
	})
	for _, err := range []error{
		operated.expect("eventing_manager_nats_connected", nil, 1), operated.expect("eventing_manager_stream_limit_bytes", nil, 10<<20),
		operated.expect("eventing_manager_storage_full", nil, 0), operated.expect("eventing_manager_stream_full_types", nil, 0),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	documentMetrics(t, map[string]families{"publisher": published, "controller": delivered, "operator": operated})
	s.exemplars(publisher, "eventing_publisher_events_accepted_total", "eventing_publisher_backend_duration_seconds_bucket")
	s.exemplars(controller, "eventing_delivery_total", "eventing_delivery_duration_seconds_bucket", "eventing_delivery_latency_seconds_bucket")
	s.leads(controller, "eventing-controller.kyma-project.io")
	s.leads(operator, "eventing-manager.kyma-project.io")
	s.dashboards(scrapes)

	s.metricsWithoutNATS(operator, publisher, controller)

	// The Eventing goes, and nothing is said any more.
	s.delete(subscriptions, "bills")
	s.delete(subscriptions, "orders")
	poll.Until(t, 30*time.Second, "the metrics of Subscriptions are gone", func(context.Context) error {
		f, err := s.families(controller)
		if err == nil && f["eventing_delivery_total"] != nil {
			err = errStill
		}
		return err
	})
	s.force() // there is a dead letter
	s.remove(metav1.DeletePropagationBackground)
	s.gone(time.Minute)
	poll.Until(t, 30*time.Second, "nothing is said of an Eventing that is gone", func(context.Context) error {
		f, err := s.families(operator)
		if err != nil {
			return err
		}
		for _, name := range []string{"eventing_manager_state", "eventing_manager_switch_step", "eventing_manager_nats_connected", "eventing_manager_stream_bytes"} {
			if f[name] != nil {
				return fmt.Errorf("there is still %v", f[name])
			}
		}
		return nil
	})
}

// metricsWithoutNATS: while NATS is away, its numbers are gone, and each program says so.
func (s *site) metricsWithoutNATS(operator, publisher, controller string) {
	s.t.Helper()
	s.node.Cordon(true)
	s.delete(pods, s.prefix+"-nats-0")
	for address, name := range map[string]string{
		operator: "eventing_manager_nats_connected", publisher: "eventing_publisher_nats_connected", controller: "eventing_controller_nats_connected",
	} {
		poll.Until(s.t, 30*time.Second, name+" is 0", func(context.Context) error {
			f, err := s.families(address)
			if err != nil {
				return err
			}
			if f["eventing_manager_stream_bytes"] != nil {
				return fmt.Errorf("%v is from before", f["eventing_manager_stream_bytes"])
			}
			return f.expect(name, nil, 0)
		})
	}
	s.node.Cordon(false)
	s.await(time.Minute, operatorv1alpha1.StateReady, operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ReasonNATSAvailable)
}

// exemplars checks that metrics have the trace of an event in the format that Prometheus asks for.
func (s *site) exemplars(address string, names ...string) {
	s.t.Helper()
	text, err := s.scrape(address, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
	s.check(err)
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^` + name + `\{.* # \{trace_id="` + traceID + `"\} `).MatchString(text) {
			s.t.Errorf("%s of %s has no trace in:\n%s", name, address, grep(text, name))
		}
	}
}

// leads checks the metric of the Lease.
func (s *site) leads(address, lease string) {
	s.t.Helper()
	text, err := s.scrape(address, "text/plain")
	s.check(err)
	if want := fmt.Sprintf("leader_election_master_status{name=%q} 1\n", lease); !strings.Contains(text, want) {
		s.t.Errorf("no line %s in:\n%s", want, grep(text, "leader_election"))
	}
}

func grep(text, word string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return !strings.Contains(line, word) }), "\n")
}

// documentMetrics compares the tables of the documents with what the programs have.
func documentMetrics(t *testing.T, programs map[string]families) {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "docs/eventing/metrics.md")
	is, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := is
	for program, all := range programs {
		all.lint(t)
		begin, end := fmt.Appendf(nil, "<!-- metrics of the %s: TestMetrics writes them with -update -->\n", program), []byte("<!-- end of metrics -->\n")
		before, rest, ok := bytes.Cut(want, begin)
		_, after, closed := bytes.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no mark %s", file, begin)
		}
		want = slices.Concat(before, begin, []byte(all.table()), end, after)
	}
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(is), "\n")); diff != "" {
		t.Errorf("%s is not what the programs have (-update writes it; -programs +document):\n%s", file, diff)
	}
}
