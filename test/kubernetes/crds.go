package kubernetes

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// CRDs is the resource as which this cluster's CRDs were created: what is read there can be created
// again. It is v1beta1 as long as that is served, as it was when Kyma 1.10 was installed.
func (c *ControlPlane) CRDs() schema.GroupVersionResource {
	version := "v1"
	if c.Minor < withoutV1beta1 {
		version = "v1beta1"
	}
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: version, Resource: "customresourcedefinitions"}
}

// withoutV1beta1 is the minor of the Kubernetes that serves apiextensions v1beta1 no more.
const withoutV1beta1 = 22

// KnativeVersion is the one version in which the cluster serves the kinds of Knative.
type KnativeVersion string

const (
	// KnativeV1alpha1 is what Kyma 1.10 and 1.11 run.
	KnativeV1alpha1 KnativeVersion = "v1alpha1"
	// KnativeV1 is what Knative serves today.
	KnativeV1 KnativeVersion = "v1"
)

// CRDOption chooses among the CRDs.
type CRDOption func(name string) bool

// Kinds installs these CRDs only, each named as the cluster does: "triggers.eventing.knative.dev".
func Kinds(names ...string) CRDOption {
	return func(name string) bool { return slices.Contains(names, name) }
}

// Except installs all CRDs but these.
func Except(names ...string) CRDOption {
	return func(name string) bool { return !slices.Contains(names, name) }
}

// InstallCRDs installs the kinds the migration meets and returns when the cluster serves them. A
// CRD that is there already stays as it is if it serves the version, and is an error if it does
// not: RemoveCRD comes first then.
func (c *ControlPlane) InstallCRDs(ctx context.Context, knative KnativeVersion, opts ...CRDOption) error {
	if knative != KnativeV1alpha1 && knative != KnativeV1 {
		return fmt.Errorf("unknown version %q of Knative", knative)
	}
	all, err := crds(knative)
	if err != nil {
		return err
	}
	var wanted []*unstructured.Unstructured
	for _, crd := range all {
		if slices.ContainsFunc(opts, func(admits CRDOption) bool { return !admits(crd.GetName()) }) {
			continue
		}
		if c.Minor < withoutV1beta1 {
			if err := toV1beta1(crd); err != nil {
				return err
			}
		}
		wanted = append(wanted, crd)
	}
	return c.installCRDs(ctx, wanted)
}

// InstallCRDFiles installs the CRDs that are in the files of a directory, one in each, as
// InstallCRDs does.
func (c *ControlPlane) InstallCRDFiles(ctx context.Context, files fs.FS, dir string) error {
	all, err := readCRDs(files, dir)
	if err != nil {
		return err
	}
	return c.installCRDs(ctx, all)
}

