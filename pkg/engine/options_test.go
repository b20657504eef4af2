package engine

import (
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// TestIdentityIsUnique: without an identity, a Lease that is held would look free.
func TestIdentityIsUnique(t *testing.T) {
	seen := map[string]bool{"": true}
	for range 2 {
		e, err := New(&rest.Config{}, Options{Names: migration.Names{Program: "installer"}})
		if err != nil {
			t.Fatal(err)
		}
		if seen[e.opts.Identity] {
			t.Errorf("the identity %q is not unique", e.opts.Identity)
		}
		seen[e.opts.Identity] = true
	}
}
