package standin

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resources of Service Catalog, and of Kyma's additions to it.
var (
	ServiceBrokers       = schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "servicebrokers"}
	ServiceClasses       = schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "serviceclasses"}
	ServicePlans         = schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "serviceplans"}
	ServiceInstances     = schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "serviceinstances"}
	ServiceBindings      = schema.GroupVersionResource{Group: "servicecatalog.k8s.io", Version: "v1beta1", Resource: "servicebindings"}
	ServiceBindingUsages = schema.GroupVersionResource{Group: "servicecatalog.kyma-project.io", Version: "v1alpha1", Resource: "servicebindingusages"}
	PodPresets           = schema.GroupVersionResource{Group: "settings.svcat.k8s.io", Version: "v1alpha1", Resource: "podpresets"}
	Policies             = schema.GroupVersionResource{Group: "authentication.istio.io", Version: "v1alpha1", Resource: "policies"}
	Secrets              = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// CatalogFinalizer is what Service Catalog holds its instances and bindings by.
const CatalogFinalizer = "kubernetes-incubator/service-catalog"

// AppService is a service of an Application.
type AppService struct {
	// ID is a UUID as a rule; any string is legal.
	ID string
	// Name is the external name of its class; "": the ID.
	Name string
	// Events and API are the entries it has. Only one with an API can be bound to.
	Events, API bool
}

// ApplicationWith returns an Application with services. Its compass ID, which API packages are
// known by, is its name with "compass-" before it.
func ApplicationWith(name string, services ...AppService) *unstructured.Unstructured {
	app := Application(name, false)
	list := []any{}
	for _, s := range services {
		if s.Name == "" {
			s.Name = s.ID
		}
		entries := []any{}
		if s.API {
			entries = append(entries, map[string]any{
				"type": "API", "accessLabel": name, "targetUrl": "https://api." + name + ".example.com",
				"gatewayUrl": "http://" + name + "-" + s.Name + "." + IntegrationNamespace + ".svc.cluster.local",
			})
		}
		if s.Events {
			entries = append(entries, map[string]any{"type": "Events"})
		}
		list = append(list, map[string]any{
			"id": s.ID, "name": s.Name, "displayName": s.Name, "providerDisplayName": "Provider", "description": "Service " + s.Name,
			"labels": map[string]any{"connected-app": name}, "tags": []any{}, "entries": entries,
		})
	}
	spec := app.Object["spec"].(map[string]any)
	spec["services"] = list
	spec["compassMetadata"] = map[string]any{"applicationId": "compass-" + name, "authentication": map[string]any{"clientIds": []any{}}}
	return app
}

// ApplicationMapping enables these services of an Application in a namespace; without any, all.
func ApplicationMapping(namespace, app string, serviceIDs ...string) *unstructured.Unstructured {
	spec := map[string]any{}
	if len(serviceIDs) > 0 {
		list := []any{}
		for _, id := range serviceIDs {
			list = append(list, map[string]any{"id": id})
		}
		spec["services"] = list
	}
	return object(ApplicationMappings.GroupVersion().WithKind("ApplicationMapping"), namespace, app, map[string]any{"spec": spec})
}

// ServiceInstance returns one as Kyma's Console makes it: by the external names of class and plan.
func ServiceInstance(namespace, name, class string) *unstructured.Unstructured {
	return object(ServiceInstances.GroupVersion().WithKind("ServiceInstance"), namespace, name, map[string]any{
		"spec": map[string]any{"serviceClassExternalName": class, "servicePlanExternalName": "default"},
	})
}

// ServiceBinding returns a binding to an instance, with its Secret of the same name.
func ServiceBinding(namespace, name, instance string) *unstructured.Unstructured {
	return object(ServiceBindings.GroupVersion().WithKind("ServiceBinding"), namespace, name, map[string]any{
		"spec": map[string]any{"instanceRef": map[string]any{"name": instance}},
	})
}

// ServiceBindingUsage gives the credentials of a binding to a Deployment.
func ServiceBindingUsage(namespace, name, binding, deployment string) *unstructured.Unstructured {
	u := object(ServiceBindingUsages.GroupVersion().WithKind("ServiceBindingUsage"), namespace, name, map[string]any{
		"spec": map[string]any{
			"serviceBindingRef": map[string]any{"name": binding},
			"usedBy":            map[string]any{"kind": "deployment", "name": deployment},
		},
	})
	u.SetLabels(map[string]string{"Function": deployment, "ServiceBinding": binding})
	return u
}

// Workload returns a Deployment of a user without replicas, for a ServiceBindingUsage.
func Workload(namespace, name string) *unstructured.Unstructured {
	return deployment(namespace, name, 0, map[string]any{"app": name})
}

// policy lets anybody call the Broker of a namespace (Kyma 1.11).
func policy(namespace string) *unstructured.Unstructured {
	p := object(Policies.GroupVersion().WithKind("Policy"), namespace, namespace+"-broker", map[string]any{"spec": map[string]any{
		"targets": []any{map[string]any{"name": "default-broker"}, map[string]any{"name": "default-broker-filter"}},
		"peers":   []any{map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}}},
	}})
	p.SetLabels(map[string]string{"eventing.knative.dev/broker": "default"})
	return p
}

func ownerReference(u *unstructured.Unstructured) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}
