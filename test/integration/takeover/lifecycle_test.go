package takeover_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	eventingmanager "github.com/kyma-project/eventmesh-migration/charts/eventing-manager"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin/kymaeventing"
)

const (
	managedLabel = "operator.kyma-project.io/managed-by"
	subsCRD      = "subscriptions.eventing.kyma-project.io"
	eventingsCRD = "eventings.operator.kyma-project.io"
)

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	kymas       = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "kymas"}
	manifests   = schema.GroupVersionResource{Group: "operator.kyma-project.io", Version: "v1beta2", Resource: "manifests"}
)

// ourDefinitions are those of the chart.
func (s *site) ourDefinitions() (all []*unstructured.Unstructured) {
	s.t.Helper()
	s.check(fs.WalkDir(eventingmanager.CRDs, "crds", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(eventingmanager.CRDs, path)
		all = append(all, object(s.t, string(text)))
		return err
	}))
	return all
}

// theirDefinitions are Kyma's: they have not the status that ours has of each backend.
func (s *site) theirDefinitions() []*unstructured.Unstructured {
	s.t.Helper()
	all := s.ourDefinitions()
	for _, crd := range all {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			unstructured.RemoveNestedField(v.(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", "backends")
		}
		s.check(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"))
	}
	return all
}

// lifecycle is a lifecycle-manager with a Kyma that has modules. In the end, the definitions are as
// before.
func (s *site) lifecycle(modules map[string]kymaeventing.Module) *kymaeventing.Lifecycle {
	s.t.Helper()
	l, err := kymaeventing.NewLifecycle(cluster.Config(), modules)
	s.check(err)
	s.create(kymaeventing.KymaDefinition)
	s.create(kymaeventing.ManifestDefinition)
	s.create(`{apiVersion: v1, kind: Namespace, metadata: {name: kcp-system}}`)
	s.create(`{apiVersion: v1, kind: Namespace, metadata: {name: kyma-system}}`)
	s.t.Cleanup(s.withoutLifecycle)
	s.await(time.Minute, "the kinds of lifecycle-manager are served", func(ctx context.Context) error {
		_, kyma := s.client.Resource(kymas).List(ctx, metav1.ListOptions{})
		_, manifest := s.client.Resource(manifests).List(ctx, metav1.ListOptions{})
		return errors.Join(kyma, manifest)
	})
	s.create(`{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {name: default, namespace: kyma-system}, spec: {channel: regular, modules: [{name: keda}, {name: nats}, {name: eventing}]}}`)
	return l
}

func (s *site) withoutLifecycle() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Minute)
	defer cancel()
	_ = s.client.Resource(kymas).Namespace(namespace).Delete(ctx, "default", metav1.DeleteOptions{})
	list, err := s.client.Resource(manifests).Namespace(kymaeventing.ControlPlane).List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range list.Items {
			of := s.client.Resource(manifests).Namespace(kymaeventing.ControlPlane)
			_, _ = of.Patch(ctx, list.Items[i].GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			_ = of.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{})
		}
	}
	for _, crd := range s.ourDefinitions() {
		if _, err := s.client.Resource(definitions).Apply(ctx, crd.GetName(), crd, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			s.t.Error(err)
		}
		_, _ = s.client.Resource(definitions).Patch(ctx, crd.GetName(), types.MergePatchType, []byte(`{"metadata":{"labels":{"`+managedLabel+`":null}}}`), metav1.PatchOptions{})
	}
}

// manage says whether lifecycle-manager manages a module. unlist removes it from the Kyma.
func (s *site) manage(name string, managed bool) {
	s.t.Helper()
	s.patchModule(name, `{"op":"add","path":"/spec/modules/%[1]d/managed","value":`+fmt.Sprint(managed)+`}`)
}

func (s *site) unlist(name string) {
	s.t.Helper()
	s.patchModule(name, `{"op":"remove","path":"/spec/modules/%[1]d"}`)
}

