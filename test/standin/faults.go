package standin

import (
	"slices"
	"sync"
	"time"
)

// Fault is one way in which the controllers of a real cluster go wrong.
type Fault struct {
	kind  string
	delay time.Duration
}

func (f Fault) String() string {
	if f.delay == 0 {
		return f.kind
	}
	return f.kind + " " + f.delay.String()
}

var (
	// ChannelRefused lets every creation and update of a Channel fail, as when
	// the webhook of Knative Eventing is down. The status of the HTTPSource
	// stays what it was, Ready=True included.
	ChannelRefused = Fault{kind: "channel refused"}
	// ChannelNeverReady leaves the Channel with an address, but its backing
	// channel not ready. The HTTPSource asks for the address only and becomes
	// Ready.
	ChannelNeverReady = Fault{kind: "channel never ready"}
	// NoAddress leaves the Channel without an address: no adapter is made, and
	// the HTTPSource says SinkNotFound.
	NoAddress = Fault{kind: "no address"}
	// AdapterNeverReady lets the adapter's Knative Service fail with
	// RevisionFailed.
	AdapterNeverReady = Fault{kind: "adapter never ready"}
	// ControllerDown stops the HTTPSource controller; Knative goes on.
	ControllerDown = Fault{kind: "controller down"}
	// StatusLies makes an adapter without a Channel whose status denies it: the
	// HTTPSource says Ready=True and the adapter is ready, but the Channel is
	// gone and the controller, which would recreate it, is down. At no time
	// are HTTPSource, Channel and adapter ready together, unless they were so
	// before the fault.
	StatusLies = Fault{kind: "status lies"}
	// DeleteChannelOnce deletes the Channel the first time the HTTPSource is
	// Ready; the controller recreates it.
	DeleteChannelOnce = Fault{kind: "delete channel once"}
)

const (
	adapterNotReadyYet = "adapter not ready for"
	slow               = "slow"
)

// AdapterNotReadyFor keeps the adapter's Knative Service unready for d after
// the stand-in first sees it.
func AdapterNotReadyFor(d time.Duration) Fault { return Fault{kind: adapterNotReadyYet, delay: d} }

// Slow keeps the Channel without an address for d, and then the adapter unready
// for d.
func Slow(d time.Duration) Fault { return Fault{kind: slow, delay: d} }

// everyApplication is the name under which a fault for all is kept; no object
// has it.
const everyApplication = ""

// faults knows what is broken now.
type faults struct {
	mu     sync.Mutex
	active map[string]map[string]time.Duration // kind, Application
	// acted holds the Applications whose fault with a single effect (StatusLies,
	// DeleteChannelOnce) has had it.
	acted map[string]map[string]bool
}

func newFaults() *faults {
	return &faults{active: map[string]map[string]time.Duration{}, acted: map[string]map[string]bool{}}
}

func (f *faults) set(fault Fault, apps []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.active[fault.kind] == nil {
		f.active[fault.kind] = map[string]time.Duration{}
	}
	for _, app := range orEvery(apps) {
		f.active[fault.kind][app] = fault.delay
		f.forget(fault.kind, app)
	}
}

func (f *faults) unset(fault Fault, apps []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, app := range orEvery(apps) {
		if app == everyApplication {
			delete(f.active, fault.kind)
		} else {
			delete(f.active[fault.kind], app)
		}
		f.forget(fault.kind, app)
	}
}

// forget that the fault had its effect: switched on again, it has it again.
func (f *faults) forget(kind, app string) {
	if app == everyApplication {
		delete(f.acted, kind)
		return
	}
	delete(f.acted[kind], app)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.active)
	clear(f.acted)
}

// on says whether the fault is switched on for the Application, and its delay.
func (f *faults) on(kind, app string) (time.Duration, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apps := f.active[kind]
	if d, ok := apps[app]; ok {
		return d, true
	}
	d, ok := apps[everyApplication]
	return d, ok
}

func (f *faults) has(fault Fault, app string) bool {
	_, ok := f.on(fault.kind, app)
	return ok
}

func (f *faults) hasActed(fault Fault, app string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.acted[fault.kind][app]
}

func (f *faults) act(fault Fault, app string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.acted[fault.kind] == nil {
		f.acted[fault.kind] = map[string]bool{}
	}
	f.acted[fault.kind][app] = true
}

func orEvery(apps []string) []string {
	if len(apps) == 0 {
		return []string{everyApplication}
	}
	return apps
}

// Break switches a fault on for the Applications, for all of them if none is
// named. It takes effect on what exists, too.
func (c *Controllers) Break(fault Fault, apps ...string) {
	c.faults.set(fault, apps)
	c.lookAgain(apps)
}

// Heal switches a fault off for the Applications; without any, for all, those
// included that were named one by one.
func (c *Controllers) Heal(fault Fault, apps ...string) {
	c.faults.unset(fault, apps)
	c.lookAgain(apps)
}

// HealAll switches every fault off.
func (c *Controllers) HealAll() {
	c.faults.clear()
	c.lookAgain(nil)
}

// lookAgain reconciles the Applications (all, if none is named) although
// nothing about them has changed. The real controllers never do: they have no
// resync.
func (c *Controllers) lookAgain(apps []string) {
	keys := map[string]struct{}{}
	for _, s := range []*store{c.sources, c.channels, c.services} {
		for _, key := range s.informer.GetStore().ListKeys() {
			if _, name := splitKey(key); len(apps) == 0 || slices.Contains(apps, name) {
				keys[key] = struct{}{}
			}
		}
	}
	for key := range keys {
		c.queue.Add(key)
	}
}
