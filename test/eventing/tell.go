package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/test/eventingcluster"
	"github.com/kyma-project/eventmesh-migration/test/prober"
)

const (
	eventings     = "eventings.operator.kyma-project.io"
	subscriptions = "subscriptions.eventing.kyma-project.io"
	// enough events are sent before, between and after the switches.
	enough = 500
)

// tell runs all steps, and removes what they made.
func tell(ctx context.Context, o options) (err error) {
	s := &show{options: o}
	s.sinks = newSinks(s.say)
	began := time.Now()
	defer func() {
		if err != nil {
			s.explain(ctx)
		}
		err = errors.Join(err, s.close())
		if err == nil {
			s.say("\nThe cluster is stopped, and its files are removed. All steps together took %.0f s. To try it yourself: make eventing-up", time.Since(began).Seconds())
		}
	}()
	if err := s.install(ctx, "Delete"); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"Create three Subscriptions: orders and mail want events of orders, mail also those of customers, load those that are counted", s.subscribe},
		{"Publish a CloudEvent: an order", s.publish},
		{"Publish an event as clients of the Event Bus do: a customer", s.legacy},
		{"Send 100 events in a second, and count them at the sink", s.load},
		{"Remove everything that was created", s.remove},
	} {
		if err := s.step(ctx, step.what, step.do); err != nil {
			return err
		}
	}
	return nil
}

// install starts the cluster, and installs eventing on it. The retention is what happens to the
// volume of NATS.
func (s *show) install(ctx context.Context, retention string) error {
	if err := s.machine(ctx); err != nil {
		return err
	}
	what := "Start a cluster with a node, and Knative Eventing"
	if s.processes {
		what = "Start a control plane. Pods are processes of this machine"
	}
	if err := s.step(ctx, what, s.start); err != nil {
		return err
	}
	if err := s.write("eventing.yaml", eventingcluster.Eventing(retention)); err != nil {
		return err
	}
	for _, step := range []struct {
		what     string
		commands []string
	}{
		{"Install the eventing operator", []string{
			"kubectl apply -f " + s.file("eventing-manager.yaml"),
			"kubectl wait --for=condition=Established --timeout=60s crd/" + eventings,
			"kubectl -n " + eventingcluster.Namespace + " rollout status --timeout=3m deployment/eventing-manager",
		}},
		{"Create an Eventing. The operator installs NATS, the publisher and the controller", []string{
			"kubectl apply -f " + s.file("eventing.yaml"),
			"kubectl -n " + eventingcluster.Namespace + " wait --for=jsonpath='{.status.state}'=Ready --timeout=5m " + eventings + "/eventing",
			"kubectl -n " + eventingcluster.Namespace + " get " + eventings + ",pods",
		}},
		{"Create a namespace with a Service for the sinks. They print what they get on this screen", append([]string{
			"kubectl create namespace " + namespace,
			"kubectl apply -f " + s.file("sinks.yaml"),
		}, s.onNode("kubectl -n "+namespace+" rollout status --timeout=3m deployment/sinks")...)},
	} {
		if err := s.step(ctx, step.what, func(ctx context.Context) error { return s.commands(ctx, step.commands...) }); err != nil {
			return err
		}
	}
	return nil
}

// onNode leaves out what there is only with a node.
func (s *show) onNode(commands ...string) []string {
	if s.processes {
		return nil
	}
	return commands
}

// subscription is the manifest of one that has the sink of its name.
func (s *show) subscription(name string, types ...string) string {
	return fmt.Sprintf("apiVersion: eventing.kyma-project.io/v1alpha2\nkind: Subscription\nmetadata: {name: %s, namespace: %s}\nspec: {sink: %q, source: commerce, types: [%s]}\n",
		name, namespace, s.sinkURL+"/"+name, strings.Join(types, ", "))
}

func (s *show) subscribe(ctx context.Context) error {
	if err := s.write("subscriptions.yaml", strings.Join([]string{
		s.subscription("orders", "order.created.v1"), s.subscription("mail", "order.created.v1", "customer.created.v1"), s.subscription(load, "item.counted.v1"),
	}, "---\n")); err != nil {
		return err
	}
	return s.commands(ctx, "kubectl apply -f "+s.file("subscriptions.yaml"),
		"kubectl -n "+namespace+" wait --for=jsonpath='{.status.ready}'=true --timeout=2m "+subscriptions+" --all")
}

// curl publishes an order. Each has another id: an event of the same id is stored once.
func (s *show) curl() string {
	return `curl -sS -i ` + s.publisher + `/publish -H 'ce-specversion: 1.0' -H "ce-id: $(date +%s%N)" -H 'ce-source: commerce' -H 'ce-type: order.created.v1' ` +
		`-H 'content-type: application/json' -d '{"order": 7}'`
}

func (s *show) publish(ctx context.Context) error {
	s.say("   %s leads to the Service of the publisher, as kubectl port-forward does.", s.publisher)
	answer, err := s.command(ctx, s.curl())
	if err == nil && !strings.Contains(answer, " 204 ") {
		err = errors.New("the publisher did not answer 204")
	}
	if err != nil {
		return err
	}
	return s.sinks.await(ctx, "order.created.v1", "orders", "mail")
}

