package labelcap

import (
	"slices"
	"testing"
)

func TestCap(t *testing.T) {
	c := New(2)
	for _, tc := range []struct {
		values, want []string
	}{
		{[]string{"shop", "a"}, []string{"shop", "a"}},
		{[]string{"shop", "b"}, []string{"shop", "b"}},
		{[]string{"shop", "c"}, []string{Other, Other}},
		{[]string{"shop", "a"}, []string{"shop", "a"}},
	} {
		if got := c.Values(tc.values...); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.values, got, tc.want)
		}
	}
	c.Forget("sho")
	if got := c.Values("shop", "c"); got[0] != Other {
		t.Errorf("the beginning of a value is no value: %q", got)
	}
	c.Forget("shop")
	if got := c.Values("shop", "c"); got[0] != "shop" {
		t.Errorf("there is no room after a value was forgotten: %q", got)
	}
}
