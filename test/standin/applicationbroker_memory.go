package standin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// memory is all that a pod of application-broker knows, and what it is doing. It ends with the pod.
type memory struct {
	pod  types.UID // "" without pods
	ctx  context.Context
	kill context.CancelFunc

	mu         sync.Mutex
	instances  map[string]*storedInstance // by external ID
	operations map[string][]*operation    // by external ID, the oldest first
}

type storedInstance struct {
	id, namespace string
	// service and plan are IDs of the catalog; after a restart, the names of ServiceClass and
	// ServicePlan, which are not the same if they have to be escaped.
	service, plan string
	state         operationState
}

type operation struct {
	id          string
	create      bool
	state       operationState
	description string
}

type operationState string

const (
	inProgress operationState = "in progress"
	succeeded  operationState = "succeeded"
	failed     operationState = "failed"
	// pendingDeletion is of an instance alone (1.11).
	pendingDeletion operationState = "pending deletion"
)

// Errors of the two stores.
var (
	errExists   = errors.New("element already exists")
	errBusy     = errors.New("there is an operation in progress")
	errNotFound = errors.New("element not found")
)

// remember makes the memory of a pod that starts: the instances are read from the cluster,
// operations are not.
func (b *ApplicationBroker) remember(ctx context.Context, pod types.UID) error {
	m := &memory{pod: pod, instances: map[string]*storedInstance{}, operations: map[string][]*operation{}}
	m.ctx, m.kill = context.WithCancel(b.ctx)
	classes, err := b.client.Resource(ServiceClasses).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list classes: %w", err)
	}
	own := map[string]bool{}
	for i := range classes.Items {
		if text(&classes.Items[i], "spec", "serviceBrokerName") == ApplicationBrokerName {
			own[classes.Items[i].GetName()] = true
		}
	}
	instances, err := b.client.Resource(ServiceInstances).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list instances: %w", err)
	}
	for i := range instances.Items {
		u := &instances.Items[i]
		class := text(u, "spec", "serviceClassRef", "name")
		if !own[class] {
			continue
		}
		stored := &storedInstance{
			id: text(u, "spec", "externalID"), namespace: u.GetNamespace(),
			service: class, plan: text(u, "spec", "servicePlanRef", "name"), state: failed,
		}
		if isReady(u) {
			stored.state = succeeded
		}
		m.instances[stored.id] = stored
	}
	b.state.Lock()
	b.memories = append(b.memories, m)
	b.state.Unlock()
	b.tell(nil)
	return nil
}

// forget ends a pod.
func (b *ApplicationBroker) forget(pod types.UID) {
	b.state.Lock()
	b.memories = slices.DeleteFunc(b.memories, func(m *memory) bool {
		if m.pod == pod {
			m.kill()
		}
		return m.pod == pod
	})
	b.state.Unlock()
	b.tell(nil)
}

// memory returns that of the pod that answers, nil if there is none.
func (b *ApplicationBroker) memory() *memory {
	b.state.Lock()
	defer b.state.Unlock()
	if b.down || len(b.memories) == 0 {
		return nil
	}
	return b.memories[0]
}

// begin stores a new operation; one at a time for each instance.
func (m *memory) begin(instance string, create bool) (*operation, error) {
	for _, op := range m.operations[instance] {
		if op.state == inProgress {
			return nil, errBusy
		}
	}
	op := &operation{id: string(uuid.NewUUID()), create: create, state: inProgress}
	m.operations[instance] = append(m.operations[instance], op)
	return op, nil
}

// provisioned: the newest removal that succeeded ends the search.
func (m *memory) provisioned(instance string) bool {
	result := false
	for _, op := range slices.Backward(m.operations[instance]) {
		switch {
		case op.create && op.state == succeeded:
			result = true
		case !op.create && op.state == succeeded:
			return false
		}
	}
	return result
}

// deprovisioned: the newest operation is a removal that succeeded. What was removed before it was
// provisioned once more says nothing.
func (m *memory) deprovisioned(instance string) bool {
	all := m.operations[instance]
	return len(all) > 0 && !all[len(all)-1].create && all[len(all)-1].state == succeeded
}

func (m *memory) pending(instance string, create bool) *operation {
	for _, op := range m.operations[instance] {
		if op.create == create && op.state == inProgress {
			return op
		}
	}
	return nil
}

// finish sets the state of an operation, and that of its instance if it is still there.
func (m *memory) finish(instance string, op *operation, err error, success string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	op.state, op.description = succeeded, success
	if err != nil {
		op.state, op.description = failed, err.Error()
	}
	switch stored := m.instances[instance]; {
	case stored != nil && op.create:
		stored.state = op.state
	case stored != nil && stored.state == pendingDeletion && err == nil:
		delete(m.instances, instance)
	}
}

// another says whether an instance of the same service is there, or was when the broker started.
func (m *memory) another(instance, namespace string, is func(*storedInstance) bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.instances {
		if other.id != instance && other.namespace == namespace && is(other) {
			return true
		}
	}
	return false
}
