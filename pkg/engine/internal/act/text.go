package act

import (
	"fmt"
)

func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func VerbWas(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

func VerbIs(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
