package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/kyma-project/eventmesh-migration/internal/migration/cli"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/engine"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

const (
	// teams is the number of namespaces with Subscriptions.
	teams = 50
	// source is the Application whose events they are for.
	source = "app-0001"
	// defaultBroker is the Broker of a namespace.
	defaultBroker = "default"
	// givenLabel is on Triggers that are there before the job runs.
	givenLabel = "given"
)

var (
	triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "triggers"}
	brokers  = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1alpha1", Resource: "brokers"}
	links    = schema.GroupVersionResource{Group: "messaging.knative.dev", Version: "v1alpha1", Resource: "subscriptions"}
	states   = []schema.GroupVersionResource{{Version: "v1", Resource: "secrets"}, standin.ConfigMaps, {Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}}
)

// subscriptions is a cluster full of Kyma Subscriptions, 40 % of which have
// their Trigger already.
type subscriptions struct {
	*bench
	client dynamic.Interface
	n      int
}

func team(i int) string { return fmt.Sprintf("team-%02d", i%teams) }

// teamwork is the part of bench that measures trigger-sync: sizes without its
// waits, and whole from the first creation to the last deletion (toTheEnd).
func (b *bench) teamwork(ctx context.Context, sizes, toTheEnd []int, pairs int) error {
	cfg := b.cluster.Config()
	cfg.UserAgent, cfg.QPS = "bench-setup", -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	s := &subscriptions{bench: b, client: client}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "\nSubscriptions (40 % with a Trigger)\tjob / floor, median\tmin … max\tfloor, median\tjob, median\trequests without the creations")
	for _, n := range sizes {
		if err := s.reset(ctx); err != nil {
			return err
		}
		if err := s.grow(ctx, n); err != nil {
			return err
		}
		if err := s.paired(ctx, pairs); err != nil {
			return err
		}
	}
	if len(sizes) > 0 {
		if err := s.whole(ctx); err != nil {
			return err
		}
	}
	if len(toTheEnd) == 0 {
		return nil
	}
	if len(sizes) == 0 {
		if err := s.switchOver(ctx); err != nil {
			return err
		}
	}
	fmt.Fprintln(s.out, "\nSubscriptions, to the end\tjob / floor, median\tmin … max\tfloor, median\tjob, median\tpeak RSS\treads\twrites")
	for _, n := range toTheEnd {
		if err := s.toTheEnd(ctx, n, pairs); err != nil {
			return err
		}
	}
	return nil
}

func (s *subscriptions) create(ctx context.Context, gvr schema.GroupVersionResource, objects []*unstructured.Unstructured) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for _, u := range objects {
		work.Go(func() error {
			_, err := s.client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
			return err
		})
	}
	return work.Wait()
}

// prepare makes one Application that is ready for the mesh, and the namespaces
// with their Brokers.
func (s *subscriptions) prepare(ctx context.Context) error {
	if _, err := standin.Reset(ctx, s.cluster.Config(), 1); err != nil {
		return err
	}
	controllers, err := standin.Start(ctx, s.cluster.Config(), standin.Options{})
	if err != nil {
		return err
	}
	defer controllers.Stop()
	if err := standin.PutHTTPSources(ctx, s.cluster.Config(), source); err != nil {
		return err
	}
	if err := controllers.WaitReady(ctx, source); err != nil {
		return err
	}
	var namespaces, all []*unstructured.Unstructured
	for i := range teams {
		namespaces = append(namespaces, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": team(i)},
		}})
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": brokers.GroupVersion().String(), "kind": "Broker",
			"metadata": map[string]any{"name": defaultBroker, "namespace": team(i)}, "spec": map[string]any{},
		}})
	}
	if err := s.create(ctx, standin.Namespaces, namespaces); err != nil {
		return err
	}
	return s.create(ctx, brokers, all)
}

