package manager

import (
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// The keys of Secrets. Programs mount caCertificate alone of the authority, and the seed of their own user alone.
const (
	caCertificate  = "ca.crt"
	caKey          = "ca.key"
	tlsCertificate = "tls.crt"
	tlsKey         = "tls.key"
)

// secret is a value of a Secret; nil if there is none.
func secret(u *unstructured.Unstructured, key string) []byte {
	raw, err := base64.StdEncoding.DecodeString(contractData(u)[key])
	if err != nil {
		return nil
	}
	return raw
}

// keys are the public keys of the users whose seeds are there.
func (d *decider) keys(w *World) map[string]string {
	u, keys := w.object("Secret", d.names.NATSUsers()), map[string]string{}
	for _, user := range users {
		if public, err := natsutil.PublicKey(secret(u, user)); err == nil {
			keys[user] = public
		}
	}
	return keys
}

// serverNames are the names that clients and servers use for a server. localhost is for a client in the pod, or behind kubectl port-forward.
func (d *decider) serverNames() []string {
	service, headless := d.names.NATS()+"."+d.namespace, d.names.NATSHeadless()+"."+d.namespace
	all := []string{service + ".svc", service, d.names.NATS(), service + ".svc.cluster.local", "localhost"}
	for _, suffix := range []string{"", ".svc", ".svc.cluster.local"} {
		all = append(all, "*."+headless+suffix)
	}
	return all
}

// account is how the operator connects as one of the users.
func (d *decider) account(w *World, user string) natsutil.Account {
	return natsutil.Account{
		Name: backend.Operator, Seed: secret(w.object("Secret", d.names.NATSUsers()), user), CA: d.authority(w).Certificate, Inbox: "_INBOX." + user,
	}
}

func (d *decider) authority(w *World) natsutil.Pair {
	u := w.object("Secret", d.names.NATSCA())
	return natsutil.Pair{Certificate: secret(u, caCertificate), Key: secret(u, caKey)}
}

func (d *decider) certificate(w *World) natsutil.Pair {
	u := w.object("Secret", d.names.NATSTLS())
	return natsutil.Pair{Certificate: secret(u, tlsCertificate), Key: secret(u, tlsKey)}
}

// renewal is when the next certificate is due.
func (d *decider) renewal(w *World) (time.Time, error) { return d.certificate(w).RenewAt() }

// pki are the Secrets with a certificate that is missing, cannot be used, or is to be renewed.
func (d *decider) pki(w *World) []string {
	authority := d.authority(w)
	if at, err := authority.RenewAt(); err != nil || w.Now.After(at) {
		return []string{d.names.NATSCA(), d.names.NATSTLS()}
	}
	verified := slices.DeleteFunc(d.serverNames(), func(name string) bool { return strings.HasPrefix(name, "*") })
	verified = append(verified, d.names.NATS()+"-0."+d.names.NATSHeadless()+"."+d.namespace+".svc")
	at, err := d.renewal(w)
	if err == nil {
		err = authority.Valid(d.certificate(w), verified, w.Now)
	}
	same := slices.Equal(secret(w.object("Secret", d.names.NATSTLS()), caCertificate), authority.Certificate)
	if err != nil || w.Now.After(at) || !same {
		return []string{d.names.NATSTLS()}
	}
	return nil
}
