//go:build !slow && !soak

package takeover_test

// all: see slow_on_test.go.
const all = false
