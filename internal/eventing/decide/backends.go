package decide

import (
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
)

// carrier is a backend. No rule asks which one it is: what they do differently is in these fields
// and in their answers.
type carrier struct {
	// is its name in an Eventing and in the ConfigMap of the backends.
	is operatorv1alpha1.BackendType
	// section is the key of its values in those of the chart, and record the object that has the
	// values with which it was last rendered.
	section string
	record  func(backend.Names) observed.Key
	// unavailable is the reason of the condition while it takes no events.
	unavailable string
	// refusesLate: when it is outgoing, it refuses what a pod sends that should have ended.
	refusesLate bool

	answers
}

// answers are what the rules ask a backend. Each part is beside the rules that use it.
type answers interface {
	installer
	taker
	leaver
	remover
	guarded
}

// carriers are all backends. Outgoing backends go in this order: the mesh holds events for the
// shortest time.
var carriers = []*carrier{
	{is: operatorv1alpha1.EventMesh, section: "mesh", record: brokerKey, unavailable: operatorv1alpha1.ReasonMeshUnavailable, answers: mesh{}},
	{is: operatorv1alpha1.NATS, section: "nats", record: natsConfigKey, unavailable: operatorv1alpha1.ReasonNATSUnavailable, refusesLate: true, answers: nats{}},
}

// known are the backends of these rules. A test has more of them.
func (d *Rules) known() []*carrier {
	if d.carriers != nil {
		return d.carriers
	}
	return carriers
}

// carrier is a backend by its name; nil if there is none of that name.
func (d *Rules) carrier(b operatorv1alpha1.BackendType) *carrier {
	for _, c := range d.known() {
		if c.is == b {
			return c
		}
	}
	return nil
}

// plain answers for a backend that needs nothing special. It has no Secrets, takes each spec,
// finds nothing that disturbs it, has no pods of its own, and is open as soon as it is accepted.
type plain struct{}

func (plain) unsupported(operatorv1alpha1.BackendConfig) string      { return "" }
func (plain) unfit(*Rules, *observed.World) string                   { return "" }
func (plain) secrets(backend.Names) []observed.Key                   { return nil }
func (plain) credentials(*reconciliation) []Action                   { return nil }
func (plain) away(*Rules, *observed.World, string) bool              { return false }
func (plain) warnings(*observed.World) []Action                      { return nil }
func (plain) open(*reconciliation) Action                            { return nil }
func (plain) degraded(*Rules, *observed.World) string                { return "" }
func (plain) pending(*observed.World) int64                          { return 0 }
func (plain) drain(*Rules, *observed.World, *Decision, blocked) bool { return true }
func (plain) withdrawn(*Rules, *observed.World, *Decision) bool      { return true }
