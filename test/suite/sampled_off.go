//go:build slow || soak

package suite

// sampled: see sampled_on.go.
const sampled = 1
