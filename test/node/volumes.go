package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// Provisioner is what a StorageClass names if a Node is to make its volumes, which are directories.
const Provisioner = "standin.kyma-project.io/directory"

const selectedNode = "volume.kubernetes.io/selected-node"

// Class is a StorageClass of such volumes. A claim without a class gets the default one.
func Class(name string, byDefault bool, mode storagev1.VolumeBindingMode) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: Provisioner, VolumeBindingMode: &mode}
	if byDefault {
		class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	}
	return class
}

// Mounts are the directories of a pod's volumes, by the paths at which its container has them.
type Mounts map[string]string

// Text replaces the paths of mounts, and of files below them, with those on this machine: in an
// argument or in a file of configuration.
func (m Mounts) Text(text string) string {
	// The longest first: one mount may be below another one.
	for _, mount := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return len(b) - len(a) }) {
		var out strings.Builder
		for rest := text; ; {
			at := strings.Index(rest, mount)
			if at < 0 {
				out.WriteString(rest)
				break
			}
			end := at + len(mount)
			whole := (at == 0 || !inPath(rest[at-1])) && (end == len(rest) || rest[end] == '/' || !inPath(rest[end]))
			out.WriteString(rest[:at])
			if whole {
				out.WriteString(m[mount])
			} else {
				out.WriteString(mount)
			}
			rest = rest[end:]
		}
		text = out.String()
	}
	return text
}

// All is Text of each.
func (m Mounts) All(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = m.Text(text)
	}
	return out
}

func inPath(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-/", c) >= 0
}

// volumes makes the directories of volumes: what a kubelet mounts, and what a provisioner does for
// claims.
type volumes struct {
	n   *Node
	dir string

	claims     corelisters.PersistentVolumeClaimLister
	volumes    corelisters.PersistentVolumeLister
	configMaps corelisters.ConfigMapLister
	secrets    corelisters.SecretLister
	classes    storagelisters.StorageClassLister

	// changed says that something may be to be done.
	changed chan struct{}

	mu sync.Mutex
	// mounted are pods whose files follow their ConfigMaps and Secrets.
	mounted map[types.UID]mounted
}

type mounted struct {
	pod *corev1.Pod
	at  Mounts
}

func startVolumes(n *Node, dir string) (*volumes, error) {
	factory := informers.NewSharedInformerFactory(n.client, 0)
	core := factory.Core().V1()
	v := &volumes{
		n: n, dir: dir, changed: make(chan struct{}, 1), mounted: map[types.UID]mounted{},
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		configMaps: core.ConfigMaps().Lister(), secrets: core.Secrets().Lister(), classes: factory.Storage().V1().StorageClasses().Lister(),
	}
	tell := func(any) {
		select {
		case v.changed <- struct{}{}:
		default:
		}
	}
	for _, informer := range []cache.SharedIndexInformer{
		core.PersistentVolumeClaims().Informer(), core.PersistentVolumes().Informer(), core.ConfigMaps().Informer(), core.Secrets().Informer(),
		factory.Storage().V1().StorageClasses().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, now any) { tell(now) }, DeleteFunc: tell}); err != nil {
			return nil, fmt.Errorf("cannot watch volumes: %w", err)
		}
	}
	factory.Start(n.ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(n.ctx.Done()) {
		if !ok {
			return nil, fmt.Errorf("cannot watch %s", kind)
		}
	}
	n.running.Go(func() {
		defer factory.Shutdown()
		for {
			select {
			case <-n.ctx.Done():
				return
			case <-v.changed:
				if err := errors.Join(v.provision(), v.reclaim(), v.refresh()); err != nil && n.ctx.Err() == nil {
					n.log("volumes: %v", err)
				}
			}
		}
	})
	return v, nil
}

