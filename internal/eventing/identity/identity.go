// Package identity reads the users and the certificates of NATS from Secrets, and decides which
// Secrets to create or renew.
package identity

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/values"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// The keys of Secrets. Programs mount CACertificate alone of the authority, and the seed of their
// own user alone.
const (
	CACertificate  = "ca.crt"
	CAKey          = "ca.key"
	TLSCertificate = "tls.crt"
	TLSKey         = "tls.key"
)

// Users are those of NATS.
var Users = values.Users

// Identities are who may connect to NATS, and how servers prove who they are.
type Identities struct {
	// Names and Namespace are those of all objects of the operator.
	Names     backend.Names
	Namespace string
}

// Objects are those of the operator that were observed. Object is nil if there is none.
type Objects interface {
	Object(kind, name string) *unstructured.Unstructured
}

// value is one of a Secret; nil if there is none.
func value(u *unstructured.Unstructured, key string) []byte {
	if u == nil {
		return nil
	}
	encoded, _, _ := unstructured.NestedString(u.Object, "data", key)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || encoded == "" {
		return nil
	}
	return raw
}

// Keys are the public keys of the users whose seeds are there.
func (d *Identities) Keys(in Objects) map[string]string {
	u, keys := in.Object("Secret", d.Names.NATSUsers()), map[string]string{}
	for _, user := range Users {
		if public, err := natsutil.PublicKey(value(u, user)); err == nil {
			keys[user] = public
		}
	}
	return keys
}

// ServerNames are the names that clients and servers use for a server. localhost is for a client in
// the pod, or behind kubectl port-forward.
func (d *Identities) ServerNames() []string {
	service, headless := d.Names.NATS()+"."+d.Namespace, d.Names.NATSHeadless()+"."+d.Namespace
	all := []string{service + ".svc", service, d.Names.NATS(), service + ".svc.cluster.local", "localhost"}
	for _, suffix := range []string{"", ".svc", ".svc.cluster.local"} {
		all = append(all, "*."+headless+suffix)
	}
	return all
}

// Account is how the operator connects as one of the users.
func (d *Identities) Account(in Objects, user string) natsutil.Account {
	return natsutil.Account{
		Name: backend.Operator, Seed: value(in.Object("Secret", d.Names.NATSUsers()), user), CA: d.Authority(in).Certificate, Inbox: "_INBOX." + user,
	}
}

// Authority signs certificates of servers.
func (d *Identities) Authority(in Objects) natsutil.Pair {
	u := in.Object("Secret", d.Names.NATSCA())
	return natsutil.Pair{Certificate: value(u, CACertificate), Key: value(u, CAKey)}
}

// Certificate is that of the servers.
func (d *Identities) Certificate(in Objects) natsutil.Pair {
	u := in.Object("Secret", d.Names.NATSTLS())
	return natsutil.Pair{Certificate: value(u, TLSCertificate), Key: value(u, TLSKey)}
}

// Renewal is when the next certificate is due.
func (d *Identities) Renewal(in Objects) (time.Time, error) { return d.Certificate(in).RenewAt() }

// Outdated are the Secrets with a certificate that is missing, cannot be used, or is to be renewed.
func (d *Identities) Outdated(in Objects, now time.Time) []string {
	authority := d.Authority(in)
	if at, err := authority.RenewAt(); err != nil || now.After(at) {
		return []string{d.Names.NATSCA(), d.Names.NATSTLS()}
	}
	verified := slices.DeleteFunc(d.ServerNames(), func(name string) bool { return strings.HasPrefix(name, "*") })
	verified = append(verified, d.Names.NATS()+"-0."+d.Names.NATSHeadless()+"."+d.Namespace+".svc")
	at, err := d.Renewal(in)
	if err == nil {
		err = authority.Valid(d.Certificate(in), verified, now)
	}
	same := slices.Equal(value(in.Object("Secret", d.Names.NATSTLS()), CACertificate), authority.Certificate)
	if err != nil || now.After(at) || !same {
		return []string{d.Names.NATSTLS()}
	}
	return nil
}
