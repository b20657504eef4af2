// Package charts proves the charts: what they render, on each version of Helm,
// and that an API server takes it.
package charts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/standin"
)

var helms []*helm.Helm

func TestMain(m *testing.M) {
	kubernetes.Main(m, kubernetes.Needs("need Helm"), kubernetes.Before(build), kubernetes.After(func() error {
		if plane == nil {
			return nil
		}
		return plane.Stop()
	}))
}

// plane is the cluster that all tests share, nil before the first of them.
var plane *kubernetes.ControlPlane

// cluster returns the cluster, with Kyma's kinds and namespaces.
func cluster(t *testing.T) *kubernetes.ControlPlane {
	t.Helper()
	if plane == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		var err error
		if plane, err = kubernetes.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if plane.Own() {
			if err := furnish(ctx, plane); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !plane.Own() {
		t.Skip("needs a cluster of its own, whose namespaces may be labelled: unset " + kubernetes.KubeconfigEnv)
	}
	return plane
}

func furnish(ctx context.Context, plane *kubernetes.ControlPlane) error {
	if err := plane.InstallCRDs(ctx, kubernetes.KnativeV1alpha1); err != nil {
		return err
	}
	client, err := clientset.NewForConfig(plane.Config())
	if err != nil {
		return err
	}
	// Labelled as what tests may clear, too.
	if _, err := standin.Put(ctx, plane.Config(), 0); err != nil {
		return err
	}
	for _, name := range []string{"knative-eventing", "natss", "shop", kyma.StateNamespace} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

func build(ctx context.Context) error {
	root, err := filepath.Abs("../../..")
	if err != nil {
		return err
	}
	for _, major := range helm.Versions {
		h, err := helm.New(ctx, root, major)
		if err != nil {
			return err
		}
		helms = append(helms, h)
	}
	return nil
}

const (
	hooksChart = "charts/eventmesh-migration"
	release    = "helm.sh/hook"
	weight     = "helm.sh/hook-weight"
	policy     = "helm.sh/hook-delete-policy"
	outputLog  = "helm.sh/hook-output-log-policy"
	// deleteTimeout is known to Helm 2 alone.
	deleteTimeout = "helm.sh/hook-delete-timeout"
	modern        = "1.31.0"
	systemNS      = "kyma-system"
	// stateNamespace is how the objects of the first hook end.
	stateNamespace = "state-namespace"
)

// rendering is what a chart renders to.
type rendering struct {
	objects []runtime.Object
	text    string
}

// each runs a test on each version of Helm.
func each(t *testing.T, test func(t *testing.T, h *helm.Helm)) {
	t.Helper()
	for _, h := range helms {
		t.Run(fmt.Sprintf("Helm%d", h.Major), func(t *testing.T) { test(t, h) })
	}
}

// render renders the chart of the hooks, as a release of its own.
func render(t *testing.T, h *helm.Helm, args ...string) *rendering {
	t.Helper()
	out, err := template(t, h, append([]string{"--set", "standalone=true"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return read(t, out)
}

// template renders the chart of the hooks. The same values give the same text: many tests look at
// one rendering, and Helm takes a third of a second for it. What is in files is always rendered.
func template(t *testing.T, h *helm.Helm, args ...string) (string, error) {
	t.Helper()
	render := func() (string, error) {
		return h.Template(context.WithoutCancel(t.Context()), "core", hooksChart, append([]string{"--namespace", systemNS, "--kube-version", modern, "--set", "image.allowDevel=true"}, args...)...)
	}
	if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "/") }) {
		return render()
	}
	known, _ := renderings.LoadOrStore(fmt.Sprintf("%d %q", h.Major, args), sync.OnceValues(render))
	return known.(func() (string, error))()
}

// renderings are those of template, by the version of Helm and its arguments.
var renderings sync.Map

// refused checks that the chart is not rendered, for the reason.
func refused(t *testing.T, h *helm.Helm, reason string, args ...string) {
	t.Helper()
	out, err := template(t, h, append([]string{"--set", "standalone=true"}, args...)...)
	if err == nil {
		t.Fatalf("it renders:\n%s", out)
	}
	if !strings.Contains(err.Error(), reason) {
		t.Errorf("it is refused, but not with %q:\n%v", reason, err)
	}
}

// read decodes a rendering; a field that its kind does not have is an error.
func read(t *testing.T, out string) *rendering {
	t.Helper()
	r := &rendering{text: out}
	for _, doc := range strings.Split(out, "\n---\n") {
		raw, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		var meta metav1.TypeMeta
		if err := json.Unmarshal(raw, &meta); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if meta.Kind == "" {
			continue
		}
		obj, err := scheme.Scheme.New(meta.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(obj); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		r.objects = append(r.objects, obj)
	}
	return r
}

func of[T runtime.Object](r *rendering) []T {
	var all []T
	for _, obj := range r.objects {
		if one, ok := obj.(T); ok {
			all = append(all, one)
		}
	}
	return all
}

func (r *rendering) job(t *testing.T, name string) *batchv1.Job {
	t.Helper()
	for _, job := range of[*batchv1.Job](r) {
		if job.Name == name {
			return job
		}
	}
	t.Fatalf("there is no Job %s", name)
	return nil
}

// chain is what runs at an event, in the order in which Helm runs it, with the flags that
// hooks add.
func (r *rendering) chain(t *testing.T, event string) []string {
	t.Helper()
	added := hookFlags(t)
	jobs := slices.DeleteFunc(of[*batchv1.Job](r), func(job *batchv1.Job) bool {
		return !slices.Contains(strings.Split(job.Annotations[release], ","), event)
	})
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int { return weightOf(a) - weightOf(b) })
	chain := []string{}
	for _, job := range jobs {
		c := job.Spec.Template.Spec.Containers[0]
		if c.Name == stateNamespace {
			continue // it comes before all chains
		}
		line := c.Name + " " + c.Args[0]
		for _, arg := range c.Args[1:] {
			if slices.Contains(added, arg) {
				line += " " + arg
			}
		}
		chain = append(chain, line)
	}
	return chain
}

func weightOf(obj metav1.Object) int {
	n, err := strconv.Atoi(obj.GetAnnotations()[weight])
	if err != nil {
		return 1 << 20
	}
	return n
}

func pod(job *batchv1.Job) *corev1.PodSpec { return &job.Spec.Template.Spec }

// rules are all rules of Roles and ClusterRoles.
func rules(r *rendering) map[string][]rbacv1.PolicyRule {
	all := map[string][]rbacv1.PolicyRule{}
	for _, role := range of[*rbacv1.Role](r) {
		name := "Role " + role.Namespace + "/" + role.Name
		all[name] = append(all[name], role.Rules...) // what removes it has none
	}
	for _, role := range of[*rbacv1.ClusterRole](r) {
		name := "ClusterRole " + role.Name
		all[name] = append(all[name], role.Rules...)
	}
	return all
}

// object is what is rendered, with what all kinds have.
type object struct {
	metav1.Object
	content runtime.Object
	kind    string
}

// all returns the objects of a rendering.
func (r *rendering) all(t *testing.T) []object {
	t.Helper()
	var all []object
	for _, obj := range r.objects {
		m, err := meta.Accessor(obj)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, object{m, obj, obj.GetObjectKind().GroupVersionKind().Kind})
	}
	return all
}

func (o object) job() bool { return o.kind == "Job" }

// events are those of Helm at which it is created.
func (o object) events() []string { return strings.Split(o.GetAnnotations()[release], ",") }

// sharesEvent says whether both are created at one event.
func (o object) sharesEvent(other object) bool {
	return slices.ContainsFunc(o.events(), func(event string) bool { return slices.Contains(other.events(), event) })
}

// key is what two objects must not share.
func (o object) key() string { return o.kind + " " + o.GetNamespace() + "/" + o.GetName() }

// first says whether it belongs to the Job that creates the state namespace.
func (o object) first() bool { return ofFirst(o.GetName()) }

// ofFirst says it of a name, which may end in a hash.
func ofFirst(name string) bool { return strings.Contains(name, "-"+stateNamespace) }

// power says whether it gives any.
func (o object) power() bool {
	switch obj := o.content.(type) {
	case *rbacv1.Role:
		return len(obj.Rules) > 0
	case *rbacv1.ClusterRole:
		return len(obj.Rules) > 0
	case *rbacv1.RoleBinding:
		return len(obj.Subjects) > 0
	case *rbacv1.ClusterRoleBinding:
		return len(obj.Subjects) > 0
	}
	return false
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
