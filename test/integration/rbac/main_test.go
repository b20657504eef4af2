//go:build slow || soak

// Package rbac proves the Roles of the charts on a real API server: each job runs
// as the ServiceAccount that the chart gives it, with exactly its Roles, over runs
// that succeed, fail and are undone. The audit log says what was refused, and what
// was never used.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/helm"
	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/process"
	"github.com/kyma-project/eventmesh-migration/test/standin"
	"github.com/kyma-project/eventmesh-migration/test/suite"
)

func TestMain(m *testing.M) { kubernetes.Main(m) }

// plane is a cluster with Kyma's kinds and Knative's at one version.
type plane struct {
	*kubernetes.ControlPlane
	version     kubernetes.KnativeVersion
	core        clientset.Interface
	dynamic     dynamic.Interface
	controllers *standin.Controllers
	helm        *helm.Helm
}

// start starts a cluster of the test's own, since its audit log is the proof.
func start(t *testing.T, version kubernetes.KnativeVersion, opts ...kubernetes.Option) *plane {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	p := &plane{version: version}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if p.helm, err = helm.New(ctx, root, 3); err != nil {
		t.Fatal(err)
	}
	if p.ControlPlane, err = kubernetes.Start(ctx, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	if !p.Own() {
		t.Skip("needs the audit log of a cluster of its own: unset " + kubernetes.KubeconfigEnv)
	}
	if err := p.InstallCRDs(ctx, version); err != nil {
		t.Fatal(err)
	}
	if p.core, err = clientset.NewForConfig(p.Config()); err != nil {
		t.Fatal(err)
	}
	if p.dynamic, err = dynamic.NewForConfig(p.Config()); err != nil {
		t.Fatal(err)
	}
	if p.controllers, err = standin.Start(context.WithoutCancel(t.Context()), p.Config(), standin.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.controllers.Stop)
	if _, err := standin.Put(ctx, p.Config(), 0); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"knative-eventing", "natss", "shop", "crm", kyma.StateNamespace} {
		_, err := p.core.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return p
}

// account is a job as the chart runs it.
type account struct {
	*plane
	job  string
	user string
	// args are those of the chart's Job.
	args []string
	// clusterRole is its name.
	clusterRole string
	kubeconfig  string
	grants      []grant
	mark        kubernetes.Mark
}

// grant is one verb on one resource in one scope.
type grant struct{ verb, group, resource, namespace, name string }

func (g grant) String() string {
	s := g.verb + " " + g.resource
	if g.group != "" {
		s += "." + g.group
	}
	if g.name != "" {
		s += " " + g.name
	}
	if g.namespace != "" {
		return s + " in " + g.namespace
	}
	return s + " everywhere"
}

// componentOf is the first component whose chart runs the job, core for what all charts
// have.
func componentOf(t *testing.T, job string) string {
	t.Helper()
	chains, err := registry.Chains(registry.All())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chains {
		if slices.ContainsFunc(slices.Concat(c.Pre, c.Post), func(s registry.Step) bool { return s.Job == job }) {
			return c.Component
		}
	}
	return registry.Core
}

// account installs what the chart renders for the Job, but for the Job.
func (p *plane) account(t *testing.T, job string) *account {
	t.Helper()
	ctx := t.Context()
	const release, namespace = "core", "kyma-system"
	name := release + "-" + job
	args := []string{
		"--namespace", namespace, "--set", "standalone=true,hooks.accountsOnce=true,image.allowDevel=true,test.enabled=false,component=" + componentOf(t, job),
		"--api-versions", "authentication.istio.io/v1alpha1",
	}
	if p.version == kubernetes.KnativeV1 {
		args = append(args, "--api-versions", "eventing.knative.dev/v1")
	}
	out, err := p.helm.Template(ctx, release, "charts/eventmesh-migration", args...)
	if err != nil {
		t.Fatal(err)
	}
	a := &account{plane: p, job: job, user: "system:serviceaccount:" + namespace + ":" + name}
	for doc := range strings.SplitSeq(out, "\n---\n") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Kind == "" {
			continue
		}
		obj, err := scheme.Scheme.New(meta.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
			t.Fatal(err)
		}
		if err := a.install(ctx, obj, name); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if len(a.grants) == 0 || len(a.args) == 0 {
		t.Fatalf("the chart has no Role or no Job for %s", job)
	}
	token, err := p.core.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for auth := range config.AuthInfos {
		config.AuthInfos[auth] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, a.kubeconfig); err != nil {
		t.Fatal(err)
	}
	a.inForce(t)
	if a.mark, err = p.Mark(ctx); err != nil {
		t.Fatal(err)
	}
	return a
}

// install creates what belongs to the account of that name.
func (a *account) install(ctx context.Context, obj runtime.Object, name string) (err error) {
	add := func(namespace string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			names := rule.ResourceNames
			if len(names) == 0 {
				names = []string{""}
			}
			for _, verb := range rule.Verbs {
				for _, one := range names {
					a.grants = append(a.grants, grant{verb, rule.APIGroups[0], rule.Resources[0], namespace, one})
				}
			}
		}
	}
	o := metav1.CreateOptions{}
	switch obj := obj.(type) {
	case *corev1.ServiceAccount:
		if obj.Name == name {
			_, err = a.core.CoreV1().ServiceAccounts(obj.Namespace).Create(ctx, obj, o)
		}
	case *rbacv1.Role:
		if obj.Name == name {
			add(obj.Namespace, obj.Rules)
			_, err = a.core.RbacV1().Roles(obj.Namespace).Create(ctx, obj, o)
		}
	case *rbacv1.ClusterRole:
		if strings.HasPrefix(obj.Name, name+"-") {
			a.clusterRole = obj.Name
			add("", obj.Rules)
			_, err = a.core.RbacV1().ClusterRoles().Create(ctx, obj, o)
		}
	case *rbacv1.RoleBinding:
		if obj.Name == name {
			_, err = a.core.RbacV1().RoleBindings(obj.Namespace).Create(ctx, obj, o)
		}
	case *rbacv1.ClusterRoleBinding:
		if strings.HasPrefix(obj.Name, name+"-") {
			_, err = a.core.RbacV1().ClusterRoleBindings().Create(ctx, obj, o)
		}
	case *batchv1.Job:
		if c := obj.Spec.Template.Spec.Containers[0]; c.Name == a.job && len(a.args) == 0 {
			a.args = c.Args[1:]
		}
	}
	return err
}

