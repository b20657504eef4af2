package trigger

import "testing"

func TestAddress(t *testing.T) {
	for _, tc := range []struct {
		reason, a, b string
		same         bool
	}{
		{"the default port and path", "http://fn.shop:80/", "http://fn.shop", true},
		{"the full name of a Service", "http://fn.shop", "http://fn.shop.svc.cluster.local", true},
		{"the shorter name of a Service", "http://fn.shop.svc", "http://fn.shop.svc.cluster.local/", true},
		{"the name with its root", "http://fn.shop.svc.cluster.local.", "http://fn.shop", true},
		{"capitals in scheme and host", "HTTP://Fn.Shop/", "http://fn.shop", true},
		{"capitals in the path", "http://fn.shop/A", "http://fn.shop/a", false},
		{"a fragment is never sent", "http://fn.shop/a#b", "http://fn.shop/a", true},
		{"a query is", "http://fn.shop/?a", "http://fn.shop/", false},
		{"a slash at the end of a path", "http://fn.shop/a/", "http://fn.shop/a", false},
		{"another port", "http://fn.shop:8080", "http://fn.shop", false},
		{"https has its own default", "https://fn.shop:443", "https://fn.shop", true},
		{"http and https", "http://fn.shop", "https://fn.shop", false},
		{"what is no namespace is no Service", "http://example.com", "http://example.com.svc.cluster.local", false},
		{"an address of IPv6", "http://[FD00::1]:80/", "http://[fd00::1]", true},
		{"an escaped slash is no slash", "http://fn.shop/a%2Fb", "http://fn.shop/a/b", false},
		{"credentials", "http://u:p@fn.shop", "http://fn.shop", false},
	} {
		is := func(name string) bool { return name == "shop" }
		a, b := address(tc.a, is), address(tc.b, is)
		if (a == b) != tc.same {
			t.Errorf("%s: %s is %s, %s is %s; same should be %v", tc.reason, tc.a, a, tc.b, b, tc.same)
		}
	}
}
