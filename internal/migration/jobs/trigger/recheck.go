package trigger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/eventbus"
	"github.com/kyma-project/eventmesh-migration/internal/migration/jobs/trigger/route"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Recheck implements migration.Rechecker: whether all that a deletion was decided on
// still holds. Between the plan and the deletion lie the wait for the Trigger, and
// maybe a kill and an upgrade that was reverted.
func (j *Job) Recheck(ctx context.Context, f migration.Fresh, u *migration.Unit, i int) (*migration.Finding, error) {
	k, err := servedKinds(ctx, f)
	if err != nil {
		return nil, err
	}
	r := &recheck{job: j, fresh: f, kinds: k, options: j.options}
	subject := subjectOf(u, i)
	var why reason
	switch {
	case subject.Ref == eventbus.ControllerRef:
		return r.restoration(ctx, subject)
	case subject.Ref.GVK().GroupKind() == kyma.Channel:
		why, err = r.channel(ctx, subject)
	case subject.Ref.GVK().GroupKind() == kyma.Subscription:
		why, err = r.subscription(ctx, u, i, subject)
	default:
		// Of a plan of another version of this job.
		why = because("this version does not know why it was to be deleted", again)
	}
	if err != nil || why.holds() {
		return nil, err
	}
	return &migration.Finding{ID: cmp.Or(why.id, "changed-meanwhile"), Severity: migration.Deferred, Object: subject.Ref.String(), Problem: "not deleted: " + why.problem, Note: why.advice.Note, Command: why.advice.Command}, nil
}

// subjectOf is the change that a guard is about: of those that belong to the guarded
// one, the deletion of the Kyma Subscription, or else the last.
func subjectOf(u *migration.Unit, i int) *migration.Change {
	last := i
	for n := i; n < len(u.Changes) && (n == i || !u.Changes[n].Guard); n++ {
		last = n
		if ch := &u.Changes[n]; ch.Verb == migration.Delete && ch.Ref.GVK().GroupKind() == kyma.Subscription {
			return ch
		}
	}
	return &u.Changes[last]
}

// recheck is one answer. Its reads are shared with those of other units.
type recheck struct {
	job     *Job
	fresh   migration.Fresh
	kinds   kinds
	options options
}

const runJob = "eventmesh-migrate run --job=trigger-sync"

var (
	again    = migration.Advice{Note: "Run the job again. It makes a new plan.", Command: runJob}
	takePart = migration.Advice{Note: "Remove the label to take it into the migration.", Command: runJob}
)

// restoration says whether the controller is still as this job left it. If not,
// somebody has decided, and there is nothing to restore.
func (r *recheck) restoration(ctx context.Context, ch *migration.Change) (*migration.Finding, error) {
	c, err := r.controller(ctx)
	if err != nil || c.Replicas() == 0 && c.Former() > 0 {
		return nil, err
	}
	return &migration.Finding{
		ID: "replicas-not-restored", Severity: migration.Warning, Object: ch.Ref.String(),
		Problem: fmt.Sprintf("its replicas are not restored: somebody scaled it meanwhile, to %d", c.Replicas()),
		Note:    "Check that this is right.",
		Command: migration.Kubectl(ch.Ref.Namespace, "get", "deployment", ch.Ref.Name),
	}, nil
}

// channel says whether nobody subscribes to a Channel of the Event Bus.
func (r *recheck) channel(ctx context.Context, ch *migration.Change) (reason, error) {
	subscribers, err := migration.Shared(ctx, r.fresh, "subscribers", func(ctx context.Context, _ *migration.Cluster) (map[string]*unstructured.Unstructured, error) {
		links, err := r.fresh.Watched(ctx, r.kinds.link.Resource, ch.Ref.Namespace)
		byChannel := make(map[string]*unstructured.Unstructured, len(links))
		for _, link := range links {
			byChannel[eventbus.SubscribesTo(link)] = link
		}
		return byChannel, err
	})
	if err != nil {
		return reason{}, err
	}
	if link := subscribers[ch.Ref.Name]; link != nil {
		return because(fmt.Sprintf("%s subscribes to it", r.kinds.link.RefTo(link)), again), nil
	}
	c, err := r.controller(ctx)
	if err != nil {
		return reason{}, err
	}
	return interferes(c), nil
}

