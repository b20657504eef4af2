package measure

import (
	"os"
	"strconv"
	"testing"
)

// Number is that of an environment variable, or a default: how much work a soak or a benchmark has.
func Number(t testing.TB, variable string, or int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return or
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is no number above 0", variable, text)
	}
	return n
}
