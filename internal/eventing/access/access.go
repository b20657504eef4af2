// Package access authenticates and authorizes the clients of a program of eventing through the API
// server. It also holds the certificate that identifies the program to its clients.
package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

const (
	authorityMap      = "extension-apiserver-authentication"
	authorityKey      = "client-ca-file"
	authorityLifetime = time.Minute
	// certificateLifetime is longer than any process lives.
	certificateLifetime = 10 * 365 * 24 * time.Hour

	headerTimeout = 10 * time.Second
	endTimeout    = 5 * time.Second
)

// Access finds out who asks, and what that person may do, as the API server does.
type Access struct {
	// Client writes reviews, and Reader reads from the API server and not from a cache.
	Client client.Writer
	Reader client.Reader

	mu        sync.Mutex
	authority *x509.CertPool
	read      time.Time
}

// RefusedError is an answer to a request that is not allowed.
type RefusedError struct {
	// Status is that of HTTP.
	Status int
	Text   string
}

func (r *RefusedError) Error() string { return r.Text }

// Refuse makes one.
func Refuse(status int, format string, args ...any) error {
	return &RefusedError{status, fmt.Sprintf(format, args...)}
}

// Right is what RBAC gives: a verb for a resource in a namespace or, without one, in all.
type Right struct{ Verb, Group, Resource, Subresource, Namespace string }

// Command shows whether somebody has the right.
func (r Right) Command() string {
	words := []string{"kubectl", "auth", "can-i", r.Verb, r.Resource + "." + r.Group}
	if r.Subresource != "" {
		words = append(words, "--subresource="+r.Subresource)
	}
	if r.Namespace == "" {
		return wording.CommandLine(append(words, "--all-namespaces")...)
	}
	return wording.CommandLine(append(words, "--namespace", r.Namespace)...)
}

// clients is the authority of the certificates by which people and programs are known to the API
// server. It publishes it for extensions.
func (a *Access) clients(ctx context.Context) (*x509.CertPool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.authority != nil && time.Since(a.read) < authorityLifetime {
		return a.authority, nil
	}
	var config corev1.ConfigMap
	if err := a.Reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: authorityMap}, &config); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(config.Data[authorityKey])) {
		return nil, fmt.Errorf("ConfigMap %s has no certificate in %s", authorityMap, authorityKey)
	}
	a.authority, a.read = pool, time.Now()
	return pool, nil
}

// Who is the user who asks: by a token, or by a certificate. The error is a RefusedError.
func (a *Access) Who(q *http.Request) (authenticationv1.UserInfo, error) {
	if token, ok := strings.CutPrefix(q.Header.Get("Authorization"), "Bearer "); ok && token != "" {
		review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
		switch err := a.Client.Create(q.Context(), review); {
		case err != nil:
			return authenticationv1.UserInfo{}, Refuse(http.StatusServiceUnavailable, "the API server cannot be asked who you are: %v", err)
		case !review.Status.Authenticated:
			return authenticationv1.UserInfo{}, Refuse(http.StatusUnauthorized, "the API server does not know the token of your kubeconfig")
		}
		return review.Status.User, nil
	}
	if q.TLS == nil || len(q.TLS.PeerCertificates) == 0 {
		return authenticationv1.UserInfo{}, Refuse(http.StatusUnauthorized, "your kubeconfig has neither a token nor a client certificate")
	}
	pool, err := a.clients(q.Context())
	if err != nil {
		return authenticationv1.UserInfo{}, Refuse(http.StatusServiceUnavailable, "client certificates cannot be checked now, use a token: %v", err)
	}
	chain := q.TLS.PeerCertificates
	others := x509.NewCertPool()
	for _, c := range chain[1:] {
		others.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: others, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return authenticationv1.UserInfo{}, Refuse(http.StatusUnauthorized, "the client certificate of your kubeconfig is not one of this cluster: %v", err)
	}
	return authenticationv1.UserInfo{Username: chain[0].Subject.CommonName, Groups: append(chain[0].Subject.Organization, "system:authenticated")}, nil
}

// May asks the API server whether a user has a right. The error is a RefusedError.
func (a *Access) May(ctx context.Context, user authenticationv1.UserInfo, r Right) error {
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, Groups: user.Groups, UID: user.UID, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Resource: r.Resource, Subresource: r.Subresource},
	}}
	switch err := a.Client.Create(ctx, review); {
	case err != nil:
		return Refuse(http.StatusServiceUnavailable, "the API server cannot be asked what you may do: %v", err)
	case !review.Status.Allowed:
		where, what := "in namespace "+r.Namespace, r.Resource+"."+r.Group
		if r.Namespace == "" {
			where = "in all namespaces"
		}
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		return Refuse(http.StatusForbidden, "%s may not %s %s %s. To see it: %s", user.Username, r.Verb, what, where, r.Command())
	}
	return nil
}

// Identity is the certificate of this process, which nobody has signed: Pin is what clients compare
// it with.
type Identity struct {
	certificate tls.Certificate
	Pin         string
}

// NewIdentity makes a certificate of a program.
func NewIdentity(program string) (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: program}, DNSNames: []string{"localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certificateLifetime),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(raw)
	return &Identity{tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, hex.EncodeToString(sum[:])}, nil
}

// TLS asks clients for a certificate, which Who checks: its answer says more than a failed
// handshake.
func (i *Identity) TLS() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{i.certificate}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
}

// Serve serves with the certificate until the context ends, and then for as long as requests need,
// at most five seconds. The server has all but what a connection needs.
func (i *Identity) Serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	server.TLSConfig, server.ReadHeaderTimeout = i.TLS(), headerTimeout
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() {
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
		defer cancel()
		_ = server.Shutdown(limit)
	})
	defer stop()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
