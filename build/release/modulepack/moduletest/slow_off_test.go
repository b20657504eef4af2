//go:build !slow && !soak

package module_test

// all: see slow_on_test.go.
const all = false
