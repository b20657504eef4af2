package flowpage

import (
	"testing"
	"unicode/utf8"
)

func TestShorten(t *testing.T) {
	for _, tc := range []struct{ s, want string }{{"abc", "abc"}, {"abcd", "ab…"}, {"äöüß", "äö…"}, {"", ""}} {
		if got := Shorten(tc.s, 3); got != tc.want || utf8.RuneCountInString(got) > 3 {
			t.Errorf("%q: %q, want %q", tc.s, got, tc.want)
		}
	}
}

func TestHost(t *testing.T) {
	for address, want := range map[string]string{"http://a.b/": "a.b", "https://a.b:80/c": "a.b:80/c", "a.b/": "a.b", "": ""} {
		if got := Host(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// TestSpread: the nodes of the shorter side stay within the height of the taller one, in order.
func TestSpread(t *testing.T) {
	for n := 1; n < 20; n++ {
		last := -1
		for i := range n {
			y := Spread(i, n, 20, 68, 22)
			if y <= last || y < 68 || y > 68+19*22 {
				t.Errorf("node %d of %d is at %d, after %d", i, n, y, last)
			}
			last = y
		}
	}
}

// TestHash is what sha256sum and base64 say.
func TestHash(t *testing.T) {
	if got, want := Hash("a"), "ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
