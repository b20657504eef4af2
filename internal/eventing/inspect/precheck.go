package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// Severity says whether a finding keeps eventing from being installed.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
	SeverityGood    Severity = "good"
)

// Finding is one thing that an installation needs.
type Finding struct {
	Severity Severity `json:"severity"`
	// ID is what the finding is about, and what explain knows it by.
	ID      string `json:"id"`
	Message string `json:"message"`
	// Next is a command, Note a sentence. Either may be empty.
	Next string `json:"next,omitempty"`
	Note string `json:"note,omitempty"`
}

// oldestKubernetes is the first version that the rules in the definitions of the kinds need.
var oldestKubernetes = semver.MustParse("1.30.0")

// defaultClassAnnotation is on the StorageClass for claims that name none.
const defaultClassAnnotation = "storageclass.kubernetes.io/is-default-class"

// Precheck finds out whether eventing can be installed in a namespace, with a backend. What the
// account may not read is a finding as well.
func (c *Cluster) Precheck(ctx context.Context, namespace string, target operatorv1alpha1.BackendType) ([]Finding, error) {
	version, err := c.version()
	if err != nil {
		return nil, err
	}
	found := []Finding{version}
	for _, look := range []func(context.Context) ([]Finding, error){
		func(ctx context.Context) ([]Finding, error) { return c.namespace(ctx, namespace) },
		func(ctx context.Context) ([]Finding, error) { return c.storage(ctx, target) },
		c.others,
		func(context.Context) ([]Finding, error) { return c.knative(target) },
		func(ctx context.Context) ([]Finding, error) { return c.permissions(ctx, namespace) },
	} {
		more, err := look(ctx)
		if err != nil {
			more = append(more, Finding{SeverityWarning, "not-checked", err.Error(), "", ""})
		}
		found = append(found, more...)
	}
	slices.SortStableFunc(found, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
	return found, ctx.Err()
}

func (s Severity) rank() int {
	return slices.Index([]Severity{SeverityError, SeverityWarning, SeverityGood}, s)
}

func (c *Cluster) version() (Finding, error) {
	info, err := c.Discovery.ServerVersion()
	if err != nil {
		return Finding{}, fmt.Errorf("cannot read the version of Kubernetes: %s", redact.URLs(err.Error()))
	}
	v, err := semver.NewVersion(info.GitVersion)
	if err != nil {
		return Finding{SeverityWarning, "kubernetes-version", fmt.Sprintf("the version of Kubernetes is %q, which cannot be compared", info.GitVersion), "", ""}, nil
	}
	if core, _ := v.SetPrerelease(""); core.LessThan(oldestKubernetes) {
		return Finding{SeverityError, "kubernetes-version", fmt.Sprintf("Kubernetes is %s, and eventing needs %s", info.GitVersion, oldestKubernetes), "", "Upgrade the cluster"}, nil
	}
	return Finding{SeverityGood, "kubernetes-version", "Kubernetes is " + info.GitVersion, "", ""}, nil
}

func (c *Cluster) namespace(ctx context.Context, name string) ([]Finding, error) {
	u, err := c.Get(ctx, namespaces, "", name)
	switch {
	case err != nil:
		return nil, err
	case u == nil:
		return []Finding{{SeverityError, "namespace", "Namespace " + name + " does not exist", wording.CommandLine("kubectl", "create", "namespace", name), ""}}, nil
	case u.GetDeletionTimestamp() != nil:
		return []Finding{{SeverityError, "namespace", "Namespace " + name + " is being deleted", "", "Wait until it is gone, and create it again"}}, nil
	}
	return []Finding{{SeverityGood, "namespace", "Namespace " + name + " exists", "", ""}}, nil
}

func (c *Cluster) storage(ctx context.Context, target operatorv1alpha1.BackendType) ([]Finding, error) {
	if target != operatorv1alpha1.NATS {
		return nil, nil
	}
	all, err := c.List(ctx, classes, "", "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, u := range all {
		names = append(names, u.GetName())
		if u.GetAnnotations()[defaultClassAnnotation] == "true" {
			return []Finding{{SeverityGood, "storage-class", "the default StorageClass is " + u.GetName(), "", ""}}, nil
		}
	}
	if len(names) == 0 {
		return []Finding{{SeverityError, "storage-class", "there is no StorageClass, and NATS stores events in volumes", "", "Install a provisioner of volumes. Without one: spec.backend.config.natsStreamStorageType=Memory, which loses events at a restart"}}, nil
	}
	return []Finding{{
		SeverityWarning, "storage-class", "no StorageClass is the default one. There are: " + strings.Join(names, ", "),
		"", "Name one in the Eventing: spec.backend.config.natsStorage.storageClassName=" + names[0],
	}}, nil
}

// others finds what was installed before: this eventing, or another one with the same kinds.
func (c *Cluster) others(ctx context.Context) ([]Finding, error) {
	crd, err := c.Get(ctx, definitions, "", Subscriptions.GroupResource().String())
	switch {
	case err != nil:
		return nil, err
	case crd == nil:
		return []Finding{{SeverityGood, "other-eventing", "no other eventing has the kind Subscription", "", ""}}, nil
	}
	switch served, ours := servedBy(crd); {
	case served && ours:
		return []Finding{{SeverityGood, "installed", "the kinds of this eventing are installed already", "kubectl eventing status", ""}}, nil
	case served:
		return []Finding{{
			SeverityError, "other-eventing", "another eventing operator has installed the kind Subscription in another shape: two of them in one cluster fight for the same objects",
			"", "Move over as docs/eventing/coming-from-kyma.md says",
		}}, nil
	default:
		return []Finding{{
			SeverityError, "event-bus", "Kyma's Event Bus has left the kind Subscription, at other versions only",
			"", "Remove it as docs/migration/migration-guide-1.12.md says",
		}}, nil
	}
}

// servedBy says whether a definition has the version of ours, and its shape: that of Kyma's own
// operator has no status.backends.
func servedBy(crd *unstructured.Unstructured) (served, ours bool) {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if is, _, _ := unstructured.NestedBool(version, "served"); !is || version["name"] != Subscriptions.Version {
			continue
		}
		_, has, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "backends")
		return true, has
	}
	return false, false
}

