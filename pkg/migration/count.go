package migration

import "strconv"

// Number is a number for people, with separators: nobody counts digits at night.
func Number(n int) string {
	s := strconv.Itoa(n)
	first := 0
	if n < 0 {
		first = 1 // behind the sign
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Count is a number of things for people: "1 error", "2 errors". The noun is in the singular.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Number(n) + " " + noun + "s"
}
