package standin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// errWebhookDown is what the API server answers while the webhook of Knative
// Eventing cannot be reached.
var errWebhookDown = apierrors.NewInternalError(errors.New(`failed calling webhook "webhook.eventing.knative.dev": ` +
	`Post https://eventing-webhook.knative-eventing.svc:443/?timeout=30s: no endpoints available for service "eventing-webhook"`))

// reconcile looks at the HTTPSource, Channel and Knative Service of one name,
// whatever of them exists, and takes each as far as the faults allow. The three
// are one unit of work, so that an HTTPSource is ready after five writes; in
// the real cluster, three controllers take turns and write the states between
// as well.
func (c *Controllers) reconcile(ctx context.Context, key string) error {
	_, app := splitKey(key)
	src := c.sources.get(key)
	if src != nil && (src.GetDeletionTimestamp() != nil || c.sourceControllerDown(app)) {
		src = nil
	}

	// An error here ends the HTTPSource controller's turn before it has written
	// any status; Knative's controllers do not care.
	src, err := c.confirm(ctx, key, src)
	if src != nil && err == nil {
		err = c.sink(ctx, key, src)
	}
	fail := func(e error) { err = errors.Join(err, e) }

	fail(c.eventing(ctx, key))
	// The real controller holds the Channel that it got or created throughout
	// its turn. One that went meanwhile belongs to the next turn, which its
	// deletion has asked for: no status may tell of it before.
	ch := c.channels.get(key)
	if ch == nil {
		src = nil
	}
	if src != nil && err == nil {
		fail(c.adapter(ctx, key, src, address(ch)))
	}
	fail(c.serving(ctx, key))
	if src != nil && err == nil && c.kyma111 {
		fail(c.policy(ctx, key, src))
	}
	if src != nil && err == nil {
		fail(c.status(ctx, key, address(ch)))
	}
	return err
}

