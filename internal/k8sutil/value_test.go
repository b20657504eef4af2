package k8sutil

import "testing"

func TestSameValues(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b any
		want bool
	}{{int64(1), 1.0, true}, {1, int64(1), true}, {1, 2, false}, {1, "1", false}, {"1", 1, false}, {nil, nil, false}} {
		if got := SameNumber(tc.a, tc.b); got != tc.want {
			t.Errorf("number %#v, %#v: %t", tc.a, tc.b, got)
		}
	}
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"1000m", "1", true}, {"1Gi", "1024Mi", true}, {"1", "2", false}, {"x", "1", false}, {"1", "x", false}, {"", "0", false}} {
		if got := SameQuantity(tc.a, tc.b); got != tc.want {
			t.Errorf("quantity %q, %q: %t", tc.a, tc.b, got)
		}
	}
}
