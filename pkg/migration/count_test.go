package migration

import "testing"

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 errors", 1: "1 error", 2: "2 errors", 999: "999 errors", 2017: "2,017 errors", 1234567: "1,234,567 errors", -1: "-1 errors", -123: "-123 errors", -1234: "-1,234 errors"} {
		if got := Count(n, "error"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
