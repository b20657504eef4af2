package takeover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// objects are a cluster that has nothing else. A kind without objects is not served.
type objects []*unstructured.Unstructured

func (o objects) Served(_ context.Context, gk schema.GroupKind) (migration.Resource, bool, error) {
	served := slices.ContainsFunc(o, func(u *unstructured.Unstructured) bool { return u.GroupVersionKind().GroupKind() == gk })
	return migration.Resource{GroupVersionResource: gk.WithVersion("v1beta2").GroupVersion().WithResource(strings.ToLower(gk.Kind) + "s"), Kind: gk.Kind}, served, nil
}

func (o objects) List(_ context.Context, r migration.Resource, _ string, _ migration.ListOptions) (all []*unstructured.Unstructured, err error) {
	for _, u := range o {
		if u.GetKind() == r.Kind {
			all = append(all, u)
		}
	}
	return all, nil
}

func (o objects) Each(ctx context.Context, r migration.Resource, namespace string, opts migration.ListOptions, f func(*unstructured.Unstructured) error) error {
	all, err := o.List(ctx, r, namespace, opts)
	for _, u := range all {
		if err == nil {
			err = f(u)
		}
	}
	return err
}

func (o objects) Get(_ context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
	for _, u := range o {
		if u.GetKind() == ref.Kind && u.GetName() == ref.Name {
			return u, nil
		}
	}
	return nil, nil
}

func (objects) TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error {
	return nil
}

