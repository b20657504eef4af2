package decide

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/dependency"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/observed"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/stream"
)

// TestRandomWorlds damages worlds at random, also in ways that no cluster comes to, and decides in
// each. No action may break what keeps events from being lost: the rules are written here a second
// time, and the guard is not asked. What was decided is done, so that damage has consequences.
func TestRandomWorlds(t *testing.T) {
	t.Parallel() // its worlds are its own
	const length = 15
	worlds := uint64(70)
	switch {
	case all:
		worlds = 1500
	case testing.Short():
		worlds = 10
	}
	decided := map[string]int{}
	for seed := range worlds + uint64(len(withThird))*(worlds/7) {
		of := thePair
		if seed >= worlds {
			of = withThird[seed%uint64(len(withThird))]
		}
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // reproducible
		s := newScene(t).of(of).on(t)
		s.made, s.promised = map[string]bool{}, map[string]bool{}
		s.w.Subscriptions = []observed.Subscription{{Namespace: "shop", Name: "a", Generation: 1, Valid: true}, {Namespace: "shop", Name: "b", Generation: 1, Valid: true}}
		before := copyOf(s.w) // objects that were there once, and are there again
		var trace []string
		for range length {
			for range r.IntN(3) {
				trace = append(trace, s.damage(r, before))
			}
			if r.IntN(10) == 0 {
				before = copyOf(s.w)
			}
			for range r.IntN(8) { // then the others do their part for a while
				if r.IntN(4) > 0 {
					s.heal()
				}
				if r.IntN(2) == 0 {
					s.controller()
				}
				o := s.d.Decide(copyOf(s.w))
				s.report(o)
				for _, a := range o.Actions {
					if why := s.loses(a); why != "" {
						t.Fatalf("seed %d, %v: the operator is to %s, and %s\nafter %s", seed, of, a, why, strings.Join(trace[max(0, len(trace)-25):], "\n      "))
					}
					decided[strings.SplitN(fmt.Sprintf("%T", a), ".", 2)[1]]++
				}
				for _, a := range o.Actions {
					if !s.accepts(a) {
						break
					}
					s.follow(a)
					trace = append(trace, "did: "+a.String())
				}
			}
		}
	}
	t.Logf("actions: %v", decided)
	for _, kind := range []string{"Apply", "Create", "Remove", "Patch", "CreateStream", "UpdateStream", "DeleteStream"} {
		if decided[kind] == 0 {
			t.Errorf("no world led to the action %s, so the test shows nothing of it: %v", kind, decided)
		}
	}
}

// heal is what the servers of NATS, the third backend and time do.
func (s *scene) heal() {
	s.t.Helper()
	if s.w.Has("StatefulSet") {
		s.ready()
	}
	if info := s.w.NATS.Stream; info != nil && !stream.Open(info.Config) {
		is := *info
		is.State.Msgs, s.w.NATS.Stream = 0, &is
		s.w.NATS.Quiet = true
	}
	if letters := s.w.NATS.DeadLetters; letters != nil { // somebody delivers them, or deletes them
		is := *letters
		is.State.Msgs, s.w.NATS.DeadLetters = 0, &is
	}
	key := memory{}.record(s.d.Names)
	s.write(key, memoryState, "ready")
	if is := s.w.Ours[key]; observed.Data(is)[memoryDoor] != "open" {
		s.write(key, memoryHolds, "0")
	}
	s.w.Now = s.w.Now.Add(time.Second)
}

