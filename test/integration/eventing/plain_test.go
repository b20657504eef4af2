//go:build !e2e

package eventing_test

import (
	"context"

	"github.com/kyma-project/eventmesh-migration/test/kubernetes"
)

// kind is the cluster of these tests: a control plane without a node.
var kind = kubernetes.Workloads()

func prepare(context.Context) error { return nil }
