package standin

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Namespaces of a Kyma cluster.
const (
	SystemNamespace      = "kyma-system"
	IntegrationNamespace = "kyma-integration"
	EventingNamespace    = "knative-eventing"
	TillerNamespace      = "kube-system"
)

// Resources that have the same version in every cluster.
var (
	Applications        = schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "applications"}
	ApplicationMappings = schema.GroupVersionResource{Group: "applicationconnector.kyma-project.io", Version: "v1alpha1", Resource: "applicationmappings"}
	HTTPSources         = schema.GroupVersionResource{Group: "sources.kyma-project.io", Version: "v1alpha1", Resource: "httpsources"}
	Deployments         = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	ConfigMaps          = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	Namespaces          = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// adapterImage is the HTTP adapter of Kyma 1.10, adapterImage111 that of 1.11,
// eventServiceImage the event-service.
const (
	adapterImage      = "eu.gcr.io/kyma-project/event-sources-http-adapter:5f14f4a2"
	adapterImage111   = "eu.gcr.io/kyma-project/event-sources-http-adapter:bb5810fd"
	eventServiceImage = "eu.gcr.io/kyma-project/event-service:b2aa1331"
)

// Application returns an Application as the operator of Kyma 1.10 leaves it,
// without its finalizer, so that tests can delete it.
func Application(name string, skipInstallation bool) *unstructured.Unstructured {
	status := "DEPLOYED"
	if skipInstallation {
		status = "INSTALLATION_SKIPPED"
	}
	spec := map[string]any{"description": "Application " + name, "services": []any{}}
	// The operator always sets it, and fails where the CRD forbids it.
	if len(name) <= validation.LabelValueMaxLength {
		spec["accessLabel"] = name
	}
	if skipInstallation {
		spec["skipInstallation"] = true
	}
	app := object(Applications.GroupVersion().WithKind("Application"), "", name, map[string]any{
		"spec": spec,
		// The CRD has no status subresource: what is sent is stored.
		"status": map[string]any{"installationStatus": map[string]any{"status": status, "description": "Installation complete"}},
	})
	app.SetLabels(map[string]string{madeForTests: "true"})
	return app
}

// HTTPSource returns the HTTPSource that the application chart renders: no
// labels, and a spec with nothing but the source.
func HTTPSource(app string) *unstructured.Unstructured {
	return object(HTTPSources.GroupVersion().WithKind("HTTPSource"), IntegrationNamespace, app, map[string]any{
		"spec": map[string]any{"source": app},
	})
}

// EventService returns the Deployment of an Application's event-service; with
// onMesh, as Kyma 1.11 deploys it.
func EventService(app string, onMesh bool) *unstructured.Unstructured {
	name := app + "-event-service"
	labels := map[string]any{"app": name, "release": app, "heritage": "Tiller"}
	image := eventServiceImage
	args := []any{
		"/eventservice",
		"--sourceId=" + app,
		"--eventsTargetURLV1=http://event-publish-service.kyma-system:8080/v1/events",
		"--eventsTargetURLV2=http://event-publish-service.kyma-system:8080/v2/events",
	}
	if onMesh {
		image = "eu.gcr.io/kyma-project/event-service:cd9874af"
		args = append(args, "--eventMeshURL=http://"+app+"."+IntegrationNamespace)
	}
	return object(Deployments.GroupVersion().WithKind("Deployment"), IntegrationNamespace, name, map[string]any{
		"metadata": map[string]any{"labels": labels},
		"spec": map[string]any{
			"replicas": int64(1),
			"strategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(0)}},
			"selector": map[string]any{"matchLabels": map[string]any{"app": name, "release": app}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"app": name, "release": app}},
				"spec": map[string]any{
					"containers": []any{map[string]any{
						"name": name, "image": image, "args": args,
						"ports": []any{map[string]any{"containerPort": int64(8081), "name": "http-api-port"}},
						"readinessProbe": map[string]any{
							"httpGet": map[string]any{"path": "/v1/health", "port": int64(8081)},
						},
					}},
				},
			},
		},
	})
}

// newChannel returns the Channel as the API server of a Kyma cluster stores it:
// its webhook has filled in the channelTemplate.
func (c *Controllers) newChannel(src *unstructured.Unstructured) *unstructured.Unstructured {
	ch := object(c.channels.gvk, src.GetNamespace(), src.GetName(), map[string]any{
		"spec": channelSpec(c.realKnative),
	})
	ch.SetLabels(map[string]string{"application-name": src.GetName()})
	ch.SetOwnerReferences([]metav1.OwnerReference{controlledBy(src)})
	return ch
}

