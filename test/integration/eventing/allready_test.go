package eventing_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// TestAllReadyAtOnce: the controller tells the operator once that all Subscriptions are ready in a
// new epoch, and only then writes it into the status of each. One that has no consumer holds that
// up, and an invalid one does not.
func TestAllReadyAtOnce(t *testing.T) {
	const count = 60
	r := newRig(t, true)
	r.controller("pod-1")
	name := func(i int) string { return fmt.Sprintf("s%02d", i) }
	for i := range count {
		r.subscribe(name(i), fmt.Sprintf("a.b%d", i), "")
	}
	r.subscribe("invalid", "a.b", "")
	for i := range count {
		r.await(name(i), "ready", ready)
	}
	r.patch("invalid", fmt.Sprintf(`{"spec": {"sink": %q}}`, r.sinks.URL("invalid", "default")))
	r.await("invalid", "invalid", func(s *eventingv1alpha2.Subscription) string {
		return condition(s, eventingv1alpha2.ConditionSpecValid, eventingv1alpha2.ReasonSpecInvalid)
	})
	told := func(epoch string) (version string) {
		t.Helper()
		poll.Until(t, limit, "all are ready on NATS in epoch "+epoch, func(context.Context) error {
			state := r.followed(t, "pod-1")
			if version = state.Ready[operatorv1alpha1.NATS]; version == "" || state.Epoch != epoch {
				return fmt.Errorf("%+v", state)
			}
			return nil
		})
		return version
	}

	epoch := r.serve()
	version := told(epoch)
	// Versions of all kinds are those of etcd.
	config, err := r.client.Resource(configMaps).Namespace(r.control).Get(t.Context(), backend.Names(backend.DefaultPrefix).ControllerState(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.client.Resource(subscriptions).Namespace(r.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	state := backend.ControllerState{Epoch: epoch, ObservedServing: backend.Set{operatorv1alpha1.NATS}, Ready: backend.Versions{operatorv1alpha1.NATS: version}}
	contract := backend.Backends{Epoch: epoch, Serving: state.ObservedServing}
	early := 0
	for _, u := range list.Items {
		s, err := r.get(t.Context(), u.GetName())
		if err != nil {
			t.Fatal(err)
		}
		said := len(s.Status.Backends) == 1 && s.Status.Backends[0].Epoch == epoch && s.Status.Backends[0].Ready
		if said && k8sutil.IsBefore(s.ResourceVersion, config.GetResourceVersion()) {
			early++
		}
		if u.GetName() != "invalid" && !said && !state.AllReady(contract, operatorv1alpha1.NATS, s.ResourceVersion) {
			t.Errorf("Subscription %s of version %s is not ready, by its status or by what was said of all up to %s", u.GetName(), s.ResourceVersion, version)
		}
		if _, err := r.consumer(t.Context(), u.GetName()); err != nil {
			t.Errorf("Subscription %s has no consumer: %v", u.GetName(), err)
		}
	}
	if early > 0 {
		t.Errorf("%d of %d statuses were written before the operator was told", early, count)
	}
	for i := range count {
		r.await(name(i), "ready in the new epoch", func(s *eventingv1alpha2.Subscription) string {
			if wrong := ready(s); wrong != "" || s.Status.Backends[0].Epoch != epoch {
				return "another epoch than " + epoch
			}
			return ""
		})
	}

	// Without a stream no consumer is there, whatever was said before.
	if err := r.manager.DeleteStream(t.Context(), backend.Stream); err != nil {
		t.Fatal(err)
	}
	epoch = r.serve()
	for i := range count {
		r.await(name(i), "not ready without a stream", func(s *eventingv1alpha2.Subscription) string {
			if s.Status.Ready {
				return "it is ready"
			}
			return ""
		})
	}
	if state := r.followed(t, "pod-1"); len(state.Ready) > 0 {
		t.Errorf("without a stream all are ready up to %s", state.Ready)
	}
	r.createStream(true)
	told(epoch)
}
