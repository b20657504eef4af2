package purge

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/migration"
)

// recorder is an empty cluster that notes which core kinds are listed.
type recorder struct {
	mu     sync.Mutex
	listed []string
}

func (r *recorder) Served(context.Context, schema.GroupKind) (migration.Resource, bool, error) {
	return migration.Resource{}, false, nil
}

func (r *recorder) Each(_ context.Context, resource migration.Resource, _ string, _ migration.ListOptions, _ func(*unstructured.Unstructured) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = append(r.listed, resource.GroupVersionResource.Resource)
	return nil
}

func (r *recorder) Get(context.Context, migration.Ref) (*unstructured.Unstructured, error) {
	return nil, nil
}

func (r *recorder) TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error {
	return nil
}

// TestWhoMindsTheRelease fails on the commit before: with --ignore-release the records
// were read, which are Secrets, and then ignored.
func TestWhoMindsTheRelease(t *testing.T) {
	for name, tc := range map[string]struct {
		reason         string
		dryRun, ignore bool
		want           []string
	}{
		"Plan":          {"a plan tells of the release", true, false, []string{"configmaps", "secrets"}},
		"IgnoringPlan":  {"before an upgrade of Kyma the release is still there, which is no use of it", true, true, nil},
		"Run":           {"a run refuses while there is a release", false, false, []string{"configmaps", "secrets"}},
		"RunIgnoresNot": {"the flag is for plans", false, true, []string{"configmaps", "secrets"}},
	} {
		j := New()
		j.ignoreRelease = tc.ignore
		r := &recorder{}
		if _, err := observe(t.Context(), r, j.options, nil, j.mindsRelease(tc.dryRun)); err != nil {
			t.Fatal(err)
		}
		slices.Sort(r.listed)
		records := slices.DeleteFunc(r.listed, func(kind string) bool { return kind != "secrets" && kind != "configmaps" })
		if diff := cmp.Diff(tc.want, slices.Clip(append([]string(nil), records...))); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}
