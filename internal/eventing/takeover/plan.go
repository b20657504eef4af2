package takeover

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// state is the snapshot in few words.
func (s *snapshot) state() state {
	up := func(d *unstructured.Unstructured) bool {
		return d != nil && (replicasOf(d) > 0 || s.pods[d.GetName()] > 0)
	}
	is := state{
		Frozen:        s.policy != nil && s.binding != nil,
		TheirOperator: up(s.theirOperator), TheirPublisher: up(s.theirPublisher),
		OurOperator: up(s.ourOperator), OurController: up(s.ourController),
		Bridge:        up(s.bridge),
		ServiceIsOurs: s.serviceIsOurs(),
		TheirDrained:  s.theirs == nil && s.theirsErr == nil || s.theirs != nil && s.theirs.Drained(),
		OurDrained:    s.ours == nil && s.oursErr == nil || s.ours != nil && s.ours.Drained(),
	}
	if s.eventing != nil {
		is.TheirFinalizer = slices.Contains(s.eventing.GetFinalizers(), theirFinalizer)
		is.OurFinalizer = slices.Contains(s.eventing.GetFinalizers(), operatorv1alpha1.Finalizer)
	}
	is.OurReady = is.OurOperator && is.OurController && s.oursNotReady() == ""
	return is
}

// oursNotReady says what keeps ours from serving each Subscription, "" if nothing does.
func (s *snapshot) oursNotReady() string {
	for _, d := range []struct {
		what string
		is   *unstructured.Unstructured
	}{{"our operator", s.ourOperator}, {"our controller", s.ourController}, {"our publisher", s.ourPublisher}} {
		if !available(d.is) {
			return d.what + " is not available yet"
		}
	}
	return oursUnready(s.eventing, s.epoch, s.subscriptions)
}

// changesOf turns a step into changes.
func (s *snapshot) changesOf(n step) []migration.Change {
	switch n {
	case freeze:
		var all []migration.Change
		if s.policy == nil {
			all = append(all, create(policies.RefTo(policyOf()), policyOf()))
		}
		if s.binding == nil {
			all = append(all, create(bindings.RefTo(bindingOf()), bindingOf()))
		}
		return all
	case thaw:
		return present(drop(bindings, s.binding), drop(policies, s.policy))
	case stopTheirs:
		return []migration.Change{stop(s.theirOperator)}
	case startTheirs:
		return present(claim(s.eventing), []migration.Change{start(s.theirOperator)})
	case startOurs:
		return []migration.Change{start(s.ourOperator)}
	case holdOurs:
		var all []migration.Change
		for _, d := range []*unstructured.Unstructured{s.ourOperator, s.ourController} {
			if d != nil {
				all = append(all, stop(d))
			}
		}
		return all
	case closePublisher:
		return []migration.Change{guarded(stop(s.theirPublisher))}
	case openPublisher:
		return []migration.Change{guarded(start(s.theirPublisher))}
	case makeBridge:
		var all []migration.Change
		if s.networkRule == nil {
			all = append(all, create(networkRules.RefTo(s.networkRuleOf()), s.networkRuleOf()))
		}
		if s.bridge != nil { // somebody has stopped it
			return append(all, guarded(start(s.bridge)))
		}
		return append(all, guarded(create(deployments.RefTo(s.bridgeOf()), s.bridgeOf())))
	case leadToOurs:
		return []migration.Change{guarded(lead(s.service, ourSelector(s.names)))}
	case leadToTheirs:
		want := map[string]any{}
		for key, value := range podLabels(s.theirPublisher) {
			want[key] = value
		}
		return []migration.Change{guarded(lead(s.service, want))}
	case releaseTheirs:
		return []migration.Change{release(s.eventing, theirFinalizer)}
	case releaseOurs:
		return []migration.Change{release(s.eventing, operatorv1alpha1.Finalizer)}
	case removeBridge:
		bridge := drop(deployments, s.bridge)
		for i := range bridge {
			bridge[i] = guarded(bridge[i])
		}
		return present(bridge, drop(networkRules, s.networkRule))
	}
	return nil
}

func present(all ...[]migration.Change) (joined []migration.Change) {
	for _, changes := range all {
		joined = append(joined, changes...)
	}
	return joined
}

func guarded(ch migration.Change) migration.Change {
	ch.Guard = true
	return ch
}

func create(ref migration.Ref, obj *unstructured.Unstructured) migration.Change {
	return migration.Change{Verb: migration.Create, Ref: ref, Object: obj}
}

func drop(r migration.Resource, obj *unstructured.Unstructured) []migration.Change {
	if obj == nil {
		return nil
	}
	return []migration.Change{{Verb: migration.Delete, Ref: r.RefTo(obj), Object: obj, UID: obj.GetUID()}}
}

