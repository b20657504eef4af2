package decide

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/drift"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/identity"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// scene is a world that a test changes, and that follows the actions of decisions as a cluster
// does.
type scene struct {
	t *testing.T
	d *Rules
	w *observed.World
	// channels is the kind of the Channels of Brokers; with none, no Broker becomes ready.
	channels string
	// epochs counts those that were begun.
	epochs int
	// slow: the controller makes no Subscription ready.
	slow bool
	// allReady is what the controller says of all Subscriptions at once.
	allReady backend.Versions
	// refuses is what the controller says of a mesh that refuses each event.
	refuses string
	// silent: the controller does nothing.
	silent bool
	// created counts objects and streams, so that each one has a UID or a time of its own.
	created int
	// made are Subscriptions with backends that deliver to them; promised are those that were ready
	// once. Random schedules have them.
	made, promised map[string]bool
	// members are the backends between which the scene switches.
	members members
	// lost says what was removed with an event in it; "" if nothing was.
	lost string
	// paused is what an operator has decided that was stopped before it acted; nil if there is
	// none.
	paused *Decision
}

func newScene(t *testing.T) *scene {
	t.Helper()
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	return &scene{t: t, channels: synchronous, members: thePair, d: &Rules{
		Identities: identity.Identities{Names: "eventing", Namespace: "kyma-system"}, Chart: rememberedChart(t), Version: "1.2.3", NATSImage: "nats-server:1", PublisherImage: "eventing-publisher-proxy:1", ControllerImage: "eventing-controller:1", NATSURL: "tls://eventing-nats.kyma-system.svc:4222",
		DependencyTimeout: 5 * time.Minute, BackendTimeout: 10 * time.Minute, DrainDelay: 6 * time.Second, DrainWatch: 15 * time.Second, MeshDelay: 5 * time.Minute,
	}, w: &observed.World{
		Now: now, NewEpoch: "e1", Ours: map[observed.Key]*unstructured.Unstructured{},
		Eventing: &operatorv1alpha1.Eventing{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "eventing", Generation: 1, Finalizers: []string{operatorv1alpha1.Finalizer}},
			Spec: operatorv1alpha1.EventingSpec{
				Publisher:  operatorv1alpha1.Publisher{Replicas: operatorv1alpha1.Replicas{Min: 2, Max: 2}},
				Controller: operatorv1alpha1.Controller{Replicas: 2}, Logging: operatorv1alpha1.Logging{LogLevel: "Info"}, Backend: &operatorv1alpha1.Backend{Type: "nats", Config: operatorv1alpha1.BackendConfig{
					NATSStreamStorageType: operatorv1alpha1.StorageFile, NATSStreamReplicas: 1, NATSStreamMaxSize: resource.MustParse("700Mi"), NATSMaxMsgsPerTopic: 1000,
					NATSStorage: operatorv1alpha1.Storage{Size: resource.MustParse("1Gi"), Retention: operatorv1alpha1.RetentionRetain},
				}}},
		},
	}}
}

// play decides and follows, until there is nothing to do. It returns the actions.
func (s *scene) play() (all []string, last *Decision) {
	s.t.Helper()
	for range 50 {
		last = s.d.Decide(s.w)
		if len(last.Actions) == 0 {
			return all, last
		}
		for _, a := range last.Actions {
			all = append(all, a.String())
			s.follow(a)
			s.controller()
		}
	}
	s.t.Fatalf("it never ends: %v", all)
	return nil, nil
}

