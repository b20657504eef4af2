package decide

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// Users are those of NATS: keys of the Secret with their seeds, and of the chart's values with
// their public keys.
var Users = []string{"system", "manager", "controller", "publisher"}

// values are those of the chart, as the spec asks for them. keys are the public keys of users,
// authority the certificate that signs those of the servers: servers are restarted if either
// changes.
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
		"global": map[string]any{
			"prefix": string(d.Names), "version": d.Version, "labels": plain(backend.Extra(spec.Labels)), "annotations": plain(spec.Annotations),
			"imagePullPolicy": "IfNotPresent", "imagePullSecrets": pullSecrets,
		},
		"backend":            map[string]any{"type": strings.ToLower(string(active))},
		"serviceMonitor":     map[string]any{"enabled": optional[dependency.ServiceMonitor.Kind]},
		"peerAuthentication": map[string]any{"enabled": optional[dependency.PeerAuthentication.Kind]},
		"controller": map[string]any{
			"enabled": true, "image": d.ControllerImage, "replicas": int64(spec.Controller.Replicas), "logLevel": level, "serviceAccountName": d.Names.Controller(),
			"deadLetterSink": config.DeadLetterSink, "deadLetterAfter": config.DeadLetterAfter.Duration.String(), "resources": resources["controller"],
			"priorityClassName": spec.Controller.PriorityClassName, "spread": spread(spec.Controller.Spread),
		},
		"publisher": map[string]any{
			"enabled": publishes != "", "backend": string(publishes), "image": d.PublisherImage, "logLevel": level, "serviceAccountName": d.Names.Publisher(),
			"replicas":  map[string]any{"min": int64(spec.Publisher.Replicas.Min), "max": int64(spec.Publisher.Replicas.Max)},
			"resources": resources["publisher"], "priorityClassName": spec.Publisher.PriorityClassName, "spread": spread(spec.Publisher.Spread),
		},
		"mesh": map[string]any{"enabled": active == operatorv1alpha1.EventMesh, "deadLetterSink": config.DeadLetterSink},
		"nats": map[string]any{
			"enabled": active == operatorv1alpha1.NATS, "image": d.NATSImage, "replicas": int64(config.NATSStreamReplicas),
			"maxFileStore": strconv.FormatInt(files, 10), "maxMemoryStore": strconv.FormatInt(memory, 10), "syncInterval": interval,
			"storage": map[string]any{
				"type": string(config.NATSStreamStorageType), "size": config.NATSStorage.Size.String(), "className": config.NATSStorage.StorageClassName,
			},
			"resources": resources["nats"], "users": public, "authority": hex.EncodeToString(sum[:8]),
			"priorityClassName": config.NATSPriorityClassName, "spread": spread(config.NATSSpread),
		},
	}, nil
}

// reserveOf is the part of a volume that a server keeps free: cmd/internal/nats-server/volume.go.
func reserveOf(volume int64) int64 { return min(volume/8, 256<<20) }

// safeSize is the most that a stream may hold on a volume. The disk can have twice what the stream
// counts: a file is rewritten only when less than half of it is alive, and TestSoakDisk measured
// nearly that.
func safeSize(volume int64) int64 { return (volume - reserveOf(volume)) / 2 }

// volumeFor is the smallest volume, in whole MiB, on which a stream may have a size.
func volumeFor(size int64) resource.Quantity {
	need := min(2*size+2*size/7, 2*size+256<<20)
	return *resource.NewQuantity((need+1<<20-1)>>20<<20, resource.BinarySI)
}

// volumeOf is the size of the smallest volume. An administrator may have enlarged them.
func volumeOf(w *World) resource.Quantity {
	smallest := w.Eventing.Spec.Backend.Config.NATSStorage.Size
	for i, c := range w.Claims {
		if size := c.Status.Capacity[corev1.ResourceStorage]; !size.IsZero() && (i == 0 || size.Cmp(smallest) < 0) {
			smallest = size
		}
	}
	return smallest
}

// wantedStream is the stream that the spec asks for, with no more than its volume holds safely.
func wantedStream(w *World, epoch string, open bool) jetstream.StreamConfig {
	want := stream.Config(w.Eventing.Spec.Backend.Config, epoch, open)
	if volume := volumeOf(w); want.Storage == jetstream.FileStorage && !volume.IsZero() {
		want.MaxBytes = min(want.MaxBytes, safeSize(volume.Value()))
	}
	return want
}

// size says whether the volume holds the stream that the spec asks for. It never changes the state:
// the stream works with less.
func (d Identities) size(w *World, o *Decision) {
	want := w.Eventing.Spec.Backend.Config.NATSStreamMaxSize
	is := wantedStream(w, "", true).MaxBytes
	if is >= want.Value() {
		o.Condition(operatorv1alpha1.ConditionStreamSize, true, operatorv1alpha1.ReasonSizeAsWanted, "")
		return
	}
	volume, need := volumeOf(w), volumeFor(want.Value())
	o.Condition(operatorv1alpha1.ConditionStreamSize, false, operatorv1alpha1.ReasonSizeLimited,
		"The stream holds %s and not natsStreamMaxSize (%s): files can need twice as much as the events in them, and the volume has %s. It would need %s. "+
			"Next: enlarge the volumes, with a StorageClass that allows it: kubectl -n %s patch pvc %s0 -p '{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"%s\"}}}}', and so for each server",
		resource.NewQuantity(is>>20<<20, resource.BinarySI), &want, &volume, &need, d.Namespace, d.Names.NATSClaimPrefix(), &need)
}

// spread is how pods are spread. An Eventing that was stored before has nothing.
func spread(s operatorv1alpha1.Spread) string {
	return string(cmp.Or(s, operatorv1alpha1.SpreadPreferred))
}

func plain(m map[string]string) map[string]any {
	out := map[string]any{}
	for key, value := range m {
		out[key] = value
	}
	return out
}
