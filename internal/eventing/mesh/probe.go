package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/kyma"
)

const (
	// probeTimeout is how long the answer to a probe may take: as long as that to any event.
	probeTimeout = 40 * time.Second
	// firstProbe and lastProbe are the pauses after a probe that has not arrived.
	firstProbe = 100 * time.Millisecond
	lastProbe  = 5 * time.Second
	// mostMissed is after how many probes in a row that have not arrived there is a pause.
	mostMissed = 2
	// watchDelay is how long the watch may take to tell of a Trigger that was reached.
	watchDelay = 200 * time.Millisecond
	// anySource is the source of a probe for Triggers that take any.
	anySource = "/probe"
	// reachedAnnotation has the UID of the Trigger once a probe has come through it.
	reachedAnnotation = "eventing.kyma-project.io/reached"
)

// probe is which Triggers a probe is for.
type probe struct{ eventType, source string }

func probeOf(trigger *unstructured.Unstructured) probe {
	attributes, _ := kyma.FilterOf(trigger)
	return probe{attributes[kyma.TypeAttribute], attributes[kyma.SourceAttribute]}
}

func reached(trigger *unstructured.Unstructured) bool {
	return trigger.GetAnnotations()[reachedAnnotation] == string(trigger.GetUID())
}

// ask lets probes be posted until those Triggers are reached that Knative says are ready. It returns at once.
func (t *Triggers) ask(in *k8sutil.Collection, p probe, b Broker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != in {
		return
	}
	t.asked[p] = b
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// probes posts one probe after the other until ctx ends. The Channel takes over all of its subscribers at once, so while one Trigger is not reached the
// others are left alone: a probe goes to the filter of every Trigger, and many would keep Knative from its work.
func (t *Triggers) probes(ctx context.Context, in *k8sutil.Collection) {
	first, pause := 0, firstProbe
	for ctx.Err() == nil {
		all := t.waiting(in)
		if len(all) == 0 {
			select {
			case <-t.wake:
			case <-ctx.Done():
			}
			continue
		}
		progress := false
		for missed := 0; missed < mostMissed && len(all) > 0; {
			first %= len(all)
			p := all[first]
			if t.reaches(ctx, in, p) {
				progress, missed = true, 0
				all = slices.Delete(all, first, first+1)
				continue
			}
			missed, first = missed+1, first+1 // the next one has its turn: this one may never be reached
		}
		if progress {
			pause = firstProbe
			continue
		}
		if k8sutil.Sleep(ctx, pause) != nil {
			return
		}
		pause = min(2*pause, lastProbe)
	}
}

// waiting are the probes that are still needed, in an order.
func (t *Triggers) waiting(in *k8sutil.Collection) []probe {
	t.mu.Lock()
	asked := maps.Clone(t.asked)
	t.mu.Unlock()
	var all []probe
	for p, b := range asked {
		if t.waits(in, p, b) {
			all = append(all, p)
			continue
		}
		t.mu.Lock()
		if t.known == in && t.asked[p] == b {
			delete(t.asked, p)
		}
		t.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b probe) int {
		return cmp.Or(cmp.Compare(a.eventType, b.eventType), cmp.Compare(a.source, b.source))
	})
	return all
}

// reaches posts one probe, and tells whether it has come through. Who gets it writes that before the Broker answers; the watch is a little later.
func (t *Triggers) reaches(ctx context.Context, in *k8sutil.Collection, p probe) bool {
	t.mu.Lock()
	b, known := t.asked[p]
	t.mu.Unlock()
	if !known {
		return true // the Triggers are not followed any more
	}
	if err := t.post(ctx, p, b); err != nil {
		t.log.Info("an event of the controller does not come through the mesh yet", zap.String("type", p.eventType), zap.Error(err))
		return false
	}
	for range 10 {
		if !t.waits(in, p, b) {
			return true
		}
		if k8sutil.Sleep(ctx, watchDelay/10) != nil {
			return false
		}
	}
	return false
}

// waits tells whether there is a Trigger for the Broker that Knative says is ready, and that was not reached.
func (t *Triggers) waits(in *k8sutil.Collection, p probe, b Broker) bool {
	for _, u := range in.All() {
		if probeOf(u) == p && u.GetAnnotations()[brokerAnnotation] == string(b.UID) && kyma.ReadinessOf(u).OK() && !reached(u) {
			return true
		}
	}
	return false
}

// post posts a probe to the Broker. It reaches no sink: see backend.ProbeAttribute.
func (t *Triggers) post(ctx context.Context, p probe, b Broker) error {
	to, err := url.Parse(b.URL)
	if err != nil {
		return err
	}
	if p.source == "" {
		p.source = anySource
	}
	status, _, err := t.poster.Post(ctx, to, http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"probe-" + uuid.NewString()}, "Ce-Source": {p.source}, "Ce-Type": {p.eventType}, http.CanonicalHeaderKey("ce-" + backend.ProbeAttribute): {"true"},
	}, nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the Broker answers %d", status)
	}
	return err
}

// Reached notes that a probe has come through a Trigger of a Subscription. Any process may be the one that gets it.
func (t *Triggers) Reached(ctx context.Context, s *eventingv1alpha2.Subscription, eventType string) error {
	name := backend.TriggerName(string(s.UID), s.Spec.Source, s.Spec.TypeMatching == eventingv1alpha2.Exact, eventType)
	u, err := t.probed.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // that of a former spec
	case err != nil:
		return fmt.Errorf("cannot read Trigger %s/%s: %w", t.namespace, name, err)
	case reached(u):
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID(), "annotations": map[string]string{reachedAnnotation: string(u.GetUID())}}})
	if err != nil {
		return err
	}
	if _, err := t.probed.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("cannot mark Trigger %s/%s: %w", t.namespace, name, err)
	}
	return nil
}