func (s *scene) follow(a Action) {
	s.t.Helper()
	switch a := a.(type) {
	case Finalize:
		s.w.Eventing.Finalizers = append(s.w.Eventing.Finalizers, operatorv1alpha1.Finalizer)
	case Release:
		s.w.Eventing.Finalizers = nil
	case Credentials:
		s.credentials(a.Name)
	case Create:
		s.created++
		a.Object.SetUID(types.UID(fmt.Sprint(s.created)))
		s.w.Ours[observed.KeyOf(a.Object)] = a.Object
		switch a.Object.GetKind() {
		case "Deployment":
			s.rollOut(a.Object)
		case "ConfigMap":
			if key := (memory{}).record(s.d.Names); a.Object.GetName() == key.Name {
				s.write(key, memoryState, "ready")
			}
		case "Broker":
			if s.channels == "" { // nobody serves Brokers
				break
			}
			s.set("Broker", "eventing", []any{map[string]any{"type": "Ready", "status": "True"}}, "status", "conditions")
			s.set("Broker", "eventing", "http://broker", "status", "address", "url")
			s.set("Broker", "eventing", s.channels, "status", "annotations", kindAnnotation)
		}
		if a.Object.GetKind() == "StatefulSet" && len(s.w.Claims) == 0 { // volumes stay
			s.w.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0", Annotations: map[string]string{backend.ServersAnnotation: "1"}}}}
		}
	case Apply:
		key := observed.KeyOf(a.Object)
		a.Object.Object = drift.Overlay(s.w.Ours[key].Object, a.Object.Object)
		s.w.Ours[key] = a.Object
		if observed.SendsTo(a.Object) != observed.SendsTo(a.Observed) {
			s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, a.Object.GetName()) })
			s.rollOut(a.Object)
		}
	case Patch:
		s.patch(a)
	case Remove:
		delete(s.w.Ours, observed.KeyOf(a.Observed))
		switch a.Observed.GetKind() {
		case "ConfigMap":
			if observed.Data(a.Observed)[memoryHolds] != "" && observed.Data(a.Observed)[memoryHolds] != "0" {
				s.lost = "Memory was removed with an event"
			}
		case "StatefulSet":
			s.w.NATS = observed.NATS{}
		case "Deployment":
			s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return strings.HasPrefix(p.Name, a.Observed.GetName()) })
		case "Pod":
			s.w.Pods = slices.DeleteFunc(s.w.Pods, func(p corev1.Pod) bool { return p.Name == a.Observed.GetName() })
		case "PersistentVolumeClaim":
			s.w.Claims = nil
		}
	case Orphan:
		delete(s.w.Ours, observed.KeyOf(a.Observed))
	case CreateStream:
		s.created++
		if a.Config.Name == backend.DeadLetters {
			s.w.NATS.DeadLetters = &jetstream.StreamInfo{Config: a.Config, Created: s.w.Now.Add(time.Duration(s.created))}
			return
		}
		s.w.NATS.Stream = &jetstream.StreamInfo{Config: a.Config, Created: s.w.Now.Add(time.Duration(s.created))}
	case DeleteStream:
		if s.w.NATS.Stream != nil && s.w.NATS.Stream.State.Msgs > 0 {
			s.lost = "the stream was deleted with an event"
		}
		s.w.NATS.Stream = nil
	case Abandon:
		for i := range s.w.Subscriptions {
			s.w.Subscriptions[i].Finalizer = false
		}
	case UpdateStream:
		if a.Config.Name == backend.DeadLetters {
			s.w.NATS.DeadLetters = &jetstream.StreamInfo{Config: a.Config, Created: a.Observed.Created, State: s.w.NATS.DeadLetters.State}
			return
		}
		s.w.NATS.Stream = &jetstream.StreamInfo{Config: a.Config, Created: a.Observed.Created, State: s.w.NATS.Stream.State}
	}
}

// rollOut is what Kubernetes does with a Deployment.
func (s *scene) rollOut(u *unstructured.Unstructured) {
	s.t.Helper()
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "labels")
	for _, suffix := range []string{"-1", "-2"} {
		s.w.Pods = append(s.w.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: u.GetName() + suffix, Labels: labels}})
	}
	status := map[string]any{"replicas": int64(2), "updatedReplicas": int64(2), "availableReplicas": int64(2)}
	if err := unstructured.SetNestedMap(u.Object, status, "status"); err != nil {
		s.t.Fatal(err)
	}
}

