package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
)

// The guide of the library, and the directory whose files it shows.
const (
	guide        = "docs/library/write-a-migration.md"
	guideExample = "examples/registry"
)

// shownFile is a block of code with the name of the file that it is.
var shownFile = regexp.MustCompile("(?s)(<!-- file: ([\\w.]+), copied by \"make charts\" from " + guideExample + " -->\n```\\w+\n)(.*?)(```\n)")

// withFiles returns the document with each shown file as it is.
func withFiles(document []byte, dir string) ([]byte, error) {
	var failed error
	found := false
	now := shownFile.ReplaceAllFunc(document, func(block []byte) []byte {
		found = true
		parts := shownFile.FindSubmatch(block)
		file, err := os.ReadFile(path.Join(dir, string(parts[2])))
		if err != nil {
			failed = err
		}
		if bytes.Contains(file, []byte("```")) {
			failed = fmt.Errorf("%s would end its block of code", parts[2])
		}
		return slices.Concat(parts[1], file, parts[4])
	})
	if failed == nil && !found {
		failed = fmt.Errorf("no file of %s is shown", dir)
	}
	return now, failed
}