func (c *ControlPlane) installCRDs(ctx context.Context, wanted []*unstructured.Unstructured) error {
	created := false
	for _, crd := range wanted {
		_, err := c.dynamic.Resource(c.CRDs()).Create(ctx, crd, metav1.CreateOptions{})
		switch {
		case err == nil:
			created = true
		case apierrors.IsAlreadyExists(err):
			if err := c.serves(ctx, crd); err != nil {
				return err
			}
		default:
			return fmt.Errorf("cannot create CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
	for _, crd := range wanted {
		if err := c.awaitCRD(ctx, crd.GetName(), established); err != nil {
			return err
		}
	}
	if err := c.awaitDiscovery(ctx, wanted, true); err != nil {
		return err
	}
	if created {
		return c.RestartControllers(ctx)
	}
	return nil
}

// failedCleanupPause is how long a failed cleanup rests, so that one that goes on failing does not
// keep the API server busy.
const failedCleanupPause = 500 * time.Millisecond

// RemoveCRD removes a CRD, and with it every object of its kind, and returns when the cluster no
// longer serves it. One that is not there is removed.
//
// Where the API server fails to remove the objects, it tries again after a pause that doubles each
// time, up to 1,000 s (DefaultTypedControllerRateLimiter). A change of the CRD makes it try at
// once, so each failure is answered by one.
func (c *ControlPlane) RemoveCRD(ctx context.Context, name string) error {
	crd, err := c.dynamic.Resource(c.CRDs()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot get CustomResourceDefinition %s: %w", name, err)
	}
	err = c.dynamic.Resource(c.CRDs()).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cannot delete CustomResourceDefinition %s: %w", name, err)
	}
	var cleanup map[string]any
	gone := func(crd *unstructured.Unstructured) bool {
		if crd == nil {
			return true
		}
		cleanup = condition(crd, "Terminating")
		if cleanup["reason"] == "InstanceDeletionFailed" || cleanup["reason"] == "InstanceDeletionCheck" {
			time.Sleep(failedCleanupPause)
			again := fmt.Appendf(nil, `{"metadata":{"annotations":{"cleanup-failed-at":%q}}}`, time.Now().Format(time.RFC3339Nano))
			_, _ = c.dynamic.Resource(c.CRDs()).Patch(ctx, name, types.MergePatchType, again, metav1.PatchOptions{})
		}
		return false
	}
	if err := c.awaitCRD(ctx, name, gone); err != nil {
		return fmt.Errorf("%w; its condition Terminating: %v", err, cleanup)
	}
	return c.awaitDiscovery(ctx, []*unstructured.Unstructured{crd}, false)
}

// CRDNames returns the names of all CRDs that InstallCRDs knows.
func CRDNames() []string {
	all, err := crds(KnativeV1)
	if err != nil {
		panic(err) // The files are compiled in: a bad one fails every test.
	}
	var names []string
	for _, crd := range all {
		names = append(names, crd.GetName())
	}
	return names
}

// crds reads the CRDs and leaves those of Knative one version.
func crds(knative KnativeVersion) ([]*unstructured.Unstructured, error) {
	all, err := readCRDs(crdFiles, "crds")
	if err != nil {
		return nil, err
	}
	for _, crd := range all {
		if group, _, _ := unstructured.NestedString(crd.Object, "spec", "group"); strings.HasSuffix(group, ".knative.dev") {
			versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
			if err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", crd.GetName(), err)
			}
			versions = slices.DeleteFunc(versions, func(v any) bool { return v.(map[string]any)["name"] != string(knative) })
			if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
				return nil, fmt.Errorf("cannot read %s: %w", crd.GetName(), err)
			}
		}
	}
	return all, nil
}

// readCRDs reads the files *.yaml of a directory, each of which holds one CRD.
func readCRDs(files fs.FS, dir string) ([]*unstructured.Unstructured, error) {
	paths, err := fs.Glob(files, path.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("there is no CRD in %s", dir)
	}
	var all []*unstructured.Unstructured
	for _, name := range paths {
		content, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		object, err := yaml.YAMLToJSON(content)
		if err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		crd := &unstructured.Unstructured{}
		if err := crd.UnmarshalJSON(object); err != nil {
			return nil, fmt.Errorf("cannot read %s: %w", name, err)
		}
		all = append(all, crd)
	}
	return all, nil
}

// toV1beta1 gives a CRD the form that it had on the clusters of Kyma 1.10: no schema, so that
// nothing is checked, defaulted or pruned, and for all versions one status and the same columns.
func toV1beta1(crd *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return fmt.Errorf("cannot convert CustomResourceDefinition %s to v1beta1: %w", crd.GetName(), err)
	}
	if len(versions) != 1 {
		return fmt.Errorf("cannot convert CustomResourceDefinition %s to v1beta1: it has %d versions, want one", crd.GetName(), len(versions))
	}
	version := versions[0].(map[string]any)
	spec := crd.Object["spec"].(map[string]any)
	crd.SetAPIVersion("apiextensions.k8s.io/v1beta1")
	spec["preserveUnknownFields"] = true
	spec["version"] = version["name"]
	spec["versions"] = []any{map[string]any{"name": version["name"], "served": version["served"], "storage": version["storage"]}}
	if subresources, ok := version["subresources"]; ok {
		spec["subresources"] = subresources
	}
	columns, _ := version["additionalPrinterColumns"].([]any)
	for _, c := range columns {
		column := c.(map[string]any)
		column["JSONPath"] = column["jsonPath"]
		delete(column, "jsonPath")
	}
	if len(columns) > 0 {
		spec["additionalPrinterColumns"] = columns
	}
	return nil
}

