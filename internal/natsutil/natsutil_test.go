package natsutil_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

var now = time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)

func TestCertificate(t *testing.T) {
	authority, err := natsutil.NewAuthority("ours", now)
	if err != nil {
		t.Fatal(err)
	}
	other, err := natsutil.NewAuthority("ours", now)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"nats.shop.svc", "*.nats-headless.shop.svc"}
	issued, err := authority.Issue(names, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason    string
		authority natsutil.Pair
		names     []string
		at        time.Time
		bad       string
	}{
		{"as it was issued", authority, []string{"nats.shop.svc", "nats-0.nats-headless.shop.svc"}, now, ""},
		{"the clock of a client is behind", authority, names[:1], now.Add(-time.Minute), ""},
		{"another authority of the same name", other, names[:1], now, "unknown authority"},
		{"another name", authority, []string{"nats.shop.svc", "nats.other.svc"}, now, "nats.other.svc"},
		{"too old", authority, names[:1], now.AddDate(0, 0, 91), "expired"},
		{"an authority that cannot be read", natsutil.Pair{Certificate: []byte("x")}, names[:1], now, "authority: "},
	} {
		err := tc.authority.Valid(issued, tc.names, tc.at)
		if (tc.bad == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s: want %q, got %v", tc.reason, tc.bad, err)
		}
	}
	renew, err := issued.RenewAt()
	if err != nil || renew.Before(now.AddDate(0, 0, 59)) || renew.After(now.AddDate(0, 0, 61)) {
		t.Errorf("90 days are to be renewed after 60, not at %s (%v)", renew, err)
	}
	mixed := natsutil.Pair{Certificate: issued.Certificate, Key: other.Key}
	if _, err := mixed.RenewAt(); err == nil {
		t.Error("a certificate with the key of another one can be used")
	}
	if _, err := authority.Issue(nil, now); err == nil {
		t.Error("a certificate without a name was issued")
	}
}

func TestUser(t *testing.T) {
	seed, err := natsutil.NewUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := natsutil.PublicKey(seed)
	if err != nil || !strings.HasPrefix(public, "U") {
		t.Errorf("public key %q, %v", public, err)
	}
	for _, bad := range []string{"", "secret", string(seed[:20]), public} {
		if _, err := natsutil.PublicKey([]byte(bad)); err == nil {
			t.Errorf("%q is a seed", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error shows what may be secret: %v", err)
		}
	}
	if _, err := natsutil.Connect("tls://localhost:1", natsutil.Account{Name: "x", Seed: seed, CA: []byte("no certificate")}); err == nil {
		t.Error("connected without an authority")
	}
}