// controller is what the controller says when it runs.
func (s *scene) controller() {
	s.t.Helper()
	state, backends := s.w.Object("ConfigMap", "eventing-controller-state"), s.w.Object("ConfigMap", "eventing-backends")
	if s.silent || state == nil || backends == nil || s.w.Object("Deployment", "eventing-controller") == nil {
		return
	}
	b, err := backend.ParseBackends(observed.Data(backends))
	if err != nil || b.Undecided() {
		return // what was served is served on
	}
	if b.Removed {
		s.w.Triggers = nil
	}
	for i := range s.w.Subscriptions { // it is quick
		sub := &s.w.Subscriptions[i]
		if s.slow || !sub.Valid || sub.Deleting {
			continue
		}
		if sub.Epochs == nil {
			sub.Epochs = map[operatorv1alpha1.BackendType]string{}
		}
		for _, of := range operatorv1alpha1.BackendTypes {
			delete(sub.Epochs, of)
			if b.Serving.Has(of) {
				sub.Epochs[of] = b.Epoch
			}
		}
	}
	switch {
	case b.Serving.Has(operatorv1alpha1.EventMesh):
		s.w.Triggers = []string{"es-1"}
	case s.w.Object("Broker", "eventing") == nil:
		s.w.Triggers = nil
	}
	state.SetResourceVersion("1000")
	follows := backend.ControllerState{Epoch: b.Epoch, ObservedServing: b.Serving, Leader: "pod", Ready: s.allReady, MeshRefuses: s.refuses, At: s.w.Now}
	if err := unstructured.SetNestedStringMap(state.Object, follows.Data(), "data"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) patch(a Patch) {
	if a.Observed.GetKind() == "PersistentVolumeClaim" {
		values, _, _ := unstructured.NestedMap(a.Merge, "metadata", "annotations")
		for key, value := range values {
			if value == nil {
				delete(s.w.Claims[0].Annotations, key)
			} else {
				s.w.Claims[0].Annotations[key] = value.(string)
			}
		}
		s.created++
		s.w.Claims[0].ResourceVersion = fmt.Sprint(s.created)
		return
	}
	u := s.w.Ours[observed.KeyOf(a.Observed)]
	if u.GetKind() == "Broker" {
		values, _, _ := unstructured.NestedMap(a.Merge, "metadata", "annotations")
		is := u.GetAnnotations()
		for key, value := range values {
			if value == nil {
				delete(is, key)
			} else {
				is[key] = value.(string)
			}
		}
		u.SetAnnotations(is)
		return
	}
	if data, ok := a.Merge["data"].(map[string]any); ok && data["epoch"] == s.w.NewEpoch { // the next one is another one
		s.epochs++
		s.w.NewEpoch = fmt.Sprintf("e%d", s.epochs+1)
	}
	content := observed.Data(u)
	if content == nil {
		content = map[string]string{}
	}
	for key, value := range a.Merge["data"].(map[string]any) {
		if value == nil {
			delete(content, key)
		} else {
			content[key] = value.(string)
		}
	}
	if err := unstructured.SetNestedStringMap(u.Object, content, "data"); err != nil {
		s.t.Fatal(err)
	}
}

func (s *scene) credentials(name string) {
	s.t.Helper()
	content := map[string]any{}
	check := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	switch name {
	case "eventing-nats-users":
		for _, user := range identity.Users {
			seed, err := natsutil.NewUser()
			check(err)
			content[user] = encoded(seed)
		}
	case "eventing-nats-ca":
		pair, err := natsutil.NewAuthority("test", s.w.Now)
		check(err)
		content[identity.CACertificate], content[identity.CAKey] = encoded(pair.Certificate), encoded(pair.Key)
	default:
		pair, err := s.d.Authority(s.w).Issue(s.d.ServerNames(), s.w.Now)
		check(err)
		content[identity.TLSCertificate], content[identity.TLSKey], content[identity.CACertificate] = encoded(pair.Certificate), encoded(pair.Key), encoded(s.d.Authority(s.w).Certificate)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": content}}
	u.SetName(name)
	u.SetLabels(s.d.Names.Labels(backend.PlaneNATS, "nats", "1", nil))
	s.w.Ours[observed.Key{Kind: "Secret", Name: name}] = u
}

// ready makes the servers ready, and connects.
func (s *scene) ready() {
	s.t.Helper()
	u := s.w.Object("StatefulSet", "eventing-nats")
	if err := unstructured.SetNestedMap(u.Object, map[string]any{"replicas": int64(1), "readyReplicas": int64(1)}, "status"); err != nil {
		s.t.Fatal(err)
	}
	s.w.NATS.Connected = true
}

// installed is a scene whose NATS takes events.
func installed(t *testing.T) *scene {
	t.Helper()
	s := newScene(t)
	s.play()
	s.ready()
	if _, last := s.play(); last.State != operatorv1alpha1.StateReady {
		t.Fatalf("%s: %+v", last.State, last.Conditions)
	}
	return s
}

// TestInstallation: objects first, then the stream, closed; what is intended is written before the
// stream is opened.
func TestInstallation(t *testing.T) {
	s := newScene(t)
	s.w.Eventing.Finalizers = nil
	actions, last := s.play()
	want := []string{
		"add the finalizer", "create ConfigMap eventing-backends",
		"create what Secret eventing-nats-users lacks", "create what Secret eventing-nats-ca lacks", "create what Secret eventing-nats-tls lacks",
		"create Deployment eventing-controller", "create Service eventing-controller", "create Service eventing-controller-metrics",
		"create ConfigMap eventing-controller-state", "create PodDisruptionBudget eventing-controller",
		"create ConfigMap eventing-nats-config", "create Service eventing-nats", "create Service eventing-nats-headless", "create StatefulSet eventing-nats",
	}
	if diff := cmp.Diff(want, actions); diff != "" || last.State != operatorv1alpha1.StateProcessing {
		t.Errorf("%s (-want +got):\n%s", last.State, diff)
	}
	s.ready()
	s.slow = true
	s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
	actions, last = s.play()
	if diff := cmp.Diff([]string{"create stream sap", "serve NATS on ConfigMap eventing-backends"}, actions); diff != "" || stream.Open(s.w.NATS.Stream.Config) {
		t.Errorf("a stream that has to wait for a consumer (-want +got):\n%s", diff)
	}
	if c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionBackendAvailable); !strings.Contains(c.Message, "shop/orders") {
		t.Errorf("condition %+v", c)
	}
	s.w.Subscriptions[0].Epochs = map[operatorv1alpha1.BackendType]string{operatorv1alpha1.NATS: "another epoch"}
	if actions, _ = s.play(); len(actions) > 0 {
		t.Errorf("a report about another stream opens this one: %v", actions)
	}
	s.w.Subscriptions[0].Version = "7"
	for _, s.allReady = range []backend.Versions{{operatorv1alpha1.NATS: "6"}, {operatorv1alpha1.EventMesh: "7"}} {
		s.controller()
		if actions, _ = s.play(); len(actions) > 0 {
			t.Errorf("%s opens the stream, which has to wait for version 7: %v", s.allReady, actions)
		}
	}
	s.allReady = backend.Versions{operatorv1alpha1.NATS: "7"}
	s.controller()
	actions, last = s.play()
	want = []string{
		"write the epoch on PersistentVolumeClaim data-eventing-nats-0", "write that the stream was opened on ConfigMap eventing-nats-config",
		"accept events on ConfigMap eventing-backends", "open stream sap", "create Deployment eventing-publisher-proxy",
		"create Service eventing-publisher-proxy", "create Service eventing-publisher-proxy-metrics", "create PodDisruptionBudget eventing-publisher-proxy",
		"create stream dead-letters",
	}
	if diff := cmp.Diff(want, actions); diff != "" || last.State != operatorv1alpha1.StateReady || last.Active != operatorv1alpha1.NATS {
		t.Errorf("%s, %s (-want +got):\n%s", last.State, last.Active, diff)
	}
	// A new Subscription stops nobody.
	s.w.Subscriptions = append(s.w.Subscriptions, observed.Subscription{Namespace: "shop", Name: "late", Generation: 1, Valid: true})
	if actions, last = s.play(); len(actions) > 0 || last.State != operatorv1alpha1.StateReady {
		t.Errorf("%s, %v", last.State, actions)
	}
}

// TestALostStream: a stream that is gone is created closed and in a new epoch. What was reported
// about the old one does not open it.
func TestALostStream(t *testing.T) {
	s := installed(t)
	s.slow = true
	s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true, Epochs: map[operatorv1alpha1.BackendType]string{operatorv1alpha1.NATS: "e1"}}}
	s.w.NATS.Stream, s.w.NewEpoch = nil, "e2"
	_, last := s.play()
	if stream.Open(s.w.NATS.Stream.Config) || stream.Epoch(s.w.NATS.Stream.Config) != "e2" || last.State != operatorv1alpha1.StateProcessing {
		t.Errorf("%s, stream %+v", last.State, s.w.NATS.Stream.Config)
	}
	s.w.Subscriptions[0].Epochs[operatorv1alpha1.NATS] = "e2"
	if _, last = s.play(); !stream.Open(s.w.NATS.Stream.Config) || last.State != operatorv1alpha1.StateReady {
		t.Errorf("%s, stream %+v", last.State, s.w.NATS.Stream.Config)
	}
}

