package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	watchtools "k8s.io/client-go/tools/watch"
)

// ErrNoNode says that there is no way to get images into the cluster that EVENTMESH_TEST_KUBECONFIG
// names.
var ErrNoNode = errors.New("pods of images built here need a cluster of their own: unset " + KubeconfigEnv)

// Node adds a node, so that pods run. It needs root; Debian packages that are missing are
// installed. What has to be built takes minutes, once.
func Node() Option {
	return func(o *options) { o.node = true }
}

// Knative adds a node, and the images of Knative Eventing for InstallKnative. They take many
// minutes to build, once.
func Knative() Option {
	return func(o *options) { o.node, o.knative = true, true }
}

// FormerKnative is Knative, with the images of the minor version before as well, for ApplyKnative.
func FormerKnative() Option {
	return func(o *options) { o.node, o.knative, o.formerKnative = true, true, true }
}

// Push builds a command of this repository, or of one of its modules, and pushes it as an image
// that holds nothing else: its entrypoint is the program, its user a number that is not root's. It
// returns the image's name for the specification of a pod. A name without tag gets one that tells
// the program's content, so that what was built again is pulled again. flags are for go build.
func (c *ControlPlane) Push(ctx context.Context, image, pkg string, flags ...string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w", image, err)
	}
	return c.PushFrom(ctx, root, image, pkg, flags...)
}

// PushFrom is Push for a command of the checkout in a folder.
func (c *ControlPlane) PushFrom(ctx context.Context, root, image, pkg string, flags ...string) (string, error) {
	if c.Registry == "" {
		return "", fmt.Errorf("cannot push %s: the cluster was started without Node", image)
	}
	binary, err := Program{Dir: root, Package: pkg, Flags: append([]string{"-trimpath", "-ldflags", "-s -w"}, flags...), Env: []string{"CGO_ENABLED=0"}}.Build(ctx)
	if err != nil {
		return "", err
	}
	push := exec.CommandContext(ctx, c.launcher.binary, "push", "--registry", c.Registry, "--image", image, binary)
	var said tail
	push.Stderr = &said
	name, err := push.Output()
	if err != nil {
		return "", fmt.Errorf("cannot push %s: %w\n%s", image, err, said.String())
	}
	return strings.TrimSpace(string(name)), nil
}

// programOf is the name that go build gives the program of a package: the major version of a module
// is none.
func programOf(pkg string) string {
	if _, err := strconv.Atoi(strings.TrimPrefix(path.Base(pkg), "v")); err == nil {
		return path.Base(path.Dir(pkg))
	}
	return path.Base(pkg)
}

// knativeNamespace is where Knative Eventing runs.
const knativeNamespace = "knative-eventing"

// InstallKnative installs Knative Eventing and, beside its own CRDs, those of InstallCRDs that are
// of others, and returns when all its programs are ready. The cluster is to be one started with
// Knative, and without CRDs of it.
func (c *ControlPlane) InstallKnative(ctx context.Context) error {
	if c.knative == "" {
		return errors.New("cannot install Knative Eventing: the cluster was started without Knative")
	}
	// A minute is what it takes, with the images at hand.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	objects, err := readManifests(c.knative)
	if err != nil {
		return fmt.Errorf("cannot install Knative Eventing: %w", err)
	}
	// What others are made in, or of, comes first.
	var first, crds, rest []*unstructured.Unstructured
	var names []string
	for _, u := range objects {
		switch u.GetKind() {
		case "Namespace":
			first = append(first, u)
		case "CustomResourceDefinition":
			crds = append(crds, u)
			names = append(names, u.GetName())
		default:
			patient(u)
			rest = append(rest, u)
		}
	}
	mapper, err := c.mapper()
	if err != nil {
		return err
	}
	if err := c.createAll(ctx, mapper, slices.Concat(first, crds)); err != nil {
		return fmt.Errorf("cannot install Knative Eventing: %w", err)
	}
	for _, name := range names {
		if err := c.awaitCRD(ctx, name, established); err != nil {
			return err
		}
	}
	if err := c.awaitDiscovery(ctx, crds, true); err != nil {
		return err
	}
	// It restarts the controllers, so that they know Knative's kinds too.
	if err := c.InstallCRDs(ctx, KnativeV1, Except(names...)); err != nil {
		return err
	}
	if err := c.createAll(ctx, mapper, rest); err != nil {
		return fmt.Errorf("cannot install Knative Eventing: %w", err)
	}
	return c.awaitKnative(ctx)
}

func (c *ControlPlane) awaitKnative(ctx context.Context) error {
	for _, resource := range []string{"deployments", "statefulsets"} {
		if err := c.awaitReplicas(ctx, resource, knativeNamespace); err != nil {
			return fmt.Errorf("cannot install Knative Eventing: %w", err)
		}
	}
	return nil
}