func (s *site) patchModule(name, operation string) {
	s.t.Helper()
	of := s.client.Resource(kymas).Namespace(namespace)
	kyma, err := of.Get(s.t.Context(), "default", metav1.GetOptions{})
	s.check(err)
	list, _, _ := unstructured.NestedSlice(kyma.Object, "spec", "modules")
	i := slices.IndexFunc(list, func(m any) bool { return m.(map[string]any)["name"] == name })
	patch := fmt.Sprintf(`[{"op":"test","path":"/spec/modules/%[1]d/name","value":%[2]q},`+operation+`]`, i, name)
	_, err = of.Patch(s.t.Context(), "default", types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	s.check(err)
}

// moduleFinding is one about who has the definitions and the Eventing.
type moduleFinding struct{ ID, Severity, Object, Command string }

// moduleFindings are those that verify prints, whose exit code is 6 if one of them is an error.
func (s *site) moduleFindings() (all []moduleFinding) {
	s.t.Helper()
	code, out, log := s.takeOver("verify", "--output=json")
	var is struct{ Findings []moduleFinding }
	if err := json.Unmarshal([]byte(out), &is); err != nil {
		s.t.Fatalf("verify: exit code %d: %v\n%s%s", code, err, out, log)
	}
	for _, f := range is.Findings {
		if strings.HasPrefix(f.ID, "module-") || strings.HasPrefix(f.ID, "definition-") || f.ID == "eventing-is-deleted" {
			all = append(all, f)
			if f.Severity == "error" && code != 6 {
				s.t.Errorf("verify: exit code %d with %s", code, f.ID)
			}
		}
	}
	return all
}

// found fails unless verify finds these.
func (s *site) found(when string, want ...string) []moduleFinding {
	s.t.Helper()
	all := s.moduleFindings()
	var got []string
	for _, f := range all {
		got = append(got, f.Severity+" "+f.ID+" "+f.Object)
	}
	if !slices.Equal(got, want) {
		s.t.Errorf("%s: found %q, want %q", when, got, want)
	}
	return all
}

// shell runs commands as they are printed, in a directory that has the charts. Without kubectl, it
// does not, and returns false.
func (s *site) shell(script string) bool {
	s.t.Helper()
	if _, err := exec.LookPath("kubectl"); err != nil {
		return false
	}
	root, err := kubernetes.ModuleRoot()
	s.check(err)
	dir := s.t.TempDir()
	s.check(os.Symlink(filepath.Join(root, "charts"), filepath.Join(dir, "charts")))
	s.check(os.Mkdir(filepath.Join(dir, "bin"), 0o700))
	programs := map[string]string{"kubectl-eventing": process.BuildPlain(s.t, program) + ` "$@" ` + strings.Join(s.monitors(), " ")}
	if strings.Contains(script, "helm ") {
		h, err := helm.New(s.t.Context(), root, 4)
		s.check(err)
		programs["helm"] = h.Binary() + ` "$@" --set image.tag=test` // a chart that was not released names no images
	}
	for name, command := range programs {
		s.check(os.WriteFile(filepath.Join(dir, "bin", name), []byte("#!/bin/sh\nexec "+command+"\n"), 0o700)) //nolint:gosec // it is a program
	}
	p := process.Run(s.t, process.Program{
		Binary: "/bin/bash", Args: []string{"-euo", "pipefail", "-c", script}, Dir: dir,
		Env: []string{"KUBECONFIG=" + cluster.Kubeconfig, "HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH")},
	})
	if code := p.Wait(); code != 0 {
		s.t.Fatalf("exit code %d of\n%s\n%s%s", code, script, p.Stdout(), p.Stderr())
	}
	return true
}

