package act

import (
	"fmt"
)

// Count spells a number of things: "1 change", "2 changes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// VerbWas is the verb that follows Count, in the past.
func VerbWas(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// VerbIs is the verb that follows Count.
func VerbIs(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