// inForce waits until the API server, which decides from a cache, knows the Roles.
func (a *account) inForce(t *testing.T) {
	t.Helper()
	for _, g := range a.grants {
		a.eventually(t, g, true)
	}
}

func (a *account) eventually(t *testing.T, g grant, allowed bool) {
	t.Helper()
	resource, subresource, _ := strings.Cut(g.resource, "/")
	poll.Until(t, 30*time.Second, fmt.Sprintf("%s: allowed is %t", g, allowed), func(ctx context.Context) error {
		review, err := a.core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: a.user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: g.verb, Group: g.group, Resource: resource, Subresource: subresource, Namespace: g.namespace, Name: g.name,
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return poll.Stop(err)
		}
		if review.Status.Allowed != allowed {
			return fmt.Errorf("allowed is %t: %s", review.Status.Allowed, review.Status.Reason)
		}
		return nil
	})
}

// begin starts the job's command as the chart has it; what is asked for here comes
// after, and counts.
func (a *account) begin(t *testing.T, command string, args ...string) *suite.Process {
	t.Helper()
	return suite.Start(t, process.Program{
		Binary: process.Build(t, "./cmd/"+a.job),
		Args: slices.Concat([]string{command}, a.args, []string{
			"--kubeconfig=" + a.kubeconfig, "--output=json", "--lease-duration=1s", "--lock-wait=60s", "--timeout=60s",
		}, args),
		Limit: 5 * time.Minute,
	})
}

// run runs a command to its end, and checks how it ended.
func (a *account) run(t *testing.T, wanted migration.Result, command string, args ...string) *migration.Report {
	t.Helper()
	p := a.begin(t, command, args...)
	r, _ := p.Report()
	if r.Result != wanted {
		t.Fatalf("%s: %s, want %s", p, r.Result, wanted)
	}
	return r
}

// killed starts a run and kills it when reached says so.
func (a *account) killed(t *testing.T, reached func() bool, args ...string) {
	t.Helper()
	p := a.begin(t, "run", args...)
	poll.Until(t, time.Minute, p.String()+": it has come so far that it is killed", func(context.Context) error {
		if reached() {
			return nil
		}
		select {
		case <-p.Exited():
			if reached() { // since it was asked
				return nil
			}
			return poll.Stop(errors.New("it has ended"))
		default:
			return errors.New("it has not come so far")
		}
	})
	p.Kill()
}

