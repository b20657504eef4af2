// Package commandtest has a job for the tests of command lines.
package commandtest

import (
	"context"
	"errors"
	"time"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Hats is a job with a setting of each type.
type Hats struct {
	Mode    string
	Force   bool
	Workers int
	Wait    time.Duration
	Skip    []string
}

// New returns the job with its defaults.
func New() *Hats { return &Hats{Mode: "gentle", Workers: 4, Wait: 2 * time.Minute} }

// Name implements migration.Job.
func (*Hats) Name() string { return "test-job" }

// Doc implements migration.Job.
func (*Hats) Doc() (short, long string) {
	return "Give every Application a hat", "A hat is made for each Application without one. Hats that exist are never changed."
}

// Plan implements migration.Job. Command lines are tested without a cluster.
func (*Hats) Plan(context.Context, *migration.Cluster, migration.PlanOptions) (*migration.Plan, error) {
	return nil, errors.New("this test's engine asks for no plan")
}

// Await implements migration.Job.
func (*Hats) Await(*migration.Change) []migration.Condition { return nil }

// Settings implements migration.Configurable.
func (j *Hats) Settings() []migration.Setting {
	return []migration.Setting{
		{Name: "mode", Usage: "how hats are put on: `gentle|rough`.", Value: &j.Mode},
		{Name: "force", Usage: "put hats on hats.", Value: &j.Force},
		{Name: "workers", Usage: "hatters.", Value: &j.Workers},
		{Name: "hat-timeout", Usage: "how long a hat may take to fit.", Value: &j.Wait},
		{Name: "skip", Usage: "`applications` that get none.", Value: &j.Skip},
	}
}

// Validate implements migration.Configurable.
func (j *Hats) Validate() error {
	var errs []error
	if j.Mode != "gentle" && j.Mode != "rough" {
		errs = append(errs, errors.New("--mode must be gentle or rough"))
	}
	if j.Workers < 1 {
		errs = append(errs, errors.New("--workers must be 1 at least"))
	}
	return errors.Join(errs...)
}
