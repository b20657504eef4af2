package backend

import "time"

// How long the parts wait for each other. Each time is made of those that it has to be longer than;
// the times in the chart are compared with them by a test.
const (
	// SinkTimeout is how long a sink may take for an event of NATS.
	SinkTimeout = 30 * time.Second
	// tellTime is what NATS needs, at worst, to be told what a sink has answered.
	tellTime = 10 * time.Second
	// heldUp is how long a process that dies may hold up what it has in its hands.
	heldUp = 10 * time.Second
	// AckWait is how long NATS waits to be told of an event before it sends the event again: what a
	// process that dies has in its hands waits for so long, and is at its sink within heldUp.
	AckWait = heldUp - time.Second
	// ProgressAfter is how long an event is here until NATS is told that it is still being
	// delivered, and ProgressEvery how often from then on: when two messages are lost, the next one
	// still comes before AckWait is over.
	ProgressAfter = AckWait / 2
	ProgressEvery = AckWait / 5
	// KeepConsumers is how long the consumer of a Subscription that does not exist is kept, by
	// default: a backup may restore it.
	KeepConsumers = time.Hour
	// ControllerEnd is how long a controller that ends waits for the sinks that have an event.
	ControllerEnd = SinkTimeout + tellTime
	// ControllerGrace is how long the process may take in all.
	ControllerGrace = ControllerEnd + 5*time.Second
	// PodGrace is how long the pods of controller and publisher have before they are killed:
	// terminationGracePeriodSeconds of both.
	PodGrace = 75 * time.Second

	// MeshSinkTimeout is how long a sink may take for an event of the mesh, and MeshSlotTimeout how
	// long that event waits for one of the slots of its Subscription.
	MeshSinkTimeout = 10 * time.Second
	MeshSlotTimeout = MeshSinkTimeout / 2
	// MeshAnswer limits both together: an event that has waited for a slot leaves its sink less.
	MeshAnswer = MeshSinkTimeout + time.Second
	// MeshLetterTimeout is how long a dead letter sink has for an event of the mesh. It is asked
	// after the last try, once.
	MeshLetterTimeout = 3 * time.Second
	// MeshWait is how long Knative waits for the answer of the controller before it asks again,
	// MeshRetries times: delivery.timeout and delivery.retry of Trigger and Broker.
	MeshWait    = MeshAnswer + MeshLetterTimeout + time.Second
	MeshRetries = 2
	// MeshTimeout is how long the mesh has for an event that it was sent: all tries, the pauses
	// between them, and the dead letter sink (docs/decisions/1201-the-mesh.md).
	MeshTimeout = (MeshRetries+1)*MeshWait + 4*time.Second
	// MeshDelay is how long a controller that ends still accepts new events of the mesh, since some
	// nodes go on sending them; MeshEnd is how long it then answers those that it has: as long as
	// Knative waits for them, and the way back.
	MeshDelay = 3 * time.Second
	MeshEnd   = MeshWait + 3*time.Second
)
