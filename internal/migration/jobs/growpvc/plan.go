package growpvc

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

var (
	statefulSets   = migration.CoreResource("apps", "statefulsets", "StatefulSet")
	claims         = migration.CoreResource("", "persistentvolumeclaims", "PersistentVolumeClaim")
	storageClasses = migration.CoreResource("storage.k8s.io", "storageclasses", "StorageClass")
	pods           = migration.CoreResource("", "pods", "Pod")
)

// reader is what the job needs of a migration.Cluster.
type reader interface {
	Get(context.Context, migration.Ref) (*unstructured.Unstructured, error)
	List(context.Context, migration.Resource, string, migration.ListOptions) ([]*unstructured.Unstructured, error)
}

// snapshot is everything the job decides over.
type snapshot struct {
	// set is nil if there is none.
	set *unstructured.Unstructured
	// claims are those of the template, in the order of their pods.
	claims []*unstructured.Unstructured
	// classes by name; nil for one that does not exist.
	classes map[string]*unstructured.Unstructured
	// known are the names of the StatefulSets in the namespace, if set is nil; orphaned says
	// then that pods of set are there without it: an interrupted run has deleted it.
	known    []string
	orphaned bool
}

func refOf(o options) migration.Ref {
	namespace, name, _ := strings.Cut(o.statefulSet, "/")
	return migration.Ref{Resource: statefulSets, Namespace: namespace, Name: name}
}

