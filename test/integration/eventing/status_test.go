package eventing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

var kubernetesEvents = eventsv1.SchemeGroupVersion.WithResource("events")

// TestWhatASubscriptionSays: while a sink is down, its Subscription says what it answers, how many
// events wait and since when; Events, the log and the metric say it, too. When the sink works
// again, that is said as well. One that takes events in order names the event that stops the
// others.
func TestWhatASubscriptionSays(t *testing.T) {
	const events = 12
	r := newRig(t, true)
	mark, markErr := cluster.Mark(t.Context())
	var works atomic.Bool
	answer := func(w http.ResponseWriter, _ *http.Request) {
		if !works.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	r.sinks.Answer("orders", answer)
	r.sinks.Answer("ordered", answer)
	ports, err := process.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	metrics := fmt.Sprintf("127.0.0.1:%d", ports[0])
	controller := r.controller("pod-1", "--metrics-address="+metrics)
	r.subscribe("orders", "a.b", "")
	r.subscribe("ordered", "a.b", `, config: {maxInFlightMessages: "1"}`)
	r.subscribe("quiet", "a.c", "")
	for _, name := range []string{"orders", "ordered", "quiet"} {
		r.await(name, "ready", ready)
	}
	began := time.Now().Add(-time.Second)
	r.publish("a.b", numbers("e", events)...)
	has := func(backlog, repeating int64) func(*eventingv1alpha2.Subscription) string {
		return func(s *eventingv1alpha2.Subscription) string {
			d := s.Status.Delivery
			if d == nil || d.Backlog != backlog || d.Repeating != repeating || (d.Oldest == nil) != (backlog == 0) {
				return fmt.Sprintf("delivery is %+v", d)
			}
			if d.Oldest != nil && (d.Oldest.Time.Before(began.Truncate(time.Second)) || d.Oldest.After(time.Now())) {
				return "the oldest is of " + d.Oldest.String()
			}
			return ""
		}
	}
	s := r.await("orders", "all events wait", has(events, events))
	delivering := message(s)
	if ready(s) != "" || !strings.HasPrefix(delivering, "the sink answers 503; deliveries fail since 20") || !strings.Contains(delivering, ". Events wait, and are sent again within 30 seconds") {
		t.Errorf("ready: %t, and %q", s.Status.Ready, delivering)
	}
	s = r.await("ordered", "all events wait for the first one", has(events, 1))
	if got := message(s); !strings.Contains(got, `Event "e00000" is refused since 20`) || !strings.Contains(got, "all later ones wait for it; it is sent again within 30 seconds") {
		t.Errorf("in order, it says %q", got)
	}
	r.await("quiet", "nothing waits", has(0, 0))

	// Those that wait for their next try count, each time.
	for deadline := time.Now().Add(12 * time.Second); time.Now().Before(deadline); time.Sleep(time.Second) {
		for _, name := range []string{"orders", "ordered"} {
			line := fmt.Sprintf(`eventing_delivery_backlog{subscription="%s/%s"} %d`, r.namespace, name, events)
			if text := scrape(t, metrics); !strings.Contains(text, line) {
				t.Fatalf("no line %s, but %s", line, lines(text, "eventing_delivery_backlog"))
			}
		}
	}
	columns, cells := table(t, r.namespace)
	if diff := cmp.Diff([]string{"Name", "Ready", "Delivering", "Backlog", "Source", "Age", "Sink", "Oldest", "Repeating", "Dead letters"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{"orders": "true False 12 12", "ordered": "true False 12 1", "quiet": "true False 0 0"} {
		row := cells[name]
		if got := fmt.Sprint(row["Ready"], " ", row["Delivering"], " ", row["Backlog"], " ", row["Repeating"]); got != want {
			t.Errorf("kubectl get shows %q of %s, want %q", got, name, want)
		}
	}

	// A status that an earlier version wrote has no numbers, and gets them.
	if _, err := r.client.Resource(subscriptions).Namespace(r.namespace).Patch(t.Context(), "quiet", types.MergePatchType, []byte(`{"status":{"delivery":null}}`), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	r.await("quiet", "the numbers are there again", has(0, 0))

	works.Store(true)
	for _, name := range []string{"orders", "ordered"} {
		r.sinks.Await(t, name, limit, numbers("e", events)...)
		r.await(name, "the sink works", func(s *eventingv1alpha2.Subscription) string {
			if message(s) != "" {
				return "it does not"
			}
			return has(0, 0)(s)
		})
	}
	told := map[string][]string{
		"orders":  {"Warning DeliveryFailing", "Normal DeliveryRecovered"},
		"ordered": {"Warning DeliveryBlocked", "Warning DeliveryFailing", "Normal DeliveryRecovered"},
	}
	for name, want := range told {
		r.awaitEvents(name, want)
	}
	r.awaitEvents("quiet", nil)

	controller.Signal(15)
	controller.Wait()
	for _, name := range []string{"orders", "ordered"} {
		n := 0
		for line := range strings.Lines(controller.Stderr() + controller.Stdout()) {
			if strings.Contains(line, "did not take an event") && strings.Contains(line, r.namespace+"/"+name+`"`) {
				n++
				for _, part := range []string{`"answer":"503"`, `"type":"a.b"`, `"id":"e000`, `"try":`} {
					if !strings.Contains(line, part) {
						t.Errorf("%s is not in %s", part, line)
					}
				}
			}
		}
		if n < 1 || n > 3 {
			t.Errorf("the log has %d lines of refused events of %s", n, name)
		}
	}
	if markErr == nil {
		writes, err := cluster.Requests(t.Context(), mark, func(q kubernetes.Request) bool {
			return kubernetes.IsWrite(q) && kubernetes.By("eventing-controller")(q) && q.Name == "orders" && q.Subresource == "status"
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(writes) > 10 {
			t.Errorf("%d writes of the status, want at most 10: %v", len(writes), writes)
		}
	}
}

// message is what the condition about the sink says.
func message(s *eventingv1alpha2.Subscription) string {
	for _, c := range s.Status.Conditions {
		if c.Type == eventingv1alpha2.ConditionDelivering {
			return c.Message
		}
	}
	return ""
}

// awaitEvents waits until Events with these types and reasons tell of a Subscription, and no
// others.
func (r *rig) awaitEvents(name string, want []string) {
	r.t.Helper()
	poll.Until(r.t, limit, "Events tell of "+name, func(ctx context.Context) error {
		list, err := r.client.Resource(kubernetesEvents).Namespace(r.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var got []string
		for i := range list.Items {
			var e eventsv1.Event
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &e); err != nil {
				return err
			}
			if e.Regarding.Kind == "Subscription" && e.Regarding.Name == name {
				got = append(got, e.Type+" "+e.Reason)
				if !strings.Contains(e.Note, "kubectl -n "+r.namespace) || e.Note == "" {
					return errors.New("no command in " + e.Note)
				}
			}
		}
		slices.SortFunc(got, func(a, b string) int { return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1]) })
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

func scrape(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// lines are those that begin so.
func lines(text, prefix string) (all []string) {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// table is what kubectl get shows of the Subscriptions of a namespace: the columns, those of
// -o wide at the end, and the cells of each row by its name.
func table(t *testing.T, namespace string) (columns []string, rows map[string]map[string]any) {
	t.Helper()
	config := cluster.Config()
	via, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	at, _, err := rest.DefaultServerURL(config.Host, "", eventingv1alpha2.GroupVersion, true)
	if err != nil {
		t.Fatal(err)
	}
	at.Path = fmt.Sprintf("/apis/%s/namespaces/%s/subscriptions", eventingv1alpha2.GroupVersion, namespace)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	answer, err := via.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var shown struct {
		ColumnDefinitions []metav1.TableColumnDefinition
		Rows              []struct{ Cells []any }
	}
	if err := json.NewDecoder(answer.Body).Decode(&shown); err != nil {
		t.Fatal(err)
	}
	rows = map[string]map[string]any{}
	for _, row := range shown.Rows {
		cells := map[string]any{}
		for i, c := range shown.ColumnDefinitions {
			cells[c.Name] = row.Cells[i]
		}
		rows[fmt.Sprint(cells["Name"])] = cells
	}
	slices.SortStableFunc(shown.ColumnDefinitions, func(a, b metav1.TableColumnDefinition) int { return int(a.Priority - b.Priority) })
	for _, c := range shown.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	return columns, rows
}
