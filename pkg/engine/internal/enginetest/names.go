package enginetest

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

// Names are those of the program in the tests of the engine.
var Names = migration.Names{Program: "mover", Domain: "mover.example.com"}
