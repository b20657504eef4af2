//go:build soak

package eventingmanager_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/test/measure"
	"github.com/kyma-project/eventmesh-migration/test/natsserver"
	"github.com/kyma-project/eventmesh-migration/test/poll"
	"github.com/kyma-project/eventmesh-migration/test/sinks"
)

const (
	// volume is that of NATS, a file system of its own.
	volume = 128 << 20
	// toldWithin is how long events may be refused before the state says so, and a second for the
	// looks of the test.
	toldWithin = 6 * time.Second
	// takenWithin is how long it may take until events are taken after the reason for a refusal is
	// gone.
	takenWithin = 30 * time.Second
)

// TestSoakEverything: a million events, on a volume that fills again and again, because one sink
// takes nothing for a while, one refuses, one does not answer, and one Subscription leaves and
// comes back, while NATS, the publisher and the controller are killed every 15 seconds. Each event
// that was accepted is at its sink, but for those of a Subscription that was deleted. The state is
// never Ready while events are refused, and they are taken 30 seconds after there is room.
// EVENTING_SOAK_EVENTS is the number of events.
func TestSoakEverything(t *testing.T) {
	count := int64(measure.Number(t, "EVENTING_SOAK_EVENTS", 1_000_000))
	s := newSite(t, "everything")
	s.ownVolume(volume)
	r := &everything{site: s, to: s.withSinks(), client: s.http(), streams: map[string]*flow{}}
	for i := range 4 {
		r.flow(fmt.Sprintf("live%d", i), 200, 4*time.Millisecond, nil)
	}
	dead := r.flow("dead", 8_000, 5*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	bad := r.flow("bad", 1_000, 50*time.Millisecond, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) })
	hang := r.flow("hang", 1_000, time.Second, func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() })
	s.start()
	s.create(eventings, strings.NewReplacer("natsStreamMaxSize: 10Mi", "natsStreamMaxSize: 100Mi", "size: 100Mi", "size: 128Mi",
		"min: 1, max: 1", "min: 2, max: 2", "controller: {replicas: 1}", "controller: {replicas: 2}").Replace(one))
	s.await(90*time.Second, operatorv1alpha1.StateReady, "", "")
	for name := range r.streams {
		s.subscribe(r.to, name, "source: commerce, types: ["+name+".v1]")
	}
	for name := range r.streams {
		s.awaitSubscription(name)
	}

	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publishing, beside sync.WaitGroup
	for name, f := range r.streams {
		clients := 1
		if strings.HasPrefix(name, "live") {
			clients = 4
		}
		for range clients {
			publishing.Go(func() { r.publish(ctx, name, f, count) })
		}
	}
	killing, calm := context.WithCancel(ctx)
	killed := make(chan int, 1)
	go func() { killed <- s.killing(killing, 15*time.Second) }()
	beside.Go(func() { r.watchState(killing) })
	full := 0
	for deleted := false; r.accepted.Load() < count && ctx.Err() == nil; deleted = !deleted {
		if !r.untilFull(ctx, count) {
			break
		}
		full++
		if deleted {
			// What waits for it goes with it.
			dead.pause(func() {
				was, err := s.get(subscriptions, "dead")
				s.check(err)
				s.delete(subscriptions, "dead")
				poll.Until(t, time.Minute, "the Subscription is gone", func(context.Context) error { _, err := s.get(subscriptions, "dead"); return poll.Gone(err) })
				dead.forgive()
				again := &unstructured.Unstructured{Object: map[string]any{"apiVersion": was.GetAPIVersion(), "kind": was.GetKind(), "metadata": map[string]any{"name": "dead"}, "spec": was.Object["spec"]}}
				_, err = s.client.Resource(subscriptions).Namespace(s.namespace).Create(t.Context(), again, metav1.CreateOptions{})
				s.check(err)
				s.awaitSubscription("dead")
			})
		} else {
			dead.works.Store(true)
		}
		r.untilTaken(ctx, count)
		time.Sleep(10 * time.Second)
		dead.works.Store(false)
	}
	publishing.Wait()
	took := time.Since(began)
	for _, f := range []*flow{dead, bad, hang} {
		f.works.Store(true)
	}
	calm()
	beside.Wait()
	poll.Until(t, 20*time.Minute, "each event that was accepted is at its sink", func(context.Context) error { return r.missing() })
	s.awaitEmpty()
	requests, forgiven := r.sums()
	if full < 2 && count >= 1_000_000 {
		t.Errorf("the volume was full %d times", full)
	}
	t.Logf("%d events accepted in %s, all delivered after %s: %d kills, %d times full, %d requests refused for want of room, longest until taken again %s, %d went with a Subscription, %d requests that sinks took",
		r.accepted.Load(), took.Round(time.Second), time.Since(began).Round(time.Second), <-killed, full, r.noRoom.Load(), r.longest.Round(100*time.Millisecond), forgiven, requests)
}

