package manager

import (
	"encoding/base64"
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

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	eventingchart "github.com/kyma-project/eventmesh-migration/charts/eventing"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/chart"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
	"github.com/kyma-project/eventmesh-migration/internal/natsutil"
)

// scene is a world that a test changes, and that follows the actions of decisions as a cluster does.
type scene struct {
	t *testing.T
	d *decider
	w *World
}

func newScene(t *testing.T) *scene {
	t.Helper()
	loaded, err := chart.Load(eventingchart.Chart, ".")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	return &scene{t: t, d: &decider{
		chart: loaded, names: "eventing", namespace: "kyma-system", version: "1.2.3", natsImage: "nats-server:1", natsURL: "tls://eventing-nats.kyma-system.svc:4222",
		dependencyTimeout: 5 * time.Minute, backendTimeout: 10 * time.Minute, drainDelay: 6 * time.Second, drainWatch: 15 * time.Second,
	}, w: &World{
		Now: now, NewEpoch: "e1", Ours: map[Key]*unstructured.Unstructured{},
		Eventing: &operatorv1alpha1.Eventing{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kyma-system", Name: "eventing", Generation: 1, Finalizers: []string{operatorv1alpha1.Finalizer}},
			Spec: operatorv1alpha1.EventingSpec{Backend: &operatorv1alpha1.Backend{Type: "nats", Config: operatorv1alpha1.BackendConfig{
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
		last = s.d.decide(s.w)
		if len(last.Actions) == 0 {
			return all, last
		}
		for _, a := range last.Actions {
			all = append(all, a.String())
			s.follow(a)
		}
	}
	s.t.Fatalf("it never ends: %v", all)
	return nil, nil
}

func (s *scene) follow(a action) {
	s.t.Helper()
	switch a := a.(type) {
	case finalize:
		s.w.Eventing.Finalizers = append(s.w.Eventing.Finalizers, operatorv1alpha1.Finalizer)
	case release:
		s.w.Eventing.Finalizers = nil
	case credentials:
		s.credentials(a.name)
	case create:
		s.w.Ours[Key{a.object.GetKind(), a.object.GetName()}] = a.object
		if a.object.GetKind() == "StatefulSet" {
			s.w.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data-eventing-nats-0", Annotations: map[string]string{backend.ServersAnnotation: "1"}}}}
		}
	case apply:
		key := Key{a.object.GetKind(), a.object.GetName()}
		if status, ok := s.w.Ours[key].Object["status"]; ok {
			a.object.Object["status"] = status
		}
		s.w.Ours[key] = a.object
	case patch:
		s.patch(a)
	case remove:
		delete(s.w.Ours, Key{a.observed.GetKind(), a.observed.GetName()})
		switch a.observed.GetKind() {
		case "StatefulSet":
			s.w.NATS = NATS{}
		case "PersistentVolumeClaim":
			s.w.Claims = nil
		}
	case createStream:
		s.w.NATS.Stream = &jetstream.StreamInfo{Config: a.config}
	case updateStream:
		s.w.NATS.Stream = &jetstream.StreamInfo{Config: a.config, State: a.observed.State}
	}
}

func (s *scene) patch(a patch) {
	if a.observed.GetKind() == "PersistentVolumeClaim" {
		values, _, _ := unstructured.NestedMap(a.merge, "metadata", "annotations")
		for key, value := range values {
			if value == nil {
				delete(s.w.Claims[0].Annotations, key)
			} else {
				s.w.Claims[0].Annotations[key] = value.(string)
			}
		}
		return
	}
	u := s.w.Ours[Key{a.observed.GetKind(), a.observed.GetName()}]
	content := contractData(u)
	if content == nil {
		content = map[string]string{}
	}
	for key, value := range a.merge["data"].(map[string]any) {
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
		for _, user := range users {
			seed, err := natsutil.NewUser()
			check(err)
			content[user] = encoded(seed)
		}
	case "eventing-nats-ca":
		pair, err := natsutil.NewAuthority("test", s.w.Now)
		check(err)
		content[caCertificate], content[caKey] = encoded(pair.Certificate), encoded(pair.Key)
	default:
		pair, err := s.d.authority(s.w).Issue(s.d.serverNames(), s.w.Now)
		check(err)
		content[tlsCertificate], content[tlsKey], content[caCertificate] = encoded(pair.Certificate), encoded(pair.Key), encoded(s.d.authority(s.w).Certificate)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"kind": "Secret", "data": content}}
	u.SetName(name)
	u.SetLabels(s.d.names.Labels(backend.PlaneNATS, "nats", "1", nil))
	s.w.Ours[Key{"Secret", name}] = u
}

// ready makes the servers ready, and connects.
func (s *scene) ready() {
	s.t.Helper()
	u := s.w.Ours[Key{"StatefulSet", "eventing-nats"}]
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

// TestInstallation: objects first, then the stream, closed; what is intended is written before the stream is opened.
func TestInstallation(t *testing.T) {
	s := newScene(t)
	s.w.Eventing.Finalizers = nil
	actions, last := s.play()
	want := []string{
		"add the finalizer", "create ConfigMap eventing-backends",
		"create what Secret eventing-nats-users lacks", "create what Secret eventing-nats-ca lacks", "create what Secret eventing-nats-tls lacks",
		"create ConfigMap eventing-nats-config", "create Service eventing-nats", "create Service eventing-nats-headless", "create StatefulSet eventing-nats",
	}
	if diff := cmp.Diff(want, actions); diff != "" || last.State != operatorv1alpha1.StateProcessing {
		t.Errorf("%s (-want +got):\n%s", last.State, diff)
	}
	s.ready()
	s.w.Subscriptions = []Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true}}
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
	s.w.Subscriptions[0].Epochs[operatorv1alpha1.NATS] = "e1"
	actions, last = s.play()
	want = []string{
		"write the epoch on PersistentVolumeClaim data-eventing-nats-0", "write that the stream was opened on ConfigMap eventing-nats-config",
		"accept events on ConfigMap eventing-backends", "open stream sap",
	}
	if diff := cmp.Diff(want, actions); diff != "" || last.State != operatorv1alpha1.StateReady || last.Active != operatorv1alpha1.NATS {
		t.Errorf("%s, %s (-want +got):\n%s", last.State, last.Active, diff)
	}
	// A new Subscription stops nobody.
	s.w.Subscriptions = append(s.w.Subscriptions, Subscription{Namespace: "shop", Name: "late", Generation: 1, Valid: true})
	if actions, last = s.play(); len(actions) > 0 || last.State != operatorv1alpha1.StateReady {
		t.Errorf("%s, %v", last.State, actions)
	}
}

// TestALostStream: a stream that is gone is created closed and in a new epoch. What was reported about the old one does not open it.
func TestALostStream(t *testing.T) {
	s := installed(t)
	s.w.Subscriptions = []Subscription{{Namespace: "shop", Name: "orders", Generation: 1, Valid: true, Epochs: map[operatorv1alpha1.BackendType]string{operatorv1alpha1.NATS: "e1"}}}
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
	deleted := []string{
		"delete StatefulSet eventing-nats", "delete Service eventing-nats", "delete Service eventing-nats-headless", "delete Secret eventing-nats-users",
		"delete Secret eventing-nats-ca", "delete Secret eventing-nats-tls", "delete ConfigMap eventing-backends", "delete ConfigMap eventing-nats-config",
	}
	closed := []string{"accept no more events on ConfigMap eventing-backends", "close stream sap"}
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
			second: append(append(append([]string{}, marked...), deleted...), left...),
		},
		{
			reason: "an event waits", first: closed, state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonStreamNotEmpty,
			then: func(s *scene) { s.w.NATS.Stream.State.Msgs = 1 },
		},
		{
			reason: "NATS is away", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) { s.w.NATS = NATS{} },
		},
		{
			reason: "NATS is away, and its ConfigMap, too", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) { s.w.NATS = NATS{}; delete(s.w.Ours, Key{"ConfigMap", "eventing-nats-config"}) },
		},
		{
			reason: "somebody is subscribed", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonSubscriptions,
			prepare: func(s *scene) { s.w.Subscriptions = []Subscription{{Namespace: "shop", Name: "orders"}} },
		},
		{
			reason: "a stream of others", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonForeignStreams,
			prepare: func(s *scene) { s.w.NATS.OtherStreams = []string{"theirs"} },
		},
		{
			reason: "an old mark of another epoch proves nothing", state: operatorv1alpha1.StateWarning, says: operatorv1alpha1.ReasonNATSUnreachable,
			prepare: func(s *scene) {
				s.w.NATS = NATS{}
				s.patch(patch{observed: s.w.Ours[Key{"ConfigMap", "eventing-nats-config"}], merge: map[string]any{"data": map[string]any{drainedKey: "e0"}}})
			},
		},
		{
			reason: "by force, with NATS away: volumes stay", first: append(append([]string{}, deleted...), left...),
			prepare: func(s *scene) {
				s.w.NATS = NATS{}
				s.w.Eventing.Annotations = map[string]string{operatorv1alpha1.ForceDeletionAnnotation: "true"}
			},
		},
		{
			reason: "volumes that are to be deleted, and may hold events", first: append(append([]string{}, deleted...), left...),
			prepare: func(s *scene) { // everything but the volumes was deleted by hand
				s.w.NATS = NATS{}
				s.w.Eventing.Spec.Backend.Config.NATSStorage.Retention = operatorv1alpha1.RetentionDelete
				s.w.Ours = map[Key]*unstructured.Unstructured{}
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
			if c := meta.FindStatusCondition(last.Conditions, operatorv1alpha1.ConditionDeleted); last.State != tc.state || c == nil || c.Reason != tc.says || s.w.Ours[Key{"StatefulSet", "eventing-nats"}] == nil {
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
		{reason: "the mesh", change: func(s *scene) { s.w.Eventing.Spec.Backend.Type = "EventMesh" }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNotSupported},
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
		{reason: "NATS is away", change: func(s *scene) { s.w.NATS = NATS{Problem: "refused"} }, state: operatorv1alpha1.StateProcessing, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "NATS is away for a minute", later: time.Minute, change: func(s *scene) { s.w.NATS = NATS{} }, state: operatorv1alpha1.StateError, condition: available, says: operatorv1alpha1.ReasonNATSUnavailable},
		{reason: "a stream that is nearly full", change: func(s *scene) { s.w.NATS.Stream.State.Bytes = 650 << 20 }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonNATSAvailable},
		{reason: "a stream of others", change: func(s *scene) { s.w.NATS.Stream.Config.Metadata = nil }, state: operatorv1alpha1.StateWarning, condition: available, says: operatorv1alpha1.ReasonForeignObject},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			s := installed(t)
			s.w.Eventing.Status.ActiveBackend = operatorv1alpha1.NATS
			if tc.fresh {
				s = newScene(t)
			}
			tc.change(s)
			got := s.d.decide(s.w)
			if tc.later > 0 {
				if got.After == 0 || got.After > tc.later {
					t.Errorf("the next look is after %s, want %s", got.After, tc.later)
				}
				s.w.Eventing.Status.Conditions = got.Conditions
				s.w.Now = s.w.Now.Add(tc.later)
				got = s.d.decide(s.w)
			}
			c := meta.FindStatusCondition(got.Conditions, tc.condition)
			if got.State != tc.state || c == nil || c.Reason != tc.says || len(got.Actions) > 0 {
				t.Errorf("%s, %+v, %v", got.State, c, got.Actions)
			}
		})
	}
}

func encoded(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