// document runs the commands below a heading of the document for users. A text of them can be
// another one, as the document says.
func (s *site) document(heading string, instead ...string) {
	s.t.Helper()
	page, err := os.ReadFile("../../../docs/eventing/coming-from-kyma.md")
	s.check(err)
	_, text, _ := strings.Cut(string(page), "\n### "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text, _, _ = strings.Cut(text, "\n### ")
	script := ""
	for _, block := range strings.Split(text, "```bash\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		script += block
	}
	if script == "" {
		s.t.Fatalf("no commands below %q", heading)
	}
	began := time.Now()
	s.shell(strings.NewReplacer(instead...).Replace(script))
	s.t.Logf("%s took %s", heading, time.Since(began).Round(time.Second))
}

// TestLifecycleManager: what lifecycle-manager would do is found in each state of a module, and the
// command that is printed ends it. No definition is deleted.
func TestLifecycleManager(t *testing.T) {
	s := newClients(t)
	t.Cleanup(s.clean)
	l := s.lifecycle(map[string]kymaeventing.Module{
		"eventing": {Objects: s.theirDefinitions(), Default: object(t, `{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing, namespace: kyma-system}, spec: `+kymaSpec+`}`)},
		"nats":     {Objects: []*unstructured.Unstructured{object(t, kymaeventing.NATSDefinition)}, Default: object(t, kymaeventing.NATS)},
	})
	turns := func() {
		t.Helper()
		for range 4 {
			s.await(time.Minute, "lifecycle-manager takes a turn", l.Turn)
		}
	}
	turns()
	const kyma = "Kyma kyma-system/default"
	managed := s.found("managed", "warning module-is-managed "+kyma, "error module-is-managed "+kyma) // there is no NATS
	for i, f := range managed {
		if !s.shell(f.Command) {
			s.manage([]string{"nats", "eventing"}[i], false)
		}
	}
	s.found("managed: false, and not seen yet", "warning module-is-managed "+kyma, "error module-is-managed "+kyma)
	turns()
	s.found("let go")

	// A removal while it is managed again. The finalizer of the Eventing is one of an operator.
	s.manage("eventing", true)
	s.found("managed again, and not seen yet", "error module-is-managed "+kyma)
	turns()
	s.found("managed again", "error module-is-managed "+kyma)
	_, err := s.client.Resource(eventings).Namespace(namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"metadata":{"finalizers":["eventing-manager.kyma-project.io/deletion-hook"]}}`), metav1.PatchOptions{})
	s.check(err)
	s.manage("eventing", false)
	s.unlist("eventing") // before lifecycle-manager has seen it
	s.found("removed, and not seen yet", "error module-is-removed "+kyma)
	turns()
	removed := s.found("being removed", "error module-is-removed "+kyma, "error eventing-is-deleted Eventing kyma-system/eventing")
	if !s.shell(removed[0].Command) {
		_, err := s.client.Resource(kymas).Namespace(namespace).Patch(t.Context(), "default", types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/modules/-","value":{"name":"eventing","managed":false}}]`), metav1.PatchOptions{})
		s.check(err)
	}
	turns()
	labeled := s.found("its removal is stopped", "warning definition-is-managed CustomResourceDefinition "+subsCRD, "warning definition-is-managed CustomResourceDefinition "+eventingsCRD,
		"error eventing-is-deleted Eventing kyma-system/eventing")
	for _, f := range labeled[:2] {
		if !s.shell(f.Command) {
			_, name, _ := strings.Cut(f.Object, " ")
			_, err := s.client.Resource(definitions).Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+managedLabel+`":null}}}`), metav1.PatchOptions{})
			s.check(err)
		}
	}
	_, err = s.client.Resource(eventings).Namespace(namespace).Patch(t.Context(), "eventing", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	s.check(err)
	turns()
	s.found("the Eventing is gone")
	for _, name := range []string{subsCRD, eventingsCRD} {
		if crd, err := s.client.Resource(definitions).Get(t.Context(), name, metav1.GetOptions{}); err != nil || crd.GetDeletionTimestamp() != nil {
			t.Errorf("the definition %s is deleted: %v", name, err)
		}
	}
	// What would have become of them: the module nats has no finalizer that stops its removal.
	s.manage("nats", true)
	turns()
	s.unlist("nats")
	s.await(time.Minute, "the definition of NATS is deleted with its module", func(ctx context.Context) error {
		if err := l.Turn(ctx); err != nil {
			return err
		}
		_, err := s.client.Resource(definitions).Get(ctx, kymaeventing.NATSKind, metav1.GetOptions{})
		return poll.Gone(err)
	})
}

