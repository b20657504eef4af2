package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
)

const (
	// firstProbe and lastProbe are the pauses after probes that have not arrived, and noteLimit is
	// how long a process tries to write that one has.
	firstProbe = 100 * time.Millisecond
	lastProbe  = 2 * time.Second
	noteLimit  = time.Minute
	// probeSource and probeType are of a probe. Nobody subscribes to it: what counts is the
	// attribute, which had this value for the Triggers of an earlier version, too.
	probeSource    = "/probe"
	probeType      = "io.kyma-project.eventing.probe"
	probeAttribute = "all"
)

// ask lets probes be posted until the Trigger of a Broker is reached, and from time to time after
// that. It returns at once.
func (t *Trigger) ask(in *k8sutil.Collection, b Broker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known != in {
		return
	}
	if t.asked != b {
		t.health.tried(nil)
	}
	t.asked = b
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// probes posts probes until ctx ends, one after the other.
func (t *Trigger) probes(ctx context.Context, in *k8sutil.Collection) {
	pause, tried := firstProbe, time.Now()
	for ctx.Err() == nil {
		t.mu.Lock()
		b := t.asked
		t.mu.Unlock()
		if t.waits(in, b) {
			if err := t.post(ctx, b); err != nil {
				t.log.Info("an event of the controller does not come through the mesh yet", zap.Error(err))
			}
			if k8sutil.Sleep(ctx, pause) != nil {
				return
			}
			pause, tried = min(2*pause, lastProbe), time.Now()
			continue
		}
		pause = firstProbe
		if b.URL == "" { // nothing was asked for yet
			tried = time.Now()
		}
		if time.Since(tried) >= t.health.every {
			err := t.post(ctx, b)
			if tried = time.Now(); ctx.Err() == nil {
				t.health.tried(err)
			}
		}
		select {
		case <-t.wake:
		case <-time.After(t.health.every - time.Since(tried)):
		case <-ctx.Done():
		}
	}
}

// waits tells whether Knative says that the Trigger of a Broker is ready, and no probe has come
// through it.
func (t *Trigger) waits(in *k8sutil.Collection, b Broker) bool {
	for _, name := range t.names.Triggers() {
		if u := in.Get(t.namespace, name); u != nil && t.does(u, b) && k8sobject.ReadinessOf(u).OK() && !reached(u) {
			return true
		}
	}
	return false
}

// post posts a probe to the Broker. It reaches no sink: see backend.ProbeAttribute.
func (t *Trigger) post(ctx context.Context, b Broker) error {
	to, err := url.Parse(b.URL)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	status, _, err := t.poster.Post(ctx, to, http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"probe-" + uuid.NewString()}, "Ce-Source": {probeSource}, "Ce-Type": {probeType}, http.CanonicalHeaderKey("ce-" + backend.ProbeAttribute): {probeAttribute},
	}, nil)
	if err == nil && status/100 != 2 {
		err = fmt.Errorf("the Broker answers %d", status)
	}
	return err
}

// Reached is told that a probe has come through the Trigger of a creation. Any process may be the
// one that gets it. It returns at once.
func (t *Trigger) Reached(ctx context.Context, creation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// It may be noted again: somebody may have removed that.
	if creation == "" || t.noting == creation || t.noted == creation && time.Since(t.notedAt) < noteLimit {
		return
	}
	t.noting = creation
	go func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteLimit)
		defer cancel()
		err := t.note(limited, creation)
		if err != nil {
			t.log.Warn("cannot note that an event has come through the Trigger: another one is posted", zap.Error(err))
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.noting == creation {
			t.noting = ""
		}
		if err == nil {
			t.noted, t.notedAt = creation, time.Now()
		}
	}()
}

// note writes into the Trigger that a probe has come through it. One that was created again since
// is another one: this process may have been paused, and the probe has come through the former one.
func (t *Trigger) note(ctx context.Context, creation string) error {
	var u *unstructured.Unstructured
	for _, name := range t.names.Triggers() {
		is, err := t.probed.Get(ctx, name, metav1.GetOptions{})
		if ignoreNotFound(err) != nil {
			return err
		}
		if err == nil && creationOf(is) == creation {
			u = is
		}
	}
	if u == nil || reached(u) {
		return nil
	}
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
