package eventbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// InFlight is what NATS Streaming holds for its durable subscriptions. What
// could not be read is unknown, never nothing.
type InFlight struct {
	// Unreadable is why nothing is known; "" if it was read.
	Unreadable string
	// Denied says that asking again cannot help.
	Denied bool
	// Channels by name.
	Channels map[string]Channel
	// At is when the reading began.
	At time.Time
}

// Channel is a channel as the monitoring port of NATS Streaming shows it.
type Channel struct {
	Name          string    `json:"name"`
	Messages      uint64    `json:"msgs"`
	FirstSequence uint64    `json:"first_seq"`
	LastSequence  uint64    `json:"last_seq"`
	Subscriptions []Durable `json:"subscriptions"`
}

// Durable is a durable subscription to it.
type Durable struct {
	DurableName string `json:"durable_name"`
	LastSent    uint64 `json:"last_sent"`
	Pending     int64  `json:"pending_count"`
}

// Of returns how many messages wait to be delivered to a durable subscription;
// why is set if that is not known.
func (f *InFlight) Of(channel, durable string) (n uint64, why string) {
	if f.Unreadable != "" {
		return 0, f.Unreadable
	}
	c, ok := f.Channels[channel]
	if !ok {
		return 0, fmt.Sprintf("NATS Streaming has no channel %s", channel)
	}
	found := false
	for _, s := range c.Subscriptions {
		if s.DurableName == durable {
			found = true
			n = max(n, c.waiting(s))
		}
	}
	if !found {
		return 0, fmt.Sprintf("channel %s of NATS Streaming has no durable subscription %s", channel, durable)
	}
	return n, ""
}

// waiting counts what was not sent yet, and what was sent and not acknowledged.
// What has expired in the meantime is not waiting any more.
func (c *Channel) waiting(s Durable) uint64 {
	n := uint64(max(s.Pending, 0))
	if c.Messages == 0 {
		return n
	}
	sent := s.LastSent
	if c.FirstSequence > 0 {
		sent = max(sent, c.FirstSequence-1)
	}
	if c.LastSequence > sent {
		n += c.LastSequence - sent
	}
	return n
}

// Monitor gets a path from the monitoring port of NATS Streaming.
type Monitor func(ctx context.Context, path string, query url.Values) ([]byte, error)

// natsPage is how many channels one request asks for.
const natsPage = 500

// ReadInFlight reads all channels. An error is part of what is read: it makes
// everything unknown.
func ReadInFlight(ctx context.Context, get Monitor) InFlight {
	f := InFlight{Channels: map[string]Channel{}, At: time.Now()}
	for offset := 0; ; {
		body, err := get(ctx, "/streaming/channelsz", url.Values{
			"subs": {"1"}, "limit": {strconv.Itoa(natsPage)}, "offset": {strconv.Itoa(offset)},
		})
		if err != nil {
			return InFlight{Unreadable: err.Error(), Denied: apierrors.IsForbidden(err), At: f.At}
		}
		var page struct {
			ServerID string    `json:"server_id"`
			Count    int       `json:"count"`
			Total    int       `json:"total"`
			Channels []Channel `json:"channels"`
		}
		if err := json.Unmarshal(body, &page); err != nil || page.ServerID == "" {
			return InFlight{Unreadable: "what answers on the monitoring port is not NATS Streaming", At: f.At}
		}
		for _, c := range page.Channels {
			f.Channels[c.Name] = c
		}
		offset += page.Count
		if page.Count == 0 || offset >= page.Total {
			return f
		}
	}
}

// MonitorAt asks a URL of the user's.
func MonitorAt(base string) Monitor {
	client := &http.Client{Timeout: 10 * time.Second}
	return func(ctx context.Context, path string, query url.Values) ([]byte, error) {
		target := strings.TrimSuffix(base, "/") + path + "?" + query.Encode()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return nil, fmt.Errorf("cannot ask %s: %w", base, err)
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("cannot ask %s: it answered %s", base, response.Status)
		}
		return io.ReadAll(io.LimitReader(response.Body, 64<<20))
	}
}

// MonitorInCluster finds the pods of NATS Streaming, and asks the first one that
// answers: those of a fault-tolerant group that are not active do not.
func MonitorInCluster(c reader) Monitor {
	var chosen string
	return func(ctx context.Context, path string, query url.Values) ([]byte, error) {
		ask := func(pod string) ([]byte, error) {
			return c.PodGet(ctx, kyma.NATSNamespace, pod, kyma.NATSMonitoringPort, path, query)
		}
		if chosen != "" {
			return ask(chosen)
		}
		var names []string
		err := c.Each(ctx, pods, kyma.NATSNamespace, migration.ListOptions{FieldSelector: migration.UnfinishedPods, PageSize: migration.LargePage},
			func(pod *unstructured.Unstructured) error {
				if hasPort(pod, kyma.NATSMonitoringPort) {
					names = append(names, pod.GetName())
				}
				return nil
			})
		if err != nil {
			return nil, err
		}
		if len(names) == 0 {
			return nil, fmt.Errorf("no pod in namespace %s has port %d, that of NATS Streaming's monitoring", kyma.NATSNamespace, kyma.NATSMonitoringPort)
		}
		var failures []error
		for _, name := range names {
			body, err := ask(name)
			if err == nil {
				chosen = name
				return body, nil
			}
			failures = append(failures, err)
		}
		return nil, errors.Join(failures...)
	}
}

func hasPort(pod *unstructured.Unstructured, port int64) bool {
	containers, _ := k8sobject.MapAt(pod.Object, "spec")["containers"].([]any)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		ports, _ := container["ports"].([]any)
		for _, p := range ports {
			one, _ := p.(map[string]any)
			if n, ok := one["containerPort"].(int64); ok && n == port {
				return true
			}
		}
	}
	return false
}