// damage changes one thing of the world, and says what.
func (s *scene) damage(r *rand.Rand, before *observed.World) string {
	s.t.Helper()
	w := s.w
	one := func(values ...string) string { return values[r.IntN(len(values))] }
	often := func() bool { return r.IntN(4) > 0 }
	epoch := func() string {
		b, err := w.Backends(s.d.Names)
		if err != nil || !often() {
			return one("", "e0", "e1", "e2")
		}
		return b.Epoch
	}
	known := s.members.names()
	set := backend.Set(s.members).String()
	kind := func() operatorv1alpha1.BackendType { return operatorv1alpha1.BackendType(one(known...)) }
	things := 19
	if slices.Contains(s.members, third) {
		things++
	}
	switch n := r.IntN(things); n {
	case 0:
		if keys := w.Keys(); len(keys) > 0 {
			key := keys[r.IntN(len(keys))]
			delete(w.Ours, key)
			return fmt.Sprint("gone: ", key)
		}
	case 1:
		if keys := before.Keys(); len(keys) > 0 {
			key := keys[r.IntN(len(keys))]
			w.Ours[key] = before.Ours[key].DeepCopy()
			return fmt.Sprint("as before: ", key)
		}
	case 2:
		if keys := w.Keys(); len(keys) > 0 && r.IntN(3) == 0 {
			key := keys[r.IntN(len(keys))]
			at := metav1.NewTime(w.Now)
			w.Ours[key].SetDeletionTimestamp(&at)
			return fmt.Sprint("is being deleted: ", key)
		}
	case 3:
		key, value := one("serving", "accept", "epoch"), one(slices.Concat([]string{""}, known, []string{set, "Kafka"})...)
		if key == "epoch" {
			value = epoch()
		}
		s.write(observed.Key{Kind: "ConfigMap", Name: "eventing-backends"}, key, value)
		return fmt.Sprintf("backends: %s %q", key, value)
	case 4:
		key, value := one("observedServing", "epoch", "ready"), one(slices.Concat([]string{""}, known, []string{set})...)
		switch key {
		case "epoch":
			value = epoch()
		case "ready":
			value = one("", string(kind())+"=5", string(kind())+"=9", "EventMesh=5,NATS=9", string(kind()), "=5")
		}
		s.write(observed.Key{Kind: "ConfigMap", Name: "eventing-controller-state"}, key, value)
		return fmt.Sprintf("controller: %s %q", key, value)
	case 5:
		key, value := one(observed.OpenedKey, observed.DrainedKey), epoch()
		s.write(observed.Key{Kind: "ConfigMap", Name: "eventing-nats-config"}, key, value)
		return fmt.Sprintf("nats-config: %s %q", key, value)
	case 6:
		broker := w.Object("Broker", "eventing")
		if broker == nil {
			return ""
		}
		key, value := one(openedAnnotation, leftAnnotation, backend.EpochAnnotation), epoch()
		if key == leftAnnotation {
			value += " " + w.Now.Add(-time.Duration(r.IntN(600))*time.Second).UTC().Format(time.RFC3339)
		}
		is := broker.GetAnnotations()
		is[key] = value
		broker.SetAnnotations(is)
		return fmt.Sprintf("Broker: %s %q", key, value)
	case 7:
		s.channels = one("", synchronous, "KafkaChannel")
		if w.Object("Broker", "eventing") == nil {
			return "Channels: " + s.channels
		}
		ready := one("True", "False", "Unknown")
		s.set("Broker", "eventing", []any{map[string]any{"type": "Ready", "status": ready}}, "status", "conditions")
		s.set("Broker", "eventing", one("", "http://broker"), "status", "address", "url")
		s.set("Broker", "eventing", s.channels, "status", "annotations", kindAnnotation)
		return "Broker: ready " + ready + ", " + s.channels
	case 8:
		w.NATS.Connected = often()
		w.NATS.Away, w.NATS.Quiet, w.NATS.Dangling = time.Duration(r.IntN(60))*time.Second, often(), !often()
		w.NATS.OtherStreams, w.NATS.Behind = nil, nil
		if !often() {
			w.NATS.OtherStreams = []string{"theirs"}
		}
		if !often() {
			w.NATS.Behind, w.NATS.BehindFor = []string{"eventing-nats-2"}, time.Duration(r.IntN(60))*time.Second
		}
		if w.NATS.DeadLetters = nil; often() {
			config := stream.DeadLetters(w.Eventing.Spec.Backend.Config, int64(1+r.IntN(64))<<20)
			if !often() {
				config.Metadata = nil
			}
			w.NATS.DeadLetters = &jetstream.StreamInfo{Config: config, Created: w.Now, State: jetstream.StreamState{Msgs: uint64(r.IntN(2)), Bytes: uint64(r.IntN(64)) << 20}}
		}
		return fmt.Sprintf("NATS: connected %v, quiet %v, dead letters %v", w.NATS.Connected, w.NATS.Quiet, w.NATS.DeadLetters != nil)
	case 9:
		if r.IntN(3) == 0 {
			w.NATS.Stream = nil
			return "the stream is gone"
		}
		config := stream.Config(w.Eventing.Spec.Backend.Config, epoch(), r.IntN(2) == 0)
		if r.IntN(3) == 0 {
			config = stream.Closed(config, w.Now.Add(-time.Duration(r.IntN(3600))*time.Second))
		}
		if !often() {
			config.Metadata = nil // that of somebody else
		}
		w.NATS.Stream = &jetstream.StreamInfo{Config: config, Created: w.Now, State: jetstream.StreamState{Msgs: uint64(r.IntN(2)), LastSeq: uint64(r.IntN(3))}}
		return fmt.Sprintf("another stream: open %v, %d events", stream.Open(config), w.NATS.Stream.State.Msgs)
	case 10:
		p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", r.IntN(3)), Labels: map[string]string{observed.NameLabel: one(observed.Publisher, observed.Publisher, observed.Servers, observed.Controller)}}}
		if p.Labels[observed.NameLabel] == observed.Publisher {
			p.Labels[backend.BackendLabel] = one(slices.Concat(known, []string{""})...)
		}
		if r.IntN(2) == 0 {
			p.DeletionTimestamp = &metav1.Time{Time: w.Now.Add(-time.Duration(r.IntN(60)) * time.Second)}
		}
		w.Pods = append(slices.DeleteFunc(w.Pods, func(is corev1.Pod) bool { return is.Name == p.Name }), p)
		return fmt.Sprintf("Pod %s: %v, ends %v", p.Name, p.Labels, p.DeletionTimestamp)
	case 11:
		if r.IntN(2) == 0 {
			w.Pods = nil
			return "no Pods"
		}
		w.Pods = slices.DeleteFunc(w.Pods, func(is corev1.Pod) bool { return strings.HasPrefix(is.Name, "pod-") })
		return "no other Pods"
	case 12:
		if len(w.Claims) == 0 || r.IntN(4) == 0 {
			w.Claims = slices.Clone(before.Claims)
			return fmt.Sprintf("%d claims", len(w.Claims))
		}
		key, value := one(backend.EpochAnnotation, observed.DrainedAnnotation, backend.ServersAnnotation), epoch()
		if key == backend.ServersAnnotation {
			value = one("1", "1", "1", "3")
		}
		c := w.Claims[0].DeepCopy()
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[key] = value
		w.Claims[0] = *c
		return fmt.Sprintf("claim: %s %q", key, value)
	case 13:
		sub := &w.Subscriptions[r.IntN(len(w.Subscriptions))]
		sub.Valid, sub.Deleting, sub.Skipped, sub.Finalizer = often(), !often(), !often(), often()
		sub.Epochs = map[operatorv1alpha1.BackendType]string{kind(): epoch()}
		sub.Version = one("5", "7", "9", "10", "")
		return fmt.Sprintf("%+v", *sub)
	case 14:
		publisher := w.Object("Deployment", "eventing-publisher-proxy")
		if publisher == nil {
			return ""
		}
		to, status := one(slices.Concat(known, []string{""})...), map[string]any{"replicas": int64(r.IntN(3)), "updatedReplicas": int64(r.IntN(3)), "availableReplicas": int64(r.IntN(3))}
		s.set("Deployment", "eventing-publisher-proxy", status, "status")
		s.set("Deployment", "eventing-publisher-proxy", to, "spec", "template", "metadata", "labels", backend.BackendLabel)
		return fmt.Sprintf("publisher: to %q, %v", to, status)
	case 15:
		s.want(kind())
		w.Eventing.Spec.Backend.Config.NATSStorage.Retention = operatorv1alpha1.Retention(one("Retain", "Delete"))
		return "spec: " + string(w.Eventing.Spec.Backend.Type)
	case 16:
		w.Eventing.DeletionTimestamp = nil
		if r.IntN(3) == 0 {
			w.Eventing.DeletionTimestamp = &metav1.Time{Time: w.Now}
		}
		w.Eventing.Finalizers = []string{operatorv1alpha1.Finalizer}
		w.Eventing.Annotations = map[string]string{}
		if !often() {
			w.Eventing.Annotations[operatorv1alpha1.ForceDeletionAnnotation] = one("true", "false")
		}
		if last := w.Eventing.Status.Switch; last != nil && !often() {
			w.Eventing.Annotations[operatorv1alpha1.ForceTeardownAnnotation] = one(string(last.From), "NATS") + "/" + last.Since.UTC().Format(time.RFC3339)
		}
		return fmt.Sprintf("Eventing: deleted %v, %v", w.Eventing.DeletionTimestamp, w.Eventing.Annotations)
	case 17:
		w.Dependencies = nil
		if !often() {
			w.Dependencies = []dependency.Dependency{{Name: "Broker", Kind: dependency.Broker, Presence: dependency.Absent}}
		}
		w.Triggers = nil
		if often() {
			w.Triggers = []string{"es-1"}
		}
		return fmt.Sprintf("%d dependencies are missing, %d Triggers", len(w.Dependencies), len(w.Triggers))
	case 18:
		w.Now = w.Now.Add(time.Duration(r.IntN(600)) * time.Second)
		if w.Has("StatefulSet") && often() {
			s.ready()
		}
		return "time goes on"
	case 19:
		key, value := one(memoryState, memoryDoor, memoryHolds, observed.OpenedKey, observed.DrainedKey), epoch()
		switch key {
		case memoryState:
			value = one("ready", "ready", "away")
		case memoryDoor:
			value = one("", "open", "closed")
		case memoryHolds:
			value = one("", "0", "1")
		}
		s.write(memory{}.record(s.d.Names), key, value)
		return fmt.Sprintf("Memory: %s %q", key, value)
	}
	return ""
}