// channelSpec is that of a Channel of Kyma's. The real Knative Eventing chooses what
// it has.
func channelSpec(realKnative bool) map[string]any {
	if realKnative {
		return map[string]any{}
	}
	return map[string]any{"channelTemplate": map[string]any{"apiVersion": "messaging.knative.dev/v1alpha1", "kind": "NatssChannel"}}
}

// newService returns the adapter.
func (c *Controllers) newService(src *unstructured.Unstructured, sinkURL string) *unstructured.Unstructured {
	source, _, _ := unstructured.NestedString(src.Object, "spec", "source")
	env := func(name, value string) any { return map[string]any{"name": name, "value": value} }
	image, labels := adapterImage, map[string]string{"serving.knative.dev/visibility": "cluster-local"}
	if c.kyma111 {
		image, labels["application-name"] = adapterImage111, src.GetName()
	}
	svc := object(c.services.gvk, src.GetNamespace(), src.GetName(), map[string]any{
		"spec": map[string]any{"template": map[string]any{
			"metadata": map[string]any{
				"annotations": map[string]any{"autoscaling.knative.dev/minScale": "1"},
				"labels":      map[string]any{"kyma-project.io/dashboard": "event-mesh"},
			},
			"spec": map[string]any{"containers": []any{map[string]any{
				"image": image,
				"ports": []any{map[string]any{"containerPort": int64(8080)}},
				"env": []any{
					env("EVENT_SOURCE", source),
					env("SINK_URI", sinkURL),
					env("NAMESPACE", src.GetNamespace()),
					env("K_METRICS_CONFIG", `{"Domain":"kyma-project.io/event-sources","Component":"httpsource"}`),
					env("K_LOGGING_CONFIG", `{"zap-logger-config":"{\"level\":\"info\"}"}`),
				},
				"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/healthz"}},
			}}},
		}},
	})
	svc.SetLabels(labels)
	svc.SetOwnerReferences([]metav1.OwnerReference{controlledBy(src)})
	return svc
}

// adapterTemplate is the part of a Knative Service that the HTTPSource controller keeps
// as it wants it.
func adapterTemplate(svc *unstructured.Unstructured) map[string]any {
	template, _, _ := unstructured.NestedMap(svc.Object, "spec", "template")
	part := map[string]any{}
	for _, field := range []string{"annotations", "labels"} {
		part[field], _, _ = unstructured.NestedStringMap(template, "metadata", field)
	}
	containers, _, _ := unstructured.NestedSlice(template, "spec", "containers")
	if len(containers) > 0 {
		container, _ := containers[0].(map[string]any)
		for _, field := range []string{"image", "ports", "env", "readinessProbe"} {
			part[field] = container[field]
		}
	}
	return part
}

// ownAnnotations are those that no webhook of Knative has put on an object.
func ownAnnotations(u *unstructured.Unstructured) map[string]string {
	own := u.GetAnnotations()
	maps.DeleteFunc(own, func(key, _ string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(domain, "knative.dev")
	})
	return own
}

// adapterPolicy lets the metrics of a revision of the adapter be read (Kyma 1.11).
func (c *Controllers) adapterPolicy(src *unstructured.Unstructured, revision string) *unstructured.Unstructured {
	p := object(Policies.GroupVersion().WithKind("Policy"), src.GetNamespace(), revision+"-private", map[string]any{"spec": map[string]any{
		"targets": []any{map[string]any{"name": revision + "-private", "ports": []any{map[string]any{"name": "http-usermetric"}}}},
		"peers":   []any{map[string]any{"mtls": map[string]any{"mode": "PERMISSIVE"}}},
	}})
	p.SetLabels(map[string]string{"application-name": src.GetName()})
	p.SetOwnerReferences([]metav1.OwnerReference{controlledBy(src)})
	return p
}

func controlledBy(owner *unstructured.Unstructured) metav1.OwnerReference {
	return *metav1.NewControllerRef(owner, owner.GroupVersionKind())
}

// address of a Channel, empty if it has none or does not exist.
func address(ch *unstructured.Unstructured) string {
	if ch == nil {
		return ""
	}
	url, _, _ := unstructured.NestedString(ch.Object, "status", "address", "url")
	return url
}

func object(gvk schema.GroupVersionKind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetName(name)
	if namespace != "" {
		u.SetNamespace(namespace)
	}
	return u
}