// TestNobodyServesTheKyma follows the document in a cluster whose lifecycle-manager is gone. A
// lifecycle-manager that is there after all is found by what it writes.
func TestNobodyServesTheKyma(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("the commands of the document need kubectl")
	}
	s := newClients(t)
	t.Cleanup(s.clean)
	l := s.lifecycle(map[string]kymaeventing.Module{
		"eventing": {Objects: s.theirDefinitions(), Default: object(t, `{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing, namespace: kyma-system}, spec: `+kymaSpec+`}`)},
		"nats":     {Objects: []*unstructured.Unstructured{object(t, kymaeventing.NATSDefinition)}, Default: object(t, kymaeventing.NATS)},
	})
	s.await(time.Minute, "lifecycle-manager has installed the module", func(ctx context.Context) error {
		s.check(l.Turn(ctx))
		_, err := s.client.Resource(eventings).Namespace(namespace).Get(ctx, "eventing", metav1.GetOptions{})
		return err
	})
	const kyma, warned = "Kyma kyma-system/default", "warning module-is-unserved Kyma kyma-system/default"
	s.document("Let lifecycle-manager go", "for module in eventing nats", "for module in")    // it would wait until its time limit
	stuck := []string{"error module-is-managed " + kyma, "warning module-is-managed " + kyma} // there is no NATS
	s.document("If no lifecycle-manager serves the Kyma")
	s.found("said while it was written", stuck...)

	s.writtenAt(time.Now().Add(-2 * time.Hour))
	s.found("it was written since that was said", stuck...)
	s.document("If no lifecycle-manager serves the Kyma")
	left := s.found("Manifests are left behind", warned, warned, "error module-is-managed Manifest kcp-system/eventing", "warning module-is-managed Manifest kcp-system/nats")
	for _, f := range left[2:] {
		s.shell(f.Command)
	}
	s.found("nothing is in the way", warned, warned)
	s.relabel()
	s.found("somebody applies a definition", warned, warned, "error definition-is-managed CustomResourceDefinition "+subsCRD)
	s.document("If no lifecycle-manager serves the Kyma")
	s.status(`{"state":"Deleting"}`)
	ending := s.found("lifecycle-manager was deleting it", "error module-is-removed "+kyma, "warning module-is-removed "+kyma)
	s.shell(ending[0].Command)
	s.found("nobody deletes it", warned, warned)

	// A lifecycle-manager that cannot let go: it has no template of the modules.
	other, err := kymaeventing.NewLifecycle(cluster.Config(), nil)
	s.check(err)
	s.check(other.Turn(t.Context()))
	s.found("a lifecycle-manager serves it", stuck...)
	s.check(l.Turn(t.Context()))
	s.found("a lifecycle-manager that comes back lets go")
}

// writtenAt plays that lifecycle-manager has written the Kyma at a time, and not since.
func (s *site) writtenAt(at time.Time) {
	s.t.Helper()
	s.status(fmt.Sprintf(`{"lastOperation":{"lastUpdateTime":%q}}`, at.UTC().Format(time.RFC3339)))
}

// status changes that of the Kyma.
func (s *site) status(patch string) {
	s.t.Helper()
	_, err := s.client.Resource(kymas).Namespace(namespace).Patch(s.t.Context(), "default", types.MergePatchType, []byte(`{"status":`+patch+`}`), metav1.PatchOptions{}, "status")
	s.check(err)
}

