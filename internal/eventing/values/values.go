// Package values has the values of the chart, as an Eventing asks for them.
package values

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// Users are those of NATS: keys of the Secret with their seeds, and of the chart's values with
// their public keys.
var Users = []string{"system", "manager", "controller", "publisher"}

// Operator is what the operator knows that the spec does not say.
type Operator struct {
	Names   backend.Names
	Version string
	// PublisherImage and ControllerImage have their digests; PullSecrets are for pulling them.
	PublisherImage, ControllerImage string
	PullSecrets                     []string
	// Optional kinds of others that are served.
	Optional map[string]bool
	// Scaled are the Deployments whose number of pods an autoscaler of somebody else decides.
	Scaled map[string]string
}

// Shared are the values but those of the backends. The publisher sends to one; "" is none.
func Shared(op Operator, spec *operatorv1alpha1.EventingSpec, to operatorv1alpha1.BackendType) (map[string]any, error) {
	pullSecrets := []any{}
	for _, name := range op.PullSecrets {
		pullSecrets = append(pullSecrets, name)
	}
	config, level := spec.Backend.Config, strings.ToLower(spec.Logging.LogLevel)
	controller, err := resources(spec.Controller.Resources)
	if err != nil {
		return nil, fmt.Errorf("controller: %w", err)
	}
	publisher, err := resources(spec.Publisher.Resources)
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	pods := func(of operatorv1alpha1.Replicas, deployment string) map[string]any {
		return map[string]any{"min": int64(of.Min), "max": int64(of.Max), "scaled": op.Scaled[deployment] != ""}
	}
	scaled := pods(spec.Controller.Bounds(), op.Names.Controller())
	scaled["cpu"] = scaleAt(spec.Controller.Resources)
	return map[string]any{
		"global": map[string]any{
			"prefix": string(op.Names), "version": op.Version, "labels": untyped(backend.Extra(spec.Labels)), "annotations": untyped(spec.Annotations),
			"imagePullPolicy": "IfNotPresent", "imagePullSecrets": pullSecrets,
		},
		"backend":            map[string]any{"type": strings.ToLower(string(spec.Backend.Type.Canonical()))},
		"tracing":            map[string]any{"endpoint": spec.OTLPEndpoint()},
		"serviceMonitor":     map[string]any{"enabled": op.Optional[dependency.ServiceMonitor.Kind]},
		"peerAuthentication": map[string]any{"enabled": op.Optional[dependency.PeerAuthentication.Kind]},
		"controller": map[string]any{
			"enabled": true, "image": op.ControllerImage, "logLevel": level, "serviceAccountName": op.Names.Controller(),
			"replicas":       scaled,
			"deadLetterSink": config.DeadLetterSink, "deadLetterAfter": config.DeadLetterAfter.Duration.String(), "resources": controller,
			"priorityClassName": spec.Controller.PriorityClassName, "spread": spread(spec.Controller.Spread),
		},
		"publisher": map[string]any{
			"enabled": to != "", "backend": string(to), "image": op.PublisherImage, "logLevel": level, "serviceAccountName": op.Names.Publisher(),
			"replicas":  pods(spec.Publisher.Replicas, op.Names.Publisher()),
			"resources": publisher, "priorityClassName": spec.Publisher.PriorityClassName, "spread": spread(spec.Publisher.Spread),
		},
	}, nil
}

// scaleAt is the CPU that pods use on average when one is added: 60 % of the limit, or of the
// request without one. It is empty if there is neither. What they request is no measure of what
// they can do: by default that is a twelfth.
func scaleAt(of corev1.ResourceRequirements) string {
	for _, list := range []corev1.ResourceList{of.Limits, of.Requests} {
		if q := list.Cpu(); q.Sign() > 0 {
			m := q.MilliValue()
			return resource.NewMilliQuantity(max(m/5*3+m%5*3/5, 1), resource.DecimalSI).String() // however large it is
		}
	}
	return ""
}

// NATS are the values of NATS. keys are the public keys of users, authority the certificate that
// signs those of the servers: servers are restarted if either changes.
func NATS(config operatorv1alpha1.BackendConfig, image string, keys map[string]string, authority []byte) (map[string]any, error) {
	servers, err := resources(config.NATSResources)
	if err != nil {
		return nil, err
	}
	events, dead := stream.Shares(config, resource.Quantity{})
	files, memory := int64(0), events+dead
	if config.NATSStreamStorageType != operatorv1alpha1.StorageMemory {
		// A tenth of the volume is left for the file system and for what the server writes in
		// addition to events.
		files, memory = config.NATSStorage.Size.Value()/10*9, 0
	}
	interval := "always"
	if config.NATSStorage.Sync == operatorv1alpha1.SyncInterval {
		interval = "10s"
	}
	sum := sha256.Sum256(authority)
	public := map[string]any{}
	for _, user := range Users {
		public[user] = keys[user]
	}
	return map[string]any{
		"image": image, "replicas": int64(config.NATSStreamReplicas),
		"maxFileStore": strconv.FormatInt(files, 10), "maxMemoryStore": strconv.FormatInt(memory, 10), "syncInterval": interval,
		"storage": map[string]any{
			"type": string(config.NATSStreamStorageType), "size": config.NATSStorage.Size.String(), "className": config.NATSStorage.StorageClassName,
		},
		"resources": servers, "users": public, "authority": hex.EncodeToString(sum[:8]),
		"priorityClassName": config.NATSPriorityClassName, "spread": spread(config.NATSSpread),
	}, nil
}

// spread is how pods are spread. An Eventing that was stored before has nothing.
func spread(s operatorv1alpha1.Spread) string {
	return string(cmp.Or(s, operatorv1alpha1.SpreadPreferred))
}

func untyped(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}

func resources(of corev1.ResourceRequirements) (map[string]any, error) {
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&of)
}

// Keep writes the values that a backend is rendered with on an object of it.
func Keep(u *unstructured.Unstructured, values any) error {
	raw, err := json.Marshal(values)
	if err != nil {
		return err
	}
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[backend.ValuesAnnotation] = string(raw)
	u.SetAnnotations(annotations)
	return nil
}

// Recorded are the values that a backend was last rendered with; without a record, it is not
// rendered.
func Recorded(u *unstructured.Unstructured) (map[string]any, error) {
	none := map[string]any{"enabled": false}
	if u == nil || u.GetDeletionTimestamp() != nil {
		return none, nil
	}
	kept := u.GetAnnotations()[backend.ValuesAnnotation]
	if kept == "" {
		return none, nil
	}
	values := map[string]any{}
	if err := json.Unmarshal([]byte(kept), &values); err != nil {
		return nil, fmt.Errorf("annotation %s of %s: %w", backend.ValuesAnnotation, u.GetKind()+" "+u.GetName(), err)
	}
	return values, nil
}
