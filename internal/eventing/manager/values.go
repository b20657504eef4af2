package manager

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
)

// Settings are the operator's own: they are the same for every Eventing.
type Settings struct {
	// Names has the prefix of all names.
	Names backend.Names
	// Namespace is where everything is installed.
	Namespace string
	// Version of the operator.
	Version string
	// NATSImage is the image of nats-server, with its digest.
	NATSImage string
	// ImagePullPolicy of all pods; Kubernetes' default if empty.
	ImagePullPolicy corev1.PullPolicy
}

// Users are the public keys of the users of NATS, by name.
type Users map[string]string

// The users of NATS. The Secret <prefix>-nats-users has a key with the seed for each.
const (
	userSystem     = "system"
	userManager    = "manager"
	userController = "controller"
	userPublisher  = "publisher"
)

var users = []string{userSystem, userManager, userController, userPublisher}

// values are those with which the chart is rendered for an Eventing. docs/eventing.md has the table.
func (s Settings) values(e *operatorv1alpha1.Eventing, keys Users) (map[string]any, error) {
	global := map[string]any{
		"prefix": string(s.Names), "version": s.Version, "labels": texts(e.Spec.Labels), "annotations": texts(e.Spec.Annotations),
	}
	if s.ImagePullPolicy != "" {
		global["imagePullPolicy"] = string(s.ImagePullPolicy)
	}
	values := map[string]any{"global": global, "backend": map[string]any{"type": ""}, "nats": map[string]any{"enabled": false}}
	if e.Spec.Backend == nil {
		return values, nil
	}
	of := e.Spec.Backend.Type.Canonical()
	values["backend"] = map[string]any{"type": strings.ToLower(string(of))}
	if of != operatorv1alpha1.NATS {
		return values, nil
	}
	c := e.Spec.Backend.Config
	resources, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.NATSResources)
	if err != nil {
		return nil, fmt.Errorf("spec.backend.config.natsResources: %w", err)
	}
	fileStore, memoryStore := c.NATSStorage.Size.Value(), int64(0)
	if c.NATSStreamStorageType == operatorv1alpha1.StorageMemory {
		fileStore, memoryStore = 0, c.NATSStreamMaxSize.Value()
	}
	sync := "always"
	if c.NATSStorage.Sync == operatorv1alpha1.SyncInterval {
		sync = "10s"
	}
	keysOf := map[string]any{}
	for _, user := range users {
		keysOf[user] = keys[user]
	}
	values["nats"] = map[string]any{
		"enabled":        true,
		"image":          s.NATSImage,
		"replicas":       int64(c.NATSStreamReplicas),
		"maxFileStore":   fmt.Sprint(fileStore),
		"maxMemoryStore": fmt.Sprint(memoryStore),
		"syncInterval":   sync,
		"storage": map[string]any{
			"type": string(c.NATSStreamStorageType), "size": c.NATSStorage.Size.String(), "className": c.NATSStorage.StorageClassName,
		},
		"resources": resources,
		"users":     keysOf,
	}
	return values, nil
}

// texts is a map of texts as values have it.
func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for key, value := range m {
		out[key] = value
	}
	return out
}

// natsNames are the names under which clients and the other servers reach a NATS server: those in its certificate.
func (s Settings) natsNames() []string {
	service, headless := s.Names.NATS()+"."+s.Namespace, "*."+s.Names.NATSHeadless()+"."+s.Namespace
	return []string{
		service + ".svc", s.Names.NATS(), service, service + ".svc.cluster.local",
		headless, headless + ".svc", headless + ".svc.cluster.local",
	}
}