// relabel does what lifecycle-manager does to the definition of Subscriptions.
func (s *site) relabel() {
	s.t.Helper()
	_, err := s.client.Resource(definitions).Patch(s.t.Context(), subsCRD, types.MergePatchType, []byte(`{"metadata":{"labels":{"`+managedLabel+`":"kyma"}}}`), metav1.PatchOptions{})
	s.check(err)
}

// TestLifecycleManagerLetsGo follows the document from modules that lifecycle-manager has installed
// until they are removed, under load. Meanwhile a module is managed again, and once it is removed
// while it is.
func TestLifecycleManagerLetsGo(t *testing.T) {
	if !all {
		t.Skip("make test-slow has it")
	}
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("the commands of the document need kubectl")
	}
	const n = 2
	s := newCluster(t)
	modules, err := kymaeventing.Modules(kymaSpec, s.theirDefinitions()...)
	s.check(err)
	lifecycle := s.lifecycle(modules)
	t.Cleanup(lifecycle.Start(t.Logf))
	s.moduleStates("Ready")
	s.subscribe(n)
	s.begin(n)
	l := s.publish(n, 2, 20*time.Millisecond)

	s.document("Let lifecycle-manager go")
	s.letGo()
	s.deleteEventing("eventing-manager")
	s.await(time.Minute, "Kyma's operator has its Eventing again", func(ctx context.Context) error {
		if state, _, _ := unstructured.NestedString(s.get(eventings, "eventing").Object, "status", "state"); state != "Ready" {
			return fmt.Errorf("its state is %q", state)
		}
		return s.allReady(ctx, n)
	})
	s.document("Install ours next to Kyma's")
	s.runs()
	uids := s.uids(n)

	// It is managed again.
	s.manageAgain()
	before := l.count()
	s.found("managed again", "error module-is-managed Kyma kyma-system/default")
	s.document("Let lifecycle-manager go")
	s.letGo()
	s.document("A module that is managed again")
	s.runs()
	s.both.Store(0) // lifecycle-manager had started Kyma's operator beside ours
	s.await(time.Minute, "clients go on", func(context.Context) error {
		if l.count() < before+20 {
			return errors.New("too few events are accepted")
		}
		return nil
	})

	// It is managed again, and removed then.
	s.manageAgain()
	s.unlist("eventing")
	s.await(time.Minute, "lifecycle-manager deletes the Eventing", func(context.Context) error {
		if s.get(eventings, "eventing").GetDeletionTimestamp() == nil {
			return errors.New("it is not deleted")
		}
		return nil
	})
	removed := s.found("being removed", "error module-is-removed Kyma kyma-system/default", "error eventing-is-deleted Eventing kyma-system/eventing")
	s.shell(removed[0].Command)
	s.noManifest()
	for _, f := range s.moduleFindings() {
		if f.ID == "definition-is-managed" {
			s.shell(f.Command)
		}
	}
	s.found("its removal is stopped", "error eventing-is-deleted Eventing kyma-system/eventing")
	s.document("A module that is being removed")
	s.document("An Eventing that is being deleted")
	s.runs()
	s.both.Store(0)
	delete(uids, "Eventing")

	s.document("Remove them from the Kyma")
	s.await(time.Minute, "the Kyma has no module of them", func(ctx context.Context) error {
		kyma, err := s.client.Resource(kymas).Namespace(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err == nil && strings.Contains(fmt.Sprint(kyma.Object["status"]), "eventing") {
			err = fmt.Errorf("status %v", kyma.Object["status"])
		}
		return err
	})
	s.document("Delete Kyma's NATS")
	s.natsGone()
	s.document("Delete Kyma's operators")
	if code, out, _ := s.takeOver("verify"); code != 0 {
		t.Errorf("verify in the end: exit code %d\n%s", code, out)
	}
	now := s.uids(n)
	for what, uid := range uids {
		if now[what] != uid {
			t.Errorf("%s is another one", what)
		}
	}
	before = l.count()
	s.await(time.Minute, "clients go on", func(context.Context) error {
		if l.count() < before+100 {
			return errors.New("too few events are accepted")
		}
		return nil
	})
	if accepted, twice := l.end(); twice*1000 > accepted {
		t.Errorf("%d accepted, %d twice", accepted, twice)
	}
	s.alone()
}

