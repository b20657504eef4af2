package natsutil

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"
)

const (
	authorityLife   = 10 * 365 * 24 * time.Hour
	certificateLife = 90 * 24 * time.Hour
	// skew is how much the clock of another machine may be behind.
	skew = 5 * time.Minute
)

// Pair is a certificate and its private key, in PEM.
type Pair struct {
	Certificate, Key []byte
}

// NewAuthority returns an authority that is valid for ten years. Its name tells it from others in a
// log.
func NewAuthority(name string, now time.Time) (Pair, error) {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-skew), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	return sign(template, nil)
}

// Issue returns a certificate for servers with these names, valid for 90 days. Servers of a cluster
// are each other's clients, too.
func (p Pair) Issue(names []string, now time.Time) (Pair, error) {
	if len(names) == 0 {
		return Pair{}, errors.New("a certificate needs a name")
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: now.Add(-skew), NotAfter: now.Add(certificateLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	return sign(template, &p)
}

// RenewAt is when two thirds of the life of a certificate are over. An error means that it is no
// certificate with its key, and needs to be renewed at once.
func (p Pair) RenewAt() (time.Time, error) {
	cert, _, err := p.parse()
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 2 / 3), nil
}

// Valid says what is wrong with a certificate that is to be signed by this authority and to have
// these names. nil if nothing is.
func (p Pair) Valid(issued Pair, names []string, now time.Time) error {
	authority, _, err := p.parse()
	if err != nil {
		return fmt.Errorf("authority: %w", err)
	}
	cert, _, err := issued.parse()
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	// The signature is dear, and is the same for all names.
	options := x509.VerifyOptions{Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if _, err := cert.Verify(options); err != nil {
		return err
	}
	for _, name := range names {
		if err := cert.VerifyHostname(name); err != nil {
			return err
		}
	}
	return nil
}

func (p Pair) parse() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	pair, err := tls.X509KeyPair(p.Certificate, p.Key)
	if err != nil {
		return nil, nil, err
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, nil, errors.New("the key is no ECDSA key")
	}
	return pair.Leaf, key, nil
}

// sign returns a certificate with a new key, signed by an authority, or by itself.
func sign(template *x509.Certificate, by *Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return Pair{}, err
	}
	parent, parentKey := template, key
	if by != nil {
		if parent, parentKey, err = by.parse(); err != nil {
			return Pair{}, fmt.Errorf("authority: %w", err)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return Pair{}, err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}, nil
}

// Serial is the serial number of a certificate.
func (p Pair) Serial() (*big.Int, error) {
	cert, _, err := p.parse()
	if err != nil {
		return nil, err
	}
	return cert.SerialNumber, nil
}

// NotAfter is the end of the life of a certificate.
func (p Pair) NotAfter() (time.Time, error) {
	cert, _, err := p.parse()
	if err != nil {
		return time.Time{}, err
	}
	return cert.NotAfter, nil
}
