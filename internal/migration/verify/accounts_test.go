package verify

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// labels of what the chart renders for a release.
func labels(release string) string {
	return fmt.Sprintf("labels: {app.kubernetes.io/name: eventmesh-migration, app.kubernetes.io/instance: %s}", release)
}

// TestLeft fails on the commit before: nothing looked for accounts.
func TestAccountsLeft(t *testing.T) {
	const rbac = "rbac.authorization.k8s.io"
	account := func(s stored, release string) {
		meta := fmt.Sprintf("metadata: {namespace: kyma-system, name: %s-trigger-sync, %s}", release, labels(release))
		s.add(t, "", "{kind: ServiceAccount, "+meta+"}")
		s.add(t, rbac, "{kind: Role, "+meta+"}")
		s.add(t, rbac, "{kind: Role, "+strings.Replace(meta, "kyma-system", "natss", 1)+"}")
		s.add(t, rbac, "{kind: ClusterRole, "+strings.Replace(meta, "namespace: kyma-system, ", "", 1)+"}")
	}
	job := func(s stored, release, status string) {
		s.add(t, "batch", fmt.Sprintf("{kind: Job, metadata: {namespace: kyma-system, name: j, %s}, status: %s}", labels(release), status))
	}
	const of = " have left 1 serviceaccounts, 2 roles, 1 clusterroles behind, and none of its Jobs runs. Names: "
	for name, tc := range map[string]struct {
		reason string
		given  func(stored)
		want   []string
	}{
		"Nothing": {"a finished migration", func(stored) {}, nil},
		"NoJob": {
			"a hook could not be created", func(s stored) { account(s, "core") },
			[]string{`hooks of release "core"` + of + "core-trigger-sync"},
		},
		"Running": {
			"a hook is at work", func(s stored) { account(s, "core"); job(s, "core", "{active: 1}") }, nil,
		},
		"NotBegun": {
			"the controller of Jobs has not seen it", func(s stored) { account(s, "core"); job(s, "core", "{}") }, nil,
		},
		"Failed": {
			"its Job stays, for the log", func(s stored) {
				account(s, "core")
				job(s, "core", `{conditions: [{type: Failed, status: "True"}]}`)
			},
			[]string{`hooks of release "core"` + of + "core-trigger-sync"},
		},
		"OneOfTwo": {
			"one has ended, the next one runs", func(s stored) {
				account(s, "core")
				job(s, "core", `{conditions: [{type: Complete, status: "True"}]}`)
				job(s, "core", `{conditions: [{type: FailureTarget, status: "True"}]}`)
			}, nil,
		},
		"AnotherRelease": {
			"the Job of one says nothing about another", func(s stored) {
				account(s, "core")
				account(s, "kyma")
				job(s, "core", "{active: 1}")
			},
			[]string{`hooks of release "kyma"` + of + "kyma-trigger-sync"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := stored{}
			tc.given(s)
			left, err := ReadAccountsLeft(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, left.Sentences()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			in, err := inventory.Read(t.Context(), stored{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			var found []string
			for _, d := range Check(in, left, nil, time.Now()) {
				found = append(found, d.Problem)
				if d.ID != "accounts-left" || d.Severity != migration.Warning || !strings.Contains(d.Hint, CleanUp) {
					t.Errorf("%+v", d)
				}
			}
			if diff := cmp.Diff(tc.want, found); diff != "" {
				t.Errorf("verify: %s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// secretive is a cluster in which some kind may not be listed.
type secretive struct {
	stored
	kind string
}

func (s secretive) Each(ctx context.Context, r migration.Resource, namespace string, o migration.ListOptions, do func(*unstructured.Unstructured) error) error {
	if r.Kind == s.kind {
		return fmt.Errorf("cannot list: %w", apierrors.NewForbidden(r.GroupResource(), "", nil))
	}
	return s.stored.Each(ctx, r, namespace, o, do)
}

// Who may not look learns that, rather than nothing or an error.
func TestAccountsLeftAreUnknownWithoutPermission(t *testing.T) {
	for _, kind := range []string{"ServiceAccount", "ClusterRoleBinding", "Job"} {
		left, err := ReadAccountsLeft(t.Context(), secretive{stored{}, kind})
		if err != nil {
			t.Fatal(err)
		}
		if said := left.Sentences(); len(said) != 1 || !strings.Contains(said[0], "is unknown: cannot list: ") {
			t.Errorf("without %s: %q", kind, said)
		}
	}
}
