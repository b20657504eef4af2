//go:build !race

// It shares helpers with engine_test.go.

package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/pkg/engine/internal/enginetest"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// looking is a job that reads for its conditions, and to know what carries live events.
type looking struct{ *enginetest.Job }

func (*looking) ProtectReads() []migration.Subject {
	return []migration.Subject{{GroupKind: schema.GroupKind{Kind: "Zone"}, Namespace: "shop"}, unserved}
}

var unserved = migration.SubjectOf(schema.GroupKind{Group: "example.com", Kind: "Other"}, "shop", "a")

// TestNeeds holds what a run asks for before its first write: for each verb, and for the kinds that
// conditions look at, as they are served. A kind that is not served takes no permission.
func TestNeeds(t *testing.T) {
	c := newCluster(t)
	looks := migration.Condition{
		On:         []migration.Subject{enginetest.Ref("Broker", "b").Subject(), unserved},
		OnIfServed: []migration.Subject{{GroupKind: schema.GroupKind{Kind: "Pod"}, Namespace: "shop"}},
	}
	job := &looking{&enginetest.Job{Awaited: map[string][]migration.Condition{"a": {looks}}}}
	a := enginetest.Ref("Thing", "a")
	for name, tc := range map[string]struct {
		verb migration.Verb
		want []string
	}{
		"Await":    {migration.Await, nil},
		"Create":   {migration.Create, []string{"create Thing", "delete Thing", "get Thing", "list Thing"}},
		"Recreate": {migration.Recreate, []string{"create Thing", "delete Thing", "get Thing", "list Thing"}},
		"Patch":    {migration.Patch, []string{"get Thing", "patch Thing"}},
	} {
		all, err := c.engine(Options{}).begin("run", job).preflight().permissions(t.Context(), []migration.Unit{{Changes: []migration.Change{{Verb: tc.verb, Ref: a}}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range all {
			if words, ok := strings.CutSuffix(p.String(), " in namespace shop"); ok {
				got = append(got, words)
			}
		}
		want := append([]string{"list Broker", "list Zone", "list pods", "watch Broker", "watch pods"}, tc.want...)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
