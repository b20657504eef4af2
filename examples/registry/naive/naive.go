// Package naive moves images to another registry as most scripts do: it lists, patches and waits.
// It is written with care, and is here to be compared with the job: see
// docs/library/why-not-100-lines.md. It is never released.
package naive

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// workload is one object whose pods have images.
type workload struct {
	kind, namespace, name string
	pods                  corev1.PodSpec
	patch                 func(context.Context, []byte) error
	rolledOut             func(context.Context) (bool, error)
}

// Move moves the images of all workloads whose names begin with from, one workload after the other,
// and waits for each rollout. To undo it, call it with from and to exchanged.
func Move(ctx context.Context, client kubernetes.Interface, from, to string, ready time.Duration) error {
	all, err := list(ctx, client)
	if err != nil {
		return err
	}
	for _, w := range all {
		patch := patchOf(w.pods, from, to)
		if patch == nil {
			continue
		}
		if err := w.patch(ctx, patch); err != nil {
			return fmt.Errorf("cannot patch %s %s/%s: %w", w.kind, w.namespace, w.name, err)
		}
		if err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, ready, true, w.rolledOut); err != nil {
			return fmt.Errorf("%s %s/%s is not ready: %w", w.kind, w.namespace, w.name, err)
		}
	}
	return nil
}

// patchOf is a strategic merge patch of the images alone: what others change beside them stays.
func patchOf(pods corev1.PodSpec, from, to string) []byte {
	move := func(containers []corev1.Container) (moved []map[string]string) {
		for _, c := range containers {
			if path, ok := strings.CutPrefix(c.Image, from); ok {
				moved = append(moved, map[string]string{"name": c.Name, "image": to + path})
			}
		}
		return moved
	}
	spec := map[string]any{}
	for field, containers := range map[string][]corev1.Container{"initContainers": pods.InitContainers, "containers": pods.Containers} {
		if moved := move(containers); moved != nil {
			spec[field] = moved
		}
	}
	if len(spec) == 0 {
		return nil
	}
	raw, _ := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": spec}}}) // strings only
	return raw
}

func list(ctx context.Context, client kubernetes.Interface) ([]workload, error) {
	var all []workload
	deployments, err := client.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, d := range deployments.Items {
		in := client.AppsV1().Deployments(d.Namespace)
		all = append(all, workload{"Deployment", d.Namespace, d.Name, d.Spec.Template.Spec, func(ctx context.Context, patch []byte) error {
			_, err := in.Patch(ctx, d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			d, err := in.Get(ctx, d.Name, metav1.GetOptions{})
			return err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas == *d.Spec.Replicas &&
				d.Status.Replicas == *d.Spec.Replicas && d.Status.AvailableReplicas == *d.Spec.Replicas, err
		}})
	}
	statefulSets, err := client.AppsV1().StatefulSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, s := range statefulSets.Items {
		in := client.AppsV1().StatefulSets(s.Namespace)
		all = append(all, workload{"StatefulSet", s.Namespace, s.Name, s.Spec.Template.Spec, func(ctx context.Context, patch []byte) error {
			_, err := in.Patch(ctx, s.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			s, err := in.Get(ctx, s.Name, metav1.GetOptions{})
			return err == nil && s.Status.ObservedGeneration >= s.Generation && s.Status.UpdatedReplicas == *s.Spec.Replicas &&
				s.Status.ReadyReplicas == *s.Spec.Replicas, err
		}})
	}
	daemonSets, err := client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, d := range daemonSets.Items {
		in := client.AppsV1().DaemonSets(d.Namespace)
		all = append(all, workload{"DaemonSet", d.Namespace, d.Name, d.Spec.Template.Spec, func(ctx context.Context, patch []byte) error {
			_, err := in.Patch(ctx, d.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
			return err
		}, func(ctx context.Context) (bool, error) {
			d, err := in.Get(ctx, d.Name, metav1.GetOptions{})
			return err == nil && d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedNumberScheduled == d.Status.DesiredNumberScheduled &&
				d.Status.NumberAvailable == d.Status.DesiredNumberScheduled, err
		}})
	}
	return all, nil
}
