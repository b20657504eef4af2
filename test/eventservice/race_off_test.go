//go:build !race

package eventservice_test

const raceDetector = false
