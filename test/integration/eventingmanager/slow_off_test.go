//go:build !slow && !soak

package eventingmanager_test

// all: see slow_on_test.go.
const all = false