// everything is the state of the test.
type everything struct {
	*site
	to       *sinks.Sinks
	client   *http.Client
	streams  map[string]*flow
	accepted atomic.Int64
	noRoom   atomic.Int64
	longest  time.Duration

	mu sync.Mutex
	// taken and refused are when a live event was last taken, and refused for want of room; since
	// is the first such refusal after any other answer.
	taken, refused, since time.Time
}

// flow are the events of one type, with their sink.
type flow struct {
	size  int
	every time.Duration
	next  atomic.Int64
	works atomic.Bool
	// running is held while events are published, so that they can be paused.
	running sync.RWMutex

	mu sync.Mutex
	// accepted and delivered are numbers of events.
	accepted, delivered map[int64]bool
	requests, forgiven  int64
}

// flow makes a sink that answers with refuse until it works; nil: it always does.
func (r *everything) flow(name string, size int, every time.Duration, refuse http.HandlerFunc) *flow {
	f := &flow{size: size, every: every, accepted: map[int64]bool{}, delivered: map[int64]bool{}}
	r.streams[name] = f
	r.to.Forget(name)
	r.to.Answer(name, func(w http.ResponseWriter, q *http.Request) {
		if refuse != nil && !f.works.Load() {
			refuse(w, q)
			return
		}
		n, err := strconv.ParseInt(strings.TrimPrefix(q.Header.Get("Ce-Id"), name+"-"), 10, 64)
		if err != nil {
			r.t.Errorf("sink %s got event %q", name, q.Header.Get("Ce-Id"))
			return
		}
		f.mu.Lock()
		f.delivered[n] = true
		f.requests++
		f.mu.Unlock()
	})
	return f
}

// pause runs something while no event of the flow is published.
func (f *flow) pause(do func()) {
	f.running.Lock()
	defer f.running.Unlock()
	do()
}

// forgive expects no more of what was accepted so far.
func (f *flow) forgive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n := range f.accepted {
		if !f.delivered[n] {
			f.forgiven++
		}
	}
	clear(f.accepted)
}

