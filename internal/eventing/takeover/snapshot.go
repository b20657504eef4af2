package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/valid"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// reader is what is needed of a migration.Cluster.
type reader interface {
	Served(context.Context, schema.GroupKind) (migration.Resource, bool, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
	Each(context.Context, migration.Resource, string, migration.ListOptions, func(*unstructured.Unstructured) error) error
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
	TryCreate(context.Context, migration.Ref, *unstructured.Unstructured) error
}

// snapshot is everything that is decided over.
type snapshot struct {
	ownership
	namespace string
	names     backend.Names // ours; "" if ours is not installed

	// Objects are nil if they do not exist.
	theirOperator, theirPublisher                          *unstructured.Unstructured
	ourOperator, ourController, ourPublisher, bridge       *unstructured.Unstructured
	service, eventing, policy, binding, networkRule, epoch *unstructured.Unstructured
	theirServers, ourServers                               *unstructured.Unstructured // StatefulSets
	// pods that exist of each Deployment, by its name.
	pods map[string]int
	// oursIsServed: the definitions of the kinds are ours.
	oursIsServed  bool
	natsIsServed  bool                       // the kind of nats-manager
	nats          *unstructured.Unstructured // the object that makes it run Kyma's NATS
	subscriptions []*subscription
	services      map[string]bool // all of the cluster, as namespace/name
	eventings     []string        // others, as namespace/name
	claimed       []string        // our ServiceAccounts that the garbage collector deletes with an Eventing
	accountless   []string        // those that do not exist, so that no pod starts
	refused       error           // why the API server would not take their Eventing by our definition

	theirs, ours       *Backlog // nil: not read, or there is no NATS
	theirsErr, oursErr error
}

// subscription is one, and what is wrong with it for ours.
type subscription struct {
	*eventingv1alpha2.Subscription
	problems []string
}

func (s *subscription) key() string { return s.Namespace + "/" + s.Name }

// missingService is the Service of its sink as namespace/name, "" if it exists. Kyma's operator has
// no consumer for such a Subscription, or does not listen to it.
func (s *snapshot) missingService(sub *subscription) string {
	if name := valid.SinkService(sub.Subscription); name != "" && !s.services[sub.Namespace+"/"+name] {
		return sub.Namespace + "/" + name
	}
	return ""
}

// theirConsumers are the names of its consumers in Kyma's NATS.
func (s *subscription) theirConsumers() (names []string) {
	for _, t := range s.Spec.Types {
		names = append(names, theirConsumer(s.Namespace, s.Name, s.Spec.Source, t, s.Spec.TypeMatching == eventingv1alpha2.Exact))
	}
	return names
}

// observe reads all but the two streams.
func observe(ctx context.Context, c reader, namespace string) (*snapshot, error) {
	s := &snapshot{namespace: namespace, pods: map[string]int{}}
	for _, read := range []func(context.Context, reader) error{s.readWorkloads, s.readObjects, s.readModules, s.readDefinitions, s.readKinds, s.readSubscriptions} {
		if err := read(ctx, c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *snapshot) readWorkloads(ctx context.Context, c reader) error {
	all, err := c.List(ctx, deployments, s.namespace, migration.ListOptions{})
	if err != nil {
		return err
	}
	by := map[string]*unstructured.Unstructured{}
	for _, d := range all {
		if d.GetDeletionTimestamp() == nil {
			by[d.GetName()] = d
		}
		if prefix, ok := ourPrefix(d); ok {
			s.ourOperator, s.names = d, backend.Names(prefix)
		}
	}
	if d := by[theirOperator]; d != nil && d.GetLabels()[theirPlane] == theirOperator {
		s.theirOperator = d
	}
	s.theirPublisher = by[theirPublisher]
	if s.names != "" {
		s.ourController, s.ourPublisher, s.bridge = by[s.names.Controller()], by[s.names.Publisher()], by[bridgeName(s.names)]
	}
	sets, err := c.List(ctx, replicaSets, s.namespace, migration.ListOptions{Trim: trim})
	if err != nil {
		return err
	}
	running, err := c.List(ctx, pods, s.namespace, migration.ListOptions{Trim: trim})
	if err != nil {
		return err
	}
	s.pods = podsByDeployment(sets, running)
	return nil
}

// trim leaves out what takes most of the room.
func trim(obj *unstructured.Unstructured) {
	unstructured.RemoveNestedField(obj.Object, "spec")
	obj.SetManagedFields(nil)
}

// podsByDeployment counts the pods of each Deployment, by the names of owners.
func podsByDeployment(sets, running []*unstructured.Unstructured) map[string]int {
	of := map[string]string{} // Deployment by the name of its ReplicaSet
	for _, set := range sets {
		for _, o := range set.GetOwnerReferences() {
			if o.Kind == deployments.Kind {
				of[set.GetName()] = o.Name
			}
		}
	}
	count := map[string]int{}
	for _, pod := range running {
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Succeeded" || phase == "Failed" {
			continue
		}
		for _, o := range pod.GetOwnerReferences() {
			if o.Kind != replicaSets.Kind {
				continue
			}
			name, ok := of[o.Name]
			if !ok { // the ReplicaSet is gone already: its name has that of the Deployment
				name = o.Name[:max(0, strings.LastIndex(o.Name, "-"))]
			}
			count[name]++
		}
	}
	return count
}

// ourPrefix is the prefix of our operator, if the Deployment is one.
func ourPrefix(d *unstructured.Unstructured) (string, bool) {
	labels := d.GetLabels()
	if labels[nameLabel] != ourOperatorName || labels[componentLabel] != ourComponent || d.GetDeletionTimestamp() != nil {
		return "", false
	}
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		args, _, _ := unstructured.NestedStringSlice(container, "args")
		for _, arg := range args {
			if prefix, ok := strings.CutPrefix(arg, prefixFlag); ok {
				return prefix, true
			}
		}
	}
	return "", false
}

func (s *snapshot) readObjects(ctx context.Context, c reader) error {
	get := func(into **unstructured.Unstructured, r migration.Resource, namespace, name string) func() error {
		return func() (err error) {
			*into, err = c.Get(ctx, migration.Ref{Resource: r, Namespace: namespace, Name: name})
			return err
		}
	}
	reads := []func() error{
		get(&s.service, services, s.namespace, theirPublisher),
		get(&s.theirServers, statefulSets, s.namespace, theirNATS),
		get(&s.policy, policies, "", freezeName),
		get(&s.binding, bindings, "", freezeName),
	}
	if s.names != "" {
		reads = append(reads,
			get(&s.ourServers, statefulSets, s.namespace, s.names.NATS()),
			get(&s.networkRule, networkRules, s.namespace, bridgeName(s.names)),
			get(&s.epoch, configMaps, s.namespace, s.names.Backends()),
			func() error { return s.readAccounts(ctx, c) },
		)
	}
	for _, read := range reads {
		if err := read(); err != nil {
			return err
		}
	}
	return nil
}

// readAccounts finds our ServiceAccounts that an Eventing owns: who has applied ours over Kyma's
// objects of the same names has taken over their owner, and they go with it. Nobody recreates them.
func (s *snapshot) readAccounts(ctx context.Context, c reader) error {
	for _, name := range []string{s.ourOperator.GetName(), s.names.Publisher(), s.names.Controller()} {
		account, err := c.Get(ctx, migration.Ref{Resource: accounts, Namespace: s.namespace, Name: name})
		if err != nil {
			return err
		}
		switch {
		case account == nil:
			s.accountless = append(s.accountless, name)
		case slices.ContainsFunc(account.GetOwnerReferences(), isEventing):
			s.claimed = append(s.claimed, name)
		}
	}
	return nil
}

// readKinds reads what the whole cluster shares.
func (s *snapshot) readKinds(ctx context.Context, c reader) error {
	if err := s.readNATS(ctx, c); err != nil {
		return err
	}
	_, served, err := c.Served(ctx, eventings.GroupKind())
	if err != nil || !served {
		return err
	}
	err = c.Each(ctx, eventings, "", migration.ListOptions{}, func(obj *unstructured.Unstructured) error {
		switch key := obj.GetNamespace() + "/" + obj.GetName(); {
		case key == s.namespace+"/"+theirName:
			s.eventing = obj
		case !slices.Contains(s.eventings, key):
			s.eventings = append(s.eventings, key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.eventing != nil && s.oursIsServed {
		s.refused = c.TryCreate(ctx, migration.Ref{Resource: eventings, Namespace: s.namespace, Name: theirName}, s.eventing)
	}
	return nil
}

// readNATS reads the object of nats-manager. Kyma's operator takes any one of the namespace.
func (s *snapshot) readNATS(ctx context.Context, c reader) error {
	r, served, err := c.Served(ctx, natsKind)
	if s.natsIsServed = served; err != nil || !served {
		return err
	}
	all, err := c.List(ctx, r, s.namespace, migration.ListOptions{})
	for _, obj := range all {
		if s.nats == nil || obj.GetName() == theirNATS {
			s.nats = obj
		}
	}
	return err
}

// hasBackends tells our definition of Subscription from Kyma's, and from that of Eventing.
func hasBackends(crd *unstructured.Unstructured) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return slices.ContainsFunc(versions, func(v any) bool {
		version, _ := v.(map[string]any)
		_, has, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status", "properties", "backends")
		return has
	})
}

func (s *snapshot) readSubscriptions(ctx context.Context, c reader) error {
	_, served, err := c.Served(ctx, subscriptions.GroupKind())
	if err != nil || !served {
		return err
	}
	all, err := c.List(ctx, subscriptions, "", migration.ListOptions{})
	if err != nil {
		return err
	}
	for _, obj := range all {
		is, err := subscriptionOf(obj)
		if err != nil {
			return err
		}
		is.problems = valid.Problems(is.Subscription)
		s.subscriptions = append(s.subscriptions, is)
	}
	slices.SortFunc(s.subscriptions, func(a, b *subscription) int { return strings.Compare(a.key(), b.key()) })
	s.services = map[string]bool{}
	return c.Each(ctx, services, "", migration.ListOptions{Trim: trim}, func(obj *unstructured.Unstructured) error {
		s.services[obj.GetNamespace()+"/"+obj.GetName()] = true
		return nil
	})
}

func subscriptionOf(obj *unstructured.Unstructured) (*subscription, error) {
	is := &eventingv1alpha2.Subscription{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, is); err != nil {
		return nil, fmt.Errorf("cannot read Subscription %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return &subscription{Subscription: is}, nil
}

// readStreams asks the servers of both. A NATS that does not exist holds nothing.
func (s *snapshot) readStreams(ctx context.Context, get Get) {
	look := func(servers *unstructured.Unstructured) (*Backlog, error) {
		if servers == nil {
			return nil, nil
		}
		b, n := &Backlog{}, replicasOf(servers)
		for i := range n {
			pod := fmt.Sprintf("%s-%d", servers.GetName(), i)
			answer, err := get(ctx, s.namespace, pod, monitorPort, jszPath)
			if err == nil {
				err = b.add(answer, theirStream) // ours has the same name
			}
			if err != nil {
				return nil, fmt.Errorf("cannot read what NATS holds in Pod %s/%s: %w", s.namespace, pod, err)
			}
		}
		if n == 0 {
			return nil, errors.New("StatefulSet " + servers.GetName() + " has no replicas")
		}
		return b, nil
	}
	s.theirs, s.theirsErr = look(s.theirServers)
	s.ours, s.oursErr = look(s.ourServers)
}
