// Package adoptbyhelm marks objects that exist so that a Helm 3 release takes them
// over.
package adoptbyhelm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/internal/k8sutil"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Job is adopt-by-helm.
type Job struct{ options options }

// options are the settings that decide what is done.
type options struct {
	release, namespace string
	objects            []string
}

var (
	_ migration.Job          = (*Job)(nil)
	_ migration.Configurable = (*Job)(nil)
)

// New returns the job with its default settings: nothing to do.
func New() *Job { return &Job{} }

// Name implements migration.Job.
func (j *Job) Name() string { return "adopt-by-helm" }

// Doc implements migration.Job.
func (j *Job) Doc() (short, long string) {
	return "Let a Helm release take over objects that exist", strings.TrimSpace(manual)
}

const manual = `
Helm 3 refuses to install a chart over objects that it did not create, unless
they have its label and annotations. This job sets those on the objects of
--objects, only where they differ. Each object is KIND.GROUP/NAMESPACE/NAME.
Without a namespace it is KIND.GROUP/NAME. A kind of the core group has no
group.

  --release=shop --release-namespace=kyma-integration
  --objects=HTTPSource.sources.kyma-project.io/kyma-integration/shop,Namespace/shop

An object that does not exist is left to the chart. If an object belongs to
another release, the run is refused (exit code 4). Remove it from that release
first.

The job changes only this label and these two annotations. It is safe to run
again. Undo restores the former values.
`

// Settings implements migration.Configurable.
func (j *Job) Settings() []migration.Setting {
	return []migration.Setting{{
		Name:  "release",
		Usage: "Helm release that takes the objects over",
		Value: &j.options.release,
	}, {
		Name:  "release-namespace",
		Usage: "namespace of that release",
		Value: &j.options.namespace,
	}, {
		Name:  "objects",
		Usage: "objects, separated by commas, each as KIND.GROUP/NAMESPACE/NAME or KIND.GROUP/NAME",
		Value: &j.options.objects,
	}}
}

// Asked says whether the job was told what to do.
func (j *Job) Asked() bool {
	return j.options.release != "" || j.options.namespace != "" || len(j.options.objects) > 0
}

// Validate implements migration.Configurable.
func (j *Job) Validate() error {
	if !j.Asked() {
		return nil
	}
	var errs []error
	if why := validation.IsDNS1123Subdomain(j.options.release); len(why) > 0 || len(j.options.release) > 53 {
		errs = append(errs, fmt.Errorf("--release %q is no name of a Helm release: lower-case letters, digits, dashes and dots, 53 at most", j.options.release))
	}
	if len(validation.IsDNS1123Label(j.options.namespace)) > 0 {
		errs = append(errs, fmt.Errorf("--release-namespace %q is no name of a namespace", j.options.namespace))
	}
	if len(j.options.objects) == 0 {
		errs = append(errs, errors.New("--objects names none"))
	}
	for _, o := range j.options.objects {
		if _, err := parse(o); err != nil {
			errs = append(errs, fmt.Errorf("--objects %q: %w", o, err))
		}
	}
	return errors.Join(errs...)
}

// named is an object as it was named.
type named struct {
	kind            schema.GroupKind
	namespace, name string
}

func parse(s string) (named, error) {
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return named{}, errors.New("must be KIND.GROUP/NAMESPACE/NAME or KIND.GROUP/NAME")
	}
	n := named{kind: schema.ParseGroupKind(parts[0]), name: parts[len(parts)-1]}
	if len(parts) == 3 {
		n.namespace = parts[1]
		if len(validation.IsDNS1123Label(n.namespace)) > 0 {
			return named{}, fmt.Errorf("%q is no name of a namespace", n.namespace)
		}
	}
	if n.kind.Kind == "" || n.name == "" || strings.ToUpper(n.kind.Kind[:1]) != n.kind.Kind[:1] {
		return named{}, errors.New("its kind must be written like Deployment.apps, and it needs a name")
	}
	return n, nil
}

// found is what the cluster has of it.
type found struct {
	named
	ref    migration.Ref
	served bool
	live   *unstructured.Unstructured
}