// write writes one value of a ConfigMap that is there.
func (s *scene) write(key observed.Key, name, value string) {
	if u := s.w.Ours[key]; u != nil {
		content := observed.Data(u)
		if content == nil {
			content = map[string]string{}
		}
		content[name] = value
		if err := unstructured.SetNestedStringMap(u.Object, content, "data"); err != nil {
			s.t.Fatal(err)
		}
	}
}

// loses says how an action could lose an event in this world; "" if it could not.
func (s *scene) loses(a Action) string {
	const nats, mesh = operatorv1alpha1.NATS, operatorv1alpha1.EventMesh
	w := s.w
	data := func(name string) map[string]string { return observed.Data(w.Object("ConfigMap", name)) }
	backends, config, stored := data("eventing-backends"), data("eventing-nats-config"), data("eventing-memory")
	// What people ask for by force may lose events. The annotation of a switch names that switch.
	forced := w.Eventing.DeletionTimestamp != nil && w.Eventing.Annotations[operatorv1alpha1.ForceDeletionAnnotation] == "true"
	asked := func(b operatorv1alpha1.BackendType) bool {
		last := w.Eventing.Status.Switch
		return forced || last != nil && w.Eventing.Annotations[operatorv1alpha1.ForceTeardownAnnotation] == string(b)+"/"+last.Since.UTC().Format(time.RFC3339)
	}
	among := func(set string, b operatorv1alpha1.BackendType) bool {
		return slices.Contains(strings.Split(set, ","), string(b))
	}

	// claimed: the controller says that all are ready up to the version of this one.
	claimed := func(sub observed.Subscription, b operatorv1alpha1.BackendType) bool {
		for claim := range strings.SplitSeq(data("eventing-controller-state")["ready"], ",") {
			upTo, _ := strconv.Atoi(strings.TrimPrefix(claim, string(b)+"="))
			if version, err := strconv.Atoi(sub.Version); err == nil && upTo >= version {
				return true
			}
		}
		return false
	}
	// ready: an event that is stored in a backend from now on reaches each Subscription.
	ready := func(b operatorv1alpha1.BackendType) string {
		if epoch := data("eventing-controller-state")["epoch"]; epoch == "" || epoch != backends["epoch"] {
			return "the controller follows another epoch"
		}
		if !among(backends["serving"], b) || !among(data("eventing-controller-state")["observedServing"], b) {
			return "the controller does not serve it"
		}
		for _, sub := range w.Subscriptions {
			if sub.Valid && !sub.Deleting && !sub.Skipped && sub.Epochs[b] != backends["epoch"] && !claimed(sub, b) {
				return sub.String() + " is not ready"
			}
		}
		return ""
	}
	// sent: something sends to a backend, or may.
	sent := func(b operatorv1alpha1.BackendType) string {
		if u := w.Object("Deployment", "eventing-publisher-proxy"); u != nil && observed.SendsTo(u) == b {
			return "the publisher sends to it"
		}
		for _, p := range w.Pods {
			hangs := p.DeletionTimestamp != nil && w.Now.Sub(p.DeletionTimestamp.Time) > 30*time.Second
			if p.Labels[observed.NameLabel] == observed.Publisher && p.Labels[backend.BackendLabel] == string(b) && (b == mesh || !hangs) {
				return "Pod " + p.Name + " sends to it"
			}
		}
		return ""
	}
	// empty: nothing is left in NATS, or nothing was ever in it.
	empty := func() string {
		if u := w.Object("ConfigMap", "eventing-nats-config"); u != nil {
			if config[observed.DrainedKey] != "" && config[observed.DrainedKey] == u.GetAnnotations()[backend.EpochAnnotation] {
				return ""
			}
			if config[observed.DrainedKey] != "" || config[observed.OpenedKey] != "" {
				return "NATS may hold events"
			}
		} else if w.Object("StatefulSet", "eventing-nats") != nil {
			return "nothing says that NATS is empty"
		}
		for _, c := range w.Claims {
			if opened := c.Annotations[backend.EpochAnnotation]; opened != "" && c.Annotations[observed.DrainedAnnotation] != opened {
				return "a volume may hold events"
			}
		}
		return ""
	}
	publisher := func(to, was operatorv1alpha1.BackendType) string {
		switch {
		case to == was:
			return ""
		case !among(backends["accept"], to):
			return fmt.Sprintf("%s is not accepted", to)
		case to == nats && !w.NATS.Connected:
			if config[observed.OpenedKey] != backends["epoch"] || !among(backends["serving"], nats) {
				return "NATS was not opened in this epoch"
			}
			return ""
		case to == nats && (w.NATS.Stream == nil || !stream.Open(w.NATS.Stream.Config)):
			return "the stream is not open"
		case to == mesh && w.Object("Broker", "eventing") == nil:
			return "there is no Broker"
		case to == third && stored[memoryDoor] != "open":
			return "the door of Memory is not open"
		}
		return ready(to)
	}

	switch a := a.(type) {
	case Create:
		if a.Object.GetName() == "eventing-publisher-proxy" && a.Object.GetKind() == "Deployment" {
			return publisher(observed.SendsTo(a.Object), "")
		}
	case Apply:
		if a.Object.GetName() == "eventing-publisher-proxy" && a.Object.GetKind() == "Deployment" {
			return publisher(observed.SendsTo(a.Object), observed.SendsTo(a.Observed))
		}
	case Patch:
		values, _ := a.Merge["data"].(map[string]any)
		switch a.Observed.GetName() {
		case "eventing-nats-config":
			info := w.NATS.Stream
			if values[observed.DrainedKey] != nil && (!w.NATS.Connected || info != nil && (stream.Open(info.Config) || info.State.Msgs > 0 || !w.NATS.Quiet) ||
				w.NATS.DeadLetters != nil && stream.Ours(w.NATS.DeadLetters.Config) && w.NATS.DeadLetters.State.Msgs > 0) {
				return "NATS is not empty, or does not stay so"
			}
		case "eventing-memory":
			switch {
			case values[observed.DrainedKey] != nil && (stored[memoryDoor] == "open" || stored[memoryHolds] != "" && stored[memoryHolds] != "0"):
				return "Memory is not empty, or does not stay so"
			case values[memoryDoor] == "closed":
				return sent(third)
			case values[memoryDoor] == "open" && (!among(backends["accept"], third) || stored[observed.OpenedKey] != backends["epoch"] || stored[observed.DrainedKey] != ""):
				return "Memory is not accepted, or nothing says that it was opened"
			case values[memoryDoor] == "open":
				return ready(third)
			}
		case "eventing-backends":
			serving, _ := values["serving"].(string)
			accept, _ := values["accept"].(string)
			for _, b := range operatorv1alpha1.BackendTypes {
				if among(accept, b) && !among(backends["accept"], b) {
					// Either it is begun anew with the backend that the publisher sends to, or all
					// Subscriptions are ready.
					if why := ready(b); why != "" && sent(b) == "" {
						return fmt.Sprintf("%s is accepted, and %s", b, why)
					}
				}
				if among(accept, b) && !among(serving, b) {
					return fmt.Sprintf("%s is accepted, and not served", b)
				}
			}
		}
	case UpdateStream:
		switch was, is := stream.Open(a.Observed.Config), stream.Open(a.Config); {
		case was && !is:
			return sent(nats)
		case !was && is:
			if !among(backends["accept"], nats) {
				return "NATS is not accepted"
			}
			if config[observed.OpenedKey] != backends["epoch"] || config[observed.DrainedKey] != "" {
				return "nothing says that NATS was opened"
			}
			return ready(nats)
		}
	case DeleteStream:
		if stream.Open(a.Observed.Config) || a.Observed.State.Msgs > 0 {
			return "the stream takes events, or holds some"
		}
		return empty()
	case CreateStream:
		if stream.Open(a.Config) {
			return "a new stream has no consumers"
		}
	case Remove:
		name := a.Observed.GetName()
		switch kind := a.Observed.GetKind(); {
		case kind == "Broker":
			return sent(mesh)
		case kind == "StatefulSet", kind == "PersistentVolumeClaim", kind == "Pod", kind == "ConfigMap" && name == "eventing-nats-config",
			kind == "Secret" && name == "eventing-nats-users":
			if !asked(nats) {
				return empty()
			}
		case kind == "ConfigMap" && name == "eventing-memory":
			if !asked(third) && stored[observed.OpenedKey] != "" && (stored[observed.DrainedKey] == "" || stored[observed.DrainedKey] != a.Observed.GetAnnotations()[backend.EpochAnnotation]) {
				return "Memory may hold events"
			}
		}
	case Orphan:
		if a.Observed.GetKind() != "StatefulSet" {
			return "its pods are orphaned"
		}
	}
	return ""
}