// expect is what the conditions of a change need to know.
type expect struct {
	// Down: no pod of the Deployment exists. Ours: ours is ready.
	Down, Up, Ours bool
	Namespace      string
	Prefix         string
}

// scale patches the replicas of a Deployment, and what it remembers.
func scale(d *unstructured.Unstructured, n int64, kept any) migration.Change {
	patch := map[string]any{"spec": map[string]any{"replicas": n}, "metadata": map[string]any{"annotations": map[string]any{ReplicasAnnotation: kept}}}
	return migration.Change{Verb: migration.Patch, Ref: deployments.RefTo(d), Object: d, UID: d.GetUID(), Patch: must(patch)}
}

// stop remembers the replicas in the same request. One that is at 0 already is waited for.
func stop(d *unstructured.Unstructured) migration.Change {
	n := replicasOf(d)
	if n == 0 {
		return migration.Change{Verb: migration.Await, Ref: deployments.RefTo(d), Expect: must(expect{Down: true})}
	}
	ch := scale(d, 0, strconv.FormatInt(n, 10))
	ch.Expect = must(expect{Down: true})
	return ch
}

// start gives back the replicas that a Deployment had.
func start(d *unstructured.Unstructured) migration.Change {
	if replicasOf(d) > 0 {
		return migration.Change{Verb: migration.Await, Ref: deployments.RefTo(d), Expect: must(expect{Up: true})}
	}
	ch := scale(d, keptReplicas(d), nil)
	ch.Expect = must(expect{Up: true})
	return ch
}

// release removes a finalizer of an operator that does not run, and leaves all others.
func release(eventing *unstructured.Unstructured, finalizer string) migration.Change {
	return migration.Change{Verb: migration.Patch, Ref: eventings.RefTo(eventing), Object: eventing, UID: eventing.GetUID(), Lists: migration.RemoveFinalizer(finalizer)}
}

// claim adds the finalizer of Kyma's operator before it starts: it would add it itself by an update
// that has none of the fields of the spec that only ours knows.
func claim(eventing *unstructured.Unstructured) []migration.Change {
	if eventing == nil || slices.Contains(eventing.GetFinalizers(), theirFinalizer) {
		return nil
	}
	return []migration.Change{{
		Verb: migration.Patch, Ref: eventings.RefTo(eventing), Object: eventing, UID: eventing.GetUID(),
		Lists: []migration.ListEdit{{Path: []string{"metadata", "finalizers"}, Add: []any{theirFinalizer}}},
	}}
}

// lead changes where a Service leads to.
func lead(service *unstructured.Unstructured, selector map[string]any) migration.Change {
	patch := map[string]any{"spec": map[string]any{"selector": merged(selectorOf(service), selector)}}
	return migration.Change{Verb: migration.Patch, Ref: services.RefTo(service), Object: service, UID: service.GetUID(), Patch: must(patch)}
}

// must encodes what is made of maps and numbers.
func must(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("cannot encode %T: %v", v, err))
	}
	return raw
}

// decide makes the plan of the next step. It is pure.
func decide(s *snapshot, o options) *migration.Plan {
	plan := &migration.Plan{Serial: true, Findings: findings(s, o)}
	for _, f := range plan.Findings {
		if f.Severity == migration.Error {
			return plan
		}
	}
	if s.theirsErr != nil {
		return plan
	}
	n := next(s.state(), o.to)
	if f := s.waits(n); f != nil {
		plan.Findings = append(plan.Findings, *f)
		return plan
	}
	changes := s.changesOf(n)
	for i := range changes {
		changes[i].Why = says[n][0]
		changes[i].Expect = s.expects(n, changes[i])
	}
	if len(changes) > 0 {
		// A step that is done stays: each leaves a state from which both ways go on.
		plan.Units = []migration.Unit{{ID: string(o.to) + "/" + string(n), Changes: changes, Commit: true}}
		if !plan.Units[0].Writes() {
			plan.Findings = append(plan.Findings, onlyWaits(n, changes[0].Ref))
		}
	}
	return plan
}

// onlyWaits keeps a step without a write from being the last one: for the engine, nothing is left
// when it is done.
func onlyWaits(n step, on migration.Ref) migration.Finding {
	return migration.Finding{
		ID: "step-only-waits", Severity: migration.Deferred, Object: on.String(), Problem: "this step only waits for it, and others follow: " + says[n][0],
		Note: "Go on.", Command: "kubectl eventing take-over run",
	}
}

// expects completes what the conditions of a change are told.
func (s *snapshot) expects(n step, ch migration.Change) json.RawMessage {
	var e expect
	if len(ch.Expect) > 0 {
		_ = json.Unmarshal(ch.Expect, &e) // made by this package
	}
	e.Namespace, e.Prefix = s.namespace, string(s.names)
	switch {
	case n == startOurs:
		e.Ours = true
	case ch.Ref.Resource == deployments && ch.Verb == migration.Create:
		e.Up = true
	}
	return must(e)
}
