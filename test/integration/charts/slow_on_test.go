//go:build slow

package charts

const everyHelm = true
