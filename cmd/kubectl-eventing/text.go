package main

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kyma-project/eventmesh-migration/internal/wording"
)

// ageSince is how long ago a time was, for people.
func ageSince(t time.Time) string { return duration.HumanDuration(max(0, now().Sub(t))) }

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// printable is data that a terminal can show; what it cannot show is only measured.
func printable(data []byte) string {
	if !utf8.Valid(data) || slices.ContainsFunc([]rune(string(data)), func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' }) {
		return fmt.Sprintf("(%s that are no text: use -o json)", wording.Bytes(int64(len(data))))
	}
	return string(data)
}
