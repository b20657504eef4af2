//go:build race

package eventservice_test

// raceDetector multiplies what a process takes.
const raceDetector = true