// confirm returns nil for an HTTPSource that is gone although its deletion has
// not been seen yet: each kind has a watch of its own, and the deletion of a
// Channel may overtake it. The real controller does not look again, but a
// test's clean-up must not be answered by a new Channel.
func (c *Controllers) confirm(ctx context.Context, key string, src *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if src == nil || c.channels.get(key) != nil && c.services.get(key) != nil || len(conditionsOf(src)) == 0 {
		return src, nil
	}
	live, err := c.sources.resource.Namespace(src.GetNamespace()).Get(ctx, src.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && live.GetUID() != src.GetUID() {
		return nil, nil
	}
	return src, err
}

func (c *Controllers) sourceControllerDown(app string) bool {
	return c.faults.has(ControllerDown, app) || c.faults.hasActed(StatusLies, app)
}

// sink gets or creates the Channel by name alone: one that somebody else made, or
// edited, is replaced if its labels or annotations differ, else taken as it is. What
// replaces it lists no subscribers until Knative does.
func (c *Controllers) sink(ctx context.Context, key string, src *unstructured.Unstructured) error {
	want := c.newChannel(src)
	got := c.channels.get(key)
	if got != nil && maps.Equal(got.GetLabels(), want.GetLabels()) && len(ownAnnotations(got)) == 0 {
		return nil
	}
	if c.faults.has(ChannelRefused, src.GetName()) {
		return fmt.Errorf("cannot write Channel %s: %w", key, errWebhookDown)
	}
	if got == nil {
		return c.channels.create(ctx, want)
	}
	want.SetResourceVersion(got.GetResourceVersion())
	return c.channels.update(ctx, want)
}

// eventing is Knative Eventing's part: the Channel gets an address and becomes
// ready.
func (c *Controllers) eventing(ctx context.Context, key string) error {
	ch := c.channels.get(key)
	if ch == nil || ch.GetDeletionTimestamp() != nil || c.realKnative {
		return nil
	}
	app := ch.GetName()
	conds := conditionsOf(ch)
	conds.initialize("Addressable", "BackingChannelReady", "Ready")
	status := map[string]any{}
	// Up to 0.13, Knative does not say which generation of a Channel it has seen.
	if c.channels.gvk.Version != "v1alpha1" {
		status["observedGeneration"] = ch.GetGeneration()
	}

	switch {
	case c.faults.has(NoAddress, app) || c.tooEarly(ch, slow):
		conds.mark("Addressable", "False", "emptyAddress", "address is not set")
		conds.mark("BackingChannelReady", "True", "", "")
	default:
		host := ch.GetName() + "-kn-channel." + ch.GetNamespace() + ".svc.cluster.local"
		status["address"] = map[string]any{"url": "http://" + host, "hostname": host}
		conds.mark("Addressable", "True", "", "")
		switch {
		case c.faults.has(ChannelNeverReady, app):
			conds.mark("BackingChannelReady", "False", "ChannelNotReady", "the status of the backing Channel is False: "+
				"cannot connect to NATS Streaming")
		// While this lie is prepared, not even for a moment may all be ready.
		case c.faults.has(StatusLies, app) && !isReady(ch):
		default:
			conds.mark("BackingChannelReady", "True", "", "")
		}
	}
	conds.summarize("BackingChannelReady", "Addressable")
	status["conditions"] = conds.list()
	return c.channels.setStatus(ctx, ch, status)
}

// adapter gets, creates or corrects the Knative Service, once there is a Channel
// with an address.
func (c *Controllers) adapter(ctx context.Context, key string, src *unstructured.Unstructured, url string) error {
	if url == "" {
		return nil
	}
	want := c.newService(src, url)
	got := c.services.get(key)
	if got == nil {
		return c.services.create(ctx, want)
	}
	if maps.Equal(got.GetLabels(), want.GetLabels()) && len(ownAnnotations(got)) == 0 &&
		equality.Semantic.DeepEqual(adapterTemplate(got), adapterTemplate(want)) {
		return nil
	}
	want.SetResourceVersion(got.GetResourceVersion())
	return c.services.update(ctx, want)
}

// policy makes the Policy of the newest revision; those of former ones stay.
func (c *Controllers) policy(ctx context.Context, key string, src *unstructured.Unstructured) error {
	svc := c.services.get(key)
	if svc == nil || text(svc, "status", "latestCreatedRevisionName") == "" {
		return nil
	}
	want := c.adapterPolicy(src, text(svc, "status", "latestCreatedRevisionName"))
	policies := c.client.Resource(Policies).Namespace(want.GetNamespace())
	got, err := policies.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = policies.Create(ctx, want, metav1.CreateOptions{})
	case err == nil && !(maps.Equal(got.GetLabels(), want.GetLabels()) && equality.Semantic.DeepEqual(got.Object["spec"], want.Object["spec"])):
		want.SetResourceVersion(got.GetResourceVersion())
		_, err = policies.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("cannot write Policy %s: %w", keyOf(want), err)
	}
	return nil
}

// serving is Knative Serving's part: a revision of the adapter becomes ready.
func (c *Controllers) serving(ctx context.Context, key string) error {
	svc := c.services.get(key)
	if svc == nil || svc.GetDeletionTimestamp() != nil {
		return nil
	}
	app := svc.GetName()
	revision := fmt.Sprintf("%s-%05d", app, svc.GetGeneration())
	host := svc.GetName() + "." + svc.GetNamespace() + ".svc.cluster.local"
	conds := conditionsOf(svc)
	conds.initialize("ConfigurationsReady", "Ready", "RoutesReady")
	status := map[string]any{
		"observedGeneration":        svc.GetGeneration(),
		"latestCreatedRevisionName": revision,
		"url":                       "http://" + host,
		"address":                   map[string]any{"url": "http://" + host},
	}
	if ready, ok, _ := unstructured.NestedString(svc.Object, "status", "latestReadyRevisionName"); ok {
		status["latestReadyRevisionName"] = ready
	}

	switch {
	case c.faults.has(AdapterNeverReady, app):
		conds.mark("ConfigurationsReady", "False", "RevisionFailed", fmt.Sprintf(
			"Revision %q failed with message: Unable to fetch image: failed to resolve image to digest.", revision))
		conds.mark("RoutesReady", "Unknown", "RevisionMissing", fmt.Sprintf("Configuration %q does not have any ready Revision.", app))
	case c.tooEarly(svc, adapterNotReadyYet) || c.tooEarly(svc, slow):
		conds.mark("ConfigurationsReady", "Unknown", "", "")
		conds.mark("RoutesReady", "Unknown", "RevisionMissing", fmt.Sprintf("Configuration %q is waiting for a Revision to become ready.", app))
	default:
		status["latestReadyRevisionName"] = revision
		conds.mark("ConfigurationsReady", "True", "", "")
		conds.mark("RoutesReady", "True", "", "")
	}
	conds.summarize("RoutesReady", "ConfigurationsReady")
	status["conditions"] = conds.list()
	return c.services.setStatus(ctx, svc, status)
}

