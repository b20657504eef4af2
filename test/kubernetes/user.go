package kubernetes

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// userNamespace holds the ServiceAccounts of users, out of the way of what tests count.
const userNamespace = "default"

// User makes a user who may do what the rules say, in all namespaces, and nothing else. It returns
// the path of a kubeconfig, with rules that the API server knows. The user is a ServiceAccount, as
// the migration's jobs are, and a new one with every call: rules that change behind a test's back
// would prove nothing.
func (c *ControlPlane) User(ctx context.Context, name string, rules ...rbacv1.PolicyRule) (string, error) {
	unique := "eventmesh-test-" + name + "-" + utilrand.String(5)
	token, err := c.user(ctx, unique, rules)
	if err != nil {
		return "", fmt.Errorf("cannot make user %q: %w", name, err)
	}
	raw, err := clientcmd.LoadFromFile(c.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("cannot make user %q: %w", name, err)
	}
	for auth := range raw.AuthInfos {
		raw.AuthInfos[auth] = &clientcmdapi.AuthInfo{Token: token}
	}
	path := filepath.Join(c.Dir, unique+".kubeconfig")
	if err := clientcmd.WriteToFile(*raw, path); err != nil {
		return "", fmt.Errorf("cannot make user %q: %w", name, err)
	}
	return path, nil
}

func (c *ControlPlane) user(ctx context.Context, name string, rules []rbacv1.PolicyRule) (token string, err error) {
	account := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1",
		"kind":       "ServiceAccount",
		"metadata":   map[string]any{"name": name, "namespace": userNamespace},
	}}
	if err := c.create(ctx, "serviceaccounts", account); err != nil {
		return "", err
	}
	role, err := toUnstructured(&rbacv1.ClusterRole{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      rules,
	})
	if err != nil {
		return "", err
	}
	if err := c.create(ctx, "clusterroles", role); err != nil {
		return "", err
	}
	binding, err := toUnstructured(&rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: userNamespace}},
	})
	if err != nil {
		return "", err
	}
	if err := c.create(ctx, "clusterrolebindings", binding); err != nil {
		return "", err
	}

	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"metadata":   map[string]any{"name": name},
		"spec":       map[string]any{"expirationSeconds": int64(24 * 60 * 60)},
	}}
	accounts := schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	answer, err := c.dynamic.Resource(accounts).Namespace(userNamespace).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", fmt.Errorf("cannot request token: %w", err)
	}
	token, found, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil || !found {
		return "", fmt.Errorf("the answer to the token request has no token: %w", err)
	}
	return token, c.awaitRules(ctx, token, rules)
}

// create creates an object, to be deleted by Stop where the cluster outlives it.
func (c *ControlPlane) create(ctx context.Context, resource string, object *unstructured.Unstructured) error {
	resources := c.dynamic.Resource(object.GroupVersionKind().GroupVersion().WithResource(resource))
	var client dynamic.ResourceInterface = resources
	if ns := object.GetNamespace(); ns != "" {
		client = resources.Namespace(ns)
	}
	if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("cannot create %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, func(ctx context.Context) error {
		return client.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	})
	return nil
}

// awaitRules asks as the user what he may do, until it is all that the rules say: the API server
// decides from a cache, and a test that began earlier would be refused what it is allowed.
func (c *ControlPlane) awaitRules(ctx context.Context, token string, rules []rbacv1.PolicyRule) error {
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	config.UserAgent = userAgent
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	reviews := authorizationv1.SchemeGroupVersion.WithResource("selfsubjectrulesreviews")
	review, err := toUnstructured(&authorizationv1.SelfSubjectRulesReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SelfSubjectRulesReview"},
		Spec:     authorizationv1.SelfSubjectRulesReviewSpec{Namespace: userNamespace},
	})
	if err != nil {
		return err
	}
	for {
		answer, err := client.Resource(reviews).Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("cannot review rules: %w", err)
		}
		var has authorizationv1.SelfSubjectRulesReview
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, &has); err != nil {
			return err
		}
		if inForce(has.Status, rules) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server does not know the rules yet: %w", ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// inForce says whether every rule is among those the server knows of.
func inForce(status authorizationv1.SubjectRulesReviewStatus, rules []rbacv1.PolicyRule) bool {
	for _, rule := range rules {
		resource := slices.ContainsFunc(status.ResourceRules, func(r authorizationv1.ResourceRule) bool {
			return slices.Equal(r.Verbs, rule.Verbs) && slices.Equal(r.APIGroups, rule.APIGroups) &&
				slices.Equal(r.Resources, rule.Resources) && slices.Equal(r.ResourceNames, rule.ResourceNames)
		})
		url := slices.ContainsFunc(status.NonResourceRules, func(r authorizationv1.NonResourceRule) bool {
			return slices.Equal(r.Verbs, rule.Verbs) && slices.Equal(r.NonResourceURLs, rule.NonResourceURLs)
		})
		if !resource && !url {
			return false
		}
	}
	return true
}

func toUnstructured(object any) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}
