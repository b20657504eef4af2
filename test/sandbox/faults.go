package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/node"
	"github.com/kyma-project/eventmesh-migration/test/samplecluster"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

// fault is something that break breaks.
type fault struct {
	kind, what string
	// name is that of the object if none is given; "" if the fault is of the whole cluster.
	name string
	// begin breaks it, and returns what ends it.
	begin func(s *sandbox, ctx context.Context, name string) (end func(context.Context) error, err error)
}

var faults = []fault{
	{"adapter", "the adapter of an Application cannot become ready", "feedback", controller(standin.AdapterNeverReady)},
	{"channel", "the webhook of Knative refuses the Channel of an Application", "feedback", controller(standin.ChannelRefused)},
	{"broker", "the Broker of a namespace cannot become ready", "shop", func(s *sandbox, _ context.Context, name string) (func(context.Context) error, error) {
		return s.mesh(standin.BrokerNeverReady, name+"/default"), nil
	}},
	{"trigger", "the Triggers of an Application are not ready", "crm", (*sandbox).breakTriggers},
	{"link", "the Knative Subscription of an Application is deleted: its events reach no namespace", "crm", (*sandbox).deleteLinks},
	{"event-service", "the pods of an Application's event-service crash", "billing", (*sandbox).crash},
	{"nats", "the monitoring port of NATS Streaming does not answer", "", (*sandbox).breakNATS},
	{"rights", "the account may not create HTTPSources", "", deny(
		func(r faultproxy.Request) bool { return r.Is("httpsources", "create") },
		metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: `httpsources.sources.kyma-project.io is forbidden: User "sandbox" cannot create resource "httpsources"`},
	)},
	{"login", "the account's token has expired", "", deny(
		func(faultproxy.Request) bool { return true },
		metav1.Status{Code: http.StatusUnauthorized, Reason: metav1.StatusReasonUnauthorized, Message: "Unauthorized"},
	)},
	{"webhook", "an admission webhook for Triggers does not answer", "", deny(
		func(r faultproxy.Request) bool { return r.Is("triggers") && r.Writes() },
		metav1.Status{
			Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
			Message: `Internal error occurred: failed calling webhook "webhook.eventing.knative.dev": Post https://eventing-webhook.knative-eventing.svc:443/: dial tcp 10.0.0.20:443: connect: connection refused`,
		},
	)},
	{"server", "the API server takes requests and does not answer", "", func(s *sandbox, _ context.Context, _ string) (func(context.Context) error, error) {
		hold := s.proxy.Hold(func(faultproxy.Request) bool { return true })
		return func(context.Context) error { hold.Release(); return nil }, nil
	}},
	{"network", "connections to the API server are reset", "", func(s *sandbox, _ context.Context, _ string) (func(context.Context) error, error) {
		return done(s.proxy.Use(func(context.Context, faultproxy.Request, faultproxy.Next) (*http.Response, error) {
			return nil, faultproxy.ErrReset
		})), nil
	}},
}

func done(f func()) func(context.Context) error {
	return func(context.Context) error { f(); return nil }
}

func controller(f standin.Fault) func(*sandbox, context.Context, string) (func(context.Context) error, error) {
	return func(s *sandbox, _ context.Context, name string) (func(context.Context) error, error) {
		if !s.knows(name) {
			return nil, fmt.Errorf("there is no Application %q", name)
		}
		s.cluster.Controllers.Break(f, name)
		return done(func() { s.cluster.Controllers.Heal(f, name) }), nil
	}
}

func deny(match func(faultproxy.Request) bool, status metav1.Status) func(*sandbox, context.Context, string) (func(context.Context) error, error) {
	return func(s *sandbox, _ context.Context, _ string) (func(context.Context) error, error) {
		return done(s.proxy.Deny(match, status)), nil
	}
}

func (s *sandbox) mesh(f standin.MeshFault, keys ...string) func(context.Context) error {
	s.cluster.Mesh.Break(f, keys...)
	return done(s.cluster.Mesh.HealAll)
}

func (s *sandbox) knows(application string) bool {
	for _, a := range s.cluster.Sample {
		if a.Name == application {
			return true
		}
	}
	return false
}