// publish sends events of a flow, each until it is accepted, until there are as many as wanted.
func (r *everything) publish(ctx context.Context, name string, f *flow, count int64) {
	body := strings.Repeat("x", f.size)
	for r.accepted.Load() < count && ctx.Err() == nil {
		n := f.next.Add(1)
		header := created(fmt.Sprintf("%s-%d", name, n))
		header["Ce-Type"] = name + ".v1"
		for ctx.Err() == nil && !r.publishOnce(ctx, f, n, header, body, strings.HasPrefix(name, "live")) {
			if r.accepted.Load() >= count {
				return // it may be stored; then it is delivered, and nobody counts it
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(f.every)
	}
}

func (r *everything) publishOnce(ctx context.Context, f *flow, n int64, header map[string]string, body string, live bool) bool {
	f.running.RLock()
	defer f.running.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	status, _, err := ask(ctx, r.client, http.MethodPost, "/publish", header, body)
	ok := err == nil && status/100 == 2
	if err == nil && status == http.StatusInsufficientStorage {
		r.noRoom.Add(1)
	}
	if ok {
		f.mu.Lock()
		f.accepted[n] = true
		f.mu.Unlock()
		r.accepted.Add(1)
	}
	if live {
		r.mu.Lock()
		switch {
		case ok:
			r.taken, r.since = time.Now(), time.Time{}
		case err == nil && status == http.StatusInsufficientStorage:
			if r.refused = time.Now(); r.since.IsZero() {
				r.since = r.refused
			}
		default: // a pod was killed
			r.since = time.Time{}
		}
		r.mu.Unlock()
	}
	return ok
}

// refusedFor is for how long live events have been refused for want of room, with nothing taken.
func (r *everything) refusedFor(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.since.IsZero() || now.Sub(r.refused) > time.Second {
		return 0
	}
	return now.Sub(r.since)
}

// watchState demands that the Eventing is not Ready while events are refused.
func (r *everything) watchState(ctx context.Context) {
	wrong := time.Time{}
	for ctx.Err() == nil {
		time.Sleep(250 * time.Millisecond)
		e, err := r.eventing(r.namespace, "eventing")
		now := time.Now()
		if err != nil || e.Status.State != operatorv1alpha1.StateReady || r.refusedFor(now) < toldWithin {
			wrong = time.Time{}
			continue
		}
		if wrong.IsZero() {
			wrong = now
			r.t.Errorf("events are refused for %s, and the Eventing is Ready", r.refusedFor(now).Round(time.Second))
		}
	}
}

// untilFull waits until live events are refused for want of room. false: there are enough events.
func (r *everything) untilFull(ctx context.Context, count int64) bool {
	for ctx.Err() == nil && r.accepted.Load() < count {
		if r.refusedFor(time.Now()) > toldWithin+2*time.Second {
			return true
		}
		time.Sleep(250 * time.Millisecond)
	}
	return false
}

// untilTaken waits until live events are taken again.
func (r *everything) untilTaken(ctx context.Context, count int64) {
	began := time.Now()
	for ctx.Err() == nil && r.accepted.Load() < count {
		r.mu.Lock()
		taken := r.taken.After(began)
		r.mu.Unlock()
		if taken {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	took := time.Since(began)
	r.longest = max(r.longest, took)
	if took > takenWithin {
		r.t.Errorf("events are taken %s after there was a reason", took.Round(time.Second))
	}
}

// missing is what was accepted and is at no sink.
func (r *everything) missing() error {
	var errs []error
	for name, f := range r.streams {
		f.mu.Lock()
		n, example := 0, int64(0)
		for of := range f.accepted {
			if !f.delivered[of] {
				n, example = n+1, of
			}
		}
		all := len(f.accepted)
		f.mu.Unlock()
		if n > 0 {
			errs = append(errs, fmt.Errorf("%d of %d of %s, %d among them", n, all, name, example))
		}
	}
	return errors.Join(errs...)
}

func (r *everything) sums() (requests, forgiven int64) {
	for _, f := range r.streams {
		requests, forgiven = requests+f.requests, forgiven+f.forgiven
	}
	return requests, forgiven
}

// ownVolume makes a volume for the first NATS server that has so many bytes and no more.
func (s *site) ownVolume(size int64) {
	s.t.Helper()
	dir := s.t.TempDir()
	natsserver.Mount(s.t, dir, size)
	_, err := s.core.CoreV1().PersistentVolumes().Create(s.t.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "own-" + s.namespace},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(size, resource.BinarySI)}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: "standard", PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: s.namespace, Name: "data-eventing-nats-0"},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		},
	}, metav1.CreateOptions{})
	s.check(err)
	s.t.Cleanup(func() {
		s.check(s.core.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(s.t.Context()), "own-"+s.namespace, metav1.DeleteOptions{}))
	})
}
