package module_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"embed"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/remote"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

// lifecycleKinds are what lifecycle-manager reads and writes.
//
//go:embed crds
var lifecycleKinds embed.FS

var (
	kymas     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "kymas"}
	metas     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "modulereleasemetas"}
	templates = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "moduletemplates"}
)

const (
	controlPlane   = "kcp-system"
	kymaFinalizer  = "operator.kyma-project.io/Kyma"
	kymaNameLabel  = "operator.kyma-project.io/kyma-name"
	ready          = "Ready"
	processing     = "Processing"
	deleting       = "Deleting"
	lifecycleOwner = "lifecycle-manager"
)

// lifecycle stands in for lifecycle-manager: it does with the published module what that does, one
// step with each call of sync. It knows the module from its ModuleReleaseMeta, its ModuleTemplate
// and its artifact, and nothing of how they are made.
type lifecycle struct {
	client   dynamic.Interface
	registry string
	// key is whose signature the artifact must have.
	key *ecdsa.PublicKey
	// modules are those that were applied, by name.
	modules map[string]*module
}

// module is one that was applied.
type module struct {
	name, version, digest string
	template              *unstructured.Unstructured
	objects               []*unstructured.Unstructured
	// cr is the default object. It is created once, and then the user's.
	cr      *unstructured.Unstructured
	created bool
}

// sync brings the modules of a Kyma one step further, and reports in its status how far they are.
func (l *lifecycle) sync(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	kyma, err := l.client.Resource(kymas).Namespace(controlPlane).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var spec struct {
		Channel string
		Modules []struct{ Name, Channel string }
	}
	if err := into(kyma, &spec, "spec"); err != nil {
		return nil, err
	}
	var statuses []any
	wanted := map[string]bool{}
	if kyma.GetDeletionTimestamp() == nil {
		for _, m := range spec.Modules {
			wanted[m.Name] = true
			status, err := l.install(ctx, m.Name, cmp.Or(m.Channel, spec.Channel))
			if err != nil {
				return nil, fmt.Errorf("module %s: %w", m.Name, err)
			}
			statuses = append(statuses, status)
		}
	}
	for _, m := range slices.Sorted(maps.Keys(l.modules)) {
		if wanted[m] {
			continue
		}
		gone, err := l.remove(ctx, l.modules[m])
		if err != nil {
			return nil, fmt.Errorf("module %s: %w", m, err)
		}
		if !gone {
			statuses = append(statuses, map[string]any{"moduleName": m, "name": l.modules[m].cr.GetName(), "namespace": l.modules[m].cr.GetNamespace(), "state": deleting})
		}
	}
	if kyma.GetDeletionTimestamp() != nil && len(statuses) == 0 {
		kyma.SetFinalizers(slices.DeleteFunc(kyma.GetFinalizers(), func(f string) bool { return f == kymaFinalizer }))
		return l.client.Resource(kymas).Namespace(controlPlane).Update(ctx, kyma, metav1.UpdateOptions{})
	}
	return l.report(ctx, kyma, spec.Channel, statuses)
}

func (l *lifecycle) report(ctx context.Context, kyma *unstructured.Unstructured, channel string, statuses []any) (*unstructured.Unstructured, error) {
	state, condition := ready, map[string]any{"type": ready, "status": "True", "reason": "ModulesAreReady", "message": "all modules are in ready state"}
	for _, s := range statuses {
		if s, _ := s.(map[string]any); s["state"] != ready {
			state = processing
			condition = map[string]any{"type": ready, "status": "False", "reason": "ModulesAreReady", "message": fmt.Sprintf("module %v is %v", s["moduleName"], s["state"])}
		}
	}
	condition["observedGeneration"], condition["lastTransitionTime"] = kyma.GetGeneration(), time.Now().UTC().Format(time.RFC3339)
	if statuses == nil {
		statuses = []any{}
	}
	kyma.Object["status"] = map[string]any{"activeChannel": channel, "state": state, "conditions": []any{condition}, "moduleStatus": statuses}
	return l.client.Resource(kymas).Namespace(controlPlane).UpdateStatus(ctx, kyma, metav1.UpdateOptions{})
}

// install applies the version that a channel has, creates the default object if there is none, and
// returns the status of the module.
func (l *lifecycle) install(ctx context.Context, name, channel string) (map[string]any, error) {
	version, component, err := l.version(ctx, name, channel)
	if err != nil {
		return nil, err
	}
	m := l.modules[name]
	if m == nil || m.version != version {
		next, err := l.pull(ctx, name, version, component)
		if err != nil {
			return nil, err
		}
		if m != nil {
			next.created = m.created
		}
		if err := l.apply(ctx, m, next); err != nil {
			return nil, err
		}
		l.modules[name], m = next, next
	}
	if !m.created {
		// As it is: the label with the name of the Kyma is on the Manifest of the control plane.
		if _, err := of(l.client, m.cr).Create(ctx, m.cr, metav1.CreateOptions{FieldManager: lifecycleOwner}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, err
		}
		m.created = true
	}
	state := processing
	if done, err := l.rolledOut(ctx, m); err != nil {
		return nil, err
	} else if done {
		state = ready
	}
	return map[string]any{
		"moduleName": name, "name": m.cr.GetName(), "namespace": m.cr.GetNamespace(), "state": state, "generation": int64(1),
		"templateInfo": map[string]any{
			"channel": channel, "version": version, "name": m.template.GetName(), "namespace": m.template.GetNamespace(), "generation": m.template.GetGeneration(),
			"gvk": map[string]any{"group": "operator.kyma-project.io", "kind": "Manifest", "version": "v1alpha1"},
		},
	}, nil
}

