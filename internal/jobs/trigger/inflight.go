package trigger

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

	"github.com/kyma-project/eventmesh-migration/internal/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// inFlight is what NATS Streaming holds for its durable subscriptions. What
// could not be read is unknown, never nothing.
type inFlight struct {
	// unreadable is why nothing is known; "" if it was read.
	unreadable string
	// denied: asking again cannot help.
	denied   bool
	channels map[string]natsChannel
	// at is when the reading began.
	at time.Time
}

// natsChannel is a channel as the monitoring port of NATS Streaming shows it.
type natsChannel struct {
	Name          string             `json:"name"`
	Messages      uint64             `json:"msgs"`
	FirstSequence uint64             `json:"first_seq"`
	LastSequence  uint64             `json:"last_seq"`
	Subscriptions []natsSubscription `json:"subscriptions"`
}

type natsSubscription struct {
	DurableName string `json:"durable_name"`
	LastSent    uint64 `json:"last_sent"`
	Pending     int64  `json:"pending_count"`
}

// of returns how many messages wait to be delivered to a durable subscription;
// why is set if that is not known.
func (f *inFlight) of(channel, durable string) (n uint64, why string) {
	if f.unreadable != "" {
		return 0, f.unreadable
	}
	c, ok := f.channels[channel]
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
func (c *natsChannel) waiting(s natsSubscription) uint64 {
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

// monitor gets a path from the monitoring port of NATS Streaming.
type monitor func(ctx context.Context, path string, query url.Values) ([]byte, error)

// natsPage is how many channels one request asks for.
const natsPage = 500

// readInFlight reads all channels. An error is part of what is read: it makes
// everything unknown.
func readInFlight(ctx context.Context, get monitor) inFlight {
	f := inFlight{channels: map[string]natsChannel{}, at: time.Now()}
	for offset := 0; ; {
		body, err := get(ctx, "/streaming/channelsz", url.Values{
			"subs": {"1"}, "limit": {strconv.Itoa(natsPage)}, "offset": {strconv.Itoa(offset)},
		})
		if err != nil {
			return inFlight{unreadable: err.Error(), denied: apierrors.IsForbidden(err), at: f.at}
		}
		var page struct {
			ServerID string        `json:"server_id"`
			Count    int           `json:"count"`
			Total    int           `json:"total"`
			Channels []natsChannel `json:"channels"`
		}
		if err := json.Unmarshal(body, &page); err != nil || page.ServerID == "" {
			return inFlight{unreadable: "what answers on the monitoring port is not NATS Streaming", at: f.at}
		}
		for _, c := range page.Channels {
			f.channels[c.Name] = c
		}
		offset += page.Count
		if page.Count == 0 || offset >= page.Total {
			return f
		}
	}
}

// monitorAt asks a URL of the user's.
func monitorAt(base string) monitor {
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

// monitorInCluster finds the pods of NATS Streaming, and asks the first one that
// answers: those of a fault-tolerant group that are not active do not.
func monitorInCluster(c reader) monitor {
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
	containers, _ := kyma.MapAt(pod.Object, "spec")["containers"].([]any)
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
