package publisher

import "testing"

// TestTypeIn: capitals in the key of the label are ignored, as by Kyma's publisher.
func TestTypeIn(t *testing.T) {
	for _, tc := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"app": "x"}, ""},
		{map[string]string{"application-type": "Shop"}, "Shop"},
		{map[string]string{"Application-Type": "shop"}, "shop"},
		{map[string]string{"Application-Type": "other", "application-type": "shop"}, "shop"},
	} {
		if got := typeIn(tc.labels); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.labels, got, tc.want)
		}
	}
}