// subscription says whether a Kyma Subscription may go now. What has to be waited for comes
// before what is read, so that nothing gets old meanwhile.
func (r *recheck) subscription(ctx context.Context, u *migration.Unit, i int, ch *migration.Change) (reason, error) {
	if err := r.watch(ctx, ch); err != nil {
		return reason{}, err
	}
	live, err := r.fresh.WatchedOne(ctx, ch.Ref)
	if err != nil {
		return reason{}, err
	}
	sub, why := unchanged(ch, live)
	if !why.holds() {
		return why, nil
	}
	wants, obstacle := route.DeliveryOf(sub)
	if obstacle != nil {
		return because(obstacle.Problem, migration.Advice{Note: obstacle.Note, Command: obstacle.Command}), nil
	}
	if r.options.legacyTraffic != ignore {
		if _, err := r.traffic(ctx, sub, wants); err != nil {
			return reason{}, err
		}
	}
	s, err := r.snapshot(ctx)
	if err != nil {
		return reason{}, err
	}
	if s.namespaces[ch.Ref.Namespace].optedOut {
		return because(fmt.Sprintf("its namespace carries the label %s=true", kyma.OptOutLabel), takePart), nil
	}
	ref := r.kinds.broker.Ref(ch.Ref.Namespace, kyma.DefaultBroker)
	broker, err := r.fresh.WatchedOne(ctx, ref)
	if err != nil {
		return reason{}, err
	}
	if why := present(ref, broker, r.kinds.broker); !why.holds() {
		return why, nil
	}
	own := *s // what is shared stays as it is
	own.brokers = map[string]*unstructured.Unstructured{ch.Ref.Namespace: broker}
	s = &own
	if why := s.meshTakes(pair{wants.Source, ch.Ref.Namespace}, r.options); !why.holds() {
		return why, nil
	}
	if why, err := r.trigger(ctx, s, u, ch.Ref.Namespace, route.TermsOf(wants, s.isNamespace)); err != nil || !why.holds() {
		return why, err
	}
	c, err := r.controller(ctx)
	if err != nil {
		return reason{}, err
	}
	if why := fits(c, ch, &u.Changes[i] != ch || handled(u, i), time.Now()); !why.holds() {
		return why, nil
	}
	if c.Replicas() == 0 {
		if why, err := r.alone(ctx, u, i, ch); err != nil || !why.holds() {
			return why, err
		}
	}
	if r.options.legacyTraffic == ignore {
		return reason{}, nil
	}
	if why, err := r.switched(ctx, s, wants.Source); err != nil || !why.holds() {
		return why, err
	}
	return r.traffic(ctx, sub, wants)
}

// watch begins all watches that the answer about a Subscription needs, at once. The first unit
// would otherwise list one kind after the other, and all units behind it would wait for that. What
// they show now is no part of the answer.
func (r *recheck) watch(ctx context.Context, ch *migration.Change) error {
	g, ctx := errgroup.WithContext(ctx)
	refs := []migration.Ref{ch.Ref, r.kinds.broker.Ref(ch.Ref.Namespace, kyma.DefaultBroker)}
	if r.kinds.link.Served {
		refs = append(refs, r.kinds.link.Ref(kyma.SystemNamespace, ""), r.kinds.link.Ref(r.options.integrationNamespace, ""))
	}
	for _, ref := range refs {
		g.Go(func() error {
			_, err := r.fresh.WatchedOne(ctx, ref)
			return err
		})
	}
	for _, of := range []migration.Resource{deployments, replicaSets, pods} {
		g.Go(func() error {
			_, err := r.fresh.Watched(ctx, of, eventbus.ControllerRef.Namespace)
			return err
		})
	}
	return g.Wait()
}

// handled says whether the unit does what the subscription-controller would have
// done: it waits for the controller to stop.
func handled(u *migration.Unit, i int) bool {
	return i > 0 && u.Changes[i-1].Ref == eventbus.ControllerRef
}