// contended lets a run wait for the lock, which somebody else seems to hold.
func (a *account) contended(t *testing.T, run func()) {
	t.Helper()
	leases := a.core.CoordinationV1().Leases(kyma.StateNamespace)
	// The last word of a run that was killed can still be on its way.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease, err := leases.Get(t.Context(), "eventmesh-migration", metav1.GetOptions{})
		if err != nil {
			return err
		}
		// Longer than it takes a run to come to the lock.
		now, seconds := metav1.NowMicro(), int32(10)
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("somebody else"), &seconds
		lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	run()
}

// faultOnly are the verbs that come up only when an answer is lost or a webhook
// interferes, which no run here can count on. That they are needed is proved the
// other way round: without one of them the job refuses to begin.
type faultOnly map[string]string

// exactly checks that nothing was refused and everything granted was used.
func (a *account) exactly(t *testing.T, faults faultOnly) {
	t.Helper()
	requests, err := a.Requests(t.Context(), a.mark, func(r kubernetes.Request) bool { return r.User == a.user })
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Fatal("the audit log knows no request of the account")
	}
	used := map[int]bool{}
	for _, r := range requests {
		if r.Code == 403 {
			t.Errorf("refused: %s", r)
		}
		resource := r.Resource
		group := ""
		if g, rest, ok := strings.Cut(resource, "/"); ok {
			group, resource = g, rest
		}
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		for i, g := range a.grants {
			if g.verb == r.Verb && g.group == group && g.resource == resource && (g.namespace == "" || g.namespace == r.Namespace) && (g.name == "" || g.name == r.Name) {
				used[i] = true
			}
		}
	}
	seen := map[string]bool{}
	for i, g := range a.grants {
		_, fault := faults[g.String()]
		seen[g.String()] = true
		switch {
		case !used[i] && !fault:
			t.Errorf("granted and never used: %s", g)
		case used[i] && fault:
			t.Logf("used after all: %s", g)
		}
	}
	for name := range faults {
		if !seen[name] {
			t.Errorf("the test expects a grant that the chart does not have: %s", name)
		}
	}
	t.Logf("%d requests, %d grants", len(requests), len(a.grants))
}

// refusesWithout takes one verb after the other out of the Roles, and checks that
// the job, which has work, refuses and names it.
func (a *account) refusesWithout(t *testing.T, faults faultOnly, args ...string) {
	t.Helper()
	name := strings.TrimPrefix(a.user, "system:serviceaccount:kyma-system:")
	for _, g := range a.grants {
		if _, ok := faults[g.String()]; !ok {
			continue
		}
		without := func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
			var kept []rbacv1.PolicyRule
			for _, rule := range rules {
				if rule.APIGroups[0] == g.group && rule.Resources[0] == g.resource {
					rule.Verbs = slices.DeleteFunc(slices.Clone(rule.Verbs), func(v string) bool { return v == g.verb })
				}
				if len(rule.Verbs) > 0 {
					kept = append(kept, rule)
				}
			}
			return kept
		}
		restore := a.edit(t, name, g.namespace, without)
		a.eventually(t, g, false)
		r := a.run(t, migration.Refused, "run", args...)
		if !slices.ContainsFunc(r.Findings, func(f migration.Finding) bool {
			resource := g.resource
			if g.group != "" {
				resource += "." + g.group
			}
			if g.name != "" {
				resource += " " + g.name
			}
			return strings.HasPrefix(f.Problem, "missing permission: "+g.verb+" "+resource+" in ")
		}) {
			t.Errorf("without %s it does not say so: %v", g, r.Findings)
		}
		restore()
		a.eventually(t, g, true)
	}
}

// edit changes the rules of the account in one scope, and returns how to undo it.
func (a *account) edit(t *testing.T, name, namespace string, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) (restore func()) {
	t.Helper()
	ctx := t.Context()
	var before []rbacv1.PolicyRule
	set := func(change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) {
		t.Helper()
		var err error
		if namespace == "" {
			var role *rbacv1.ClusterRole
			if role, err = a.core.RbacV1().ClusterRoles().Get(ctx, a.clusterRole, metav1.GetOptions{}); err == nil {
				before = role.Rules
				role.Rules = change(role.Rules)
				_, err = a.core.RbacV1().ClusterRoles().Update(ctx, role, metav1.UpdateOptions{})
			}
		} else {
			var role *rbacv1.Role
			if role, err = a.core.RbacV1().Roles(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
				before = role.Rules
				role.Rules = change(role.Rules)
				_, err = a.core.RbacV1().Roles(namespace).Update(ctx, role, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	set(change)
	kept := before
	return func() { set(func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return kept }) }
}

func resource(client dynamic.Interface, gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return client.Resource(gvr)
	}
	return client.Resource(gvr).Namespace(namespace)
}
