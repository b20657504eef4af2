package artifact

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/secure-systems-lab/go-securesystemslib/encrypted"
)

// The classic format of cosign: docs/decisions/1101-images-releases-and-signatures.md.
const (
	mediaTypeSignature  = "application/vnd.dev.cosign.simplesigning.v1+json"
	annotationSignature = "dev.cosignproject.cosign/signature"
	signatureType       = "cosign container image signature"
	// mostSignature is how many bytes of a signed claim are read.
	mostSignature = 64 << 10
)

// ErrUnsigned is part of the error for what has no signature.
var ErrUnsigned = errors.New("no signature")

// ErrSignature is part of the error for what has signatures, and none by the key.
var ErrSignature = errors.New("no signature by this key")

// claim is what is signed: cosign's spelling of Red Hat's simple signing.
type claim struct {
	Critical struct {
		Identity struct {
			DockerReference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			DockerManifestDigest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// Sign signs what a digest stands for in a registry, an image, an index or any other artifact, and
// pushes the signature beside it, as cosign sign --key --tlog-upload=false does. The same key gives
// the same bytes, and signing twice adds nothing. Signatures by other keys stay. It fails if
// nothing of that digest is there.
func Sign(ctx context.Context, ref name.Digest, key *ecdsa.PrivateKey, options ...remote.Option) error {
	options = append(slices.Clip(options), remote.WithContext(ctx))
	if _, err := remote.Head(ref, options...); err != nil {
		return fmt.Errorf("cannot sign %s: %w", ref, err)
	}
	tag := SignatureTag(ref)
	signatures, err := remote.Image(tag, options...)
	if absent(err) {
		signatures, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("cannot read the signatures of %s: %w", ref, err)
	}
	signed, err := AddSignature(signatures, ref, key)
	if err != nil {
		return err
	}
	if signed == signatures {
		return nil
	}
	if err := remote.Write(tag, signed, options...); err != nil {
		return fmt.Errorf("cannot push the signature of %s: %w", ref, err)
	}
	return nil
}

// Verify checks that a registry has what a digest stands for, with a signature by a key. It does
// not read layers: their digests are in the manifest. The repository in the claim is not compared,
// so that copies in other registries stay valid; cosign does not compare it either. Its errors wrap
// ErrUnsigned or ErrSignature.
func Verify(ctx context.Context, ref name.Digest, key *ecdsa.PublicKey, options ...remote.Option) error {
	options = append(slices.Clip(options), remote.WithContext(ctx))
	if _, err := remote.Get(ref, options...); err != nil {
		return fmt.Errorf("cannot verify %s: %w", ref, err)
	}
	signatures, err := remote.Image(SignatureTag(ref), options...)
	if absent(err) {
		return fmt.Errorf("cannot verify %s: %w", ref, ErrUnsigned)
	}
	if err != nil {
		return fmt.Errorf("cannot read the signatures of %s: %w", ref, err)
	}
	if err := VerifySignature(signatures, ref.DigestStr(), key); err != nil {
		return fmt.Errorf("cannot verify %s: %w", ref, err)
	}
	return nil
}

// SignatureTag is where the signatures of a digest are: <repository>:sha256-<hex>.sig.
func SignatureTag(ref name.Digest) name.Tag {
	return ref.Tag(strings.Replace(ref.DigestStr(), ":", "-", 1) + ".sig")
}

func absent(err error) bool {
	var status *transport.Error
	return errors.As(err, &status) && status.StatusCode == http.StatusNotFound
}

// AddSignature returns signatures with one more: that of a digest by a key. Signatures is nil if
// there are none. If this signature is among them, the same signatures are returned.
func AddSignature(signatures v1.Image, ref name.Digest, key *ecdsa.PrivateKey) (v1.Image, error) {
	if key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("cannot sign %s: the key is not ECDSA P-256", ref)
	}
	if signatures == nil {
		signatures = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	} else if err := VerifySignature(signatures, ref.DigestStr(), &key.PublicKey); err == nil {
		return signatures, nil
	}
	var c claim
	c.Critical.Identity.DockerReference = ref.Context().Name()
	c.Critical.Image.DockerManifestDigest = ref.DigestStr()
	c.Critical.Type = signatureType
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	signature, err := SignBlob(payload, key)
	if err != nil {
		return nil, fmt.Errorf("cannot sign %s: %w", ref, err)
	}
	return mutate.Append(signatures, mutate.Addendum{
		Layer: static.NewLayer(payload, mediaTypeSignature), MediaType: mediaTypeSignature,
		Annotations: map[string]string{annotationSignature: string(signature)},
	})
}

// VerifySignature checks that one of the signatures of an artifact is that of a digest by a key.
func VerifySignature(signatures v1.Image, digest string, key *ecdsa.PublicKey) error {
	manifest, err := signatures.Manifest()
	if err != nil {
		return err
	}
	found := ErrUnsigned
	for _, layer := range manifest.Layers {
		if layer.MediaType != mediaTypeSignature {
			continue
		}
		found = ErrSignature
		payload, err := contentOf(signatures, layer, mostSignature)
		if err != nil {
			return err
		}
		if VerifyBlob(payload, []byte(layer.Annotations[annotationSignature]), key) != nil {
			continue
		}
		var c claim
		if err := json.Unmarshal(payload, &c); err != nil {
			return fmt.Errorf("cannot read the signed claim %s: %w", layer.Digest, err)
		}
		if c.Critical.Type == signatureType && c.Critical.Image.DockerManifestDigest == digest {
			return nil
		}
	}
	return found
}

// SignBlob returns the signature of a file in base64, as cosign sign-blob --key does: ECDSA in
// ASN.1 over the SHA-256 of the content. It is deterministic (RFC 6979).
func SignBlob(content []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	sum := sha256.Sum256(content)
	signature, err := key.Sign(nil, sum[:], crypto.SHA256)
	if err != nil {
		return nil, err
	}
	return []byte(base64.StdEncoding.EncodeToString(signature)), nil
}

// VerifyBlob checks what SignBlob made. Its errors wrap ErrSignature.
func VerifyBlob(content, signature []byte, key *ecdsa.PublicKey) error {
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(signature)))
	if err != nil {
		return fmt.Errorf("%w: it is not in base64", ErrSignature)
	}
	if sum := sha256.Sum256(content); !ecdsa.VerifyASN1(key, sum[:], raw) {
		return ErrSignature
	}
	return nil
}

