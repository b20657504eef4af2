package engine_test

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

// program is what the tests' program is called: nothing of it is ours.
const program = "mover"

var names = migration.Names{Program: program, Domain: "mover.example.com"}
