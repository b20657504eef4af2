package inspect

import (
	"context"
	"errors"
	"path"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/frame/archive"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/internal/version"
)

const (
	// logLines and logBytes bound what is kept of the log of one container.
	logLines = 5000
	logBytes = 2 << 20
)

// collected is what an archive has of the objects in eventing's namespace. Secrets are not among
// them.
var collected = []schema.GroupVersionResource{
	deployments, statefulSets, pods,
	{Version: "v1", Resource: "services"},
	configMaps,
	{Version: "v1", Resource: "persistentvolumeclaims"},
	events,
	{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"},
	{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"},
}

// ofOthers are kinds whose objects in the namespace may be those of others: only what has one of
// our labels is collected.
var ofOthers = map[string]bool{"configmaps": true, "services": true, "persistentvolumeclaims": true, "deployments": true, "statefulsets": true, "pods": true, "networkpolicies": true}

// Ticket writes an archive for a support ticket: the objects of eventing, their status, Events, and
// logs of its pods. What cannot be collected is noted in it.
func (c *Cluster) Ticket(ctx context.Context, to *archive.Archive, now time.Time) error {
	about := map[string]string{"version": version.String(), "server": c.config.Host}
	if info, err := c.Discovery.ServerVersion(); err == nil {
		about["kubernetes"] = info.GitVersion
	} else {
		to.Problem("the version of Kubernetes", err)
	}
	if err := to.JSON("version.json", about); err != nil {
		return err
	}
	o, err := c.Overview(ctx, now)
	if err != nil {
		to.Problem("status.json", err)
		o = &Overview{Home: Home{Namespace: "kyma-system", Names: "eventing"}}
	} else if err := to.JSON("status.json", o); err != nil {
		return err
	}
	for _, of := range []schema.GroupVersionResource{Eventings, Subscriptions} {
		if err := c.collect(ctx, to, of, "", ""); err != nil {
			return err
		}
	}
	for _, of := range collected {
		selector := ""
		if ofOthers[of.Resource] {
			selector = "app.kubernetes.io/part-of=eventing-manager"
		}
		if err := c.collect(ctx, to, of, o.Home.Namespace, selector); err != nil {
			return err
		}
	}
	if err := c.collect(ctx, to, classes, "", ""); err != nil {
		return err
	}
	if err := c.events(ctx, to); err != nil {
		return err
	}
	if err := c.logs(ctx, to, o.Home.Namespace); err != nil {
		return err
	}
	return ctx.Err()
}

// collect adds the objects of a kind, without what looks like a secret.
func (c *Cluster) collect(ctx context.Context, to *archive.Archive, of schema.GroupVersionResource, namespace, selector string) error {
	all, err := c.List(ctx, of, namespace, selector)
	if err != nil {
		to.Problem(of.GroupResource().String(), err)
	}
	for i := range all {
		all[i] = redact.Object(all[i])
	}
	return to.Objects(of.GroupResource().String(), all)
}

// events adds the Events about Subscriptions, wherever those are.
func (c *Cluster) events(ctx context.Context, to *archive.Archive) error {
	var all []*unstructured.Unstructured
	err := c.Each(ctx, events, "", metav1.ListOptions{FieldSelector: "involvedObject.kind=Subscription"}, func() { all = nil }, func(u *unstructured.Unstructured) error {
		all = append(all, redact.Object(u))
		return nil
	})
	if err != nil {
		to.Problem("Events about Subscriptions", err)
	}
	return to.Objects("events-of-subscriptions", all)
}

// logs adds the end of the log of each container, and of the one before it.
func (c *Cluster) logs(ctx context.Context, to *archive.Archive, namespace string) error {
	all, err := c.List(ctx, pods, namespace, "app.kubernetes.io/part-of=eventing-manager")
	if err != nil {
		to.Problem("logs", err)
	}
	for _, pod := range all {
		for _, container := range containersOf(pod) {
			if err := c.log(ctx, to, pod, container, false); err != nil {
				return err
			}
			if restarted(pod, container) {
				if err := c.log(ctx, to, pod, container, true); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (c *Cluster) log(ctx context.Context, to *archive.Archive, pod *unstructured.Unstructured, container string, previous bool) error {
	name := pod.GetName() + "-" + container
	request := c.Discovery.RESTClient().Get().AbsPath("/api/v1/namespaces", pod.GetNamespace(), "pods", pod.GetName(), "log").
		Param("container", container).Param("timestamps", "true").Param("tailLines", strconv.Itoa(logLines)).Param("limitBytes", strconv.Itoa(logBytes))
	if previous {
		name += "-previous"
		request = request.Param("previous", "true")
	}
	raw, err := request.Do(ctx).Raw()
	if err != nil {
		to.Problem("log of "+name, errors.New(redact.URLs(err.Error())))
		return nil
	}
	return to.Text(path.Join("logs", archive.FileName(name)+".log"), string(raw))
}

func containersOf(pod *unstructured.Unstructured) (names []string) {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			if name, ok := container["name"].(string); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

func restarted(pod *unstructured.Unstructured, container string) bool {
	statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", "containerStatuses")
	for _, s := range statuses {
		status, _ := s.(map[string]any)
		if count, _, _ := unstructured.NestedInt64(status, "restartCount"); status["name"] == container && count > 0 {
			return true
		}
	}
	return false
}