// version is what a channel has.
func (l *lifecycle) version(ctx context.Context, name, channel string) (version, component string, err error) {
	meta, err := l.client.Resource(metas).Namespace(controlPlane).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", "", err
	}
	var spec struct {
		OCMComponentName string
		Channels         []struct{ Channel, Version string }
	}
	if err := into(meta, &spec, "spec"); err != nil {
		return "", "", err
	}
	for _, c := range spec.Channels {
		if c.Channel == channel {
			return c.Version, spec.OCMComponentName, nil
		}
	}
	return "", "", fmt.Errorf("there is no channel %s", channel)
}

// pull reads a version from the registry, by its digest and with its signature.
func (l *lifecycle) pull(ctx context.Context, name, version, component string) (*module, error) {
	tag, err := bundle.Reference(l.registry, component, version)
	if err != nil {
		return nil, err
	}
	there, err := remote.Head(tag, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	digest := tag.Digest(there.Digest.String())
	if err := artifact.Verify(ctx, digest, l.key); err != nil {
		return nil, err
	}
	installed, err := readComponent(ctx, l.registry, component, version)
	if err != nil {
		return nil, err
	}
	m := &module{name: name, version: version, digest: digest.DigestStr()}
	if m.objects, err = read(installed.manifest); err != nil {
		return nil, err
	}
	for _, u := range m.objects {
		installed.rewrite(u)
	}
	if m.template, err = l.client.Resource(templates).Namespace(controlPlane).Get(ctx, name+"-"+version, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	data, _, err := unstructured.NestedMap(m.template.Object, "spec", "data")
	m.cr = &unstructured.Unstructured{Object: data}
	return m, err
}

// apply applies a version, and deletes what only the former one had.
func (l *lifecycle) apply(ctx context.Context, former, next *module) error {
	if _, err := apply(ctx, l.client, next.objects); err != nil {
		return err
	}
	if former == nil {
		return nil
	}
	stays := map[string]bool{}
	for _, u := range next.objects {
		stays[u.GetKind()+" "+u.GetName()] = true
	}
	for _, u := range former.objects {
		if stays[u.GetKind()+" "+u.GetName()] {
			continue
		}
		if err := of(l.client, u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// rolledOut says whether the first Deployment of the manifest is available, and all of it new. That
// is the state of a module.
func (l *lifecycle) rolledOut(ctx context.Context, m *module) (bool, error) {
	i := slices.IndexFunc(m.objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
	if i < 0 {
		return false, errors.New("the manifest has no Deployment")
	}
	d, err := of(l.client, m.objects[i]).Get(ctx, m.objects[i].GetName(), metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	var status struct {
		ObservedGeneration int64
		Conditions         []struct{ Type, Status, Reason string }
	}
	if err := into(d, &status, "status"); err != nil {
		return false, err
	}
	available, progressed := false, false
	for _, c := range status.Conditions {
		available = available || c.Type == "Available" && c.Status == "True"
		progressed = progressed || c.Type == "Progressing" && c.Reason == "NewReplicaSetAvailable"
	}
	return available && progressed && status.ObservedGeneration == d.GetGeneration(), nil
}

// remove deletes the module's object, waits until its operator has cleaned up, and then deletes the
// manifest.
func (l *lifecycle) remove(ctx context.Context, m *module) (gone bool, err error) {
	cr, err := of(l.client, m.cr).Get(ctx, m.cr.GetName(), metav1.GetOptions{})
	switch {
	case err == nil && cr.GetDeletionTimestamp() == nil:
		return false, of(l.client, m.cr).Delete(ctx, m.cr.GetName(), metav1.DeleteOptions{})
	case err == nil:
		return false, nil
	case !apierrors.IsNotFound(err):
		return false, err
	}
	for _, u := range slices.Backward(m.objects) {
		if err := of(l.client, u).Delete(ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return false, err
		}
	}
	delete(l.modules, m.name)
	return true, nil
}

// into reads a part of an object.
func into(u *unstructured.Unstructured, to any, part string) error {
	raw, err := yaml.Marshal(u.Object[part])
	if err != nil {
		return err
	}
	return yaml.Unmarshal(raw, to)
}

// verbatim reads the YAML of a document as kubectl get prints it, without what only the API server
// may write: it refuses a new object with a resourceVersion or another uid.
func verbatim(text string) (*unstructured.Unstructured, error) {
	all, err := read([]byte(strings.TrimSpace(text)))
	if err != nil || len(all) != 1 {
		return nil, fmt.Errorf("not one object: %w", err)
	}
	for _, written := range []string{"creationTimestamp", "generation", "resourceVersion", "uid"} {
		unstructured.RemoveNestedField(all[0].Object, "metadata", written)
	}
	return all[0], nil
}
