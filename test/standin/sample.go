package standin

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// State is how an Application of the sample stands before any migration.
type State string

const (
	// InPlace has its HTTPSource.
	InPlace State = "in place"
	// Starting has its HTTPSource, whose adapter is to take a while: a test that loads
	// the sample breaks it, by AdapterNotReadyFor.
	Starting State = "HTTPSource not ready yet"
	// DeletedByHand had an HTTPSource: it is in the release's manifest.
	DeletedByHand State = "HTTPSource deleted by hand"
	// UpgradeFailed was never upgraded to a chart with an HTTPSource; creating
	// it by hand would break the next upgrade.
	UpgradeFailed State = "release from before HTTPSources"
	// InstallFailed has no release that was ever deployed; creating its
	// HTTPSource by hand would break the next installation.
	InstallFailed State = "release never deployed"
	// NeverInstalled has skipInstallation, and so neither release nor
	// event-service.
	NeverInstalled State = "skipInstallation"
	// FrozenInPlace has skipInstallation, which came after its release.
	FrozenInPlace State = "in place, skipInstallation since"
	// OptedOut has no HTTPSource, and the label that takes it out of the
	// migration.
	OptedOut State = "opted out by its label"
)

// SampleApplication is one Application of the sample.
type SampleApplication struct {
	Name  string
	State State
	// Namespaces that use it.
	Namespaces []string
}

var sample = Sample{
	{Name: "billing", State: InPlace, Namespaces: []string{"finance"}},
	{Name: "commerce-eu", State: InPlace, Namespaces: []string{"shop", "analytics"}},
	{Name: "commerce-us", State: InPlace, Namespaces: []string{"shop"}},
	{Name: "crm", State: InPlace, Namespaces: []string{"marketing"}},
	{Name: "fulfilment", State: InPlace, Namespaces: []string{"shop"}},
	{Name: "identity", State: InPlace},
	{Name: "invoicing", State: InPlace, Namespaces: []string{"finance"}},
	{Name: "logistics", State: InPlace},
	{Name: "loyalty", State: InPlace, Namespaces: []string{"marketing"}},
	{Name: "search", State: InPlace, Namespaces: []string{"shop"}},
	{Name: "warehouse", State: InPlace, Namespaces: []string{"analytics"}},

	{Name: "inventory", State: Starting, Namespaces: []string{"shop"}},

	{Name: "feedback", State: DeletedByHand, Namespaces: []string{"marketing"}},
	{Name: "newsletter", State: DeletedByHand, Namespaces: []string{"marketing"}},
	{Name: "payments", State: DeletedByHand, Namespaces: []string{"finance"}},
	{Name: "pricing", State: DeletedByHand, Namespaces: []string{"shop"}},
	{Name: "recommendations", State: DeletedByHand, Namespaces: []string{"shop"}},
	{Name: "returns", State: DeletedByHand, Namespaces: []string{"shop"}},
	{Name: "surveys", State: DeletedByHand},
	{Name: "ticketing", State: DeletedByHand},

	{Name: "erp-2016", State: UpgradeFailed, Namespaces: []string{"finance"}},
	{Name: "storefront-classic", State: UpgradeFailed, Namespaces: []string{"shop"}},
	{Name: "partner-portal", State: InstallFailed},

	{Name: "playground", State: NeverInstalled},
	{Name: "supplier-portal", State: NeverInstalled},
	{Name: "telemetry", State: FrozenInPlace, Namespaces: []string{"analytics"}},

	{Name: "load-test", State: OptedOut},
}

// Sample is a Kyma 1.10 cluster as operators have them: most Applications are
// fine, and the others differ in what is missing.
type Sample []SampleApplication

// In returns the names of the Applications in any of the states, in order.
func (s Sample) In(states ...State) []string {
	var names []string
	for _, app := range s {
		if slices.Contains(states, app.State) {
			names = append(names, app.Name)
		}
	}
	return names
}