// alone says whether a unit does all that is to be done for a Subscription without the
// subscription-controller. That ran until the unit waited for its end, and may have
// begun to serve a Subscription that it did not know when the plan was made. Nobody
// would then remove the finalizer, or delete the Knative Subscription.
func (r *recheck) alone(ctx context.Context, u *migration.Unit, i int, ch *migration.Change) (reason, error) {
	link := r.kinds.link.Ref(kyma.SystemNamespace, kyma.LegacySubscriptionName(ch.Ref.Namespace, ch.Ref.Name))
	released, unlinked := false, !r.kinds.link.Served
	for n := range u.Changes {
		change := &u.Changes[n]
		released = released || change.Verb == migration.Patch && change.Ref == ch.Ref
		unlinked = unlinked || change.Ref == link
	}
	// What the unit does not know of a Subscription is rare, and must be known exactly:
	// a watch may be behind what the controller wrote last.
	get := r.fresh.WatchedOne
	if handled(u, i) {
		get = func(ctx context.Context, ref migration.Ref) (*unstructured.Unstructured, error) {
			return migration.Shared(ctx, r.fresh, ref.String()+" alone", func(ctx context.Context, c *migration.Cluster) (*unstructured.Unstructured, error) {
				return c.Get(ctx, ref)
			})
		}
	}
	why := because(fmt.Sprintf("%s began to serve it after the plan was made, and does not run any more", eventbus.ControllerRef), again)
	if !released {
		live, err := get(ctx, ch.Ref)
		if err != nil || live != nil && slices.Contains(live.GetFinalizers(), kyma.SubscriptionFinalizer) {
			return why, err
		}
	}
	if !unlinked {
		live, err := get(ctx, link)
		if err != nil || live != nil {
			return why, err
		}
	}
	return reason{}, nil
}

// unchanged says whether a Subscription is the one that was decided about, and
// returns it. One that is gone is taken as it was: what belongs to it may be left.
func unchanged(ch *migration.Change, live *unstructured.Unstructured) (*unstructured.Unstructured, reason) {
	was := ch.Object
	switch {
	case was == nil && live == nil:
		return nil, because("it does not exist any more", again)
	case was == nil:
		return nil, because("what it was when its deletion was decided is not known", again)
	case live == nil:
		return was, reason{}
	case live.GetUID() != was.GetUID():
		return nil, because("it was deleted and created again meanwhile", again)
	case !equality.Semantic.DeepEqual(live.Object["spec"], was.Object["spec"]):
		return nil, because("its spec was changed meanwhile", again)
	case kyma.OptedOut(live):
		return nil, because(fmt.Sprintf("it carries the label %s=true", kyma.OptOutLabel), takePart)
	}
	return live, reason{}
}

// present says whether an object exists and is ready.
func present(ref migration.Ref, obj *unstructured.Unstructured, k migration.Kind) reason {
	if obj == nil {
		return because(fmt.Sprintf("%s does not exist any more", ref), again)
	}
	if why := unready(ref, obj); why != "" {
		return because(why, migration.Advice{Note: "Wait until it is ready, and run the job again.", Command: k.Describe(ref.Namespace, ref.Name)})
	}
	return reason{}
}

// fits says whether a deletion is right for who cleans up after it. byHand: the unit
// does, instead of the controller.
func fits(c eventbus.Controller, ch *migration.Change, byHand bool, now time.Time) reason {
	held := ch.Object != nil && slices.Contains(ch.Object.GetFinalizers(), kyma.SubscriptionFinalizer)
	switch {
	case byHand:
		return interferes(c)
	case !held && c.Replicas() == 0:
		return reason{} // the controller never knew it
	case c.Replicas() == 0:
		return because(fmt.Sprintf("%s, which is to clean up after it, was scaled to 0 or deleted meanwhile", eventbus.ControllerRef), again)
	}
	if why := c.Problem(now); why != "" {
		return because(
			fmt.Sprintf("%s, which is to clean up after it, does not run any more: %s", eventbus.ControllerRef, why),
			migration.Advice{Note: "Repair it, and run the job again. Its log says why it ended.", Command: eventbus.PreviousLog()},
		)
	}
	return reason{}
}

// interferes says whether the controller may do the same as this job at the same
// time.
func interferes(c eventbus.Controller) reason {
	if c.Stopped() {
		return reason{}
	}
	return because(fmt.Sprintf("%s runs, or was started meanwhile, and would do the same at the same time", eventbus.ControllerRef), again)
}