// TestTeardown: what is deleted, in which order, and what stops it.
func TestTeardown(t *testing.T) {
	unpublished := []string{"delete Deployment eventing-publisher-proxy"}
	deleted := []string{
		"serve no backend on ConfigMap eventing-backends", "delete Deployment eventing-controller", "delete StatefulSet eventing-nats",
		"delete Service eventing-nats", "delete Service eventing-nats-headless", "delete Secret eventing-nats-tls", "delete ConfigMap eventing-nats-config",
		"delete PodDisruptionBudget eventing-controller", "delete PodDisruptionBudget eventing-publisher-proxy",
		"delete Secret eventing-nats-ca", "delete Secret eventing-nats-users", "delete Service eventing-controller",
		"delete Service eventing-controller-metrics", "delete Service eventing-publisher-proxy", "delete Service eventing-publisher-proxy-metrics",
		"delete ConfigMap eventing-controller-state", "delete ConfigMap eventing-backends",
	}
	drained := slices.Insert(slices.Clone(deleted), 2, "delete stream sap") // it holds nothing, and delays the end of NATS
	closed := []string{"delete Deployment eventing-publisher-proxy", "accept no more events on ConfigMap eventing-backends", "close stream sap"}
	marked := []string{"write that it is drained on PersistentVolumeClaim data-eventing-nats-0", "write that NATS is drained on ConfigMap eventing-nats-config"}
	left := []string{"tell: VolumesLeft", "remove the finalizer"}
	for _, tc := range []struct {
		reason  string
		prepare func(s *scene)
		then    func(s *scene) // after the first actions
		first   []string
		second  []string
		state   operatorv1alpha1.State
		says    string
	}{
		{
			reason: "the stream is closed, watched, marked; then all goes", first: closed,
			then:   func(s *scene) { s.w.NATS.Quiet = true },
			second: slices.Concat(marked, drained, left),
		},
		{
			reason: "an event waits", first: closed, state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonStreamNotEmpty,
			then: func(s *scene) { s.w.NATS.Stream.State.Msgs = 1 },
		},
		{
			reason: "a dead letter is left", first: closed, state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonDeadLetters,
			then: func(s *scene) { s.w.NATS.Quiet, s.w.NATS.DeadLetters.State.Msgs = true, 1 },
		},
		{
			reason: "another program has a stream with the name of that of dead letters", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonForeignStreams,
			prepare: func(s *scene) {
				info := *s.w.NATS.DeadLetters
				info.Config.Metadata = nil
				s.w.NATS.DeadLetters = &info
			},
		},
		{
			reason: "NATS is away", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) { s.w.NATS = observed.NATS{Away: silence} },
		},
		{
			reason: "NATS is away for some seconds", state: operatorv1alpha1.StateDeleting, says: operatorv1alpha1.ReasonDeleting,
			prepare: func(s *scene) { s.w.NATS = observed.NATS{} },
		},
		{
			reason: "a server of NATS is behind the others", first: closed, state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) { s.w.NATS.Behind, s.w.NATS.BehindFor = []string{"eventing-nats-2"}, silence },
		},
		{
			reason: "NATS is away, and its ConfigMap, too", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) {
				s.w.NATS = observed.NATS{Away: silence}
				delete(s.w.Ours, observed.Key{Kind: "ConfigMap", Name: "eventing-nats-config"})
			},
		},
		{
			reason: "somebody is subscribed", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonSubscriptions,
			prepare: func(s *scene) { s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "orders"}} },
		},
		{
			reason: "a stream of others", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonForeignStreams,
			prepare: func(s *scene) { s.w.NATS.OtherStreams = []string{"theirs"} },
		},
		{
			reason: "a stream of others with the name of ours", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonForeignStreams,
			prepare: func(s *scene) {
				info := *s.w.NATS.Stream
				info.Config.Metadata = nil
				s.w.NATS.Stream = &info
			},
		},
		{
			reason: "an old mark of another epoch proves nothing", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) {
				s.w.NATS = observed.NATS{Away: silence}
				s.patch(Patch{Observed: s.w.Object("ConfigMap", "eventing-nats-config"), Merge: map[string]any{"data": map[string]any{observed.DrainedKey: "e0"}}})
			},
		},
		{
			reason: "by force, with NATS away: volumes stay", first: slices.Concat(unpublished, deleted, left),
			prepare: func(s *scene) {
				s.w.NATS = observed.NATS{}
				s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceDeletionAnnotation: "true"}
			},
		},
		{
			reason: "by force, with a stream that was seen empty once: nothing says that it stays so", first: slices.Concat(unpublished, deleted, left),
			prepare: func(s *scene) {
				s.w.NATS.Stream = &jetstream.StreamInfo{Config: stream.Closed(s.w.NATS.Stream.Config, s.w.Now), Created: s.w.NATS.Stream.Created}
				s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceDeletionAnnotation: "true"}
			},
		},
		{
			reason: "volumes that are to be deleted, and may hold events", first: slices.Concat(unpublished, deleted, left),
			prepare: func(s *scene) { // everything but the volumes was deleted by hand
				s.w.NATS = observed.NATS{}
				s.w.Eventing.Spec.Backend.Config.NATSStorage.Retention = operatorv1alpha1.RetentionDelete
				s.w.Ours, s.w.Pods = map[observed.Key]*unstructured.Unstructured{}, nil
			},
		},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			now := metav1.NewTime(s.w.Now)
			s.w.Eventing.DeletionTimestamp = &now
			if tc.prepare != nil {
				tc.prepare(s)
			}
			if len(s.w.Ours) == 0 {
				tc.first = left
			}
			actions, last := s.play()
			if diff := cmp.Diff(tc.first, actions); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			if tc.then != nil {
				tc.then(s)
				if actions, last = s.play(); cmp.Diff(tc.second, actions) != "" {
					t.Fatalf("after that (-want +got):\n%s", cmp.Diff(tc.second, actions))
				}
			}
			if tc.says == "" {
				return
			}
			if c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionDeleted); last.State != tc.state || c == nil || c.Reason != tc.says || s.w.Object("StatefulSet", "eventing-nats") == nil {
				t.Errorf("%s, %+v", last.State, c)
			}
		})
	}
}