// provision makes a volume for each claim of our classes. The controller of Kubernetes binds the
// two.
func (v *volumes) provision() error {
	claims, err := v.claims.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, claim := range claims {
		class := v.classOf(claim)
		if class == nil || claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || waitsForPod(class) && claim.Annotations[selectedNode] == "" {
			continue
		}
		dir := filepath.Join(v.dir, "claims", string(claim.UID))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			errs = append(errs, err)
			continue
		}
		reclaim := corev1.PersistentVolumeReclaimDelete
		if class.ReclaimPolicy != nil {
			reclaim = *class.ReclaimPolicy
		}
		_, err := v.n.client.CoreV1().PersistentVolumes().Create(v.n.ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": Provisioner}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, VolumeMode: claim.Spec.VolumeMode,
				StorageClassName: class.Name, PersistentVolumeReclaimPolicy: reclaim,
				ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
			},
		}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// reclaim deletes volumes whose claim is gone, with what they hold.
func (v *volumes) reclaim() error {
	all, err := v.volumes.List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, volume := range all {
		if volume.Annotations["pv.kubernetes.io/provisioned-by"] != Provisioner || volume.Status.Phase != corev1.VolumeReleased ||
			volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || volume.DeletionTimestamp != nil {
			continue
		}
		if err := os.RemoveAll(volume.Spec.HostPath.Path); err != nil {
			errs = append(errs, err)
			continue
		}
		if err := v.n.client.CoreV1().PersistentVolumes().Delete(v.n.ctx, volume.Name, metav1.DeleteOptions{}); kubernetes.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// classOf is the class of a claim if it is one of ours, else nil.
func (v *volumes) classOf(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	class, err := v.classes.Get(*claim.Spec.StorageClassName)
	if err != nil || class.Provisioner != Provisioner {
		return nil
	}
	return class
}

func waitsForPod(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// schedulable is nil if all claims of a pod are bound. Otherwise it says, in the words of the
// scheduler, what is missing; and it gives a claim that waits for its pod a node, as the scheduler
// does.
func (v *volumes) schedulable(ctx context.Context, pod *corev1.Pod) error {
	for _, name := range claimsOf(pod) {
		claim, err := v.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("persistentvolumeclaim %q not found", name)
		case err != nil:
			return err
		case claim.DeletionTimestamp != nil:
			return fmt.Errorf("persistentvolumeclaim %q is being deleted", name)
		case claim.Status.Phase == corev1.ClaimBound:
			continue
		}
		if class := v.classOf(claim); class != nil && waitsForPod(class) {
			if claim.Annotations[selectedNode] == "" {
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, selectedNode, nodeName)
				if _, err := v.n.client.CoreV1().PersistentVolumeClaims(pod.Namespace).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return err
				}
			}
			return fmt.Errorf("persistentvolumeclaim %q is not bound yet", name)
		}
		return errors.New("pod has unbound immediate PersistentVolumeClaims")
	}
	return nil
}

func claimsOf(pod *corev1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		if claim := pod.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			names = append(names, claim.ClaimName)
		}
	}
	return names
}

// mount makes the directories of a pod. An error says what is not there yet.
func (v *volumes) mount(pod *corev1.Pod) (Mounts, error) {
	mounts := Mounts{}
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		dir := filepath.Join(v.podDir(pod.UID), volume.Name)
		if claim := volume.PersistentVolumeClaim; claim != nil {
			bound, err := v.claims.PersistentVolumeClaims(pod.Namespace).Get(claim.ClaimName)
			if err != nil {
				return nil, err
			}
			persistent, err := v.volumes.Get(bound.Spec.VolumeName)
			if err != nil {
				return nil, err
			}
			if persistent.Spec.HostPath == nil {
				return nil, fmt.Errorf("PersistentVolume %s is no directory", persistent.Name)
			}
			dir = persistent.Spec.HostPath.Path
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		for _, mount := range pod.Spec.Containers[0].VolumeMounts {
			if mount.Name == volume.Name {
				mounts[filepath.Clean(mount.MountPath)] = filepath.Join(dir, filepath.FromSlash(mount.SubPath))
			}
		}
	}
	if err := v.write(pod, mounts); err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.mounted[pod.UID] = mounted{pod, mounts}
	return mounts, nil
}

