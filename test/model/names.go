package model

import "github.com/kyma-project/eventmesh-migration/pkg/migration"

// Program is what the program of the schedules is called: nothing of it is ours.
const Program = "mover"

// Names of that program.
var Names = migration.Names{Program: Program, Domain: "mover.example.com"}
