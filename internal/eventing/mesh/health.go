package mesh

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// channels is the kind of Channels with which an accepted event was delivered. Of another kind,
// nothing is read.
var channels = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1", Resource: "inmemorychannels"}

const (
	// channelAgain is how long after a Channel could not be read it is tried again.
	channelAgain = time.Minute
	// tryLimit is how long one try may take.
	tryLimit = 20 * time.Second
)

// health is what is known of the mesh after a probe has come through its Trigger.
type health struct {
	triggers objects
	channel  string // the name of the Broker's
	changed  func()
	// every is how often the leader tries whether the mesh takes an event, 10 seconds by default.
	// For as long, the subscribers of the Channel may be others than those of its Triggers.
	every time.Duration

	mu sync.Mutex
	// leftSince is since when the Channel has subscribers of Triggers that are gone, and lostSince
	// since when it has none for the Trigger with the UID lost.
	leftSince, lostSince time.Time
	lost                 types.UID
	// refusedSince is since when no event of the controller is taken, and refusal the first reason.
	refusedSince time.Time
	refusal      string
}

// followChannel reads the Channel of the Broker, and watches it until Leave. Its kind may be served
// later than that of the Trigger, or never.
func (t *Trigger) followChannel(ctx context.Context) {
	if t.channel != nil || time.Since(t.channelAsked) < channelAgain {
		return
	}
	t.channelAsked = time.Now()
	known := k8sutil.NewCollection(t.channels, k8sutil.Named(t.names.BrokerChannel()), nil, k8sutil.Retrying(readBudget, func(err error) { t.log.Warn("cannot read the Channel of the Broker, retrying", zap.Error(err)) }))
	if err := known.List(ctx); err != nil {
		if !apierrors.IsNotFound(err) {
			t.log.Warn("cannot read the Channel of the Broker: it is not known whether the mesh refuses events", zap.Error(err))
		}
		return
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	others := t.stop
	t.channel, t.stop = known, func() { others(); stop() }
	known.Watch(watching, func(string) { t.changed() })
}

// refuses tells whether the mesh refuses each event although Knative says that all of it is ready,
// as Refuses.
//
// The Channel may still have a subscriber of a Trigger that is gone. Each event is then posted to a
// filter that knows no such Trigger, and each publisher gets a failure. Knative removes such a
// subscriber at once. But when several Triggers are deleted at a time, it writes the list of
// subscribers as it was before another one was removed, and nobody looks at it again. It lets
// nobody else change the list: docs/decisions/1211-one-trigger-and-the-roster.md.
func (h *health) refuses(ctx context.Context, known, channel *k8sutil.Collection) error {
	left, err := h.leftovers(ctx, known, channel)
	if err != nil {
		return err
	}
	if h.lasts(&h.leftSince, len(left) > 0) {
		return Refuses(fmt.Sprintf("Channel %s/%s has a subscriber for Trigger %s, which is deleted: Knative refuses each event because of it, and only a new Broker helps. A switch makes one",
			h.triggers.namespace, h.channel, left[0]))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refused() {
		return Refuses("the mesh takes no event of the controller: " + h.refusal + ". NATS can carry them")
	}
	return nil
}

// refused tells whether several tries have failed, for longer than a restart of Knative takes.
func (h *health) refused() bool { return h.refusal != "" && time.Since(h.refusedSince) >= 2*h.every }

// drops tells whether the Channel has lost the subscriber of a Trigger: it accepts events, and
// nobody gets them.
func (h *health) drops(channel *k8sutil.Collection, trigger *unstructured.Unstructured) bool {
	lost := false
	if is := h.read(channel); is != nil {
		lost = !slices.ContainsFunc(subscribers(is), func(one any) bool {
			_, uid, ok := triggerOf(h.triggers.namespace, one)
			return ok && uid == trigger.GetUID()
		})
	}
	h.mu.Lock()
	if h.lost != trigger.GetUID() {
		h.lost, h.lostSince = trigger.GetUID(), time.Time{}
	}
	h.mu.Unlock()
	return h.lasts(&h.lostSince, lost)
}

// lasts is told whether something is so of the Channel, and tells whether it has been for the whole
// time that Knative has. When that time is over, it is looked at again.
func (h *health) lasts(since *time.Time, is bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !is:
		*since = time.Time{}
	case since.IsZero():
		*since = time.Now()
		time.AfterFunc(h.every, h.changed)
	}
	return is && time.Since(*since) >= h.every
}

// tried is told whether the mesh has taken an event, nil if it has. Of several reasons the first
// one counts: each text of its own would be a write of each Subscription.
func (h *health) tried(err error) {
	h.mu.Lock()
	before := h.refused()
	switch {
	case err == nil:
		h.refusal, h.refusedSince = "", time.Time{}
	case h.refusal == "":
		h.refusal, h.refusedSince = err.Error(), time.Now()
	}
	after := h.refused()
	h.mu.Unlock()
	if before || after {
		h.changed()
	}
}

// read is the Channel, nil if it is not known.
func (h *health) read(channel *k8sutil.Collection) *unstructured.Unstructured {
	if channel == nil {
		return nil
	}
	return channel.Get(h.triggers.namespace, h.channel)
}

func subscribers(channel *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedSlice(channel.Object, "spec", "subscribers")
	return all
}

// leftovers are the Triggers that are gone while the Channel has a subscriber for them.
func (h *health) leftovers(ctx context.Context, known, channel *k8sutil.Collection) (left []string, err error) {
	is := h.read(channel)
	if is == nil {
		return nil, nil
	}
	for _, one := range subscribers(is) {
		name, uid, ok := triggerOf(h.triggers.namespace, one)
		if !ok {
			continue
		}
		gone, err := h.gone(ctx, known, name, uid)
		if err != nil {
			return nil, err
		}
		if gone {
			left = append(left, name)
		}
	}
	slices.Sort(left) // each text of its own would be a write of each Subscription
	return left, nil
}

// gone tells whether there is no such Trigger any more.
func (h *health) gone(ctx context.Context, known *k8sutil.Collection, name string, uid types.UID) (bool, error) {
	if u := known.Get(h.triggers.namespace, name); u != nil && u.GetUID() == uid {
		return false, nil
	}
	u, err := h.triggers.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot read Trigger %s/%s: %w", h.triggers.namespace, name, err)
	}
	return u.GetUID() != uid, nil
}

// triggerOf reads which Trigger of a namespace a subscriber of a Channel is for. Knative posts to
// its filter for it, at /triggers/<namespace>/<name>/<UID>.
func triggerOf(namespace string, subscriber any) (name string, uid types.UID, ok bool) {
	s, _ := subscriber.(map[string]any)
	uri, _ := s["subscriberUri"].(string)
	u, err := url.Parse(uri)
	if err != nil {
		return "", "", false
	}
	parts := strings.Split(u.Path, "/")
	if len(parts) != 5 || parts[0] != "" || parts[1] != "triggers" || parts[2] != namespace || parts[3] == "" || parts[4] == "" {
		return "", "", false
	}
	return parts[3], types.UID(parts[4]), true
}