// TestModules: what lifecycle-manager would delete, or undo, is found in each state in which this
// cluster shows it, with the command that ends it.
func TestModules(t *testing.T) {
	now := time.Now().UTC().Format(time.RFC3339)
	kyma := func(spec, status string) string {
		return fmt.Sprintf(`{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {name: default, namespace: kyma-system}, spec: {channel: regular%s}, status: {lastOperation: {lastUpdateTime: %q}, modules: [%s]}}`, spec, now, status)
	}
	// written is a Kyma that lifecycle-manager has written at a time, with annotations and more.
	written := func(at, metadata, status, modules, states string) string {
		return fmt.Sprintf(`{apiVersion: operator.kyma-project.io/v1beta2, kind: Kyma, metadata: {name: default, namespace: kyma-system%s}, spec: {modules: [%s]}, status: {lastOperation: {lastUpdateTime: %q}%s, modules: [%s]}}`, metadata, modules, at, status, states)
	}
	manifest := func(module, metadata, synced string) string {
		return fmt.Sprintf(`{apiVersion: operator.kyma-project.io/v1beta2, kind: Manifest, metadata: {name: m-%[1]s, namespace: kcp-system, labels: {operator.kyma-project.io/module-name: %[1]s}%[2]s}, status: {synced: [%[3]s]}}`, module, metadata, synced)
	}
	crd := func(name, metadata string) string {
		return fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s%s}}`, name, metadata)
	}
	const (
		letGo      = `, annotations: {operator.kyma-project.io/is-unmanaged: "true"}`
		deleted    = `, deletionTimestamp: "2026-01-01T00:00:00Z"`
		labeled    = `, labels: {operator.kyma-project.io/managed-by: kyma}, annotations: {deprecated-operator.kyma-project.io/owned-by: kcp-system/m-eventing}`
		definition = `{group: apiextensions.k8s.io, version: v1, kind: CustomResourceDefinition, name: subscriptions.eventing.kyma-project.io, namespace: ""}`
		patch      = "kubectl -n kyma-system patch kymas.operator.kyma-project.io default --type=json "
		wait       = "kubectl -n kyma-system wait kymas.operator.kyma-project.io default "
		annotate   = "kubectl -n kcp-system annotate manifests.operator.kyma-project.io "
		unlabel    = "kubectl label customresourcedefinition subscriptions.eventing.kyma-project.io operator.kyma-project.io/managed-by-"
		subs       = "subscriptions.eventing.kyma-project.io"
		long       = "2020-01-01T00:00:00Z" // ago
		unserved   = `, annotations: {take-over.eventing.kyma-project.io/unserved-since: "2020-01-01T00:00:00Z"}`
		annotated  = "kubectl -n kyma-system annotate kymas.operator.kyma-project.io default "
		notLetGo   = `{name: eventing, managed: false}`
		ready      = `{name: eventing, state: Ready}`
	)
	oldKyma := `{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: kymas.operator.kyma-project.io}, spec: {versions: [{name: v1beta2, schema: {openAPIV3Schema: {properties: {spec: {properties: {modules: {items: {properties: {name: {type: string}}}}}}}}}}]}}`
	newKyma := strings.Replace(oldKyma, "{name: {type: string}}", "{name: {type: string}, managed: {type: boolean}}", 1)
	for _, tc := range []struct {
		reason  string
		objects []string
		want    []string // "<severity> <id> <object>: <command>"
	}{
		{"nothing of lifecycle-manager", []string{crd(subs, "")}, nil},
		{"managed, as if nothing is said", []string{kyma(`, modules: [{name: keda}, {name: eventing}]`, `{name: eventing, state: Ready}`)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + patch + `'-p=[{"op":"test","path":"/spec/modules/1/name","value":"eventing"},{"op":"add","path":"/spec/modules/1/managed","value":false}]'`,
		}},
		{"managed again, and not seen yet", []string{kyma(`, modules: [{name: nats, managed: true}]`, `{name: nats, state: Unmanaged}`)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + patch + `'-p=[{"op":"test","path":"/spec/modules/0/name","value":"nats"},{"op":"add","path":"/spec/modules/0/managed","value":false}]'`,
		}},
		{"not seen yet", []string{kyma(`, modules: [{name: eventing, managed: false}]`, `{name: eventing, state: Ready}`), manifest("eventing", "", definition)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + wait + `'--for=jsonpath={.status.modules[?(@.name=="eventing")].state}=Unmanaged' --timeout=10m`,
		}},
		{"never seen", []string{kyma(`, modules: [{name: eventing, managed: false}]`, ``)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + wait + `'--for=jsonpath={.status.modules[?(@.name=="eventing")].state}=Unmanaged' --timeout=10m`,
		}},
		{"let go", []string{kyma(`, modules: [{name: eventing, managed: false}, {name: nats, managed: false}]`, `{name: eventing, state: Unmanaged}, {name: nats, state: Unmanaged}`)}, nil},
		{"let go, and its labels are being removed", []string{kyma(`, modules: [{name: eventing, managed: false}]`, `{name: eventing, state: Unmanaged}`), manifest("eventing", letGo, definition), crd(subs, labeled)}, []string{
			"warning definition-is-managed CustomResourceDefinition " + subs + ": " + unlabel,
		}},
		{"removed after it was let go", []string{kyma(``, `{name: eventing, state: Unmanaged}`)}, nil},
		{"gone", []string{kyma(``, `{name: keda, state: Ready}`), crd(subs, "")}, nil},
		{"removed while it was managed", []string{kyma(`, modules: [{name: keda}]`, `{name: keda, state: Ready}, {name: eventing, state: Deleting}`), crd(subs, labeled)}, []string{
			"error module-is-removed Kyma kyma-system/default: " + patch + `'-p=[{"op":"add","path":"/spec/modules/-","value":{"managed":false,"name":"eventing"}}]'`,
		}},
		{"the last one removed", []string{kyma(``, `{name: eventing, state: Ready}`)}, []string{
			"error module-is-removed Kyma kyma-system/default: " + patch + `'-p=[{"op":"add","path":"/spec/modules","value":[{"managed":false,"name":"eventing"}]}]'`,
		}},
		{"a Manifest that no Kyma names", []string{manifest("eventing", "", "")}, []string{
			"error module-is-managed Manifest kcp-system/m-eventing: " + annotate + "m-eventing operator.kyma-project.io/is-unmanaged=true",
		}},
		{"a Manifest that is being deleted", []string{manifest("eventing", deleted, definition)}, []string{
			"error module-is-removed Manifest kcp-system/m-eventing: " + annotate + "m-eventing operator.kyma-project.io/is-unmanaged=true",
		}},
		{"a module of another name with the same definitions", []string{kyma(`, modules: [{name: mine}]`, `{name: mine, state: Ready}`), manifest("mine", "", definition)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + patch + `'-p=[{"op":"test","path":"/spec/modules/0/name","value":"mine"},{"op":"add","path":"/spec/modules/0/managed","value":false}]'`,
		}},
		{"a module of another name with other definitions", []string{kyma(`, modules: [{name: keda}]`, `{name: keda, state: Ready}`), manifest("keda", "", strings.Replace(definition, "subscriptions.eventing", "scaledobjects.keda", 1))}, nil},
		{"lifecycle-manager goes on", []string{written(now, "", "", notLetGo, ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + wait + `'--for=jsonpath={.status.modules[?(@.name=="eventing")].state}=Unmanaged' --timeout=10m`,
		}},
		{"nobody has written it for long", []string{written(long, "", "", notLetGo, ready), crd(subs, labeled)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + annotated + "--overwrite take-over.eventing.kyma-project.io/unserved-since=" + long,
		}},
		{"nobody has ever written it", []string{written("", `, creationTimestamp: "`+long+`"`, "", notLetGo, "")}, []string{
			"error module-is-managed Kyma kyma-system/default: " + annotated + "--overwrite take-over.eventing.kyma-project.io/unserved-since=" + long,
		}},
		{"an administrator says that nobody serves it", []string{written(long, unserved, "", notLetGo, ready)}, []string{
			"warning module-is-unserved Kyma kyma-system/default: " + annotated + "take-over.eventing.kyma-project.io/unserved-since-",
		}},
		{"what else is left behind", []string{written(long, unserved, "", notLetGo, ready), manifest("eventing", "", definition), crd(subs, labeled)}, []string{
			"warning module-is-unserved Kyma kyma-system/default: " + annotated + "take-over.eventing.kyma-project.io/unserved-since-",
			"error module-is-managed Manifest kcp-system/m-eventing: " + annotate + "m-eventing operator.kyma-project.io/is-unmanaged=true",
		}},
		{"its label is left behind, or is there again", []string{written(long, unserved, "", notLetGo, ready), crd(subs, labeled)}, []string{
			"warning module-is-unserved Kyma kyma-system/default: " + annotated + "take-over.eventing.kyma-project.io/unserved-since-",
			"error definition-is-managed CustomResourceDefinition " + subs + ": " + unlabel,
		}},
		{"somebody serves it nevertheless", []string{written(now, unserved, "", notLetGo, ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + wait + `'--for=jsonpath={.status.modules[?(@.name=="eventing")].state}=Unmanaged' --timeout=10m`,
		}},
		{"somebody has served it since", []string{written("2020-01-01T00:05:00Z", unserved, "", notLetGo, ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + annotated + "--overwrite take-over.eventing.kyma-project.io/unserved-since=2020-01-01T00:05:00Z",
		}},
		{"it is said too early", []string{written(now, strings.Replace(unserved, long, now, 1), "", notLetGo, ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + wait + `'--for=jsonpath={.status.modules[?(@.name=="eventing")].state}=Unmanaged' --timeout=10m`,
		}},
		{"who comes back would manage it", []string{written(long, unserved, "", "{name: eventing}", ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + patch + `'-p=[{"op":"test","path":"/spec/modules/0/name","value":"eventing"},{"op":"add","path":"/spec/modules/0/managed","value":false}]'`,
		}},
		{"who comes back would delete it", []string{written(long, unserved, "", "", ready)}, []string{
			"error module-is-removed Kyma kyma-system/default: " + patch + `'-p=[{"op":"add","path":"/spec/modules/-","value":{"managed":false,"name":"eventing"}}]'`,
		}},
		{"lifecycle-manager deletes all, and writes nothing meanwhile", []string{written(long, unserved, ", state: Deleting", notLetGo, ready)}, []string{
			"error module-is-removed Kyma kyma-system/default: kubectl -n kyma-system patch kymas.operator.kyma-project.io default --subresource=status --type=merge '-p={\"status\":{\"state\":\"Warning\"}}'",
		}},
		{"it deletes all but what it has let go of", []string{written(long, "", ", state: Deleting", notLetGo, `{name: eventing, state: Unmanaged}`)}, nil},
		{"a Kyma that is being deleted is written by nobody", []string{written(long, unserved+deleted, "", notLetGo, ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: kubectl -n kyma-system patch kymas.operator.kyma-project.io default --type=merge '-p={\"metadata\":{\"finalizers\":null}}'",
		}},
		{"one too old to let go", []string{oldKyma, written(now, "", "", "{name: eventing}", ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: kubectl explain kymas.operator.kyma-project.io.spec.modules",
		}},
		{"one too old to let go was here", []string{oldKyma, written(long, "", "", "{name: eventing}", ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + annotated + "--overwrite take-over.eventing.kyma-project.io/unserved-since=" + long,
		}},
		{"one too old to let go was here, says an administrator", []string{oldKyma, written(long, unserved, "", "{name: eventing}", ready)}, []string{
			"warning module-is-unserved Kyma kyma-system/default: " + annotated + "take-over.eventing.kyma-project.io/unserved-since-",
		}},
		{"one that is not too old", []string{newKyma, written(long, unserved, "", "{name: eventing}", ready)}, []string{
			"error module-is-managed Kyma kyma-system/default: " + patch + `'-p=[{"op":"test","path":"/spec/modules/0/name","value":"eventing"},{"op":"add","path":"/spec/modules/0/managed","value":false}]'`,
		}},
		{"only the label is seen", []string{crd(subs, labeled)}, []string{"error definition-is-managed CustomResourceDefinition " + subs + ": " + unlabel}},
		{"a definition is being deleted", []string{crd(subs, deleted)}, []string{
			"error definition-is-deleted CustomResourceDefinition " + subs + ": kubectl get " + subs + " --all-namespaces -o yaml > " + subs + ".yaml",
		}},
	} {
		var o objects
		for _, text := range tc.objects {
			o = append(o, object(t, text))
		}
		s := readyToGo(t)
		for _, read := range []func(context.Context, reader) error{s.readModules, s.readDefinitions} {
			if err := read(t.Context(), o); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, f := range findings(s, options{to: Over}) {
			got = append(got, fmt.Sprintf("%s %s %s: %s", f.Severity, f.ID, f.Object, f.Command))
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
		}
	}
}

// TestNATSIsManaged: nobody misses Kyma's NATS after the way, and who goes back does.
func TestNATSIsManaged(t *testing.T) {
	s := readyToGo(t)
	s.modules = []module{{kyma: kyma{namespace: "kyma-system", name: "default"}, name: natsModule, listed: true, managed: true}}
	severity := func(to Direction) migration.Severity { return findings(s, options{to: to})[0].Severity }
	if got := severity(Over); got != migration.Error {
		t.Errorf("its events are not delivered yet: %s", got)
	}
	s.theirPublisher.Object["spec"].(map[string]any)["replicas"] = int64(0)
	s.theirs = &Backlog{Stream: true}
	if got := severity(Over); got != migration.Warning {
		t.Errorf("it is empty: %s", got)
	}
	if got := severity(Back); got != migration.Error {
		t.Errorf("the way back: %s", got)
	}
}

// TestTheEventingIsDeletedByLifecycleManager: what keeps all from the rest of the findings does not
// hide who deletes it.
func TestTheEventingIsDeletedByLifecycleManager(t *testing.T) {
	s := readyToGo(t)
	s.eventing = object(t, `{metadata: {name: eventing, namespace: kyma-system, deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {backend: {type: NATS}}}`)
	s.modules = []module{{kyma: kyma{namespace: "kyma-system", name: "default"}, name: eventingModule, state: "Deleting"}}
	var got []string
	for _, f := range findings(s, options{to: Over}) {
		got = append(got, f.ID)
	}
	if want := []string{"module-is-removed", "eventing-is-deleted"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
