// Package module_test proves the eventing module on a real API server: its bundle installs,
// upgrades and is removed, as users and lifecycle-manager do it.
package module_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// cluster is the one control plane of this package's tests. Nothing of eventing is installed in it:
// the bundle has it all.
var cluster *kubernetes.ControlPlane

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.With(kubernetes.Workloads()), kubernetes.Shared(&cluster))
}

const (
	namespace = "kyma-system"
	manifest  = "eventing-manager.yaml"
	defaultCR = "eventing-default-cr.yaml"
)

var (
	eventings     = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1alpha1", Resource: "eventings"}
	subscriptions = schema.GroupVersionResource{Group: "eventing.kyma-project.io", Version: "v1alpha2", Resource: "subscriptions"}
	deployments   = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	statefulSets  = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "statefulsets"}
	definitions   = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	claims        = schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}
)

// source is that of this repository.
func source(t *testing.T) *bundle.Source {
	t.Helper()
	root, err := kubernetes.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	s, err := bundle.ReadSource(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// images are some that nobody pulls: pods are processes, or do not run.
func images(t *testing.T, s *bundle.Source, repository string) (all []bundle.Image) {
	t.Helper()
	programs, err := s.Programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		all = append(all, bundle.Image{
			Name: program, Repository: repository, Tag: s.Version, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(program+s.Version))), Size: 1,
			Commit: strings.Repeat("0", 40), Created: time.Unix(0, 0), Info: &debug.BuildInfo{Path: "example.org/" + program, Main: debug.Module{Path: "example.org/" + program, Version: "v1.0.0"}},
		})
	}
	return all
}

func render(t *testing.T, s *bundle.Source, repository string) bundle.Files {
	t.Helper()
	files, err := bundle.Render(s, images(t, s, repository))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// read reads a file with several objects.
func read(raw []byte) (all []*unstructured.Unstructured, err error) {
	for document := range strings.SplitSeq("\n"+string(raw), "\n---\n") {
		u := &unstructured.Unstructured{}
		of, err := yaml.YAMLToJSONStrict([]byte(document))
		if err == nil {
			err = utiljson.Unmarshal(of, &u.Object)
		}
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, document)
		}
		if u.GetKind() != "" {
			all = append(all, u)
		}
	}
	return all, nil
}

func objects(t *testing.T, raw []byte) []*unstructured.Unstructured {
	t.Helper()
	all, err := read(raw)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// warnings are what the API server said beside its answers.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// client is one that notes warnings.
func client(t *testing.T) (dynamic.Interface, clientset.Interface, *warnings) {
	t.Helper()
	config, said := cluster.Config(), &warnings{}
	config.WarningHandler = said
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	core, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return d, core, said
}

// of is the client for an object.
func of(d dynamic.Interface, u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() != "" {
		return d.Resource(gvr).Namespace(u.GetNamespace())
	}
	return d.Resource(gvr)
}

// namespaces creates the namespaces that a bundle does not own. They enforce what a careful
// administrator would.
func namespaces(t *testing.T, core clientset.Interface, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted",
		}}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
}

// apply applies objects as kubectl apply --server-side does, and waits until kinds are served.
func apply(ctx context.Context, d dynamic.Interface, all []*unstructured.Unstructured) (generations map[string]string, err error) {
	generations = map[string]string{}
	for _, u := range all {
		applied, err := of(d, u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl"})
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
		generations[u.GetKind()+" "+u.GetName()] = fmt.Sprint(applied.GetGeneration(), " ", applied.GetManagedFields()[0].Time)
		if u.GetKind() != "CustomResourceDefinition" {
			continue
		}
		if err := poll.For(ctx, 30*time.Second, u.GetName()+" is established", func(ctx context.Context) error {
			now, err := d.Resource(definitions).Get(ctx, u.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
			for _, c := range conditions {
				if c, _ := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", conditions)
		}); err != nil {
			return nil, err
		}
	}
	return generations, nil
}

// left are the objects of the module that are not among those of a manifest, as "Kind name".
func left(t *testing.T, d dynamic.Interface, now []*unstructured.Unstructured) []string {
	t.Helper()
	wanted, kinds := map[string]bool{}, map[schema.GroupVersionKind]bool{}
	for _, u := range now {
		wanted[u.GetKind()+" "+u.GetName()] = true
		kinds[u.GroupVersionKind()] = true
	}
	var all []string
	for kind := range maps.Keys(kinds) {
		gvr, _ := meta.UnsafeGuessKindToResource(kind)
		list, err := d.Resource(gvr).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/part-of=eventing-manager"})
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range list.Items {
			if name := u.GetKind() + " " + u.GetName(); !wanted[name] && u.GetLabels()["eventing.kyma-project.io/plane"] == "" {
				all = append(all, name)
			}
		}
	}
	slices.Sort(all)
	return all
}
