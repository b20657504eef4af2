//go:build race

package newjob

// variant is how the programs of this test are built: as its own packages are, so that
// what they share is built once.
const variant = "-race"