// unmount deletes the directories of a pod that is gone, but not those of its claims.
func (v *volumes) unmount(pod types.UID) {
	v.mu.Lock()
	delete(v.mounted, pod)
	v.mu.Unlock()
	if err := os.RemoveAll(v.podDir(pod)); err != nil {
		v.n.log("volumes: %v", err)
	}
}

func (v *volumes) podDir(pod types.UID) string { return filepath.Join(v.dir, "pods", string(pod)) }

// refresh writes the files of pods whose ConfigMaps and Secrets have changed. A kubelet does it
// within a minute or two. What is deleted stays mounted.
func (v *volumes) refresh() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var errs []error
	for _, m := range v.mounted {
		if err := v.write(m.pod, m.at); kubernetes.IgnoreNotFound(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// write writes the files of a pod's ConfigMaps and Secrets.
func (v *volumes) write(pod *corev1.Pod, at Mounts) error {
	for i := range pod.Spec.Volumes {
		volume := &pod.Spec.Volumes[i]
		files, err := v.files(pod.Namespace, &volume.VolumeSource, at)
		if err != nil {
			return err
		}
		for name, content := range files {
			if err := replace(filepath.Join(v.podDir(pod.UID), volume.Name, filepath.FromSlash(name)), content); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace writes a file so that nobody reads a part of it, and only if it is another one.
func replace(name string, content []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// files are those of a volume. The text of a ConfigMap speaks of this machine's directories.
func (v *volumes) files(namespace string, source *corev1.VolumeSource, at Mounts) (map[string][]byte, error) {
	switch {
	case source.ConfigMap != nil:
		return v.configMap(namespace, source.ConfigMap.Name, source.ConfigMap.Items, source.ConfigMap.Optional, at)
	case source.Secret != nil:
		return v.secret(namespace, source.Secret.SecretName, source.Secret.Items, source.Secret.Optional)
	case source.Projected != nil:
		all := map[string][]byte{}
		for i := range source.Projected.Sources {
			var files map[string][]byte
			var err error
			switch part := &source.Projected.Sources[i]; {
			case part.ConfigMap != nil:
				files, err = v.configMap(namespace, part.ConfigMap.Name, part.ConfigMap.Items, part.ConfigMap.Optional, at)
			case part.Secret != nil:
				files, err = v.secret(namespace, part.Secret.Name, part.Secret.Items, part.Secret.Optional)
			}
			if err != nil {
				return nil, err
			}
			maps.Copy(all, files)
		}
		return all, nil
	}
	return nil, nil
}

func (v *volumes) configMap(namespace, name string, items []corev1.KeyToPath, optional *bool, at Mounts) (map[string][]byte, error) {
	data := map[string][]byte{}
	config, err := v.configMaps.ConfigMaps(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err) && optional != nil && *optional:
		return nil, nil
	case err != nil:
		return nil, err
	}
	for key, text := range config.Data {
		data[key] = []byte(at.Text(text))
	}
	maps.Copy(data, config.BinaryData)
	return selected("ConfigMap "+namespace+"/"+name, data, items)
}

func (v *volumes) secret(namespace, name string, items []corev1.KeyToPath, optional *bool) (map[string][]byte, error) {
	secret, err := v.secrets.Secrets(namespace).Get(name)
	switch {
	case apierrors.IsNotFound(err) && optional != nil && *optional:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return selected("Secret "+namespace+"/"+name, secret.Data, items)
}

// selected are the files of the keys that a volume names, or of all.
func selected(from string, data map[string][]byte, items []corev1.KeyToPath) (map[string][]byte, error) {
	if len(items) == 0 {
		return data, nil
	}
	files := map[string][]byte{}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			return nil, fmt.Errorf("references non-existent secret or config key: %s of %s", item.Key, from)
		}
		files[item.Path] = content
	}
	return files, nil
}