// ApplyKnative replaces an installed Knative Eventing by the minor version before, or by the
// current one, as its users do: all manifests are applied over those that are there. It returns
// when all programs are ready. The cluster is to be one started with FormerKnative.
func (c *ControlPlane) ApplyKnative(ctx context.Context, former bool) error {
	file := c.knative
	if former {
		file = c.formerKnative
	}
	if file == "" {
		return errors.New("cannot apply Knative Eventing: the cluster was started without FormerKnative")
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	objects, err := readManifests(file)
	if err != nil {
		return fmt.Errorf("cannot apply Knative Eventing: %w", err)
	}
	mapper, err := c.mapper()
	if err != nil {
		return err
	}
	for _, u := range objects {
		patient(u)
		resource, err := c.resourceOf(mapper, u)
		if err != nil {
			return err
		}
		if _, err := resource.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", Force: true}); err != nil {
			return fmt.Errorf("cannot apply %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return c.awaitKnative(ctx)
}

// patient gives the pods of a Deployment more time to answer the kubelet. Knative allows 1 second,
// and all of a cluster runs on this machine: a pod that is busy for some seconds would be
// restarted, again and again.
func patient(u *unstructured.Unstructured) {
	containers, found, err := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if u.GetKind() != "Deployment" || !found || err != nil {
		return
	}
	for _, c := range containers {
		for _, name := range []string{"livenessProbe", "readinessProbe"} {
			if probe, ok := c.(map[string]any)[name].(map[string]any); ok {
				probe["timeoutSeconds"] = int64(10)
				if name == "livenessProbe" {
					probe["failureThreshold"] = int64(10)
				}
			}
		}
	}
	_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers") // it was there
}

func readManifests(path string) ([]*unstructured.Unstructured, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		u := &unstructured.Unstructured{}
		err := decoder.Decode(u)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("cannot read %s: %w", path, err)
		case len(u.Object) > 0:
			objects = append(objects, u)
		}
	}
}

func (c *ControlPlane) createAll(ctx context.Context, mapper meta.RESTMapper, objects []*unstructured.Unstructured) error {
	for _, u := range objects {
		resource, err := c.resourceOf(mapper, u)
		if err != nil {
			return err
		}
		if _, err := resource.Create(ctx, u, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("cannot create %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	return nil
}

func (c *ControlPlane) mapper() (meta.RESTMapper, error) {
	groups, err := restmapper.GetAPIGroupResources(c.discovery)
	if err != nil {
		return nil, fmt.Errorf("cannot discover what is served: %w", err)
	}
	return restmapper.NewDiscoveryRESTMapper(groups), nil
}

// resourceOf is where an object is created.
func (c *ControlPlane) resourceOf(mapper meta.RESTMapper, u *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := u.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource).Namespace(u.GetNamespace()), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}

// awaitReplicas waits until all Deployments, or all StatefulSets, of a namespace have the replicas
// they want, ready, and none of an earlier template.
func (c *ControlPlane) awaitReplicas(ctx context.Context, resource, namespace string) error {
	client := c.dynamic.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource}).Namespace(namespace)
	all, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list %s: %w", resource, err)
	}
	missing := map[string]bool{}
	for i := range all.Items {
		missing[all.Items[i].GetName()] = true
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := watchtools.UntilWithSync(ctx, ListWatch(client.List, client.Watch), &unstructured.Unstructured{}, nil, func(event watch.Event) (bool, error) {
		u, ok := event.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		wanted, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		ready, _, _ := unstructured.NestedInt64(u.Object, "status", "readyReplicas")
		observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
		all, _, _ := unstructured.NestedInt64(u.Object, "status", "replicas")
		updated, _, _ := unstructured.NestedInt64(u.Object, "status", "updatedReplicas")
		if ready >= wanted && updated == all && observed == u.GetGeneration() {
			delete(missing, u.GetName())
		}
		return len(missing) == 0, nil
	}); err != nil {
		return fmt.Errorf("%s of %s are not ready: %s: %w%s", resource, namespace, strings.Join(slices.Sorted(maps.Keys(missing)), ", "), err, c.waitingPods(namespace))
	}
	return nil
}

// waitingPods tells, for messages, what the containers of a namespace wait for.
func (c *ControlPlane) waitingPods(namespace string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pods, err := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "; " + err.Error()
	}
	var said strings.Builder
	for i := range pods.Items {
		statuses, _, _ := unstructured.NestedSlice(pods.Items[i].Object, "status", "containerStatuses")
		for _, status := range statuses {
			if container, ok := status.(map[string]any); ok && container["ready"] != true {
				fmt.Fprintf(&said, "; Pod %s: %v", pods.Items[i].GetName(), container["state"])
			}
		}
	}
	return said.String()
}