// controller is the subscription-controller as watches show it now.
func (r *recheck) controller(ctx context.Context) (eventbus.Controller, error) {
	deployment, err := r.fresh.WatchedOne(ctx, eventbus.ControllerRef)
	if err != nil {
		return eventbus.Controller{}, err
	}
	sets, err := r.fresh.Watched(ctx, replicaSets, eventbus.ControllerRef.Namespace)
	if err != nil {
		return eventbus.Controller{}, err
	}
	running, err := r.fresh.Watched(ctx, pods, eventbus.ControllerRef.Namespace)
	return eventbus.NewController(deployment, sets, running), err
}

// snapshot is what the mesh does with the events of all Applications. It is shared,
// and nothing may change it.
func (r *recheck) snapshot(ctx context.Context) (*snapshot, error) {
	return migration.Shared(ctx, r.fresh, "mesh", func(ctx context.Context, c *migration.Cluster) (*snapshot, error) {
		s := &snapshot{
			kinds: r.kinds, namespaces: map[string]namespace{}, applications: map[string]application{},
			sources: map[string]*unstructured.Unstructured{}, links: map[pair][]*unstructured.Unstructured{},
		}
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error { return s.observeMesh(gctx, c, r.options) })
		g.Go(func() error {
			return c.Each(gctx, namespaces, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
				s.addNamespace(obj, func(string) bool { return false }) // the plan has left out what it must
				return nil
			})
		})
		if r.kinds.httpSource.Served {
			g.Go(func() error {
				return c.Each(gctx, r.kinds.httpSource.Resource, r.options.integrationNamespace, migration.ListOptions{Trim: trimReady}, func(obj *unstructured.Unstructured) error {
					s.addSource(obj)
					return nil
				})
			})
		}
		g.Go(func() error {
			links, err := r.fresh.Watched(gctx, r.kinds.link.Resource, r.options.integrationNamespace)
			for _, obj := range links {
				s.addLink(obj)
			}
			return err
		})
		return s, g.Wait()
	})
}

// switched says whether everything posts the events of a source to the mesh.
func (r *recheck) switched(ctx context.Context, s *snapshot, source string) (reason, error) {
	if s.mesh.eventServices[source] == nil {
		// Whether there ever was one: Applications are large, and few are asked for.
		applications, err := migration.Shared(ctx, r.fresh, "applications", func(ctx context.Context, c *migration.Cluster) (map[string]application, error) {
			all := map[string]application{}
			if !r.kinds.application.Served {
				return all, nil
			}
			return all, c.Each(ctx, r.kinds.application.Resource, "", migration.ListOptions{PageSize: migration.LargePage}, func(obj *unstructured.Unstructured) error {
				all[obj.GetName()] = application{withoutEventService: kyma.SkipsInstallation(obj) && !kyma.Installed(obj)}
				return nil
			})
		})
		if err != nil {
			return reason{}, err
		}
		own := *s
		own.applications = applications
		s = &own
	}
	return s.switched(source, r.options), nil
}

// trigger says whether a Trigger brings events of these terms to the subscriber:
// that of the unit, or else any.
func (r *recheck) trigger(ctx context.Context, s *snapshot, u *migration.Unit, namespace string, t route.Terms) (reason, error) {
	for n := range u.Changes {
		ref := u.Changes[n].Ref
		if ref.GVK().GroupKind() != knative.Trigger {
			continue
		}
		obj, err := r.fresh.WatchedOne(ctx, ref)
		if err != nil {
			return reason{}, err
		}
		if why := present(ref, obj, r.kinds.trigger); !why.holds() {
			return why, nil
		}
		if selected, ours := route.SelectionOf(obj, s.isNamespace); !ours || selected.Compare(t) != route.Same {
			return because(fmt.Sprintf("%s does not bring these events to the same address any more", ref), again), nil
		}
		return reason{}, nil
	}
	type key struct {
		route.Terms
		namespace string
	}
	all, err := migration.Shared(ctx, r.fresh, "triggers", func(ctx context.Context, _ *migration.Cluster) (map[key]reason, error) {
		index := map[key]reason{}
		err := r.fresh.WatchedEach(ctx, r.kinds.trigger.Resource, "", func(obj *unstructured.Unstructured) {
			selected, ours := route.SelectionOf(obj, s.isNamespace)
			if !ours || selected.Opaque {
				return
			}
			k := key{selected.Terms, route.Share(obj.GetNamespace())}
			if why, known := index[k]; !known || !why.holds() {
				index[k] = present(r.kinds.trigger.RefTo(obj), obj, r.kinds.trigger)
			}
		})
		return index, err
	})
	if err != nil {
		return reason{}, err
	}
	if why, known := all[key{t, namespace}]; known {
		return why, nil
	}
	return because("no Trigger brings the same events to the same address any more", again), nil
}