func (s *show) legacy(ctx context.Context) error {
	answer, err := s.command(ctx, `curl -sS `+s.publisher+`/commerce/v1/events -H 'content-type: application/json' `+
		`-d '{"event-type": "customer.created", "event-type-version": "v1", "event-time": "`+time.Now().UTC().Format(time.RFC3339)+`", "data": {"customer": 1}}'`)
	if err == nil && !strings.Contains(answer, "event-id") {
		err = errors.New("the publisher did not answer with the id of the event")
	}
	if err != nil {
		return err
	}
	return s.sinks.await(ctx, "customer.created.v1", "mail")
}

// load sends events, with two switches between them on a cluster that has both backends.
func (s *show) load(ctx context.Context) error {
	to, through, err := s.cluster.Publisher()
	if err != nil {
		return err
	}
	// The mesh answers when the sink has answered.
	client := &http.Client{Transport: through, Timeout: 45 * time.Second}
	p := prober.New([]prober.Target{{Application: "commerce", EventType: "item.counted", URL: to + "/commerce/v1/events"}}, prober.Options{Client: client, MaxPending: 100})
	s.sinks.count(p)
	sending, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(sending)
	}()
	defer func() {
		stop()
		<-done
	}()
	p.Step("NATS")
	if err := p.AwaitAccepted(ctx, enough); err != nil {
		return err
	}
	if s.processes {
		s.say("   The switch to EventMesh needs a node, with Knative Eventing. This machine shows NATS only.")
	} else if err := s.switches(ctx, p); err != nil {
		return err
	}
	stop()
	<-done
	waiting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	late := p.Await(waiting)
	r := p.Report()
	s.say("   %-26s %8s %9s %6s %6s", "while", "accepted", "delivered", "lost", "twice")
	for _, step := range r.Steps {
		if step.Accepted > 0 {
			s.say("   %-26s %8d %9d %6d %6d", step.Step, step.Accepted, step.Accepted-step.Missing, step.Missing, step.Duplicates)
		}
	}
	s.say("   %-26s %8d %9d %6d %6d", "together", r.Accepted, r.Accepted-len(r.Missing), len(r.Missing), len(r.Duplicates))
	s.say("   The longest time without an accepted event was %s. %d events were refused, and sent again.", seconds(p.LongestGap()), r.Repeated)
	if late != nil || len(r.Missing) > 0 || len(r.GivenUp) > 0 {
		return errors.Join(fmt.Errorf("events were lost, or never accepted:\n%s", r), late)
	}
	return nil
}

// switches changes the backend to the mesh, and back.
func (s *show) switches(ctx context.Context, p *prober.Prober) error {
	for _, to := range []operatorv1alpha1.BackendType{operatorv1alpha1.EventMesh, operatorv1alpha1.NATS} {
		p.Step("the switch to " + string(to))
		s.say("   The backend becomes %s while events are sent:", to)
		began := time.Now()
		following, stop := context.WithCancel(ctx)
		told := make(chan struct{})
		go func() {
			defer close(told)
			s.follow(following, began)
		}()
		err := s.commands(ctx, s.switchTo(to),
			"kubectl -n "+eventingcluster.Namespace+" wait --for=condition=Switching=False --timeout=10m "+eventings+"/eventing")
		stop()
		<-told
		if err != nil {
			return err
		}
		s.say("   The backend is %s after %s.", to, seconds(time.Since(began)))
		p.Step(string(to))
		if err := p.AwaitAccepted(ctx, enough); err != nil {
			return err
		}
	}
	return nil
}

// switchTo changes the backend, and waits until events go there.
func (s *show) switchTo(to operatorv1alpha1.BackendType) string {
	return fmt.Sprintf(`kubectl -n %s patch %s eventing --type=merge -p '{"spec":{"backend":{"type":"%s"}}}' && `+
		`kubectl -n %s wait --for=jsonpath='{.status.activeBackend}'=%s --timeout=10m %s/eventing`, eventingcluster.Namespace, eventings, to, eventingcluster.Namespace, to, eventings)
}

// follow says which step of the switch is under way.
func (s *show) follow(ctx context.Context, began time.Time) {
	of := s.cluster.Dynamic.Resource(operatorv1alpha1.GroupVersion.WithResource("eventings")).Namespace(eventingcluster.Namespace)
	w, err := of.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return // the commands have the result
	}
	defer w.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-w.ResultChan():
			if !open {
				return
			}
			u, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				continue
			}
			step, _, _ := unstructured.NestedString(u.Object, "status", "switch", "step")
			if step != "" && step != last {
				s.say("     after %5s  %s", seconds(time.Since(began)), step)
				last = step
			}
		}
	}
}

// remove deletes what the steps have created, and shows that nothing is left.
func (s *show) remove(ctx context.Context) error {
	err := s.commands(ctx, "kubectl -n "+namespace+" delete --timeout=2m "+subscriptions+" --all",
		"kubectl -n "+eventingcluster.Namespace+" delete --timeout=10m "+eventings+" eventing",
		"kubectl delete --wait=true --timeout=5m -f "+s.file("eventing-manager.yaml"))
	if err != nil {
		return err
	}
	left, err := s.command(ctx, "kubectl get statefulsets,deployments,services,configmaps,secrets,persistentvolumeclaims --all-namespaces -l "+backend.PlaneLabel)
	if err == nil && !strings.Contains(left, "No resources found") {
		err = errors.New("objects of the operator are left")
	}
	if err == nil {
		for _, name := range []string{"eventing-manager.yaml", "eventing.yaml", "sinks.yaml", "subscriptions.yaml"} {
			err = errors.Join(err, os.Remove(s.file(name)))
		}
	}
	return err
}
