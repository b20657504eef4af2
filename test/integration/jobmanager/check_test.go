package jobmanager

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/check"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/poll"
)

// apply creates the objects of a stream, and deletes them at the end.
func apply(t *testing.T, stream string) {
	t.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if u.Object == nil {
			continue
		}
		r := client.Resource(u.GroupVersionKind().GroupVersion().WithResource(strings.ToLower(u.GetKind()) + "s")).Namespace(u.GetNamespace())
		_, err := r.Create(t.Context(), u, metav1.CreateOptions{})
		switch {
		case u.GetKind() == "Namespace" && (err == nil || apierrors.IsAlreadyExists(err)):
			continue // the other tests use it, too
		case err != nil:
			t.Fatalf("%s %s: %v", u.GetKind(), u.GetName(), err)
		}
		t.Cleanup(func() {
			if err := r.Delete(context.WithoutCancel(t.Context()), u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheckOfAGoodCluster: everything is told, and nothing is written.
func TestCheckOfAGoodCluster(t *testing.T) {
	finished(t)
	withoutWrites(t, "check", func() {
		out := tool(t, "check")
		out.want(t, 0, "0 errors", "Kubernetes   v1.", "Broker v1alpha1", "Permissions  all are given", "eventservice-verify", "Next: A run can begin. See its changes:\n  eventmesh-migrate plan")
		if lines := strings.Count(out.stdout, "\n"); lines > 40 {
			t.Errorf("%d lines:\n%s", lines, out.stdout)
		}
		tool(t, "check", "-o", "wide").want(t, 0, "sources.kyma-project.io")
		var r check.Result
		if err := json.Unmarshal([]byte(tool(t, "check", "-o", "json").stdout), &r); err != nil || r.User == "" || len(r.Jobs) < 6 || len(r.Missing) != 0 {
			t.Errorf("%v in %+v", err, r)
		}
	})
}

// TestCheckNamesAnEndpointThatCrashes: a Subscription that stops the Event Bus for all others is
// named as plan names it, whatever its namespace is.
func TestCheckNamesAnEndpointThatCrashes(t *testing.T) {
	finished(t)
	apply(t, `{apiVersion: eventing.kyma-project.io/v1alpha1, kind: Subscription, metadata: {namespace: kube-system, name: bad}, spec: {source_id: commerce, event_type: a, event_type_version: v1, endpoint: "http://[::1"}}`)
	out := tool(t, "check", "-o", "json")
	var r check.Result
	if err := json.Unmarshal([]byte(out.stdout), &r); err != nil || out.code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", out.code, err, out.stdout, out.stderr)
	}
	if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
		return f.ID == "endpoint-crashes-controller" && f.Object == "Subscription kube-system/bad" && f.Severity == migration.Warning &&
			f.Command == "kubectl -n kube-system edit subscription.eventing.kyma-project.io/bad"
	}) {
		t.Errorf("no finding names the Subscription: %v", r.Findings)
	}
}

// TestCheckNamesAllMissingPermissions: the Role that is printed is enough, and the jobs name
// all that is missing at once.
func TestCheckNamesAllMissingPermissions(t *testing.T) {
	finished(t)
	namespace(t, kyma.StateNamespace)
	kubeconfig, err := cluster.User(t.Context(), "few", rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"namespaces"}})
	if err != nil {
		t.Fatal(err)
	}
	out := tool(t, "check", "--kubeconfig", kubeconfig)
	out.want(t, migration.ExitFindings, "permission-missing: ", " permissions are missing: ", "Permissions  missing: ", "eventmesh-migrate check --role --kubeconfig="+kubeconfig,
		" × check-not-done: not checked, because this account may not read \"…\"", "Next: An administrator applies the Role that this prints:")
	if lines := strings.Count(out.stdout, "\n"); lines > 40 {
		t.Errorf("%d lines:\n%s", lines, out.stdout)
	}
	// Each check that could not be made has a reason, and no check is skipped without one.
	tool(t, "check", "-o", "wide", "--kubeconfig", kubeconfig).want(t, migration.ExitFindings,
		`other runs: not checked, because this account may not read "leases.coordination.k8s.io"`,
		"job trigger-sync: not checked, because this account may not read ",
		`number of Applications: not checked, because this account may not read "applications.applicationconnector.kyma-project.io"`,
		`webhooks: not checked, because this account may not read "validatingwebhookconfigurations.admissionregistration.k8s.io"`,
		"check-nats-unreadable: ")
	for _, of := range [][]string{{"plan"}, {"run", "--job=httpsource-sync"}, {"job", "trigger-sync", "plan"}} {
		tool(t, append(of, "--kubeconfig", kubeconfig)...).want(t, migration.ExitRefused, "missing permission: ", "eventmesh-migrate check --role")
	}
	for _, of := range []string{"verify", "map"} {
		tool(t, of, "--kubeconfig", kubeconfig).want(t, migration.ExitNotChecked, "forbidden", "eventmesh-migrate check --role --kubeconfig="+kubeconfig)
	}
	role := tool(t, "check", "--role", "--kubeconfig", kubeconfig)
	role.want(t, 0, `name: "system:serviceaccount:default:eventmesh-test-few-`)
	apply(t, role.stdout)
	// The API server decides from a cache.
	poll.Until(t, time.Minute, "the Role is enough for check", func(context.Context) error {
		if out := tool(t, "check", "--kubeconfig", kubeconfig); out.code != 0 {
			return errors.New(out.stdout + out.stderr)
		}
		return nil
	})
	tool(t, "run", "--job=httpsource-sync", "--kubeconfig", kubeconfig).want(t, 0, `"user":"system:serviceaccount:default:eventmesh-test-few-`)
}

// TestCheckChecksTheRest: an account that lacks some permissions is told everything else.
func TestCheckChecksTheRest(t *testing.T) {
	finished(t)
	kubeconfig, err := cluster.User(t.Context(), "most",
		rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}},
		rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps", "namespaces"}},
		rbacv1.PolicyRule{Verbs: []string{"list"}, APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"}},
		rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services", "endpoints"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	apply(t, deadWebhook)
	out := tool(t, "check", "-o", "wide", "--kubeconfig", kubeconfig)
	out.want(t, migration.ExitFindings, "permission-missing: ", "check-webhook-down: ValidatingWebhookConfiguration dead:", `may not read "mutatingwebhookconfigurations`)
	for _, not := range []string{"other runs", `may not read "validating`, "Services of webhooks"} {
		if strings.Contains(out.stdout, not) {
			t.Errorf("%q is told, and it was checked:\n%s", not, out.stdout)
		}
	}
}

// TestCheckFindsADeadWebhook: the API server would ask it before each Trigger.
func TestCheckFindsADeadWebhook(t *testing.T) {
	finished(t)
	apply(t, deadWebhook)
	tool(t, "check").want(t, migration.ExitFindings, "check-webhook-down (ValidatingWebhookConfiguration dead):", "its Service", "default/nobody does", "eventmesh-migrate explain check-webhook-down")
	if names := tool(t, "check", "-o", "name"); names.stdout != "validatingwebhookconfiguration/dead\n" {
		t.Errorf("-o name: %q", names.stdout)
	}
}

const deadWebhook = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: dead}
webhooks:
- name: dead.example.com
  admissionReviewVersions: [v1, v1beta1]
  sideEffects: None
  failurePolicy: Fail
  clientConfig: {service: {namespace: default, name: nobody}}
  rules: [{apiGroups: [eventing.knative.dev], apiVersions: ["*"], operations: [CREATE], resources: [triggers]}]
`
