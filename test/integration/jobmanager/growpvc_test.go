package jobmanager

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kyma-project/eventmesh-migration/pkg/migration"
	"github.com/kyma-project/eventmesh-migration/test/faultproxy"
	"github.com/kyma-project/eventmesh-migration/test/process"
)

// database is a StatefulSet with two pods and their claims, on the real
// controller of StatefulSets. What binds claims and grows volumes is a stand-in.
type database struct {
	growing atomic.Bool
	// pods and claims, by name, as reset has made them.
	pods, claims map[string]types.UID
}

const dataNamespace = "data"

func newDatabase(t *testing.T) *database {
	t.Helper()
	namespace(t, dataNamespace)
	d := &database{}
	d.growing.Store(true)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	claims := typed.CoreV1().PersistentVolumeClaims(dataNamespace)
	w, err := claims.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			for event := range w.ResultChan() {
				claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
				if !ok || event.Type == watch.Deleted {
					continue
				}
				var status map[string]any
				wanted := claim.Spec.Resources.Requests[corev1.ResourceStorage]
				switch has := claim.Status.Capacity[corev1.ResourceStorage]; {
				case claim.Status.Phase != corev1.ClaimBound:
					status = map[string]any{"phase": corev1.ClaimBound, "capacity": map[string]any{"storage": wanted.String()}}
				case has.Cmp(wanted) < 0 && d.growing.Load():
					status = map[string]any{"capacity": map[string]any{"storage": wanted.String()}}
				default:
					continue
				}
				raw, _ := json.Marshal(map[string]any{"status": status})
				_, _ = claims.Patch(ctx, claim.Name, types.MergePatchType, raw, metav1.PatchOptions{}, "status") // it may be gone
			}
			if ctx.Err() != nil {
				return
			}
			if w, err = claims.Watch(ctx, metav1.ListOptions{}); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		d.clear(ctx, t)
		stop()
		w.Stop()
		<-ended
	})
	return d
}

