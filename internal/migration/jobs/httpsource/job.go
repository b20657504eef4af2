// Package httpsource makes an HTTPSource for every Application that has none,
// as the application chart of Kyma 1.9 and later would have.
package httpsource

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Values of --on-helm2-conflict.
const (
	leave  = "leave"
	create = "create"
)

// Job is httpsource-sync.
type Job struct {
	readyTimeout time.Duration
	options      options
}

// options are the settings that decide what is done.
type options struct {
	// namespace holds the HTTPSources, Channels and adapters of Applications.
	namespace string
	// tillerNamespace holds Tiller's release records.
	tillerNamespace string
	onHelm2Conflict string
}

var (
	_ migration.Job           = (*Job)(nil)
	_ migration.Configurable  = (*Job)(nil)
	_ migration.Protector     = (*Job)(nil)
	_ migration.ProtectReader = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		readyTimeout: 2 * time.Minute,
		options: options{
			namespace:       kyma.IntegrationNamespace,
			tillerNamespace: kyma.TillerNamespace,
			onHelm2Conflict: leave,
		},
	}
}

// Name implements migration.Job.
func (j *Job) Name() string { return "httpsource-sync" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Give every Application an HTTPSource", strings.TrimSpace(manual)
}

const manual = `
The event-service of Kyma 1.11 posts events to an HTTPSource. The HTTPSource
belongs to the Helm release of its Application. It can be missing: the release
was never upgraded to 1.9 or later, the upgrade failed, or the HTTPSource was
deleted. Then events would be refused from the moment the event-service is
upgraded.

This job creates each missing HTTPSource as the chart would. Its name is that of
the Application, in kyma-integration. The job waits until the HTTPSource can
take events:
  - its Channel is ready and has an address
  - its adapter, a Knative Service of the same name, is ready
  - its own condition says that it is ready
Its own condition is not enough. It can be out of date when a Channel cannot be
created.

The job also waits for HTTPSources that exist and are not ready. It waits for
adapters without a Channel, which would lose events. Kyma and Knative usually
repair both. If one is not ready after --ready-timeout, the run fails. What the
run created is then deleted again.

The job never changes:
  - an HTTPSource, Channel or Knative Service that it did not create. If one has
    the name that the job needs and belongs to something else, the run is
    refused.
  - Applications with spec.skipInstallation. A later installation of their
    release would fail on an HTTPSource that exists already.
  - on a cluster with Helm 2, Applications whose release has no HTTPSource, or
    that have no release. The application-operator would fail on an HTTPSource
    that it did not create. It creates one in its upgrade.
    --on-helm2-conflict=create creates it nevertheless.
  - Applications with the label eventmesh-migration.kyma-project.io/skip=true.

The job is safe to run again, also after it was killed. What exists and is ready
is left as it is. On a migrated cluster the job reads four lists and writes
nothing. The label and annotations of what it creates let Helm 3 adopt the
object into the release of the Application. A rollback protects an HTTPSource to
which an event-service posts already: its events would have no receiver.

Exit code 0: done, or nothing to do. 1: failed and rolled back. 4: refused
before anything was changed, with every reason. "eventmesh-migrate explain" has
the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "ready-timeout",
		Usage: "how long an HTTPSource, its Channel and its adapter may take to become ready. The time begins with its creation, or for an existing one with the wait",
		Value: &j.readyTimeout,
	}, {
		Name:  "on-helm2-conflict",
		Usage: "what to do if an HTTPSource would make the next Helm 2 upgrade of its Application fail. leave: application-operator creates it. create: the job does",
		Value: &j.options.onHelm2Conflict,
		Words: []string{leave, create},
	}, {
		Name:  "integration-namespace",
		Usage: "namespace of the Applications' HTTPSources, Channels and event-services",
		Value: &j.options.namespace,
	}, {
		Name:  "tiller-namespace",
		Usage: "namespace of the ConfigMaps in which Tiller (Helm 2) stores releases; empty if the cluster has no Tiller",
		Value: &j.options.tillerNamespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	var conflict error
	if v := j.options.onHelm2Conflict; v != leave && v != create {
		conflict = fmt.Errorf("--on-helm2-conflict must be %s or %s, not %q", leave, create, v)
	}
	return errors.Join(
		migration.PositiveSetting("ready-timeout", j.readyTimeout),
		conflict,
		migration.NamespaceSetting("integration-namespace", j.options.namespace),
		migration.OptionalNamespaceSetting("tiller-namespace", j.options.tillerNamespace),
	)
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	s, err := observe(ctx, c, j.options)
	if err != nil {
		return nil, err
	}
	return decide(s, j.options), nil
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	if ch.Verb != migration.Create && ch.Verb != migration.Await {
		return nil
	}
	var c migration.Condition
	switch ch.Ref.Kind {
	case kyma.HTTPSource.Kind:
		c = sourceReady(ch)
	case kyma.Service.Kind:
		c = adapterHasChannel(ch)
	default:
		return nil
	}
	c.Timeout, c.Unserved = j.readyTimeout, kyma.Install
	return []migration.Condition{c}
}

// Protect implements migration.Protector.
func (j *Job) Protect(ctx context.Context, c *migration.Cluster, refs []migration.Ref) (map[migration.Ref]string, error) {
	return keep(ctx, c, refs)
}