// grow adds Subscriptions until there are n, and waits until all is ready that
// is to be there before.
func (s *subscriptions) grow(ctx context.Context, n int) error {
	var added, given []*unstructured.Unstructured
	for i := s.n; i < n; i++ {
		sub := standin.KymaSubscription(team(i), fmt.Sprintf("sub-%04d", i), source, "order.created")
		sub.SetFinalizers(nil) // no subscription-controller runs here
		added = append(added, sub)
		if i%5 < 2 {
			spec := sub.Object["spec"].(map[string]any)
			given = append(given, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": triggers.GroupVersion().String(), "kind": "Trigger",
				"metadata": map[string]any{
					"name": fmt.Sprintf("given-%04d", i), "namespace": sub.GetNamespace(), "labels": map[string]any{givenLabel: "true"},
				},
				"spec": map[string]any{
					"broker":     defaultBroker,
					"filter":     map[string]any{"attributes": map[string]any{"source": source, "type": spec["event_type"], "eventtypeversion": spec["event_type_version"]}},
					"subscriber": map[string]any{"uri": spec["endpoint"]},
				},
			}})
		}
	}
	s.n = n
	if err := s.create(ctx, standin.KymaSubscriptions, added); err != nil {
		return err
	}
	if err := s.create(ctx, triggers, given); err != nil {
		return err
	}
	// The controllers run only now: what is measured is not to share the machine
	// with them.
	mesh, err := standin.StartMesh(ctx, s.cluster.Config(), standin.Options{Activated: true})
	if err != nil {
		return err
	}
	defer mesh.Stop()
	return mesh.Wait(ctx, func(m *standin.Mesh) bool {
		return m.Has(triggers, n*2/5) && standin.TriggersReady(m) && m.Has(brokers, teams)
	})
}

// reset deletes what the job, or the floor, has made, and the state of former runs.
func (s *subscriptions) reset(ctx context.Context) error {
	return s.remove(ctx, map[schema.GroupVersionResource]string{triggers: "!" + givenLabel})
}

// clear deletes all Kyma Subscriptions and Triggers, and the state of former runs.
func (s *subscriptions) clear(ctx context.Context) error {
	return s.remove(ctx, map[schema.GroupVersionResource]string{standin.KymaSubscriptions: "", triggers: ""})
}

// remove deletes what is in the namespaces of the teams, by its labels, and all state.
func (s *subscriptions) remove(ctx context.Context, selectors map[schema.GroupVersionResource]string) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(8)
	remove := func(gvr schema.GroupVersionResource, namespace, selector string) {
		work.Go(func() error {
			return s.client.Resource(gvr).Namespace(namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
		})
	}
	for gvr, selector := range selectors {
		for i := range teams {
			remove(gvr, team(i), selector)
		}
	}
	for _, gvr := range states {
		remove(gvr, kyma.StateNamespace, "")
	}
	return work.Wait()
}

// made returns the Triggers that the job has created, as they were created.
func (s *subscriptions) made(ctx context.Context) ([]*unstructured.Unstructured, error) {
	list, err := s.client.Resource(triggers).List(ctx, metav1.ListOptions{LabelSelector: "!" + givenLabel})
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for i := range list.Items {
		u := &list.Items[i]
		for _, field := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"} {
			unstructured.RemoveNestedField(u.Object, "metadata", field)
		}
		delete(u.Object, "status")
		all = append(all, u)
	}
	return all, nil
}

// paired measures the job without its waits against the bare creations.
func (s *subscriptions) paired(ctx context.Context, pairs int) error {
	if err := s.reset(ctx); err != nil {
		return err
	}
	if _, err := s.job(ctx); err != nil {
		return err
	}
	creations, err := s.made(ctx)
	if err != nil {
		return err
	}
	var ratios, floors, jobs []float64
	beyond := 0
	for i := range pairs {
		var took [2]float64
		for k := range 2 {
			which := (k + i) % 2 // A B, B A, A B …
			if err := s.reset(ctx); err != nil {
				return err
			}
			mark, err := s.cluster.Mark(ctx)
			if err != nil {
				return err
			}
			if which == 0 {
				took[which], err = s.floor(ctx, creations)
			} else {
				took[which], err = s.job(ctx)
			}
			if err != nil {
				return err
			}
			if which == 1 {
				requests, err := s.cluster.Requests(ctx, mark, kubernetes.By("job"))
				if err != nil {
					return err
				}
				beyond = len(requests) - len(creations)
			}
		}
		floors, jobs, ratios = append(floors, took[0]), append(jobs, took[1]), append(ratios, took[1]/took[0])
		fmt.Fprintf(os.Stderr, "%d Subscriptions, pair %d: floor %.2f s, job %.2f s\n", s.n, i+1, took[0], took[1])
	}
	slices.Sort(ratios)
	fmt.Fprintf(s.out, "%d\t%.2f\t%.2f … %.2f\t%.2f s\t%.2f s\t%d (%.1f %%)\n", s.n, median(ratios), ratios[0], ratios[len(ratios)-1],
		median(floors), median(jobs), beyond, 100*float64(beyond)/float64(len(creations)))
	return nil
}

