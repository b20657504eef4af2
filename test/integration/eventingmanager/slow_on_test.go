//go:build slow || soak

package eventingmanager_test

// all: each way to delete an Eventing, and what needs two installations.
const all = true