// serves says what is wrong with the CRD in the cluster, compared to the one wanted.
func (c *ControlPlane) serves(ctx context.Context, wanted *unstructured.Unstructured) error {
	current, err := c.dynamic.Resource(c.CRDs()).Get(ctx, wanted.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("cannot get CustomResourceDefinition %s: %w", wanted.GetName(), err)
	}
	if have, want := servedVersions(current), servedVersions(wanted); !slices.Contains(have, want[0]) {
		return fmt.Errorf("CustomResourceDefinition %s serves %q, not %q: remove it first", wanted.GetName(), have, want)
	}
	return nil
}

func servedVersions(crd *unstructured.Unstructured) []string {
	var names []string
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if version, ok := v.(map[string]any); ok && version["served"] == true {
			names = append(names, fmt.Sprint(version["name"]))
		}
	}
	return names
}

// established says whether a CRD is, and whether it got its names: without them the kind is not
// served as expected.
func established(crd *unstructured.Unstructured) bool {
	if crd == nil {
		return false
	}
	return condition(crd, "Established")["status"] == "True" && condition(crd, "NamesAccepted")["status"] == "True"
}

// condition is one of a CRD's conditions, nil if there is none.
func condition(crd *unstructured.Unstructured, name string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == name {
			return c
		}
	}
	return nil
}

// awaitCRD watches a CRD until the test holds; a CRD that is not there is nil.
func (c *ControlPlane) awaitCRD(ctx context.Context, name string, test func(*unstructured.Unstructured) bool) error {
	client := c.dynamic.Resource(c.CRDs())
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	for {
		list, err := client.List(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			return fmt.Errorf("cannot wait for CustomResourceDefinition %s: %w", name, err)
		}
		var crd *unstructured.Unstructured
		if len(list.Items) > 0 {
			crd = &list.Items[0]
		}
		if test(crd) {
			return nil
		}
		w, err := client.Watch(ctx, metav1.ListOptions{FieldSelector: selector, ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return fmt.Errorf("cannot wait for CustomResourceDefinition %s: %w", name, err)
		}
		done := false
		for event := range w.ResultChan() {
			crd, _ := event.Object.(*unstructured.Unstructured)
			if event.Type == watch.Deleted {
				crd = nil
			}
			if done = event.Type != watch.Error && test(crd); done || event.Type == watch.Error {
				break
			}
		}
		w.Stop()
		if done {
			return nil
		}
		// The watch ended early, which watches do: look again.
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("cannot wait for CustomResourceDefinition %s: %w", name, err)
		}
	}
}

// awaitDiscovery asks until discovery tells what the CRDs do. It cannot be watched, and follows
// them a moment later.
func (c *ControlPlane) awaitDiscovery(ctx context.Context, crds []*unstructured.Unstructured, served bool) error {
	for {
		_, lists, err := c.discovery.ServerGroupsAndResources()
		if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
			return fmt.Errorf("cannot discover what is served: %w", err)
		}
		has := map[string]bool{}
		for _, list := range lists {
			for _, resource := range list.APIResources {
				has[list.GroupVersion+"/"+resource.Name] = true
			}
		}
		var wrong []string
		for _, crd := range crds {
			group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
			plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
			for _, version := range servedVersions(crd) {
				if key := group + "/" + version + "/" + plural; has[key] != served {
					wrong = append(wrong, key)
				}
			}
		}
		if len(wrong) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("discovery has not caught up with %s (want served: %t)", strings.Join(wrong, ", "), served), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
