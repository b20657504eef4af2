package act

// VerbWas is the verb that follows Count of pkg/migration, in the past.
func VerbWas(n int) string {
	if n == 1 {
		return " was"
	}
	return " were"
}

// VerbIs is the verb that follows Count of pkg/migration.
func VerbIs(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}
