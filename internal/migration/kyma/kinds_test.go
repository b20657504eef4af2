package kyma

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
)

func TestComponent(t *testing.T) {
	for _, gk := range []schema.GroupKind{
		Application, ApplicationMapping, EventActivation, Subscription, HTTPSource, Channel, ChannelSubscription,
		knative.Broker, knative.Trigger, Service, ServiceInstance, ServiceClass, ServicePlan, ServiceBroker, ServiceBinding, ServiceBindingUsage,
	} {
		if Component(gk) == "" {
			t.Errorf("Component(%s) is unknown: whoever lacks the kind must be told what to install", gk)
		}
	}
	if got := Component(schema.GroupKind{Kind: "Pod"}); got != "" {
		t.Errorf("Component(Pod) = %q, want none: no component installs it", got)
	}
}

func TestSystemNamespaces(t *testing.T) {
	SystemNamespaces()[0] = "overwritten"
	if got := SystemNamespaces()[0]; got == "overwritten" {
		t.Error("a caller can change the list for all others")
	}
}
