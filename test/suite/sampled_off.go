//go:build slow || soak

package suite

// See sampled_on.go.
const sampledAfter, sampledBefore = 1, 1