// deleteEventing deletes it, as lifecycle-manager does, and recreates it as the document says.
func (s *site) deleteEventing(operator string) {
	s.t.Helper()
	s.check(s.client.Resource(eventings).Namespace(namespace).Delete(s.t.Context(), "eventing", metav1.DeleteOptions{}))
	s.found("the Eventing is deleted", "error eventing-is-deleted Eventing kyma-system/eventing")
	s.document("An Eventing that is being deleted", "operator=eventing-next-manager", "operator="+operator)
}

// moduleStates waits until both modules have a state.
func (s *site) moduleStates(want string) {
	s.t.Helper()
	s.await(2*time.Minute, "the modules are "+want, func(ctx context.Context) error {
		kyma, err := s.client.Resource(kymas).Namespace(namespace).Get(ctx, "default", metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(kyma.Object, "status", "modules")
		states := map[any]any{}
		for _, m := range list {
			states[m.(map[string]any)["name"]] = m.(map[string]any)["state"]
		}
		if states["eventing"] != want || states["nats"] != want {
			return fmt.Errorf("they are %v", states)
		}
		return nil
	})
}

// manageAgain lets lifecycle-manager install the module eventing once more.
func (s *site) manageAgain() {
	s.t.Helper()
	s.manage("eventing", true)
	s.await(2*time.Minute, "Kyma's operator has the Service again", func(ctx context.Context) error {
		service, err := s.core.CoreV1().Services(namespace).Get(ctx, publisher, metav1.GetOptions{})
		if err == nil && service.Spec.Selector["app.kubernetes.io/managed-by"] != "eventing-manager" {
			err = fmt.Errorf("it selects %v", service.Spec.Selector)
		}
		return err
	})
}

// noManifest waits until lifecycle-manager has no module.
func (s *site) noManifest() {
	s.t.Helper()
	s.await(time.Minute, "lifecycle-manager has let go of the modules", func(ctx context.Context) error {
		list, err := s.client.Resource(manifests).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d Manifests are there", len(list.Items))
		}
		return err
	})
}

// letGo waits until lifecycle-manager has removed its labels.
func (s *site) letGo() {
	s.t.Helper()
	s.noManifest()
	for _, name := range []string{subsCRD, eventingsCRD} {
		crd, err := s.client.Resource(definitions).Get(s.t.Context(), name, metav1.GetOptions{})
		s.check(err)
		if crd.GetLabels()[managedLabel] != "" {
			s.t.Errorf("%s still has its label", name)
		}
	}
}

// runs goes over, to the end.
func (s *site) runs() {
	s.t.Helper()
	for _, verb := range []string{"run", "verify"} {
		if code, out, log := s.takeOver(verb); code != 0 {
			s.t.Fatalf("%s: exit code %d\n%s%s", verb, code, out, log)
		}
	}
}

// uids are those of what must stay.
func (s *site) uids(n int) map[string]types.UID {
	s.t.Helper()
	all := map[string]types.UID{"Eventing": s.get(eventings, "eventing").GetUID(), "Service": s.get(schema.GroupVersionResource{Version: "v1", Resource: "services"}, publisher).GetUID()}
	for i := range n {
		name := fmt.Sprintf("s%d", i)
		all["Subscription "+name] = s.get(subscriptions, name).GetUID()
	}
	for _, name := range []string{subsCRD, eventingsCRD} {
		crd, err := s.client.Resource(definitions).Get(s.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			s.t.Fatalf("the definition %s is gone", name)
		}
		s.check(err)
		all[name] = crd.GetUID()
	}
	return all
}
