//go:build !slow

package decide

// all: everything is tried at each action, and not at some.
const all = false
