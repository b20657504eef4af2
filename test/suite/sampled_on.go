//go:build !slow && !soak

package suite

// A process is killed after each second write, and before each third. Before a write the cluster is
// as after the one before it, and only what the process knew differs, which is gone with it: of
// three states between two writes, two are played. The model kills the engine at any write
// (test/model); make test-slow and make soak kill the jobs after and before each of theirs.
const sampledAfter, sampledBefore = 2, 3
