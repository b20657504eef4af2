package takeover

// Direction is where the events are to be in the end.
type Direction string

// The directions.
const (
	Over Direction = "over" // from Kyma's eventing to ours
	Back Direction = "back" // from ours to Kyma's
)

// state is what decides which step is next. A part that is up has replicas, also if they are not
// ready yet: each step waits until what it started is.
type state struct {
	// Frozen: nobody can create or change a Subscription.
	Frozen bool
	// TheirOperator delivers their events. TheirPublisher takes events into their stream.
	TheirOperator, TheirPublisher bool
	// OurOperator and OurController are up. Controller alone delivers ours.
	OurOperator, OurController bool
	// OurReady: ours is up, and has a consumer for each Subscription.
	OurReady bool
	// Bridge: pods of our publisher are selected by their Service.
	Bridge bool
	// ServiceIsOurs: their Service leads to our publisher itself.
	ServiceIsOurs bool
	// TheirFinalizer and OurFinalizer are on the Eventing. Nobody would remove that of an operator
	// that does not run, and a deletion would hang.
	TheirFinalizer, OurFinalizer bool
	// TheirDrained and OurDrained: the stream holds no event that somebody waits for.
	TheirDrained, OurDrained bool
}

// step is one thing that is done, and waited for, before anything else.
type step string

// The steps. The first ones of a way end with nothing that has to be undone.
const (
	none            step = ""
	freeze          step = "freeze"
	stopTheirs      step = "stop-their-operator"
	startOurs       step = "start-ours"
	makeBridge      step = "make-bridge"
	holdOurs        step = "hold-ours"
	startTheirs     step = "start-their-operator"
	closePublisher  step = "close-their-publisher"
	openPublisher   step = "open-their-publisher"
	awaitTheirDrain step = "await-their-drain"
	awaitOurDrain   step = "await-our-drain"
	leadToOurs      step = "lead-to-ours"
	leadToTheirs    step = "lead-to-theirs"
	removeBridge    step = "remove-bridge"
	releaseTheirs   step = "release-from-theirs"
	releaseOurs     step = "release-from-ours"
	thaw            step = "thaw"
)

// next is the next step from a state, none at the end of the way. It depends on the state alone, so
// that a run that was killed goes on from whatever it has left.
func next(s state, to Direction) step {
	if to == Back {
		return nextBack(s)
	}
	return nextOver(s)
}

func nextOver(s state) step {
	switch drained := !s.TheirPublisher && s.TheirDrained; {
	case drained && s.TheirOperator:
		return stopTheirs
	case drained && !s.OurReady:
		return startOurs
	case drained && !s.ServiceIsOurs:
		return leadToOurs
	case drained && s.Bridge:
		return removeBridge
	case drained && s.TheirFinalizer:
		return releaseTheirs
	case drained && s.Frozen:
		return thaw
	case drained:
		return none
	case !s.Frozen:
		return freeze
	// Ours must be ready before it may accept, and must not run beside theirs.
	case !s.Bridge && s.TheirOperator:
		return stopTheirs
	case !s.Bridge && !s.OurReady:
		return startOurs
	case !s.Bridge:
		return makeBridge
	// From here on, ours accepts and holds, and theirs delivers what it has.
	case s.OurOperator || s.OurController:
		return holdOurs
	case !s.TheirOperator:
		return startTheirs
	case s.TheirPublisher:
		return closePublisher
	default:
		return awaitTheirDrain
	}
}

