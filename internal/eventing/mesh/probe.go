package mesh

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
)

const (
	// firstProbe and lastProbe are the pauses after probes that have not arrived. A pause is also
	// at least pauseShare times as long as the probes took: a probe goes to the filter of every
	// Trigger, and Knative has other work meanwhile.
	firstProbe = 100 * time.Millisecond
	lastProbe  = 2 * time.Second
	pauseShare = 3
	// mostAlone is how many Triggers are probed alone between two pauses, and aloneAfter after how
	// many fruitless probes of all that is tried with a Trigger whose filter lets them through: a
	// Knative that does not know such filters uses the one beside it.
	mostAlone  = 2
	aloneAfter = 4
	// gather is how long a process waits for more Triggers that the same probe comes through, and
	// noteLimit how long it tries to write that.
	gather    = 50 * time.Millisecond
	noteLimit = time.Minute
	// writers is how many Triggers are written at a time.
	writers = 8
	// anySource is the source of a probe for Triggers that take any.
	anySource = "/probe"
	// everyTrigger and oneTrigger are values of backend.ProbeAttribute. The filters of most
	// Triggers let the first one through.
	everyTrigger, oneTrigger = "all", "true"
	// everyType is the type of a probe for all Triggers. Nobody subscribes to it: what counts is
	// the attribute.
	everyType = "io.kyma-project.eventing.probe"
	// reachedAnnotation has the UID of the Trigger once a probe has come through it.
	reachedAnnotation = "eventing.kyma-project.io/reached"
)

// probe is an event of the controller's own: for all Triggers, or for those of a type and a source.
type probe struct{ attribute, eventType, source string }

var probeOfAll = probe{everyTrigger, everyType, ""}

func probeOf(trigger *unstructured.Unstructured) probe {
	attributes := attributesOf(trigger)
	return probe{oneTrigger, attributes[knative.TypeAttribute], attributes[knative.SourceAttribute]}
}

func reached(trigger *unstructured.Unstructured) bool {
	return trigger.GetAnnotations()[reachedAnnotation] == string(trigger.GetUID())
}

// ask lets probes be posted until the Triggers of a Broker are reached of which Knative says that
// they are ready. It returns at once.
func (t *Triggers) ask(in *k8sutil.Collection, b Broker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != in {
		return
	}
	t.asked = b
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// probes posts probes until ctx ends, one after the other.
func (t *Triggers) probes(ctx context.Context, in *k8sutil.Collection) {
	turn, fruitless, pause := 0, 0, firstProbe
	for ctx.Err() == nil {
		t.mu.Lock()
		b := t.asked
		t.mu.Unlock()
		before := waiting(in, b)
		if len(before) == 0 {
			fruitless, pause = 0, firstProbe
			select {
			case <-t.wake:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		for _, p := range next(before, turn, fruitless) {
			if err := t.post(ctx, p, b); err != nil {
				t.log.Info("an event of the controller does not come through the mesh yet", zap.String("type", p.eventType), zap.Error(err))
			}
		}
		turn += mostAlone // others have their turn: one of them may never be reached
		if k8sutil.Sleep(ctx, max(pause, pauseShare*time.Since(began))) != nil {
			return
		}
		left := waiting(in, b)
		if progress := slices.ContainsFunc(before, func(w awaited) bool { return !slices.Contains(left, w) }); progress {
			fruitless, pause = 0, firstProbe
		} else {
			fruitless, pause = fruitless+1, min(2*pause, lastProbe)
		}
	}
}

// awaited is a Trigger that no probe has come through yet.
type awaited struct {
	uid   types.UID
	alone probe
	wide  bool // its filter lets the probe of all through
}

// waiting are the Triggers of a Broker of which Knative says that they are ready, and that were not
// reached, in an order.
func waiting(in *k8sutil.Collection, b Broker) (all []awaited) {
	in.Each(func(u *unstructured.Unstructured) {
		if u.GetAnnotations()[brokerAnnotation] == string(b.UID) && u.GetDeletionTimestamp() == nil && k8sobject.ReadinessOf(u).OK() && !reached(u) {
			all = append(all, awaited{u.GetUID(), probeOf(u), wide(u)})
		}
	})
	slices.SortFunc(all, func(a, b awaited) int { return cmp.Compare(a.uid, b.uid) })
	return all
}

// next are the probes that come now: one for all Triggers whose filters let it through, and a few
// for others.
func next(all []awaited, turn, fruitless int) (probes []probe) {
	alone := slices.DeleteFunc(slices.Clone(all), func(w awaited) bool { return w.wide })
	if len(alone) < len(all) {
		probes = append(probes, probeOfAll)
		if fruitless%aloneAfter == aloneAfter-1 {
			alone = all
		}
	}
	for i := range min(mostAlone, len(alone)) {
		probes = append(probes, alone[(turn+i)%len(alone)].alone)
	}
	return probes
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
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"probe-" + uuid.NewString()}, "Ce-Source": {p.source}, "Ce-Type": {p.eventType}, http.CanonicalHeaderKey("ce-" + backend.ProbeAttribute): {p.attribute},
	}, nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the Broker answers %d", status)
	}
	return err
}