func (d *database) clear(ctx context.Context, t testing.TB) {
	t.Helper()
	none := int64(0)
	opts := metav1.DeleteOptions{GracePeriodSeconds: &none, PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if err := typed.AppsV1().StatefulSets(dataNamespace).DeleteCollection(ctx, opts, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	sets := typed.AppsV1().ControllerRevisions(dataNamespace)
	for {
		_ = typed.CoreV1().Pods(dataNamespace).DeleteCollection(ctx, opts, metav1.ListOptions{})
		claims, err := typed.CoreV1().PersistentVolumeClaims(dataNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range claims.Items {
			remove(t, "Claim", dataNamespace, claims.Items[i].Name)
		}
		pods, err := typed.CoreV1().Pods(dataNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		revisions, err := sets.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_ = sets.DeleteCollection(ctx, opts, metav1.ListOptions{})
		left, err := typed.AppsV1().StatefulSets(dataNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(claims.Items)+len(pods.Items)+len(revisions.Items)+len(left.Items) == 0 {
			return
		}
	}
}

// reset puts the StatefulSet with claims of 1Gi, in a class that can expand or
// cannot, and returns when both pods exist and both claims are bound.
func (d *database) reset(ctx context.Context, t testing.TB, expands bool) {
	t.Helper()
	d.growing.Store(true)
	d.clear(ctx, t)
	put(t, "StorageClass", object(t, fmt.Sprintf(`{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: growing}, provisioner: example.com/none, allowVolumeExpansion: %t}`, expands)))
	claims, err := typed.CoreV1().PersistentVolumeClaims(dataNamespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer claims.Stop()
	put(t, "StatefulSet", object(t, `{apiVersion: apps/v1, kind: StatefulSet, metadata: {namespace: data, name: db}, spec: {replicas: 2, serviceName: db, podManagementPolicy: Parallel,
  selector: {matchLabels: {app: db}}, template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: store, mountPath: /data}]}]}},
  volumeClaimTemplates: [{metadata: {name: store}, spec: {accessModes: [ReadWriteOnce], storageClassName: growing, resources: {requests: {storage: 1Gi}}}}]}}`))
	d.pods, d.claims = map[string]types.UID{}, map[string]types.UID{}
	limit := time.After(30 * time.Second)
	for len(d.claims) < 2 {
		select {
		case event := <-claims.ResultChan():
			if claim, ok := event.Object.(*corev1.PersistentVolumeClaim); ok && claim.Status.Phase == corev1.ClaimBound {
				d.claims[claim.Name] = claim.UID
			}
		case <-limit:
			t.Fatalf("the claims are not bound: %v", d.claims)
		}
	}
	for len(d.pods) < 2 {
		pods, err := typed.CoreV1().Pods(dataNamespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range pods.Items {
			d.pods[pods.Items[i].Name] = pods.Items[i].UID
		}
		select {
		case <-limit:
			t.Fatalf("the pods do not exist: %v", d.pods)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// adopted returns when every pod of the StatefulSet belongs to one: what a rollback
// has brought back, its controller gives its pods a moment later.
func (d *database) adopted(ctx context.Context, t testing.TB) {
	t.Helper()
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	ours := metav1.ListOptions{LabelSelector: "app=db"}
	pods, err := typed.CoreV1().Pods(dataNamespace).List(limit, ours)
	if err != nil {
		t.Fatal(err)
	}
	orphans := map[string]bool{}
	note := func(p *corev1.Pod) {
		delete(orphans, p.Name)
		if metav1.GetControllerOf(p) == nil && p.DeletionTimestamp == nil {
			orphans[p.Name] = true
		}
	}
	for i := range pods.Items {
		note(&pods.Items[i])
	}
	ours.ResourceVersion = pods.ResourceVersion
	w, err := typed.CoreV1().Pods(dataNamespace).Watch(limit, ours)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for len(orphans) > 0 {
		event, ok := <-w.ResultChan()
		if !ok {
			t.Fatalf("pods without an owner: %v", orphans)
		}
		if p, is := event.Object.(*corev1.Pod); is {
			note(p)
		}
	}
}

// intact checks that pods and claims are those of reset, and belong to the
// StatefulSet there is.
func (d *database) intact(ctx context.Context, t testing.TB) {
	t.Helper()
	set, err := typed.AppsV1().StatefulSets(dataNamespace).Get(ctx, "db", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the StatefulSet is lost: %v", err)
	}
	d.adopted(ctx, t)
	pods, err := typed.CoreV1().Pods(dataNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app=db"})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Name == "intruder" {
			continue
		}
		seen++
		if p.UID != d.pods[p.Name] || p.DeletionTimestamp != nil {
			t.Errorf("Pod %s was replaced, or is going", p.Name)
		}
		if owner := metav1.GetControllerOf(p); owner == nil || owner.UID != set.UID {
			t.Errorf("Pod %s does not belong to the StatefulSet: %v", p.Name, owner)
		}
	}
	if seen != 2 {
		t.Errorf("%d pods, want 2", seen)
	}
	claims, err := typed.CoreV1().PersistentVolumeClaims(dataNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(claims.Items) != 2 {
		t.Errorf("%d claims, want 2", len(claims.Items))
	}
	for i := range claims.Items {
		if c := &claims.Items[i]; c.UID != d.claims[c.Name] || c.DeletionTimestamp != nil {
			t.Errorf("PersistentVolumeClaim %s was replaced, or is going", c.Name)
		}
	}
}

// sizes are those of the template and of each claim: asked for, and had.
func (d *database) sizes(ctx context.Context, t testing.TB) []string {
	t.Helper()
	set, err := typed.AppsV1().StatefulSets(dataNamespace).Get(ctx, "db", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("the StatefulSet is lost: %v", err)
	}
	out := []string{set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests.Storage().String()}
	claims, err := typed.CoreV1().PersistentVolumeClaims(dataNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		out = append(out, c.Spec.Resources.Requests.Storage().String()+"/"+c.Status.Capacity.Storage().String())
	}
	return out
}

func (d *database) want(t *testing.T, want ...string) {
	t.Helper()
	d.grown(t)
	if got := d.sizes(t.Context(), t); !slices.Equal(got, want) {
		t.Errorf("sizes %q, want %q", got, want)
	}
	d.intact(t.Context(), t)
}

// link is the program under the name of a job.
func link(t *testing.T, job string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), job)
	if err := os.Symlink(process.Build(t, binary), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestGrowPVC(t *testing.T) {
	d := newDatabase(t)
	forget(t)
	t.Cleanup(func() { forget(t) })
	grow := func(command, size string, more ...string) outcome {
		return called(t, link(t, "grow-pvc"), "", append([]string{command, "--statefulset=data/db", "--size=" + size, "--lease-duration=1s", "--output=json"}, more...)...)
	}

	t.Run("Grows", func(t *testing.T) {
		d.reset(t.Context(), t, true)
		grow("plan", "5Gi").want(t, 0, `"reversible": "new-uid"`, `"reversible": "no"`)
		d.want(t, "1Gi", "1Gi/1Gi", "1Gi/1Gi")
		grow("run", "5Gi").want(t, 0, `"succeeded"`)
		d.want(t, "5Gi", "5Gi/5Gi", "5Gi/5Gi")
		grow("run", "5Gi").want(t, 0, `"nothing-to-do"`, `"writes": 0`)
	})
	t.Run("NeverShrinks", func(t *testing.T) {
		grow("run", "2Gi").want(t, 0, `"nothing-to-do"`, "has 5Gi already, which is not made smaller")
		d.want(t, "5Gi", "5Gi/5Gi", "5Gi/5Gi")
	})
	t.Run("ALargerClaimStays", func(t *testing.T) {
		d.reset(t.Context(), t, true)
		patch(t, "Claim", dataNamespace, "store-db-0", `{"spec":{"resources":{"requests":{"storage":"9Gi"}}}}`)
		grow("run", "5Gi").want(t, 0)
		d.want(t, "5Gi", "9Gi/9Gi", "5Gi/5Gi")
	})
	t.Run("AClassThatCannotExpand", func(t *testing.T) {
		d.reset(t.Context(), t, false)
		before, err := resource("StatefulSet", dataNamespace).Get(t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		grow("run", "5Gi").want(t, migration.ExitRefused, "its StorageClass growing cannot expand volumes")
		tool(t, "run", "--job=grow-pvc", "--grow-pvc.statefulset=data/db", "--grow-pvc.size=5Gi").want(t, migration.ExitRefused, "cannot expand volumes")
		tool(t, "jobs", "--grow-pvc.statefulset=data/db", "--grow-pvc.size=5Gi").want(t, 0, "blocked")
		after, err := resource("StatefulSet", dataNamespace).Get(t.Context(), "db", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() {
			t.Errorf("the StatefulSet was touched: %s", cmp.Diff(before.Object, after.Object))
		}
		d.want(t, "1Gi", "1Gi/1Gi", "1Gi/1Gi")
	})
	t.Run("ClaimsThatGoWithTheStatefulSet", func(t *testing.T) {
		if err := cluster.Lacks("persistentVolumeClaimRetentionPolicy", 27); err != nil {
			t.Skip(err)
		}
		d.reset(t.Context(), t, true)
		patch(t, "StatefulSet", dataNamespace, "db", `{"spec":{"persistentVolumeClaimRetentionPolicy":{"whenDeleted":"Delete","whenScaled":"Retain"}}}`)
		grow("run", "5Gi").want(t, migration.ExitRefused, "its claims are deleted when it is deleted")
		d.want(t, "1Gi", "1Gi/1Gi", "1Gi/1Gi")
	})
	t.Run("AVolumeThatDoesNotGrow", func(t *testing.T) {
		d.reset(t.Context(), t, true)
		d.growing.Store(false)
		grow("run", "5Gi", "--resize-timeout=1s").want(t, migration.ExitPartlyRestored, "its volume has 1Gi", "this change cannot be undone")
		// The StatefulSet is as it was; what a claim asks for cannot be undone.
		if got := d.sizes(t.Context(), t); got[0] != "1Gi" || !strings.HasSuffix(got[1], "/1Gi") {
			t.Errorf("sizes %q", got)
		}
		d.intact(t.Context(), t)
		d.growing.Store(true)
		for name := range d.claims {
			patch(t, "Claim", dataNamespace, name, `{"metadata":{"labels":{"look":"again"}}}`) // what grows volumes looks when a claim changes
		}
		grow("run", "5Gi").want(t, 0)
		d.want(t, "5Gi", "5Gi/5Gi", "5Gi/5Gi")
	})
	// Fails on the commit before: the new StatefulSet had the former image, and the run
	// succeeded.
	t.Run("EditedAfterThePlan", func(t *testing.T) {
		for _, at := range []struct{ name, verb, resource string }{{"BeforeTheJournal", "create", "secrets"}, {"BeforeTheDeletion", "delete", "statefulsets"}} {
			t.Run(at.name, func(t *testing.T) {
				d.reset(t.Context(), t, true)
				proxy, err := faultproxy.Start(cluster.Config())
				if err != nil {
					t.Fatal(err)
				}
				defer proxy.Close()
				var once sync.Once
				proxy.Use(func(_ context.Context, r faultproxy.Request, next faultproxy.Next) (*http.Response, error) {
					if r.Is(at.resource, at.verb) {
						once.Do(func() {
							patch(t, "StatefulSet", dataNamespace, "db", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"upgraded","volumeMounts":[{"name":"store","mountPath":"/data"}]}]}}}}`)
						})
					}
					return next()
				})
				kubeconfig, err := proxy.Kubeconfig(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				out := grow("run", "5Gi", "--kubeconfig="+kubeconfig)
				set, err := typed.AppsV1().StatefulSets(dataNamespace).Get(t.Context(), "db", metav1.GetOptions{})
				if err != nil {
					t.Fatalf("the StatefulSet is lost: %v", err)
				}
				if image := set.Spec.Template.Spec.Containers[0].Image; image != "upgraded" {
					t.Errorf("the edit is lost: the image is %q\n%s", image, out.stdout)
				}
				if !strings.Contains(out.stdout, "edited") {
					t.Errorf("exit code %d, and nothing is said:\n%s", out.code, out.stdout)
				}
			})
		}
	})
	t.Run("Undo", func(t *testing.T) {
		d.templateOnly(t.Context(), t)
		forget(t)
		grow("run", "5Gi").want(t, 0)
		d.want(t, "5Gi", "5Gi/5Gi", "5Gi/5Gi")
		grow("undo", "5Gi").want(t, 0)
		d.want(t, "1Gi", "5Gi/5Gi", "5Gi/5Gi")
	})
}

// templateOnly leaves nothing to change but the StatefulSet: what can be undone.
func (d *database) templateOnly(ctx context.Context, t testing.TB) {
	t.Helper()
	d.reset(ctx, t, true)
	for name := range d.claims {
		patch(t, "Claim", dataNamespace, name, `{"spec":{"resources":{"requests":{"storage":"5Gi"}}}}`)
	}
	d.grown(t)
}

// grown returns when every volume has what its claim asks for: the stand-in lets
// them grow a moment later.
func (d *database) grown(t testing.TB) {
	t.Helper()
	w, err := typed.CoreV1().PersistentVolumeClaims(dataNamespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	small, seen := map[string]bool{}, map[string]bool{}
	for limit := time.After(time.Minute); len(seen) < len(d.claims) || len(small) > 0; {
		select {
		case event := <-w.ResultChan():
			if c, ok := event.Object.(*corev1.PersistentVolumeClaim); ok {
				seen[c.Name] = true
				delete(small, c.Name)
				if c.Status.Capacity.Storage().Cmp(*c.Spec.Resources.Requests.Storage()) < 0 {
					small[c.Name] = true
				}
			}
		case <-limit:
			t.Fatalf("the claims do not grow: %v", small)
		}
	}
}
