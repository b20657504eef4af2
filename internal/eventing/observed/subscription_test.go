package observed

import "testing"

// TestNames: a message for people names a few Subscriptions, in an order that stays.
func TestNames(t *testing.T) {
	t.Parallel()
	var all []Subscription
	for _, name := range []string{"f", "e", "d", "c", "b", "a"} {
		all = append(all, Subscription{Namespace: "shop", Name: name})
	}
	for _, tc := range []struct {
		of   []Subscription
		want string
	}{
		{nil, ""},
		{all[:2], "shop/e, shop/f"},
		{all[:5], "shop/b, shop/c, shop/d, shop/e, shop/f"},
		{all, "shop/a, shop/b, shop/c, shop/d, shop/e and others"},
	} {
		if got := Names(tc.of); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// TestRefused: who is being deleted, or gets nothing, refuses nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := &World{Subscriptions: []Subscription{
		{Namespace: "shop", Name: "takes", Valid: true}, {Namespace: "shop", Name: "refuses", Valid: true, Refused: true},
		{Namespace: "shop", Name: "deleted", Valid: true, Refused: true, Deleting: true}, {Namespace: "shop", Name: "invalid", Refused: true},
	}}
	if got := Names(w.Refused()); got != "shop/refuses" || len(w.Subscriptions) != 4 || w.Subscriptions[1].Name != "refuses" {
		t.Errorf("%s of %v", got, w.Subscriptions)
	}
}
