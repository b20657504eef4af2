package decide

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

// Secret is a value of a Secret; nil if there is none.
func Secret(u *unstructured.Unstructured, key string) []byte {
	raw, err := base64.StdEncoding.DecodeString(contractData(u)[key])
	if err != nil {
		return nil
	}
	return raw
}

// Keys are the public keys of the users whose seeds are there.
func (d *Identities) Keys(w *World) map[string]string {
	u, keys := w.Object("Secret", d.Names.NATSUsers()), map[string]string{}
	for _, user := range Users {
		if public, err := natsutil.PublicKey(Secret(u, user)); err == nil {
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
func (d *Identities) Account(w *World, user string) natsutil.Account {
	return natsutil.Account{
		Name: backend.Operator, Seed: Secret(w.Object("Secret", d.Names.NATSUsers()), user), CA: d.authority(w).Certificate, Inbox: "_INBOX." + user,
	}
}

func (d *Identities) authority(w *World) natsutil.Pair {
	u := w.Object("Secret", d.Names.NATSCA())
	return natsutil.Pair{Certificate: Secret(u, CACertificate), Key: Secret(u, CAKey)}
}

func (d *Identities) Certificate(w *World) natsutil.Pair {
	u := w.Object("Secret", d.Names.NATSTLS())
	return natsutil.Pair{Certificate: Secret(u, TLSCertificate), Key: Secret(u, TLSKey)}
}

// renewal is when the next certificate is due.
func (d *Identities) renewal(w *World) (time.Time, error) { return d.Certificate(w).RenewAt() }

// pki are the Secrets with a certificate that is missing, cannot be used, or is to be renewed.
func (d *Identities) pki(w *World) []string {
	authority := d.authority(w)
	if at, err := authority.RenewAt(); err != nil || w.Now.After(at) {
		return []string{d.Names.NATSCA(), d.Names.NATSTLS()}
	}
	verified := slices.DeleteFunc(d.ServerNames(), func(name string) bool { return strings.HasPrefix(name, "*") })
	verified = append(verified, d.Names.NATS()+"-0."+d.Names.NATSHeadless()+"."+d.Namespace+".svc")
	at, err := d.renewal(w)
	if err == nil {
		err = authority.Valid(d.Certificate(w), verified, w.Now)
	}
	same := slices.Equal(Secret(w.Object("Secret", d.Names.NATSTLS()), CACertificate), authority.Certificate)
	if err != nil || w.Now.After(at) || !same {
		return []string{d.Names.NATSTLS()}
	}
	return nil
}
