package migration

import "github.com/kyma-project/eventmesh-migration/internal/wording"

// Number is a number for people, with separators: nobody counts digits at night.
func Number(n int) string { return wording.Number(n) }

// Count is a number of things for people: "1 error", "2 errors". The noun is in the singular.
func Count(n int, noun string) string { return wording.Count(n, noun) }
