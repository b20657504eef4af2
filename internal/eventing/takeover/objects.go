package takeover

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// defaultReplicas are those of a Deployment of which nobody remembers how many it had.
const defaultReplicas = 1

// replicasOf are those that are asked for; 0 of what does not exist.
func replicasOf(d *unstructured.Unstructured) int64 {
	if d == nil {
		return 0
	}
	n, set, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	if !set {
		return defaultReplicas
	}
	return n
}

// keptReplicas are those that it had before it was stopped.
func keptReplicas(d *unstructured.Unstructured) int64 {
	n, _ := strconv.ParseInt(d.GetAnnotations()[ReplicasAnnotation], 10, 32)
	return max(n, defaultReplicas)
}

// available tells whether as many pods as are asked for are available, of the present template.
func available(d *unstructured.Unstructured) bool {
	if d == nil {
		return false
	}
	status := func(field string) int64 {
		n, _, _ := unstructured.NestedInt64(d.Object, "status", field)
		return n
	}
	want := replicasOf(d)
	return want > 0 && status("observedGeneration") >= d.GetGeneration() && status("updatedReplicas") >= want && status("availableReplicas") >= want
}

// seen tells whether the controller of a Deployment has seen its present spec.
func seen(d *unstructured.Unstructured) bool {
	observed, _, _ := unstructured.NestedInt64(d.Object, "status", "observedGeneration")
	return observed >= d.GetGeneration()
}

func isEventing(o metav1.OwnerReference) bool { return o.Kind == eventings.Kind }

// selectorOf is the selector of a Service.
func selectorOf(service *unstructured.Unstructured) map[string]string {
	if service == nil {
		return nil
	}
	s, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	return s
}

// podLabels are those of a Deployment's pods.
func podLabels(d *unstructured.Unstructured) map[string]string {
	if d == nil {
		return nil
	}
	l, _, _ := unstructured.NestedStringMap(d.Object, "spec", "template", "metadata", "labels")
	return l
}

// leadsTo tells whether a Service selects the pods of a Deployment.
func leadsTo(service, d *unstructured.Unstructured) bool {
	selector, labels := selectorOf(service), podLabels(d)
	if len(selector) == 0 || len(labels) == 0 {
		return false
	}
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// ourSelector selects the pods of our publisher, as its own Service does.
func ourSelector(names backend.Names) map[string]any {
	return map[string]any{
		nameLabel:                "publisher-proxy",
		backend.PodInstanceLabel: string(names),
		backend.PlaneLabel:       string(backend.PlaneShared),
	}
}

// bridgeName is the name of the bridge, and of the rule that lets it reach our NATS.
func bridgeName(names backend.Names) string { return string(names) + "-publisher-bridge" }

// theirSelector are the labels that Kyma's Service wants of pods. While the Service leads to ours,
// they are those of Kyma's own pods.
func (s *snapshot) theirSelector() map[string]string {
	if !s.serviceIsOurs() {
		return selectorOf(s.service)
	}
	return podLabels(s.theirPublisher)
}

func (s *snapshot) serviceIsOurs() bool { return leadsTo(s.service, s.ourPublisher) }

// bridgeOf is a copy of our publisher whose pods Kyma's Service selects. Its own label selects them
// for it, so that neither of the other Deployments takes them for its own.
func (s *snapshot) bridgeOf() *unstructured.Unstructured {
	template, _, _ := unstructured.NestedMap(s.ourPublisher.Object, "spec", "template")
	labels := map[string]any{BridgeLabel: string(s.names), "sidecar.istio.io/inject": "false"}
	for key, value := range s.theirSelector() {
		labels[key] = value
	}
	metadata, _ := template["metadata"].(map[string]any)
	template["metadata"] = map[string]any{"labels": labels}
	if annotations, ok := metadata["annotations"]; ok {
		template["metadata"].(map[string]any)["annotations"] = annotations
	}
	pod, _ := template["spec"].(map[string]any)
	delete(pod, "topologySpreadConstraints") // it counts pods by other labels
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": deployments.GroupVersion().String(), "kind": deployments.Kind,
		"metadata": map[string]any{"name": bridgeName(s.names), "namespace": s.namespace, "labels": map[string]any{BridgeLabel: string(s.names)}},
		"spec": map[string]any{
			"replicas": max(cmp.Or(replicasOf(s.ourPublisher), defaultReplicas), min(keptOr(s.theirPublisher), 10)),
			"selector": map[string]any{"matchLabels": map[string]any{BridgeLabel: string(s.names)}},
			"strategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": int64(0), "maxSurge": int64(1)}},
			"template": template,
		},
	}}
}

// keptOr are the replicas that a Deployment has, or had.
func keptOr(d *unstructured.Unstructured) int64 {
	if d == nil {
		return 0
	}
	return cmp.Or(replicasOf(d), keptReplicas(d))
}

// networkRuleOf lets the bridge reach our NATS, where policies are enforced, and everybody the
// bridge.
func (s *snapshot) networkRuleOf() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": networkRules.GroupVersion().String(), "kind": networkRules.Kind,
		"metadata": map[string]any{"name": bridgeName(s.names), "namespace": s.namespace, "labels": map[string]any{BridgeLabel: string(s.names)}},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]any{
				nameLabel: "nats", backend.PodInstanceLabel: string(s.names), backend.PlaneLabel: string(backend.PlaneNATS),
			}},
			"policyTypes": []any{"Ingress"},
			"ingress": []any{map[string]any{
				"from":  []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{BridgeLabel: string(s.names)}}}},
				"ports": []any{map[string]any{"port": int64(4222), "protocol": "TCP"}},
			}},
		},
	}}
}

// freezeMessage is what people are told who change a Subscription meanwhile.
const freezeMessage = "eventing is moved to another operator, and Subscriptions cannot be created or changed meanwhile. Next: kubectl eventing take-over plan"

// policyOf freezes Subscriptions: one that is created while two NATS accept events would have a
// consumer in one of them only. Their status, labels and finalizers can be written, and they can be
// deleted.
func policyOf() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": policies.GroupVersion().String(), "kind": policies.Kind,
		"metadata": map[string]any{"name": freezeName},
		"spec": map[string]any{
			"failurePolicy": "Fail",
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{subscriptions.Group}, "apiVersions": []any{"*"}, "resources": []any{subscriptions.GroupVersionResource.Resource},
				"operations": []any{"CREATE", "UPDATE"}, "scope": "Namespaced",
			}}, "matchPolicy": "Equivalent"},
			"validations": []any{map[string]any{
				"expression": "request.operation == 'UPDATE' && object.spec == oldObject.spec", "message": freezeMessage, "reason": "Forbidden",
			}},
		},
	}}
}

func bindingOf() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": bindings.GroupVersion().String(), "kind": bindings.Kind,
		"metadata": map[string]any{"name": freezeName},
		"spec":     map[string]any{"policyName": freezeName, "validationActions": []any{"Deny"}},
	}}
}

// merged makes a merge patch of a selector: what was there goes.
func merged(is map[string]string, want map[string]any) map[string]any {
	all := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(is)) {
		all[key] = nil
	}
	maps.Copy(all, want)
	return all
}
