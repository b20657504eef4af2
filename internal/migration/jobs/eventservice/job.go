// Package eventservice proves that every Application's event-service posts to the
// event mesh. It changes nothing.
package eventservice

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is eventservice-verify.
type Job struct {
	perApplication, rollout time.Duration
	smoke                   bool
	options                 options
	// transport posts the smoke requests.
	transport http.RoundTripper
}

// options are the settings that decide what is expected.
type options struct {
	// namespace holds the event-services, HTTPSources, Channels and adapters.
	namespace string
	// image every event-service must run; "" accepts any.
	image string
}

var (
	_ migration.Job          = (*Job)(nil)
	_ migration.Configurable = (*Job)(nil)
)

// New returns the job with its default settings.
func New() *Job {
	return &Job{
		perApplication: 4 * time.Minute,
		rollout:        2 * time.Minute,
		options:        options{namespace: kyma.IntegrationNamespace},
		// Without a proxy: these are Services of the cluster.
		transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext},
	}
}

// Limit is how long the job waits at most for so many Applications.
func (j *Job) Limit(applications int) time.Duration {
	return j.rollout + time.Duration(applications)*j.perApplication
}

// Name implements migration.Job.
func (j *Job) Name() string { return "eventservice-verify" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Wait until every event-service posts to the event mesh", strings.TrimSpace(manual)
}

const manual = `
After the upgrade of the component application-connector, application-operator
upgrades the Helm release of each Application, one after the other. Each
event-service then posts to the event mesh. This job waits for all of these, for
every Application:
  - its event-service has --eventMeshURL, and the image of --event-service-image
    if one is given
  - the Deployment is rolled out, and no former pod is left, terminating pods
    included
  - its HTTPSource, Channel and adapter are ready. The upgrade may have created
    them.

The job may start before application-operator has begun. So it waits for
--per-application-timeout times the number of Applications, plus
--rollout-timeout. --timeout must be longer than both together.

A state that cannot become ready fails at once. A state that is not ready at the
limit fails then. One report names every Application with the reason. Examples:
  - a container that crashes, with its last output
  - an image that cannot be pulled
  - a pod without a node
  - a Helm release that failed, with the description of the operator
  - a Deployment or an HTTPSource that does not exist

Applications with spec.skipInstallation have no release that would be upgraded.
They are reported and do not fail the run. Applications with the label
eventmesh-migration.kyma-project.io/skip=true are left out.

--smoke posts one request to each event-service: an event without a type, which
it must refuse. An answer 400 by the event-service proves that it listens. No
event comes of it. If the cluster lets nobody outside of the service mesh reach
it, that is a warning.

The job only reads, and is safe to run again at any time. It is refused (exit
code 4) while the Job mesh-namespaces-migration of Kyma's own event-bus chart
runs.

Exit code 0: every event-service posts to the mesh. 1: some do not. 124:
--timeout was too short. "eventmesh-migrate explain" has the others.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "event-service-image",
		Usage: "image that every event-service must run, as application-operator is given it by --eventServiceImage; any if empty",
		Value: &j.options.image,
	}, {
		Name:  "per-application-timeout",
		Usage: "how long application-operator may take for one Application",
		Value: &j.perApplication,
	}, {
		Name:  "rollout-timeout",
		Usage: "the time, in addition, that the operator may take to start, and the last pods to be replaced",
		Value: &j.rollout,
	}, {
		Name:  "smoke",
		Usage: "also post a request to each event-service that it must refuse",
		Value: &j.smoke,
	}, {
		Name:  "integration-namespace",
		Usage: "namespace of the Applications' event-services and HTTPSources",
		Value: &j.options.namespace,
	}}
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	return errors.Join(
		migration.PositiveSetting("per-application-timeout", j.perApplication),
		migration.PositiveSetting("rollout-timeout", j.rollout),
		migration.NamespaceSetting("integration-namespace", j.options.namespace),
	)
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	s, err := observe(ctx, c, j.options)
	if err != nil {
		return nil, err
	}
	plan, expected := decide(s, j.options)
	j.complete(plan, expected)
	return plan, nil
}

// complete says in the plan what its conditions and its probe need to know: how many
// Applications are expected to post to the mesh, and which.
func (j *Job) complete(plan *migration.Plan, expected []string) {
	limit := expectation{j.rollout + time.Duration(len(expected))*j.perApplication}.encode()
	for i := range plan.Units {
		for n := range plan.Units[i].Changes {
			plan.Units[i].Changes[n].Expect = limit
		}
	}
	if j.smoke {
		plan.Probe = func(ctx context.Context) []migration.Finding {
			return smoke(ctx, j.transport, j.options.namespace, expected)
		}
	}
}

// expectation is what the conditions need to know of the plan.
type expectation struct {
	// Limit is how long all of them may take. It depends on the number of Applications.
	Limit time.Duration `json:"limit"`
}

func (e expectation) encode() json.RawMessage {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err) // a number
	}
	return raw
}

// expectationOf returns what a change expects, or else the shortest limit.
func (j *Job) expectationOf(ch *migration.Change) expectation {
	var e expectation
	if err := json.Unmarshal(ch.Expect, &e); err != nil || e.Limit <= 0 {
		return expectation{j.rollout + j.perApplication}
	}
	return e
}

// Await implements migration.Job.
func (j *Job) Await(ch *migration.Change) []migration.Condition {
	var c migration.Condition
	switch ch.Ref.Kind {
	case deployments.Kind:
		c = onTheMesh(ch.Ref.Subject(), j.options.image)
	case kyma.HTTPSource.Kind:
		c = sourceReady(ch.Ref)
	default:
		return nil
	}
	c.Timeout, c.Unserved = j.expectationOf(ch).Limit, kyma.Install
	return []migration.Condition{c}
}
