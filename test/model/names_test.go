package model_test

import "github.com/kyma-project/eventmesh-migration/test/model"

const program = model.Program

var names = model.Names