func (s *subscriptions) floor(ctx context.Context, objects []*unstructured.Unstructured) (float64, error) {
	cfg := s.cluster.Config()
	cfg.UserAgent = "floor"
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	var work errgroup.Group
	work.SetLimit(16)
	for _, u := range objects {
		work.Go(func() error {
			_, err := client.Resource(triggers).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
			return err
		})
	}
	err = work.Wait()
	return time.Since(began).Seconds(), err
}

func (s *subscriptions) job(ctx context.Context) (float64, error) {
	cfg := s.cluster.Config()
	cfg.UserAgent = "job"
	began := time.Now()
	engine, err := engine.New(cfg, engine.Options{Names: cli.Names, StateNamespace: kyma.StateNamespace, Identity: "bench"})
	if err != nil {
		return 0, err
	}
	report := engine.Run(ctx, withoutWaiting{trigger.New()})
	took := time.Since(began).Seconds()
	if report.Result != migration.DeferredResult {
		return 0, fmt.Errorf("the job ended with %s, %d changes: %s", report.Result, len(report.Changes), report.Message)
	}
	return took, nil
}

// whole runs the real program against controllers that make its objects ready,
// then once more while everything is deferred, then after the switch, and once
// more when nothing is left.
func (s *subscriptions) whole(ctx context.Context) error {
	if err := s.reset(ctx); err != nil {
		return err
	}
	mesh, err := standin.StartMesh(ctx, s.cluster.Config(), standin.Options{Activated: true})
	if err != nil {
		return err
	}
	defer mesh.Stop()
	fmt.Fprintf(s.out, "\nthe program, with all waits, %d Subscriptions\tresult\ttime\tCPU\tpeak RSS\treads\twrites\n", s.n)
	for _, step := range []struct {
		what   string
		before func(context.Context) error
		want   migration.Result
	}{
		{"expand", nil, migration.DeferredResult},
		{"again, all deferred", nil, migration.DeferredResult},
		{"contract, after the switch", s.switchOver, migration.Succeeded},
		{"again, nothing left", nil, migration.NothingToDo},
	} {
		if step.before != nil {
			if err := step.before(ctx); err != nil {
				return err
			}
			if err := mesh.Wait(ctx, func(m *standin.Mesh) bool { return m.Has(links, teams) && standin.LinksReady(m) }); err != nil {
				return err
			}
		}
		report, usage, err := s.run(ctx, "trigger-sync")
		if err != nil {
			return err
		}
		if report.Result != step.want {
			return fmt.Errorf("trigger-sync ended with %s, want %s: %s: %v", report.Result, step.want, report.Message, report.Findings[:min(3, len(report.Findings))])
		}
		fmt.Fprintf(s.out, "%s\t%s\t%.1f s\t%.1f s\t%.1f MiB\t%d\t%d\n",
			step.what, report.Result, usage.Seconds, usage.CPUSeconds, usage.PeakMiB, report.Requests.Reads, report.Requests.Writes)
	}
	return nil
}