// SampleApplications returns what LoadSample puts in place.
func SampleApplications() Sample { return slices.Clone(sample) }

// LoadSample puts a sample Kyma 1.10 cluster in place, as it is before any
// migration. The controllers (Start) make its HTTPSources ready.
func LoadSample(ctx context.Context, cfg *rest.Config) (Sample, error) {
	client, _, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	namespaces := []string{SystemNamespace, IntegrationNamespace, EventingNamespace}
	seen := map[string]bool{}
	var objects []*unstructured.Unstructured
	for _, app := range sample {
		for _, ns := range app.Namespaces {
			if !seen[ns] {
				seen[ns] = true
				namespaces = append(namespaces, ns)
			}
			objects = append(objects, object(ApplicationMappings.GroupVersion().WithKind("ApplicationMapping"), ns, app.Name, map[string]any{}))
		}
		objects = append(objects, app.objects()...)
	}
	if err := ensureNamespaces(ctx, client, namespaces); err != nil {
		return nil, err
	}
	return SampleApplications(), createAll(ctx, client, append(objects, systemObjects()...))
}

// objects that an Application in this state has.
func (a SampleApplication) objects() []*unstructured.Unstructured {
	app := Application(a.Name, a.State == NeverInstalled)
	out := []*unstructured.Unstructured{app}
	release := func(version int, status string, httpSource bool) {
		out = append(out, TillerRelease(a.Name, IntegrationNamespace, version, status, ApplicationManifest(a.Name, httpSource)))
	}
	switch a.State {
	case FrozenInPlace:
		app.Object["spec"].(map[string]any)["skipInstallation"] = true
	case InstallFailed:
		app.Object["status"] = map[string]any{"installationStatus": map[string]any{"status": "FAILED"}}
	case OptedOut:
		app.SetLabels(map[string]string{madeForTests: "true", "eventmesh-migration.kyma-project.io/skip": "true"})
	}
	switch a.State {
	case InPlace, FrozenInPlace, Starting:
		release(1, "SUPERSEDED", false)
		release(2, "DEPLOYED", true)
		out = append(out, HTTPSource(a.Name))
	case DeletedByHand, OptedOut:
		release(3, "DEPLOYED", true)
	case UpgradeFailed:
		release(1, "DEPLOYED", false)
		release(2, "FAILED", true)
	case InstallFailed:
		release(1, "FAILED", true)
	}
	if a.State != NeverInstalled && a.State != InstallFailed {
		out = append(out, EventService(a.Name, false))
	}
	return out
}

// systemObjects are the Deployments of Kyma that the migration meets.
func systemObjects() []*unstructured.Unstructured {
	return []*unstructured.Unstructured{
		deployment(SystemNamespace, "event-bus-event-publish-service", 2, map[string]any{
			"app.kubernetes.io/name": "event-publish-service", "app.kubernetes.io/instance": "event-bus",
		}),
		deployment(SystemNamespace, "event-bus-subscription-controller", 1, map[string]any{
			"app.kubernetes.io/name": "subscription-controller", "app.kubernetes.io/instance": "event-bus",
		}),
		deployment(SystemNamespace, "event-sources-controller-manager", 1, map[string]any{
			"app.kubernetes.io/name": "event-sources-controller-manager", "app.kubernetes.io/instance": "event-sources",
		}),
		deployment(IntegrationNamespace, "application-broker", 1, map[string]any{"app": "application-broker"}),
		deployment(TillerNamespace, "tiller-deploy", 1, map[string]any{"app": "helm", "name": "tiller"}),
		object(corev1.SchemeGroupVersion.WithKind("ConfigMap"), EventingNamespace, "default-ch-webhook", map[string]any{
			"data": map[string]any{"default-ch-config": "clusterDefault:\n  apiVersion: messaging.knative.dev/v1alpha1\n  kind: NatssChannel\n"},
		}),
	}
}

