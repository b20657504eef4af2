//go:build !slow && !soak

package suite

// sampled is the distance of the writes before which a process is killed. The cluster is then as
// after the write before it, at which there is a kill of its own; only what the process knew
// differs, and that is gone with it. make test-slow and make soak kill before each write.
const sampled = 3