// traffic says whether nothing is in flight for a Subscription, and nobody
// publishes for it.
func (r *recheck) traffic(ctx context.Context, sub *unstructured.Unstructured, wants route.Delivery) (reason, error) {
	if !r.kinds.link.Served {
		return reason{}, nil
	}
	link, err := r.fresh.WatchedOne(ctx, r.kinds.link.Ref(kyma.SystemNamespace, kyma.LegacySubscriptionName(sub.GetNamespace(), sub.GetName())))
	if err != nil || link == nil {
		return reason{}, err // without it, nothing is delivered
	}
	channel := eventbus.ChannelOf(link)
	now, err := migration.Shared(ctx, r.fresh, "nats", func(ctx context.Context, c *migration.Cluster) (eventbus.InFlight, error) {
		return eventbus.ReadInFlight(ctx, r.job.monitor(c)), nil
	})
	if err != nil {
		return reason{}, err
	}
	n, unknown := now.Of(channel, kyma.NATSDurable(link.GetUID()))
	if why := undelivered(n, unknown, wants.Endpoint); !why.holds() || r.options.observePublishers == 0 {
		return why, nil
	}
	first := r.job.looks.First(channel, now)
	if wait := first.At.Add(r.options.observePublishers).Sub(now.At); wait > 0 {
		return reason{}, &migration.AskLaterError{After: wait - time.Since(now.At)}
	}
	return published(first, eventbus.Look{Sequence: now.Channels[channel].LastSequence, At: now.At}, wants), nil
}

// drop is the way out for what may lose its events.
const drop = "To delete it now and drop them, add --trigger-sync.legacy-traffic=" + ignore + "."

var mayReadNATS = migration.Advice{
	Note:    "Grant this account get on pods/proxy in namespace " + kyma.NATSNamespace + ", or give --trigger-sync.nats-monitoring-url. " + drop + " To check the permission:",
	Command: migration.Kubectl(kyma.NATSNamespace, "auth", "can-i", "get", "pods", "--subresource=proxy"),
}

// undelivered is the reason why events that are in flight, or may be, keep a
// Subscription.
func undelivered(n uint64, unknown, endpoint string) reason {
	switch {
	case unknown != "":
		return because(
			"it is unknown what is in flight for it: "+unknown,
			mayReadNATS,
		)
	case n > 0:
		return because(
			fmt.Sprintf("%s in flight to %s", messages(n, ""), redact.URL(endpoint)),
			migration.Advice{Note: "Run the job again. It waits for them. " + drop, Command: runJob},
		)
	}
	return reason{}
}

// published says whether events came to a channel between two looks, although the
// source has switched. There is one channel for each kind of event.
func published(first, second eventbus.Look, wants route.Delivery) reason {
	switch {
	case second.Sequence < first.Sequence:
		return because(
			fmt.Sprintf("NATS Streaming counts fewer events of %s %s than before: whether somebody still publishes them is unknown", wants.EventType, wants.Version),
			migration.Advice{Note: "It has lost its store, or another server answers. Run the job again.", Command: runJob},
		)
	case second.Sequence > first.Sequence:
		return because(
			fmt.Sprintf("somebody still publishes %s to event-publish-service as %s: %s of %s %s within %s", wants.EventType, wants.Source,
				messages(second.Sequence-first.Sequence, ""), wants.EventType, wants.Version, round(second.At.Sub(first.At).Round(time.Second))),
			migration.Advice{
				Note: fmt.Sprintf("Find the client that posts to event-publish-service.%s with source-id %s. Let it post to the event-service of the Application. Then run the job again. "+drop,
					kyma.SystemNamespace, wants.Source),
				Command: runJob,
			},
		)
	}
	return reason{}
}
