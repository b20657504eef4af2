// Package growpvc lets the volume claims of a StatefulSet grow.
package growpvc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is grow-pvc.
type Job struct {
	resizeTimeout, adoptTimeout time.Duration
	options                     options
}

// options are the settings that decide what is done.
type options struct {
	// statefulSet is "namespace/name".
	statefulSet string
	// claim is the name of the volume claim template; "" if there is one only.
	claim string
	size  string
}

var (
	_ migration.Job          = (*Job)(nil)
	_ migration.Configurable = (*Job)(nil)
	_ migration.Orphaner     = (*Job)(nil)
	_ migration.Rechecker    = (*Job)(nil)
)

// New returns the job with its default settings: nothing to do.
func New() *Job { return &Job{resizeTimeout: 5 * time.Minute, adoptTimeout: time.Minute} }

// Name implements migration.Job.
func (j *Job) Name() string { return "grow-pvc" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Let the volume claims of a StatefulSet grow", strings.TrimSpace(manual)
}

const manual = `
A StatefulSet has a template for its volume claims. The template cannot be
changed. This job replaces the StatefulSet by one with a larger size in its
template. The pods stay as they are. The StatefulSet is deleted without them,
and the new one adopts them. Then the job enlarges each claim that exists, and
waits for it.

--statefulset and --size name the object and the size. Without them the job does
nothing.

Before anything is deleted, the job checks that every claim is bound. It also
checks that the StorageClass can expand volumes. If not, it is refused (exit
code 4). It decides again right before it deletes the StatefulSet. If that was
edited since, it stays as it is.

The job never changes:
  - pods. Some file systems grow only when their pod starts again. That counts
    as done.
  - claims and templates that have the size already, or a larger one. Nothing
    shrinks.
  - StatefulSets whose claims are deleted with them
    (persistentVolumeClaimRetentionPolicy.whenDeleted: Delete). It is refused
    there.

The job is safe to run again, also after it was killed. The StatefulSet is in
the journal before it is deleted, and the next run creates it. A run that fails
restores the former StatefulSet. A claim that has grown stays as large as it is.
No system can undo that.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "statefulset",
		Usage: "StatefulSet whose claims grow, as namespace/name",
		Value: &j.options.statefulSet,
	}, {
		Name:  "claim",
		Usage: "name of its volume claim template; needed if it has several",
		Value: &j.options.claim,
	}, {
		Name:  "size",
		Usage: "size that each claim has at least afterwards, such as 20Gi",
		Value: &j.options.size,
	}, {
		Name:  "resize-timeout",
		Usage: "how long a volume may take to grow, from the change of its claim on",
		Value: &j.resizeTimeout,
	}, {
		Name:  "adopt-timeout",
		Usage: "how long the new StatefulSet may take to adopt the pods",
		Value: &j.adoptTimeout,
	}}
}

// Asked says whether the job was told what to do.
func (j *Job) Asked() bool { return j.options != options{} }

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	errs := []error{
		migration.PositiveSetting("resize-timeout", j.resizeTimeout),
		migration.PositiveSetting("adopt-timeout", j.adoptTimeout),
	}
	if !j.Asked() {
		return errors.Join(errs...)
	}
	namespace, name, ok := strings.Cut(j.options.statefulSet, "/")
	if !ok || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		errs = append(errs, fmt.Errorf("--statefulset %q must be namespace/name", j.options.statefulSet))
	}
	if q, err := resource.ParseQuantity(j.options.size); err != nil || q.Sign() <= 0 {
		errs = append(errs, fmt.Errorf("--size %q must be a size like 20Gi", j.options.size))
	}
	return errors.Join(errs...)
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if !j.Asked() {
		return &migration.Plan{Findings: []migration.Finding{{ID: "nothing-named", Severity: migration.Info, Problem: "no StatefulSet is named, so there is nothing to do"}}}, nil
	}
	s, err := observe(ctx, c, j.options)
	if err != nil {
		return nil, err
	}
	return decide(s, j.options), nil
}

// Orphans implements migration.Orphaner: the pods stay, and the claims.
func (j *Job) Orphans(ref migration.Ref) bool { return ref.Kind == statefulSets.Kind }

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	var c migration.Condition
	switch {
	case ch.Verb == migration.Create && ch.Ref.Kind == statefulSets.Kind:
		c = adopted(ch)
		c.Timeout = j.adoptTimeout
	case ch.Verb == migration.Patch && ch.Ref.Kind == claims.Kind, ch.Verb == migration.Await && ch.Ref.Kind == claims.Kind:
		c = grown(ch, j.options.size)
		c.Timeout = j.resizeTimeout
	default:
		return nil
	}
	return []migration.Condition{c}
}