// PrivateKey reads an ECDSA P-256 key from PEM, in PKCS 8 ("PRIVATE KEY") or in SEC 1 ("EC PRIVATE
// KEY"), as openssl writes them, and in the encrypted form of cosign generate-key-pair, whose
// password cosign takes from COSIGN_PASSWORD. Keys that are encrypted in another way are refused.
func PrivateKey(text []byte, password string) (*ecdsa.PrivateKey, error) {
	block, err := keyBlock(text, "EC PARAMETERS")
	if err != nil {
		return nil, fmt.Errorf("cannot read the private key: %w", err)
	}
	var parsed any
	switch {
	case block.Type == "ENCRYPTED SIGSTORE PRIVATE KEY", block.Type == "ENCRYPTED COSIGN PRIVATE KEY":
		raw, wrong := encrypted.Decrypt(block.Bytes, []byte(password))
		if wrong != nil {
			return nil, errors.New("cannot read the private key: it is encrypted by cosign, and COSIGN_PASSWORD is not its password")
		}
		parsed, err = x509.ParsePKCS8PrivateKey(raw)
	case strings.Contains(block.Type, "ENCRYPTED"), block.Headers["DEK-Info"] != "":
		return nil, errors.New("cannot read the private key: it is encrypted. Next: openssl pkey -in KEY -out DECRYPTED, then name that file")
	case block.Type == "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case block.Type == "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		err = fmt.Errorf("the PEM block is %q", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("cannot read the private key: it is not ECDSA P-256")
	}
	return key, nil
}

// PublicKey reads an ECDSA P-256 key from PEM ("PUBLIC KEY"), as cosign.pub has it.
func PublicKey(text []byte) (*ecdsa.PublicKey, error) {
	block, err := keyBlock(text)
	if err == nil && block.Type != "PUBLIC KEY" {
		err = fmt.Errorf("the PEM block is %q", block.Type)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the public key: %w", err)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("cannot read the public key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("cannot read the public key: it is not ECDSA P-256")
	}
	return key, nil
}

// PublicKeyPEM returns a key as PublicKey reads it.
func PublicKeyPEM(key *ecdsa.PublicKey) ([]byte, error) {
	raw, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, fmt.Errorf("cannot write the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: raw}), nil
}

// keyBlock returns the first block of PEM that is not of a type to skip.
func keyBlock(text []byte, skip ...string) (*pem.Block, error) {
	for {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, errors.New("no PEM block")
		}
		if !slices.Contains(skip, block.Type) {
			return block, nil
		}
		text = rest
	}
}