// status writes what the HTTPSource controller makes of it all. It never sets
// observedGeneration, spells SinkURI with a capital letter because its Go field
// has no JSON tag, and leaves Deployed as it was while there is no sink.
func (c *Controllers) status(ctx context.Context, key, url string) error {
	src := c.sources.get(key)
	if src == nil {
		return nil
	}
	conds := conditionsOf(src)
	conds.initialize("Deployed", "Ready", "SinkProvided")
	svc := c.services.get(key)
	switch {
	case url == "":
		conds.mark("SinkProvided", "False", "SinkNotFound", "The sink does not exist or its URL is not set")
	case isReady(svc):
		conds.mark("SinkProvided", "True", "", "")
		conds.mark("Deployed", "True", "", "")
	default:
		conds.mark("SinkProvided", "True", "", "")
		message := "The adapter Service is not yet ready"
		if svc != nil && conditionsOf(svc)["Ready"].message != "" {
			message += ": " + conditionsOf(svc)["Ready"].message
		}
		conds.mark("Deployed", "False", "ServiceNotReady", message)
	}
	conds.summarize("SinkProvided", "Deployed")
	if c.kyma111 {
		// It has no part in Ready.
		conds.inform("PolicyCreated", "False", "PolicyNotCreated", "The Istio policy is not created")
		if svc != nil && text(svc, "status", "latestCreatedRevisionName") != "" {
			conds.inform("PolicyCreated", "True", "", "")
		}
	}
	status := map[string]any{"SinkURI": url, "conditions": conds.list()}
	ready := conds["Ready"].status == "True"

	if ready && c.faults.has(StatusLies, src.GetName()) {
		if err := c.deleteChannel(ctx, key); err != nil {
			return err
		}
	}
	if err := c.sources.setStatus(ctx, src, status); err != nil {
		return err
	}
	if ready && c.faults.has(StatusLies, src.GetName()) {
		c.faults.act(StatusLies, src.GetName())
	}
	if ready && c.faults.has(DeleteChannelOnce, src.GetName()) && !c.faults.hasActed(DeleteChannelOnce, src.GetName()) {
		c.faults.act(DeleteChannelOnce, src.GetName())
		return c.deleteChannel(ctx, key)
	}
	return nil
}

func (c *Controllers) deleteChannel(ctx context.Context, key string) error {
	namespace, name := splitKey(key)
	err := c.channels.resource.Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete Channel %s: %w", key, err)
	}
	return nil
}

// tooEarly says whether the fault holds the object back still, and if so has it
// looked at again in time. The delay counts from when the stand-in first saw
// the object: creationTimestamp has full seconds only.
func (c *Controllers) tooEarly(u *unstructured.Unstructured, kind string) bool {
	delay, on := c.faults.on(kind, u.GetName())
	if !on {
		return false
	}
	first, _ := c.firstSeen.LoadOrStore(u.GetUID(), time.Now())
	left := delay - time.Since(first.(time.Time))
	if left <= 0 {
		return false
	}
	c.queue.AddAfter(keyOf(u), left)
	return true
}
