package natsutil

import (
	"bytes"
	"fmt"

	"github.com/nats-io/nkeys"
)

// NewUser returns the seed of a new user. The seed is secret.
func NewUser() ([]byte, error) {
	key, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("cannot create a NATS user: %w", err)
	}
	defer key.Wipe()
	seed, err := key.Seed()
	return bytes.Clone(seed), err // Wipe overwrites what Seed returned
}

// PublicKey is what a server is told of a user. It is an error if the seed is not that of a user.
func PublicKey(seed []byte) (string, error) {
	if prefix, _, err := nkeys.DecodeSeed(seed); err != nil || prefix != nkeys.PrefixByteUser {
		return "", fmt.Errorf("this is not the seed of a NATS user") // without the seed: it is secret
	}
	key, err := nkeys.FromSeed(seed)
	if err != nil {
		return "", fmt.Errorf("this is not the seed of a NATS user")
	}
	defer key.Wipe()
	return key.PublicKey()
}