// TestStates: what is wrong, how grave it is, and when that changes.
func TestStates(t *testing.T) {
	const available, dependencies = operatorv1alpha1.ConditionBackendAvailable, operatorv1alpha1.ConditionDependenciesAvailable
	absent := func(name string) []dependency.Dependency {
		return []dependency.Dependency{{Name: name, Presence: dependency.Absent, Remedy: "Install it"}}
	}
	for _, tc := range []struct {
		reason    string
		change    func(s *scene)
		fresh     bool // nothing is installed yet
		later     time.Duration
		state     operatorv1alpha1.State
		condition string
		says      string
	}{
		{reason: "no backend", fresh: true, change: func(s *scene) { s.w.Eventing.Spec.Backend = nil }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNoBackend},
		{reason: "SAP Event Mesh", change: func(s *scene) {
			s.w.Eventing.Spec.Backend.Type, s.w.Eventing.Spec.Backend.Config.EventMeshSecret = "EventMesh", "a/b"
		}, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNotSupported},
		{reason: "an API is awaited", fresh: true, change: func(s *scene) { s.w.Dependencies = absent("API") }, state: operatorv1alpha1.StateProcessing, condition: dependencies, says: operatorv1alpha1.ReasonWaiting},
		{reason: "an API is missing", fresh: true, later: 5 * time.Minute, change: func(s *scene) { s.w.Dependencies = absent("API") }, state: operatorv1alpha1.StateError, condition: dependencies, says: operatorv1alpha1.ReasonMissing},
		{reason: "an API of the active backend is missing", change: func(s *scene) { s.w.Dependencies = absent("API") }, state: operatorv1alpha1.StateError, condition: dependencies, says: operatorv1alpha1.ReasonMissing},
		{reason: "an object of others", fresh: true, change: func(s *scene) { s.w.Foreign = []string{"Secret x"} }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonForeignObject},
		{reason: "volumes of three servers", fresh: true, change: func(s *scene) {
			s.w.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-2", Annotations: map[string]string{backend.ServersAnnotation: "3"}}}}
		}, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "volumes that are too small", fresh: true, change: func(s *scene) {
			s.w.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0"}, Spec: corev1.PersistentVolumeClaimSpec{
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("500Mi")}},
			}}}
		}, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "NATS is away", change: func(s *scene) { s.w.NATS = observed.NATS{Problem: "refused"} }, state: operatorv1alpha1.StateProcessing, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "NATS is away for a minute", later: time.Minute, change: func(s *scene) { s.w.NATS = observed.NATS{} }, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "a stream that is nearly full", change: func(s *scene) { s.w.NATS.Stream.State.Bytes = 340 << 20 }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNATSAvailable},
		{reason: "a volume that is nearly full", change: func(s *scene) { s.w.NATS.Volume.Percent = 80 }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNATSAvailable},
		{reason: "a full stream", change: func(s *scene) { s.w.NATS.Stream.State.Bytes = 384<<20 - 1000 }, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonStorageFull},
		{reason: "a volume that cannot be written", change: func(s *scene) { s.w.NATS.Volume = stream.Volume{Refuses: true, NotWritable: true} }, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonNotWritable},
		{reason: "a volume of which only the reserve is left", change: func(s *scene) { s.w.NATS.Volume.Refuses = true }, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonStorageFull},
		{reason: "a type that has as many events as it may", change: func(s *scene) {
			s.w.NATS.Full = map[string]time.Time{backend.Subject("commerce", "a.b"): s.w.Now}
		}, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonTypeFull},
		{reason: "a server of several is away", change: degrade, state: operatorv1alpha1.StateReady, condition: operatorv1alpha1.ConditionPodsReady, says: operatorv1alpha1.ReasonDegraded},
		{reason: "a server of several is away for a minute", later: time.Minute, change: degrade, state: operatorv1alpha1.StateWarning, condition: operatorv1alpha1.ConditionPodsReady, says: operatorv1alpha1.ReasonDegraded},
		{reason: "a volume claim that somebody has deleted", change: loseClaim, state: operatorv1alpha1.StateReady, condition: operatorv1alpha1.ConditionPodsReady, says: operatorv1alpha1.ReasonDegraded},
		{reason: "a volume claim that somebody has deleted a minute ago", later: time.Minute, change: loseClaim, state: operatorv1alpha1.StateWarning, condition: operatorv1alpha1.ConditionPodsReady, says: operatorv1alpha1.ReasonDegraded},
		{reason: "a server of several is away, and what is refused is worse", later: time.Minute, change: func(s *scene) {
			degrade(s)
			s.w.NATS.Volume.Refuses = true
		}, state: operatorv1alpha1.StateError, condition: operatorv1alpha1.ConditionPodsReady, says: operatorv1alpha1.ReasonDegraded},
		{reason: "a stream of others", change: func(s *scene) { s.w.NATS.Stream.Config.Metadata = nil }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonForeignObject},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			s.w.Eventing.Status.ActiveBackend = operatorv1alpha1.NATS
			if tc.fresh {
				s = newScene(t)
			}
			tc.change(s)
			got := s.d.Decide(s.w)
			if tc.later > 0 {
				if got.After == 0 || got.After > tc.later {
					t.Errorf("the next look is after %s, want %s", got.After, tc.later)
				}
				s.w.Eventing.Status.Conditions = got.Conditions
				s.w.Now = s.w.Now.Add(tc.later)
				got = s.d.Decide(s.w)
			}
			c := meta.FindStatusCondition(got.Conditions, tc.condition)
			if got.State != tc.state || c == nil || c.Reason != tc.says || len(got.Actions) > 0 {
				t.Errorf("%s, %+v, %v", got.State, c, got.Actions)
			}
			for _, c := range got.Conditions {
				if got.State == operatorv1alpha1.StateReady && c.Status == metav1.ConditionTrue && c.Message != "" {
					t.Errorf("a problem is in the message of a condition that is true: %+v", c)
				}
			}
		})
	}
}