// deleteLinks deletes what brings the events of an Application to the Brokers of the namespaces.
func (s *sandbox) deleteLinks(ctx context.Context, name string) (func(context.Context) error, error) {
	links := s.cluster.Client.Resource(samplecluster.Knative("messaging", "subscriptions")).Namespace(standin.IntegrationNamespace)
	list, err := links.List(ctx, metav1.ListOptions{LabelSelector: "application-name=" + name})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("no Knative Subscription brings events of Application %q to a namespace", name)
	}
	var deleted []*unstructured.Unstructured
	for i := range list.Items {
		link := &list.Items[i]
		if err := links.Delete(ctx, link.GetName(), metav1.DeleteOptions{}); err != nil {
			return nil, err
		}
		deleted = append(deleted, standin.Link("v1alpha1", name, link.GetLabels()["broker-namespace"], link.GetName()))
	}
	return func(ctx context.Context) error {
		for _, link := range deleted {
			if _, err := links.Create(ctx, link, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// breakTriggers lets those fail that exist.
func (s *sandbox) breakTriggers(ctx context.Context, name string) (func(context.Context) error, error) {
	list, err := s.cluster.Client.Resource(samplecluster.Knative("eventing", "triggers")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var keys []string
	for i := range list.Items {
		trigger := &list.Items[i]
		if source, _, _ := unstructured.NestedString(trigger.Object, "spec", "filter", "attributes", "source"); source == name {
			keys = append(keys, trigger.GetNamespace()+"/"+trigger.GetName())
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("no Trigger is for Application %q: run the phase pre first", name)
	}
	return s.mesh(standin.TriggerNeverReady, keys...), nil
}

// crash lets the pods of an event-service fail, also those that run.
func (s *sandbox) crash(ctx context.Context, name string) (func(context.Context) error, error) {
	if !s.knows(name) {
		return nil, fmt.Errorf("there is no Application %q", name)
	}
	set := func(ctx context.Context, f node.PodFault) error {
		s.cluster.Kubelet.Break(name, f)
		return s.cluster.Client.Resource(standin.Pods).Namespace(standin.IntegrationNamespace).DeleteCollection(ctx,
			metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "app=" + name + "-event-service"})
	}
	return func(ctx context.Context) error { return set(ctx, "") }, set(ctx, node.CrashLooping)
}

// monitors says whether a request is for the monitoring port of NATS Streaming.
func monitors(r faultproxy.Request) bool {
	return r.Namespace == samplecluster.NATSNamespace && r.Resource == "pods" && r.Subresource == "proxy"
}

// nats answers for the monitoring port, which the API server cannot reach: nothing runs the pod.
func (s *sandbox) nats(ctx context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
	if !monitors(r) {
		return next()
	}
	if s.natsDown.Load() {
		return faultproxy.Answer(metav1.Status{
			Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable, Message: "error trying to reach service: dial tcp 10.0.0.30:8222: connect: connection refused",
		}, -1), nil
	}
	body, err := s.cluster.Monitoring(ctx)
	if err != nil {
		return nil, err
	}
	return faultproxy.JSON(http.StatusOK, body), nil
}

func (s *sandbox) breakNATS(context.Context, string) (func(context.Context) error, error) {
	s.natsDown.Store(true)
	return done(func() { s.natsDown.Store(false) }), nil
}

func (s *sandbox) breakIt(ctx context.Context, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("break needs one of: " + strings.Join(kinds(), ", "))
	}
	for _, f := range faults {
		if f.kind != args[0] {
			continue
		}
		name := f.name
		if len(args) == 2 {
			if f.name == "" {
				return fmt.Errorf("break %s takes no name", f.kind)
			}
			name = args[1]
		}
		end, err := f.begin(s, ctx, name)
		if end != nil {
			s.heal = append(s.heal, end)
		}
		if err != nil {
			return err
		}
		if name != "" {
			name = " (" + name + ")"
		}
		s.say("Broken: %s%s. To repair it: heal", f.what, name)
		return nil
	}
	return fmt.Errorf("nothing is called %q; break needs one of: %s", args[0], strings.Join(kinds(), ", "))
}

func kinds() []string {
	var all []string
	for _, f := range faults {
		all = append(all, f.kind)
	}
	return all
}

func (s *sandbox) healAll(ctx context.Context, _ []string) error {
	var errs []error
	for _, end := range s.heal {
		errs = append(errs, end(ctx))
	}
	n := len(s.heal)
	s.heal = nil
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.say("Repaired: %d.", n)
	return nil
}