func (c *Cluster) knative(target operatorv1alpha1.BackendType) ([]Finding, error) {
	versions, err := c.serves("eventing.knative.dev", "Broker")
	switch {
	case err != nil:
		return nil, err
	case slices.Contains(versions, "v1"):
		return []Finding{{SeverityGood, "knative", "Knative Eventing is installed: EventMesh can be the backend", "", ""}}, nil
	case target == operatorv1alpha1.EventMesh:
		return []Finding{{SeverityError, "knative", "Knative Eventing is not installed, and EventMesh needs it", "", "Install Knative Eventing: https://knative.dev/docs/install"}}, nil
	}
	return []Finding{{SeverityGood, "knative", "Knative Eventing is not installed: NATS can be the backend, and EventMesh cannot", "", ""}}, nil
}

// creation is a kind of which the operator's chart creates objects, in its namespace or in the
// whole cluster.
type creation struct {
	group, resource string
	everywhere      bool
}

// verbs are those that applying needs. A role may only be given by who has all of it, or may
// escalate.
func (n creation) verbs() []string {
	if n.resource == "clusterroles" {
		return []string{"create", "patch", "escalate", "bind"}
	}
	return []string{"create", "patch"}
}

var needed = []creation{
	{"apiextensions.k8s.io", "customresourcedefinitions", true},
	{"rbac.authorization.k8s.io", "clusterroles", true}, {"rbac.authorization.k8s.io", "clusterrolebindings", true},
	{"", "serviceaccounts", false}, {"", "services", false}, {"", "configmaps", false},
	{"rbac.authorization.k8s.io", "roles", false}, {"rbac.authorization.k8s.io", "rolebindings", false},
	{"apps", "deployments", false}, {"policy", "poddisruptionbudgets", false}, {"networking.k8s.io", "networkpolicies", false},
	{Eventings.Group, Eventings.Resource, false},
}

// permissions finds out what the account lacks to apply the operator's chart.
func (c *Cluster) permissions(ctx context.Context, namespace string) ([]Finding, error) {
	all, err := c.may(ctx, authorizationv1.ResourceAttributes{Group: "*", Resource: "*", Verb: "*"})
	if err != nil {
		return nil, err
	}
	if all {
		return []Finding{{SeverityGood, "permissions", "this account may do everything", "", ""}}, nil
	}
	var everywhere, inside []string
	for _, n := range needed {
		in, lacks := namespace, &inside
		if n.everywhere {
			in, lacks = "", &everywhere
		}
		for _, verb := range n.verbs() {
			ok, err := c.may(ctx, authorizationv1.ResourceAttributes{Group: n.group, Resource: n.resource, Verb: verb, Namespace: in})
			if err != nil {
				return nil, err
			}
			if !ok {
				*lacks = append(*lacks, verb+" "+schema.GroupResource{Group: n.group, Resource: n.resource}.String())
			}
		}
	}
	var found []Finding
	for _, lacks := range []struct {
		what        []string
		where, flag string
	}{{everywhere, "in the whole cluster", "--all-namespaces"}, {inside, "in namespace " + namespace, "--namespace=" + namespace}} {
		if len(lacks.what) == 0 {
			continue
		}
		verb, resource, _ := strings.Cut(lacks.what[0], " ")
		found = append(found, Finding{
			SeverityError, "permissions", fmt.Sprintf("this account may not do this %s: %s", lacks.where, strings.Join(lacks.what, ", ")),
			wording.CommandLine("kubectl", "auth", "can-i", verb, resource, lacks.flag), "Ask an administrator to apply the manifest",
		})
	}
	if len(found) == 0 {
		found = []Finding{{SeverityGood, "permissions", "this account may apply the operator's manifest", "", ""}}
	}
	return found, nil
}

// may asks the API server what the account may do.
func (c *Cluster) may(ctx context.Context, what authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &what}}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	body, err := json.Marshal(review)
	if err != nil {
		return false, err
	}
	raw, err := c.Discovery.RESTClient().Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Raw()
	if err != nil {
		return false, fmt.Errorf("cannot ask what this account may do: %s", redact.URLs(err.Error()))
	}
	if err := json.Unmarshal(raw, review); err != nil {
		return false, fmt.Errorf("cannot ask what this account may do: %w", err)
	}
	return review.Status.Allowed, nil
}
