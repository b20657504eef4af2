package decide

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
)

// Users are those of NATS: keys of the Secret with their seeds, and of the chart's values with their public keys.
var Users = []string{"system", "manager", "controller", "publisher"}

// values are those of the chart, as the spec asks for them. keys are the public keys of users, authority the certificate that signs those
// of the servers: servers are restarted if either changes.
func (d *Rules) values(spec *operatorv1alpha1.EventingSpec, keys map[string]string, authority []byte, optional map[string]bool, publishes operatorv1alpha1.BackendType) (map[string]any, error) {
	config := spec.Backend.Config
	active := spec.Backend.Type.Canonical()
	resources := map[string]map[string]any{}
	for name, of := range map[string]corev1.ResourceRequirements{"nats": config.NATSResources, "publisher": spec.Publisher.Resources, "controller": spec.Controller.Resources} {
		values, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&of)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		resources[name] = values
	}
	pullSecrets := []any{}
	for _, name := range d.PullSecrets {
		pullSecrets = append(pullSecrets, name)
	}
	level := strings.ToLower(spec.Logging.LogLevel)
	files, memory := int64(0), config.NATSStreamMaxSize.Value()
	if config.NATSStreamStorageType != operatorv1alpha1.StorageMemory {
		// A tenth of the volume is left for the file system and for what the server writes in addition to events.
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
		"global": map[string]any{
			"prefix": string(d.Names), "version": d.Version, "labels": plain(spec.Labels), "annotations": plain(spec.Annotations),
			"imagePullPolicy": "IfNotPresent", "imagePullSecrets": pullSecrets,
		},
		"backend":            map[string]any{"type": strings.ToLower(string(active))},
		"serviceMonitor":     map[string]any{"enabled": optional[dependency.ServiceMonitor.Kind]},
		"peerAuthentication": map[string]any{"enabled": optional[dependency.PeerAuthentication.Kind]},
		"controller": map[string]any{
			"enabled": true, "image": d.ControllerImage, "replicas": int64(spec.Controller.Replicas), "logLevel": level, "serviceAccountName": d.Names.Controller(),
			"deadLetterSink": config.DeadLetterSink, "deadLetterAfter": config.DeadLetterAfter.Duration.String(), "resources": resources["controller"],
		},
		"publisher": map[string]any{
			"enabled": publishes != "", "backend": string(publishes), "image": d.PublisherImage, "logLevel": level, "serviceAccountName": d.Names.Publisher(),
			"replicas":  map[string]any{"min": int64(spec.Publisher.Replicas.Min), "max": int64(spec.Publisher.Replicas.Max)},
			"resources": resources["publisher"],
		},
		"mesh": map[string]any{"enabled": active == operatorv1alpha1.EventMesh, "deadLetterSink": config.DeadLetterSink},
		"nats": map[string]any{
			"enabled": active == operatorv1alpha1.NATS, "image": d.NATSImage, "replicas": int64(config.NATSStreamReplicas),
			"maxFileStore": strconv.FormatInt(files, 10), "maxMemoryStore": strconv.FormatInt(memory, 10), "syncInterval": interval,
			"storage": map[string]any{
				"type": string(config.NATSStreamStorageType), "size": config.NATSStorage.Size.String(), "className": config.NATSStorage.StorageClassName,
			},
			"resources": resources["nats"], "users": public, "authority": hex.EncodeToString(sum[:8]),
		},
	}, nil
}

func plain(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}