// Plan implements migration.Job.
func (j *Job) Plan(ctx context.Context, c *migration.Cluster, _ migration.PlanOptions) (*migration.Plan, error) {
	if !j.Asked() {
		return &migration.Plan{Findings: []migration.Finding{{ID: "nothing-named", Severity: migration.Info, Problem: "no object is named, so there is nothing to do"}}}, nil
	}
	all := make([]found, len(j.options.objects))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, o := range j.options.objects {
		g.Go(func() error {
			n, err := parse(o)
			if err != nil {
				return err // Validate has refused it
			}
			f := found{named: n}
			var r migration.Resource
			if r, f.served, err = c.Served(ctx, n.kind); err != nil {
				return err
			}
			f.ref = migration.Ref{Resource: r, Namespace: n.namespace, Name: n.name}
			f.ref.Kind = n.kind.Kind
			if f.served {
				if f.live, err = c.Get(ctx, f.ref); err != nil {
					return err
				}
			}
			all[i] = f
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return decide(all, j.options), nil
}

// Await implements migration.Job: the write is enough.
func (j *Job) Await(*migration.Change) []migration.Condition { return nil }

func decide(all []found, o options) *migration.Plan {
	plan := &migration.Plan{Parallelism: 8}
	find := func(id string, severity migration.Severity, f found, note, format string, args ...any) {
		plan.Findings = append(plan.Findings, migration.Finding{ID: id, Severity: severity, Object: f.ref.String(), Problem: fmt.Sprintf(format, args...), Note: note})
	}
	seen := map[migration.Ref]bool{}
	for _, f := range all {
		switch {
		case !f.served:
			find("kind-not-served", migration.Error, f, "Check how the kind is written. It must be KIND.GROUP, as in HTTPSource.sources.kyma-project.io.", "the API server serves no kind %s", f.kind)
			continue
		case f.live == nil:
			find("object-missing", migration.Info, f, "", "does not exist: the chart creates it")
			continue
		case f.live.GetDeletionTimestamp() != nil:
			find("object-being-deleted", migration.Error, f, "Wait until it is gone, and run the job again.", "is being deleted")
			continue
		case seen[f.ref]:
			continue
		}
		seen[f.ref] = true
		annotations := f.live.GetAnnotations()
		release, namespace := annotations[kyma.HelmReleaseNameAnnotation], annotations[kyma.HelmReleaseNamespaceAnnotation]
		if release != "" && release != o.release || namespace != "" && namespace != o.namespace {
			find("release-foreign", migration.Error, f, "Remove it from that release first, or from the flag --objects of the job.", "belongs to the Helm release %s/%s", namespace, release)
			continue
		}
		if patch := ownership(f.live, o); patch != nil {
			plan.Units = append(plan.Units, migration.Unit{ID: f.ref.String(), Changes: []migration.Change{{
				Verb: migration.Patch, Ref: f.ref, UID: f.live.GetUID(), Patch: patch, Why: fmt.Sprintf("so that the Helm release %s/%s takes it over", o.namespace, o.release),
				// Another release may adopt it between the plan and the patch.
				Object: k8sutil.Basis(f.live, []string{"metadata", "labels", kyma.HelmManagedByLabel},
					[]string{"metadata", "annotations", kyma.HelmReleaseNameAnnotation}, []string{"metadata", "annotations", kyma.HelmReleaseNamespaceAnnotation}),
			}}})
		}
	}
	return plan
}

// ownership is what differs, nil if nothing does.
func ownership(live *unstructured.Unstructured, o options) json.RawMessage {
	labels, annotations := map[string]any{}, map[string]any{}
	if live.GetLabels()[kyma.HelmManagedByLabel] != kyma.HelmManagedBy {
		labels[kyma.HelmManagedByLabel] = kyma.HelmManagedBy
	}
	for key, value := range map[string]string{kyma.HelmReleaseNameAnnotation: o.release, kyma.HelmReleaseNamespaceAnnotation: o.namespace} {
		if live.GetAnnotations()[key] != value {
			annotations[key] = value
		}
	}
	metadata := map[string]any{}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	if len(metadata) == 0 {
		return nil
	}
	patch, _ := json.Marshal(map[string]any{"metadata": metadata}) // maps of strings can be encoded
	return patch
}
