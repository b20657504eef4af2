//go:build slow || soak

package module_test

// all: the life of a module, with its programs.
const all = true