func nextBack(s state) step {
	theirs := s.TheirPublisher && !s.ServiceIsOurs // their publisher takes events
	switch {
	case !theirs && !s.Frozen:
		return freeze
	case !theirs && !s.Bridge:
		return makeBridge
	case !theirs && s.ServiceIsOurs:
		return leadToTheirs
	case !theirs && (s.OurOperator || s.OurController):
		return holdOurs
	case !theirs && !s.TheirOperator:
		return startTheirs
	case !theirs:
		return openPublisher
	case s.Bridge:
		return removeBridge
	// Only theirs accepts now. What ours has taken is delivered by ours.
	case !s.OurDrained && !s.Frozen:
		return freeze
	case !s.OurDrained && s.TheirOperator:
		return stopTheirs
	case !s.OurDrained && !s.OurReady:
		return startOurs
	case !s.OurDrained:
		return awaitOurDrain
	case s.OurOperator || s.OurController:
		return holdOurs
	case s.OurFinalizer:
		return releaseOurs
	case !s.TheirOperator:
		return startTheirs
	case s.Frozen:
		return thaw
	default:
		return none
	}
}

// after is the state that a step leads to when everything goes well, for a preview.
func after(s state, done step) state {
	switch done {
	case freeze:
		s.Frozen = true
	case thaw:
		s.Frozen = false
	case stopTheirs:
		s.TheirOperator = false
	case startTheirs:
		// Their operator writes its Service as it wants it, and its finalizer.
		s.TheirOperator, s.ServiceIsOurs, s.TheirFinalizer = true, false, true
	case startOurs:
		s.OurOperator, s.OurController, s.OurReady, s.OurFinalizer = true, true, true, true
	case holdOurs:
		s.OurOperator, s.OurController, s.OurReady = false, false, false
	case makeBridge:
		s.Bridge, s.OurDrained = true, false
	case removeBridge:
		s.Bridge = false
	case releaseTheirs:
		s.TheirFinalizer = false
	case releaseOurs:
		s.OurFinalizer = false
	case closePublisher:
		s.TheirPublisher, s.TheirDrained = false, false // it may have stored an event at the end
	case openPublisher:
		s.TheirPublisher, s.TheirDrained = true, false
	case awaitTheirDrain:
		s.TheirDrained = true
	case awaitOurDrain:
		s.OurDrained = true
	case leadToOurs:
		s.ServiceIsOurs = true
	case leadToTheirs:
		s.ServiceIsOurs = false
	}
	return s
}

// route are all steps that are left, in order.
func route(s state, to Direction) (all []step) {
	for {
		n := next(s, to)
		if n == none || len(all) > 30 { // a way has at most 20
			return all
		}
		all = append(all, n)
		s = after(s, n)
	}
}

// says is a step for people: what is done, and who accepts and delivers meanwhile.
var says = map[step][2]string{
	freeze:          {"refuse changes of Subscriptions", "everything goes on as before"},
	stopTheirs:      {"stop Kyma's operator", "its publisher accepts, and its NATS keeps what it accepts"},
	startOurs:       {"start our operator, and wait until ours is ready for each Subscription", "no event is delivered by both"},
	makeBridge:      {"let Kyma's Service lead to pods of our publisher, too", "both publishers accept"},
	holdOurs:        {"stop our operator and our controller", "our NATS keeps what our publisher accepts"},
	startTheirs:     {"start Kyma's operator again", "it delivers what its NATS holds"},
	closePublisher:  {"stop Kyma's publisher", "our publisher accepts, Kyma's operator delivers what Kyma accepted"},
	openPublisher:   {"start Kyma's publisher", "both publishers accept"},
	awaitTheirDrain: {"wait until Kyma's NATS holds no event", "Kyma's operator delivers the last events"},
	awaitOurDrain:   {"wait until our NATS holds no event", "our controller delivers the last events"},
	leadToOurs:      {"let Kyma's Service lead to our publisher", "the address of the Service stays"},
	leadToTheirs:    {"let Kyma's Service lead to the bridge", "the address of the Service stays"},
	removeBridge:    {"remove the pods of the bridge", "the other publisher accepts"},
	releaseTheirs:   {"remove the finalizer of Kyma's operator from the Eventing", "the Eventing can be deleted again later"},
	releaseOurs:     {"remove the finalizer of our operator from the Eventing", "the Eventing can be deleted again later"},
	thaw:            {"allow changes of Subscriptions again", "the way is at its end"},
}
