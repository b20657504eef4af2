package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sobject"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// The chart puts these labels on everything that it renders.
const (
	nameLabel    = "app.kubernetes.io/name"
	releaseLabel = "app.kubernetes.io/instance"
	ourName      = "eventmesh-migration"
)

var jobs = migration.CoreResource("batch", "jobs", "Job")

// permissions are the kinds that give power to a hook, in the order of CleanUp.
var permissions = []migration.Resource{
	migration.CoreResource("", "serviceaccounts", "ServiceAccount"),
	migration.CoreResource("rbac.authorization.k8s.io", "roles", "Role"),
	migration.CoreResource("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
	migration.CoreResource("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
	migration.CoreResource("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding"),
}

// CleanUp is the command that deletes the accounts of hooks, and all that gives them power.
const CleanUp = "kubectl delete serviceaccounts,roles,rolebindings,clusterroles,clusterrolebindings --all-namespaces -l " + nameLabel + "=" + ourName

// AccountsLeft are the accounts that hooks left in the cluster, with their Roles, of Helm releases
// without a running Job.
type AccountsLeft struct {
	// Releases are the names of the releases, each with its objects: "Role
	// kyma-system/core-trigger-sync".
	Releases map[string][]string `json:"releases"`
	// Unknown says why this is not known; empty if it is known.
	Unknown string `json:"unknown,omitempty"`
}

// ReadAccountsLeft looks for accounts that hooks left. Without the permission to list these kinds
// the answer is "unknown", which is not an error.
func ReadAccountsLeft(ctx context.Context, c inventory.Reader) (*AccountsLeft, error) {
	found, running := map[string][]string{}, map[string]bool{}
	opts := migration.ListOptions{LabelSelector: nameLabel + "=" + ourName}
	g, ctx := errgroup.WithContext(ctx)
	var mu sync.Mutex
	for _, kind := range append(slices.Clone(permissions), jobs) {
		g.Go(func() error {
			return c.Each(ctx, kind, "", opts, func(u *unstructured.Unstructured) error {
				mu.Lock()
				defer mu.Unlock()
				release := u.GetLabels()[releaseLabel]
				if kind.Kind == jobs.Kind {
					running[release] = running[release] || !ended(u)
					return nil
				}
				found[release] = append(found[release], kind.RefTo(u).String())
				return nil
			})
		})
	}
	err := g.Wait()
	if apierrors.IsForbidden(err) {
		return &AccountsLeft{Releases: map[string][]string{}, Unknown: err.Error()}, nil
	}
	if err != nil {
		return nil, err
	}
	left := &AccountsLeft{Releases: map[string][]string{}}
	for release, list := range found {
		if !running[release] {
			slices.Sort(list)
			left.Releases[release] = slices.Compact(list) // a list may start from the beginning again
		}
	}
	return left, nil
}

// ended says whether a Job has ended.
func ended(job *unstructured.Unstructured) bool {
	return k8sobject.ConditionOf(job, "Complete").True() || k8sobject.ConditionOf(job, "Failed").True()
}

// Sentences says what is left, a sentence for each release; none if nothing is.
func (l *AccountsLeft) Sentences() []string {
	if l.Unknown != "" {
		return []string{"whether hooks left accounts in the cluster is unknown: " + l.Unknown}
	}
	var all []string
	for _, release := range slices.Sorted(maps.Keys(l.Releases)) {
		count, names := map[string]int{}, map[string]bool{}
		for _, object := range l.Releases[release] {
			kind, name, _ := strings.Cut(object, " ")
			count[kind]++
			names[name[strings.LastIndex(name, "/")+1:]] = true
		}
		var kinds []string
		for _, kind := range permissions {
			if n := count[kind.Kind]; n > 0 {
				kinds = append(kinds, fmt.Sprintf("%d %s", n, kind.Resource))
			}
		}
		all = append(all, fmt.Sprintf("hooks of release %q have left %s behind, and none of its Jobs runs. Names: %s",
			release, strings.Join(kinds, ", "), strings.Join(slices.Sorted(maps.Keys(names)), ", ")))
	}
	return all
}

// accountsLeft reports the accounts that hooks left; nothing if they were not read.
func (c *checker) accountsLeft(accounts *AccountsLeft) {
	if accounts == nil {
		return
	}
	for _, sentence := range accounts.Sentences() {
		c.find("accounts-left", nil, "%s", sentence)
	}
}