func observe(ctx context.Context, c reader, o options) (*snapshot, error) {
	s := &snapshot{classes: map[string]*unstructured.Unstructured{}}
	ref := refOf(o)
	var err error
	if s.set, err = c.Get(ctx, ref); err != nil {
		return nil, err
	}
	all, err := c.List(ctx, claims, ref.Namespace, migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	name := o.claim
	if s.set == nil {
		if all, err = s.withoutSet(ctx, c, ref, all); err != nil {
			return nil, err
		}
	}
	if s.set != nil {
		_, template, problem := templateOf(s.set, o.claim)
		if problem != "" {
			return s, nil
		}
		name, _, _ = unstructured.NestedString(template, "metadata", "name")
	}
	s.claims = claimsOf(ref.Name, name, all)
	for _, claim := range s.claims {
		class := classOf(claim)
		if _, known := s.classes[class]; known || class == "" {
			continue
		}
		if s.classes[class], err = c.Get(ctx, migration.Ref{Resource: storageClasses, Name: class}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// withoutSet reads whose claims there are when the StatefulSet does not exist, and returns those
// that belong to none that does. The name of one may end that of another one: claim store-my-db-0
// is of StatefulSet my-db, and not of db.
func (s *snapshot) withoutSet(ctx context.Context, c reader, ref migration.Ref, all []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	sets, err := c.List(ctx, statefulSets, ref.Namespace, migration.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		s.known = append(s.known, set.GetName())
		templates, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
		for _, item := range templates {
			template, _ := item.(map[string]any)
			name, _, _ := unstructured.NestedString(template, "metadata", "name")
			theirs := claimsOf(set.GetName(), name, all)
			all = slices.DeleteFunc(slices.Clone(all), func(claim *unstructured.Unstructured) bool { return slices.Contains(theirs, claim) })
		}
	}
	slices.Sort(s.known)
	running, err := c.List(ctx, pods, ref.Namespace, migration.ListOptions{})
	for _, pod := range running {
		rest, number, ok := cutLast(pod.GetName(), "-")
		owner := metav1.GetControllerOfNoCopy(pod)
		_, notNumber := strconv.Atoi(number)
		// The garbage collector removes the reference to its former owner a moment later.
		free := owner == nil || owner.Kind == statefulSets.Kind && owner.Name == ref.Name
		s.orphaned = s.orphaned || ok && notNumber == nil && rest == ref.Name && free
	}
	return all, err
}

// claimsOf are the claims that a StatefulSet made from one template, in the order
// of its pods. Without the name of the template, which only the StatefulSet tells,
// it has to be the same for all.
func claimsOf(set, template string, all []*unstructured.Unstructured) []*unstructured.Unstructured {
	type numbered struct {
		claim   *unstructured.Unstructured
		ordinal int
	}
	var found []numbered
	templates := map[string]bool{}
	for _, claim := range all {
		rest, number, ok := cutLast(claim.GetName(), "-")
		n, err := strconv.Atoi(number)
		from, of := strings.CutSuffix(rest, "-"+set)
		if !ok || err != nil || n < 0 || !of || template != "" && from != template {
			continue
		}
		templates[from] = true
		found = append(found, numbered{claim, n})
	}
	if len(templates) > 1 {
		return nil
	}
	slices.SortFunc(found, func(a, b numbered) int { return a.ordinal - b.ordinal })
	out := make([]*unstructured.Unstructured, len(found))
	for i := range found {
		out[i] = found[i].claim
	}
	return out
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func classOf(claim *unstructured.Unstructured) string {
	class, _, _ := unstructured.NestedString(claim.Object, "spec", "storageClassName")
	return class
}

// templateOf returns the volume claim template of that name, or the only one.
func templateOf(set *unstructured.Unstructured, name string) (index int, template map[string]any, problem string) {
	all, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	var names []string
	for i, item := range all {
		m, _ := item.(map[string]any)
		found, _, _ := unstructured.NestedString(m, "metadata", "name")
		names = append(names, found)
		if found == name || name == "" && len(all) == 1 {
			return i, m, ""
		}
	}
	switch {
	case len(all) == 0:
		return 0, nil, "has no volume claim template"
	case name == "":
		return 0, nil, fmt.Sprintf("has several volume claim templates (%s): choose one with --claim", strings.Join(names, ", "))
	}
	return 0, nil, fmt.Sprintf("has no volume claim template %q; there is %s", name, strings.Join(names, ", "))
}

func requested(obj map[string]any) (resource.Quantity, error) {
	s, _, _ := unstructured.NestedString(obj, "spec", "resources", "requests", "storage")
	return resource.ParseQuantity(s)
}

func decide(s *snapshot, o options) *migration.Plan {
	plan := &migration.Plan{Parallelism: 1, Serial: true}
	find := func(id string, severity migration.Severity, ref migration.Ref, note, format string, args ...any) {
		plan.Findings = append(plan.Findings, migration.Finding{ID: id, Severity: severity, Object: ref.String(), Problem: fmt.Sprintf(format, args...), Note: note, Command: show(ref)})
	}
	ref := refOf(o)
	size := resource.MustParse(o.size) // Validate has parsed it
	switch {
	case s.set == nil && (len(s.claims) == 0 || !s.orphaned && s.wouldGrow(size)):
		// What has grown stays so. Claims alone do not say whose they are.
		problem := "does not exist"
		if len(s.known) > 0 {
			problem += "; in this namespace there is " + strings.Join(s.known, ", ")
		}
		find("statefulset-missing", migration.Error, ref, "Check the namespace and the name. If an interrupted run of this job has deleted it, undo that run.", "%s", problem)
		return plan
	case s.set == nil || s.set.GetDeletionTimestamp() != nil:
		// A run that was killed may have deleted it: its journal, which the engine
		// finishes, creates it again. To refuse would be to leave it away.
		find("statefulset-missing", migration.Warning, ref, "If no run of this job was interrupted, find out who deleted it.", "does not exist now, or is being deleted; its claims still grow")
	default:
		if !planSet(plan, s.set, o, size, find) {
			return plan
		}
	}
	for _, claim := range s.claims {
		claimRef := claims.RefTo(claim)
		has, err := requested(claim.Object)
		if err != nil {
			find("claim-without-size", migration.Error, claimRef, "", "has no size: %v", err)
			continue
		}
		if has.Cmp(size) > 0 {
			find("claim-larger", migration.Info, claimRef, "", "has %s already, which is not made smaller", has.String())
		}
		if has.Cmp(size) >= 0 {
			if has.Cmp(size) == 0 && !isGrown(claim, size) {
				plan.Units = append(plan.Units, migration.Unit{ID: claimRef.String(), Changes: []migration.Change{{Verb: migration.Await, Ref: claimRef, Why: "it is growing already"}}})
			}
			continue
		}
		if why, note := cannotGrow(claim, s.classes); why != "" {
			find("claim-cannot-grow", migration.Error, claimRef, note, "cannot grow from %s to %s: %s", has.String(), size.String(), why)
			continue
		}
		plan.Units = append(plan.Units, grow(claimRef, claim, has, size))
	}
	return plan
}

// show is the command that shows an object.
func show(ref migration.Ref) string {
	return migration.Kubectl(ref.Namespace, "describe", ref.GroupResource().String(), ref.Name)
}

// planSet decides about the StatefulSet itself; false if nothing can be decided
// about its claims either.
func planSet(plan *migration.Plan, set *unstructured.Unstructured, o options, size resource.Quantity,
	find func(string, migration.Severity, migration.Ref, string, string, ...any),
) bool {
	ref := refOf(o)
	index, template, problem := templateOf(set, o.claim)
	if problem != "" {
		find("template-not-found", migration.Error, ref, "Check the flag --claim of the job.", "%s", problem)
		return false
	}
	now, err := requested(template)
	if err != nil {
		find("claim-without-size", migration.Error, ref, "", "its volume claim template has no size: %v", err)
		return false
	}
	switch now.Cmp(size) {
	case -1:
		if policy, _, _ := unstructured.NestedString(set.Object, "spec", "persistentVolumeClaimRetentionPolicy", "whenDeleted"); policy == "Delete" {
			find("claims-deleted-with-set", migration.Error, ref, "Set persistentVolumeClaimRetentionPolicy.whenDeleted to Retain first.", "its claims are deleted when it is deleted")
		}
		plan.Units = append(plan.Units, recreate(ref, set, index, size, now))
	case 1:
		find("claim-larger", migration.Info, ref, "", "its volume claim template has %s already, which is not made smaller", now.String())
	}
	return true
}

// wouldGrow says whether any of the claims is smaller than that.
func (s *snapshot) wouldGrow(size resource.Quantity) bool {
	return slices.ContainsFunc(s.claims, func(claim *unstructured.Unstructured) bool {
		has, err := requested(claim.Object)
		return err != nil || has.Cmp(size) < 0
	})
}

func cannotGrow(claim *unstructured.Unstructured, classes map[string]*unstructured.Unstructured) (why, note string) {
	class := classOf(claim)
	phase, _, _ := unstructured.NestedString(claim.Object, "status", "phase")
	switch {
	case claim.GetDeletionTimestamp() != nil:
		return "it is being deleted", "Wait until it is gone, and run the job again."
	case class == "":
		return "it has no StorageClass", "Its volume was made by hand. Make it larger by hand."
	case classes[class] == nil:
		return "its StorageClass " + class + " does not exist", "Create the StorageClass, or move the data to a claim of another one."
	case phase != "Bound":
		return "it is not bound to a volume", "Check why it is not bound."
	}
	if expands, _, _ := unstructured.NestedBool(classes[class].Object, "allowVolumeExpansion"); !expands {
		return "its StorageClass " + class + " cannot expand volumes (allowVolumeExpansion is not true)",
			"If its provisioner can expand volumes, set allowVolumeExpansion of the StorageClass to true."
	}
	return "", ""
}

// recreate is the StatefulSet's unit: it goes without its pods, and comes back with
// a larger template.
func recreate(ref migration.Ref, set *unstructured.Unstructured, index int, size, former resource.Quantity) migration.Unit {
	larger := k8sutil.Restorable(set)
	templates, _, _ := unstructured.NestedSlice(larger.Object, "spec", "volumeClaimTemplates")
	template, _ := templates[index].(map[string]any)
	delete(template, "status")
	// The template was found and has a size: these fields can be set.
	_ = unstructured.SetNestedField(template, size.String(), "spec", "resources", "requests", "storage")
	_ = unstructured.SetNestedSlice(larger.Object, templates, "spec", "volumeClaimTemplates")
	return migration.Unit{ID: ref.String(), Changes: []migration.Change{
		{
			// The new one is made of this image: what is edited after it was read must not be
			// deleted.
			Verb: migration.Delete, Ref: ref, UID: set.GetUID(), Object: k8sutil.Image(set), Guard: true,
			Why: "its volume claim template cannot be changed; its pods stay",
		},
		{
			Verb: migration.Create, Ref: ref, Object: larger,
			Why: fmt.Sprintf("with %s in its volume claim template rather than %s; it adopts the pods", size.String(), former.String()),
		},
	}}
}

func grow(ref migration.Ref, claim *unstructured.Unstructured, has, size resource.Quantity) migration.Unit {
	patch, _ := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": size.String()}}}})
	return migration.Unit{ID: ref.String(), Changes: []migration.Change{{
		Verb: migration.Patch, Ref: ref, UID: claim.GetUID(), Patch: patch, Irreversible: true, Why: fmt.Sprintf("it has %s", has.String()),
		Object: k8sutil.Basis(claim, []string{"spec", "resources", "requests", "storage"}),
	}}}
}

// isGrown says whether the volume has its size, but perhaps for its file system,
// which grows when the pod starts the next time.
func isGrown(claim *unstructured.Unstructured, size resource.Quantity) bool {
	s, _, _ := unstructured.NestedString(claim.Object, "status", "capacity", "storage")
	if capacity, err := resource.ParseQuantity(s); err == nil && capacity.Cmp(size) >= 0 {
		return true
	}
	return conditionOf(claim, "FileSystemResizePending") != nil
}

func conditionOf(obj *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range all {
		if m, _ := item.(map[string]any); m["type"] == kind && m["status"] == "True" {
			return m
		}
	}
	return nil
}
