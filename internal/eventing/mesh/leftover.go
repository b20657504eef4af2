package mesh

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

// channels is the kind of Channels with which an accepted event was delivered. Of another kind,
// nothing is read.
var channels = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1", Resource: "inmemorychannels"}

const (
	// leftLimit is how long Knative has to remove a subscriber whose Trigger is gone.
	leftLimit = 10 * time.Second
	// channelAgain is how long after a Channel could not be read it is tried again.
	channelAgain = time.Minute
)

// followChannel reads the Channel of the Broker, and watches it until Leave. Its kind may be served
// later than that of the Trigger, or never.
func (t *Trigger) followChannel(ctx context.Context) {
	if t.channel != nil || time.Since(t.channelAsked) < channelAgain {
		return
	}
	t.channelAsked = time.Now()
	one := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", t.names.BrokerChannel()).String()}
	known := k8sutil.NewCollection(t.channels, one, nil, k8sutil.Retrying(readBudget, func(err error) { t.log.Warn("cannot read the Channel of the Broker, retrying", zap.Error(err)) }))
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

// refuses tells whether the Channel still has a subscriber of a Trigger that is gone, as Refuses.
// Each event is then posted to a filter that knows no such Trigger, and each publisher gets a
// failure. Knative removes such a subscriber at once. But when several Triggers are deleted at a
// time, it writes the list of subscribers as it was before another one was removed, and nobody
// looks at it again. It lets nobody else change the list:
// docs/decisions/1211-one-trigger-and-the-roster.md.
func (t *Trigger) refuses(ctx context.Context, known, channel *k8sutil.Collection) error {
	left, err := t.leftovers(ctx, known, channel)
	if err != nil {
		return err
	}
	if wait := t.noteLeft(len(left) > 0); len(left) == 0 || wait > 0 {
		return nil
	}
	return Refuses(fmt.Sprintf("Channel %s/%s has a subscriber for Trigger %s, which is deleted: Knative refuses each event because of it, and only a new Broker helps",
		t.namespace, t.names.BrokerChannel(), left[0]))
}

// noteLeft is told whether there are leftovers, and returns how long Knative still has to remove
// them. When that time is over, this is looked at again.
func (t *Trigger) noteLeft(is bool) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !is:
		t.leftSince = time.Time{}
	case t.leftSince.IsZero():
		t.leftSince = time.Now()
		time.AfterFunc(leftLimit, t.changed)
	}
	return time.Until(t.leftSince.Add(leftLimit))
}

// leftovers are the Triggers that are gone while the Channel has a subscriber for them.
func (t *Trigger) leftovers(ctx context.Context, known, channel *k8sutil.Collection) (left []string, err error) {
	if channel == nil {
		return nil, nil
	}
	is := channel.Get(t.namespace, t.names.BrokerChannel())
	if is == nil {
		return nil, nil
	}
	subscribers, _, _ := unstructured.NestedSlice(is.Object, "spec", "subscribers")
	for _, one := range subscribers {
		name, uid, ok := triggerOf(t.namespace, one)
		if !ok {
			continue
		}
		gone, err := t.gone(ctx, known, name, uid)
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
func (t *Trigger) gone(ctx context.Context, known *k8sutil.Collection, name string, uid types.UID) (bool, error) {
	if u := known.Get(t.namespace, name); u != nil && u.GetUID() == uid {
		return false, nil
	}
	u, err := t.triggers.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("cannot read Trigger %s/%s: %w", t.namespace, name, err)
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