func deployment(namespace, name string, replicas int64, labels map[string]any) *unstructured.Unstructured {
	return object(Deployments.GroupVersion().WithKind("Deployment"), namespace, name, map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec": map[string]any{
			"replicas": replicas,
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": name, "image": "eu.gcr.io/kyma-project/" + name}}},
			},
		},
	})
}

// BadApplication is an Application that makes the httpsource-sync job refuse.
type BadApplication struct {
	Name   string
	Reason string
	// Objects are the Application, and what stands in its way.
	Objects []*unstructured.Unstructured
}

// BadApplications are Applications that no HTTPSource can be made for. None is
// part of the sample: each refuses the whole run.
func BadApplications() []BadApplication {
	foreignSource := HTTPSource("taken-source")
	foreignSource.Object["spec"] = map[string]any{"source": "somebody-else"}
	foreignSource.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "somebody-else"})
	return []BadApplication{
		{
			Name: "shop.example.com", Reason: "its name has dots, which the name of the adapter's Service cannot have",
			Objects: []*unstructured.Unstructured{Application("shop.example.com", false)},
		},
		{
			Name: "4th-floor", Reason: "its name begins with a digit, which the name of the adapter's Service cannot",
			Objects: []*unstructured.Unstructured{Application("4th-floor", false)},
		},
		{
			Name:   "an-application-whose-name-is-far-too-long-for-the-label-of-a-channel",
			Reason: "its name is longer than a label value may be",
			Objects: []*unstructured.Unstructured{
				Application("an-application-whose-name-is-far-too-long-for-the-label-of-a-channel", false),
			},
		},
		{
			Name: "taken-source", Reason: "an HTTPSource of its name is for another source",
			Objects: []*unstructured.Unstructured{Application("taken-source", false), foreignSource},
		},
	}
}

// Load creates the objects, of any kind of Kyma, Knative or Kubernetes that the
// stand-in knows, and leaves alone those that exist.
func Load(ctx context.Context, cfg *rest.Config, objects ...*unstructured.Unstructured) error {
	client, _, err := connect(cfg)
	if err != nil {
		return err
	}
	return createAll(ctx, client, objects)
}

// parallel is how many writes of a helper are in flight.
const parallel = 16

func createAll(ctx context.Context, client dynamic.Interface, objects []*unstructured.Unstructured) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, u := range objects {
		group.Go(func() error {
			gvr, err := resourceOf(u.GroupVersionKind())
			if err != nil {
				return err
			}
			_, err = client.Resource(gvr).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("cannot create %s %s: %w", u.GetKind(), keyOf(u), err)
			}
			return nil
		})
	}
	return group.Wait()
}

func resourceOf(gvk schema.GroupVersionKind) (schema.GroupVersionResource, error) {
	resource, ok := map[string]string{
		"Application":         "applications",
		"ApplicationMapping":  "applicationmappings",
		"Channel":             "channels",
		"ConfigMap":           "configmaps",
		"Deployment":          "deployments",
		"EventActivation":     "eventactivations",
		"HTTPSource":          "httpsources",
		"Namespace":           "namespaces",
		"Service":             "services",
		"ServiceBinding":      "servicebindings",
		"ServiceBindingUsage": "servicebindingusages",
		"ServiceInstance":     "serviceinstances",
	}[gvk.Kind]
	if !ok {
		return schema.GroupVersionResource{}, fmt.Errorf("cannot create %s: the stand-in does not know the kind", gvk)
	}
	return gvk.GroupVersion().WithResource(resource), nil
}

func ensureNamespaces(ctx context.Context, client dynamic.Interface, names []string) error {
	objects := make([]*unstructured.Unstructured, len(names))
	for i, name := range names {
		objects[i] = object(corev1.SchemeGroupVersion.WithKind("Namespace"), "", name, map[string]any{})
		objects[i].SetLabels(map[string]string{madeForTests: "true"})
	}
	return createAll(ctx, client, objects)
}