func encoded(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }

// degrade makes one server of NATS not ready.
func degrade(s *scene) {
	sts := s.w.Object("StatefulSet", "eventing-nats")
	_ = unstructured.SetNestedField(sts.Object, int64(0), "status", "readyReplicas")
}

// loseClaim deletes the volume claim of NATS, which stays as long as its pod.
func loseClaim(s *scene) {
	s.w.Claims[0].DeletionTimestamp = &metav1.Time{Time: s.w.Now}
}

// TestWhoHoldsTheSpace: what counts is bytes, and not events.
func TestWhoHoldsTheSpace(t *testing.T) {
	t.Parallel()
	consumer := func(name string, pending uint64, filters ...string) *jetstream.ConsumerInfo {
		c := stream.Consumer("shop", name, filters, false)
		return &jetstream.ConsumerInfo{Config: c, NumPending: pending}
	}
	small, large, other := backend.Subject("commerce", "small.v1"), backend.Subject("commerce", "large.v1"), backend.Subject("commerce", "other.v1")
	s := installed(t)
	s.w.Eventing.Status.ActiveBackend = operatorv1alpha1.NATS
	s.w.NATS.Stream.State = jetstream.StreamState{Msgs: 10_110, Bytes: 10_000*1_000 + 100<<20 + 10*1_000}
	s.w.NATS.Volume.Refuses = true
	s.w.NATS.Counts = map[string]uint64{small: 10_000, large: 100, other: 10}
	s.w.NATS.Sizes = map[string]uint64{small: 1_000, large: 1 << 20}
	s.w.NATS.Consumers = []*jetstream.ConsumerInfo{
		consumer("many", 10_000, small), consumer("few", 100, large), consumer("any", 10, backend.Filter("", "other.v1")), consumer("both", 50, small, other), consumer("none", 0, large),
	}
	for _, name := range []string{"many", "few", "any", "none"} {
		s.w.Subscriptions = append(s.w.Subscriptions, observed.Subscription{Namespace: "shop", Name: name})
	}
	c := meta.FindStatusCondition(s.d.Decide(s.w).Conditions, operatorv1alpha1.ConditionBackendAvailable)
	const want = "Most of the space is taken by events that wait for shop/few (100 events, about 100 MiB), shop/many (10000 events, about 10 MiB), shop/both (50 events, about 49 KiB). These do not exist: shop/both. "
	if !strings.Contains(c.Message, want) || !strings.HasSuffix(c.Message, "kubectl -n shop describe subscriptions.eventing.kyma-project.io few") {
		t.Errorf("the message is %q", c.Message)
	}

	s.w.NATS.Volume.Refuses = false
	s.w.NATS.Stream.Config.MaxMsgsPerSubject = 10_000
	s.w.NATS.Full = map[string]time.Time{small: s.w.Now, other: s.w.Now.Add(time.Minute)}
	s.w.Eventing.Spec.Backend.Config.NATSMaxMsgsPerTopic = 10_000
	c = meta.FindStatusCondition(s.d.Decide(s.w).Conditions, operatorv1alpha1.ConditionBackendAvailable)
	for _, want := range []string{
		"type small.v1 of source commerce since " + s.w.Now.UTC().Format(time.RFC3339) + ": 10000 of them wait, which is the limit (natsMaxMsgsPerTopic). The same holds for 1 more.",
		"shop/many (10000 events, about 10 MiB), shop/both (", "describe subscriptions.eventing.kyma-project.io many",
	} {
		if !strings.Contains(c.Message, want) || strings.Contains(c.Message, "shop/few") {
			t.Errorf("%q is not in %q", want, c.Message)
		}
	}
	s.w.NATS.Consumers = nil
	c = meta.FindStatusCondition(s.d.Decide(s.w).Conditions, operatorv1alpha1.ConditionBackendAvailable)
	if !strings.HasSuffix(c.Message, `'{"spec":{"backend":{"config":{"natsMaxMsgsPerTopic":20000}}}}'`) {
		t.Errorf("the message is %q", c.Message)
	}
}
