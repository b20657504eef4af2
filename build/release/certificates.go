package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// certificates returns Mozilla's roots for TLS as PEM, at the version of go.mod, so that each
// machine has the same. Roots that Mozilla trusts with a constraint are left out, because PEM
// cannot say it: docs/decisions/1101-images-releases-and-signatures.md.
func certificates() ([]byte, error) {
	var blocks [][]byte
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if _, err := x509.ParseCertificate(root.Certificate); err != nil {
			return nil, fmt.Errorf("cannot read a root certificate: %w", err)
		}
		blocks = append(blocks, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
	}
	slices.SortFunc(blocks, bytes.Compare)
	return bytes.Join(blocks, nil), nil
}