// switchOver is what the upgrade of application-connector brings about.
func (s *subscriptions) switchOver(ctx context.Context) error {
	var all []*unstructured.Unstructured
	for i := range teams {
		all = append(all, standin.Link(links.Version, source, team(i), "brokersub-"+team(i)))
	}
	if err := s.create(ctx, links, all); err != nil {
		return err
	}
	service := standin.EventService(source, true)
	if err := s.create(ctx, standin.Deployments, []*unstructured.Unstructured{service}); err != nil {
		return err
	}
	status := []byte(`{"status":{"observedGeneration":1,"replicas":1,"updatedReplicas":1,"readyReplicas":1,"availableReplicas":1}}`)
	_, err := s.client.Resource(standin.Deployments).Namespace(standin.IntegrationNamespace).
		Patch(ctx, service.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// toTheEnd measures the real program on a cluster that has switched, from the
// first creation of a Trigger to the last deletion of a Kyma Subscription: it
// waits for each Trigger and asks again before each deletion. The floor does the
// same creations and deletions as fast as the server answers. The controllers of
// the mesh run beside both, and share the machine with them; so the floor has
// ended when they have made the last Trigger ready, for which the job waits too.
// No publisher is observed: that is a wait. The first run of the job is not counted:
// it shows the floor which Triggers to create.
func (s *subscriptions) toTheEnd(ctx context.Context, n, pairs int) error {
	mesh, err := standin.StartMesh(ctx, s.cluster.Config(), standin.Options{})
	if err != nil {
		return err
	}
	defer mesh.Stop()
	fresh := func() error {
		if err := s.clear(ctx); err != nil {
			return err
		}
		var added []*unstructured.Unstructured
		for i := range n {
			sub := standin.KymaSubscription(team(i), fmt.Sprintf("sub-%04d", i), source, "order.created")
			sub.SetFinalizers(nil) // no subscription-controller runs here
			added = append(added, sub)
		}
		if err := s.create(ctx, standin.KymaSubscriptions, added); err != nil {
			return err
		}
		return mesh.Wait(ctx, func(m *standin.Mesh) bool {
			return m.Has(triggers, 0) && m.Has(brokers, teams) && m.Has(links, teams) && standin.LinksReady(m)
		})
	}
	var usage measure.Usage
	var report *migration.Report
	job := func() (float64, error) {
		if err := fresh(); err != nil {
			return 0, err
		}
		report, usage, err = s.run(ctx, "trigger-sync", "--observe-publishers", "0s")
		if err == nil && report.Result != migration.Succeeded {
			err = fmt.Errorf("trigger-sync ended with %s: %s: %v", report.Result, report.Message, report.Findings[:min(3, len(report.Findings))])
		}
		return usage.Seconds, err
	}
	first, err := job()
	if err != nil {
		return err
	}
	creations, err := s.made(ctx)
	if err != nil {
		return err
	}
	floor := func() (float64, error) {
		if err := fresh(); err != nil {
			return 0, err
		}
		began := time.Now()
		if err := s.deletions(ctx, creations, n); err != nil {
			return 0, err
		}
		err := mesh.Wait(ctx, func(m *standin.Mesh) bool { return m.Has(triggers, len(creations)) && standin.TriggersReady(m) })
		return time.Since(began).Seconds(), err
	}
	if pairs == 0 {
		fmt.Fprintf(s.out, "%d\t-\t-\t-\t%.2f s\t%.1f MiB\t%d\t%d\n", n, first, usage.PeakMiB, report.Requests.Reads, report.Requests.Writes)
		return nil
	}
	var ratios, floors, jobs []float64
	for i := range pairs {
		var took [2]float64
		for k := range 2 {
			which := (k + i) % 2 // A B, B A, A B …
			if took[which], err = []func() (float64, error){floor, job}[which](); err != nil {
				return err
			}
		}
		floors, jobs, ratios = append(floors, took[0]), append(jobs, took[1]), append(ratios, took[1]/took[0])
		fmt.Fprintf(os.Stderr, "%d Subscriptions to the end, pair %d: floor %.2f s, job %.2f s\n", n, i+1, took[0], took[1])
	}
	slices.Sort(ratios)
	fmt.Fprintf(s.out, "%d\t%.2f\t%.2f … %.2f\t%.2f s\t%.2f s\t%.1f MiB\t%d\t%d\n", n, median(ratios), ratios[0], ratios[len(ratios)-1],
		median(floors), median(jobs), usage.PeakMiB, report.Requests.Reads, report.Requests.Writes)
	return nil
}

// deletions are the writes of the floor of toTheEnd.
func (s *subscriptions) deletions(ctx context.Context, creations []*unstructured.Unstructured, n int) error {
	cfg := s.cluster.Config()
	cfg.UserAgent, cfg.QPS = "floor", -1
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if _, err := s.floor(ctx, creations); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(16)
	for i := range n {
		work.Go(func() error {
			return client.Resource(standin.KymaSubscriptions).Namespace(team(i)).Delete(ctx, fmt.Sprintf("sub-%04d", i), metav1.DeleteOptions{})
		})
	}
	return work.Wait()
}