// Reached is told that a probe has come to a Subscription. Any process may be the one that gets it.
// trigger is what backend.TriggerParameter says, "" if the subscriber does not say it: then it is
// the Trigger of the type. It is written later, because a probe comes through many at once.
func (t *Triggers) Reached(ctx context.Context, s *eventingv1alpha2.Subscription, trigger, eventType string) {
	name := ""
	named, creation, _ := strings.Cut(trigger, ".")
	for _, of := range s.Spec.Types {
		_, matches := matched(s, of)
		if is := triggerName(s, of); is == named || trigger == "" && matches == eventType {
			name = is
		}
	}
	if name == "" {
		return // that of a former spec
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.arrived[name] = creation
	if !t.noting {
		t.noting = true
		go t.noteArrived(context.WithoutCancel(ctx))
	}
}

// noteArrived writes into the Triggers that a probe has come through, until no more do. They are
// read together: a probe comes through all Triggers, and most of them may have been reached before.
func (t *Triggers) noteArrived(ctx context.Context) {
	for {
		time.Sleep(gather)
		t.mu.Lock()
		arrived, known := t.arrived, t.known
		t.arrived, t.noting = map[string]string{}, len(arrived) > 0
		t.mu.Unlock()
		if len(arrived) == 0 {
			return
		}
		limited, cancel := context.WithTimeout(ctx, noteLimit)
		if err := t.noteReached(limited, known, arrived); err != nil {
			t.log.Warn("cannot note that an event has come through Triggers: another one is posted", zap.Int("triggers", len(arrived)), zap.Error(err))
		}
		cancel()
	}
}

// noteReached writes into Triggers that a probe has come through them. One that was created again
// since is another one: this process may have been paused, and the probe has come through the
// former one.
func (t *Triggers) noteReached(ctx context.Context, known *k8sutil.Collection, arrived map[string]string) error {
	if known == nil { // this process does not lead
		known = t.collection(t.probed, func(u *unstructured.Unstructured) {
			uri, _, _ := unstructured.NestedString(u.Object, "spec", "subscriber", "uri")
			u.Object["spec"] = map[string]any{"subscriber": map[string]any{"uri": uri}}
			delete(u.Object, "status")
		})
		if err := known.List(ctx); err != nil {
			return ignoreNotFound(err)
		}
	}
	var left []*unstructured.Unstructured
	for name, creation := range arrived {
		if u := known.Get(t.namespace, name); u != nil && !reached(u) {
			if _, is := uriOf(u); is == creation {
				left = append(left, u)
			}
		}
	}
	errs := make([]error, len(left))
	workqueue.ParallelizeUntil(ctx, writers, len(left), func(i int) { errs[i] = t.writeReached(ctx, left[i]) })
	return cmp.Or(errs...) // one is enough for the log
}

// writeReached writes the UID of a Trigger into it. One that was created again since has another
// UID, and is not written.
func (t *Triggers) writeReached(ctx context.Context, u *unstructured.Unstructured) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": u.GetUID(), "annotations": map[string]string{reachedAnnotation: string(u.GetUID())}}})
	if err == nil {
		_, err = t.probed.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return ignoreNotFound(err)
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
