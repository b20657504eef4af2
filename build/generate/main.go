// Command generate writes what follows from something else, between marks or as a whole:
//
//   - the chart's templates/_jobs.tpl, and the jobs in values.yaml, from
//     internal/migration/registry;
//   - templates/_access.tpl from the table of each of these jobs,
//     internal/migration/jobs/*/access.go;
//   - values.schema.json, and the table of values in a chart's README.md, from its values.yaml;
//   - the tables of jobs in the documentation, from internal/migration/registry;
//   - the tables of exit codes in the documentation, and those in _jobs.tpl, from pkg/migration;
//   - docs/packages.md from the comments of the packages;
//   - the tables of docs/eventing/coming-from-kyma.md from the list beside it;
//   - the files that docs/library/write-a-migration.md shows, from examples/registry.
//
// With -check it writes nothing, and fails if anything would change.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path"

	"github.com/kyma-project/eventmesh-migration/internal/migration/registry"
)

// chart is where the hooks are; the overlays only point to it. operator is the chart of the
// eventing operator, of which only the values are read.
const (
	chart    = "charts/eventmesh-migration"
	operator = "charts/eventing-manager"
)

func main() {
	check := flag.Bool("check", false, "write nothing; fail if anything would change")
	flag.Parse()
	if err := run(*check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(check bool) error {
	all := registry.All()
	tables, err := tables(all)
	if err != nil {
		return err
	}
	jobs, err := jobsTemplate(all, tables)
	if err != nil {
		return err
	}
	chains, err := chainsTable(all)
	if err != nil {
		return err
	}
	// New ones: the namespaces of the others are templates now.
	laptop, err := laptopRole(registry.All())
	if err != nil {
		return err
	}
	of, err := os.ReadFile(path.Join(operator, "values.yaml"))
	if err != nil {
		return err
	}
	operated, err := parse(of)
	if err != nil {
		return fmt.Errorf("%s/values.yaml: %w", operator, err)
	}
	var values []byte
	var settings []setting
	return errors.Join(
		update(check, path.Join(chart, "templates/_jobs.tpl"), func([]byte) ([]byte, error) { return jobs, nil }),
		update(check, path.Join(chart, "templates/_access.tpl"), func([]byte) ([]byte, error) { return accessTemplate(tables), nil }),
		update(check, path.Join(chart, "values.yaml"), func(old []byte) (_ []byte, err error) {
			if values, err = withJobs(old, all); err != nil {
				return nil, err
			}
			settings, err = parse(values)
			return values, err
		}),
		update(check, path.Join(chart, "values.schema.json"), func([]byte) ([]byte, error) { return schemaOf(settings) }),
		update(check, path.Join(chart, "README.md"), func(old []byte) ([]byte, error) {
			readme, err := between(old, beginJobs, endJobs, chains)
			if err != nil {
				return nil, err
			}
			return between(readme, beginValues, endValues, valuesTable(settings))
		}),
		update(check, path.Join(operator, "values.schema.json"), func([]byte) ([]byte, error) { return schemaOf(operated) }),
		update(check, path.Join(operator, "README.md"), func(old []byte) ([]byte, error) {
			return between(old, beginValues, endValues, valuesTable(operated))
		}),
		update(check, "docs/migration/README.md", func(old []byte) ([]byte, error) {
			readme, err := between(old, beginJobs, endJobs, listTable(all))
			if err != nil {
				return nil, err
			}
			return between(readme, beginExitCodes, endExitCodes, exitCodesTable(""))
		}),
		update(check, "docs/architecture.md", func(old []byte) ([]byte, error) {
			return between(old, beginExitCodes, endExitCodes, exitCodesTable("migration/"))
		}),
		update(check, comingFromKyma, func(old []byte) ([]byte, error) {
			tables, err := differencesTables()
			if err != nil {
				return nil, err
			}
			return between(old, beginDifferences, endDifferences, []byte(tables))
		}),
		update(check, guide, func(old []byte) ([]byte, error) { return withFiles(old, guideExample) }),
		update(check, "docs/packages.md", func([]byte) ([]byte, error) { return packagesDocument(".") }),
		update(check, "docs/migration/laptop-role.yaml", func([]byte) ([]byte, error) { return laptop, nil }),
		update(check, "docs/migration/eventmesh-migrate.md", func(old []byte) ([]byte, error) { return between(old, beginJobs, endJobs, hooksTable(all)) }),
	)
}

// update writes the file as it should be, given what it is.
func update(check bool, name string, content func(old []byte) ([]byte, error)) error {
	old, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	now, err := content(old)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	if bytes.Equal(old, now) {
		return nil
	}
	if check {
		return fmt.Errorf("%s is not up to date: run make charts", name)
	}
	return os.WriteFile(name, now, 0o644)
}
