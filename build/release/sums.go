package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

// The files of a version that have a fixed name.
const (
	aboutFile     = "release.json"
	notesFile     = "release-notes.txt"
	sumsFile      = "SHA256SUMS"
	signatureFile = "SHA256SUMS.sig"
	ociFolder     = "oci"
	blobsFolder   = "oci/blobs"
)

// sum is the digest of a content: "sha256:0123…".
func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(hash[:])
}

// filesIn returns the paths of all files of a folder, sorted.
func filesIn(root fs.FS) ([]string, error) {
	var names []string
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// summed says whether a file of a version is in SHA256SUMS. Blobs are not: their name is their
// digest.
func summed(name string) bool {
	return name != sumsFile && name != signatureFile && !strings.HasPrefix(name, blobsFolder+"/")
}

// seal writes the checksums of a folder, as sha256sum does, and their signature.
func seal(dir string, key *ecdsa.PrivateKey) error {
	root := os.DirFS(dir)
	names, err := filesIn(root)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, name := range names {
		if !summed(name) {
			continue
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", strings.TrimPrefix(sum(content), "sha256:"), name)
	}
	signature, err := artifact.SignBlob(sums.Bytes(), key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), sums.Bytes(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, signatureFile), append(signature, '\n'), 0o644)
}
