//go:build !race

package newjob

const variant = "-race=false"
