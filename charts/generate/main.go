// Command generate writes what in the charts follows from something else:
//
//   - templates/_access.tpl from the table of each job, internal/jobs/*/access.go;
//   - values.schema.json, and the table in README.md, from values.yaml.
//
// With -check it writes nothing, and fails if anything would change.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// chart is where the hooks are; the other charts only point to it.
const chart = "charts/eventmesh-migration"

func main() {
	check := flag.Bool("check", false, "write nothing; fail if anything would change")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	values, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		return err
	}
	readme, err := os.ReadFile(filepath.Join(chart, "README.md"))
	if err != nil {
		return err
	}
	settings, err := parse(values)
	if err != nil {
		return fmt.Errorf("cannot read %s/values.yaml: %w", chart, err)
	}
	schema, err := schemaOf(settings)
	if err != nil {
		return err
	}
	table, err := withTable(readme, settings)
	if err != nil {
		return fmt.Errorf("cannot write %s/README.md: %w", chart, err)
	}
	for _, file := range []struct {
		name    string
		content []byte
	}{
		{"templates/_access.tpl", accessTemplate()},
		{"values.schema.json", schema},
		{"README.md", table},
	} {
		name := filepath.Join(chart, file.name)
		old, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if bytes.Equal(old, file.content) {
			continue
		}
		if check {
			return fmt.Errorf("%s is not what it is generated from: run make charts", name)
		}
		if err := os.WriteFile(name, file.content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
