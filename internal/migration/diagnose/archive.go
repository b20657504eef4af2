// Package diagnose makes the archive for a support ticket: what the jobs say, their
// state, and the objects of the event path, without secrets.
package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/internal/frame/archive"
	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Archive is a tar.gz that is being written.
type Archive struct{ *archive.Archive }

// New begins an archive; root is the folder that everything is in.
func New(w io.Writer, root string, at time.Time) *Archive { return &Archive{archive.New(w, root, at)} }

// collected are the objects of the event path; Secrets are not among them.
var collected = []struct {
	kind       schema.GroupKind
	resource   migration.Resource // of a core kind
	namespaces []string           // none: all
}{
	{kind: kyma.Application}, {kind: kyma.ApplicationMapping}, {kind: kyma.EventActivation}, {kind: kyma.Subscription}, {kind: kyma.HTTPSource},
	{kind: kyma.Channel}, {kind: kyma.ChannelSubscription}, {kind: knative.Broker}, {kind: knative.Trigger},
	{kind: kyma.Service, namespaces: []string{kyma.IntegrationNamespace}},
	{kind: kyma.ServiceInstance}, {kind: kyma.ServiceBinding}, {kind: kyma.ServiceBindingUsage},
	{resource: migration.CoreResource("apps", "deployments", "Deployment"), namespaces: []string{kyma.SystemNamespace, kyma.IntegrationNamespace, kyma.EventingNamespace}},
	{resource: migration.CoreResource("apps", "statefulsets", "StatefulSet"), namespaces: []string{kyma.IntegrationNamespace, kyma.NATSNamespace}},
	{resource: migration.CoreResource("", "pods", "Pod"), namespaces: []string{kyma.SystemNamespace, kyma.IntegrationNamespace, kyma.EventingNamespace, kyma.NATSNamespace}},
	{resource: migration.CoreResource("batch", "jobs", "Job"), namespaces: []string{kyma.SystemNamespace, kyma.IntegrationNamespace}},
	{resource: migration.CoreResource("", "events", "Event"), namespaces: []string{kyma.SystemNamespace, kyma.IntegrationNamespace, kyma.EventingNamespace}},
	{resource: migration.CoreResource("", "namespaces", "Namespace")},
}

// Objects adds the objects of the event path, one file a kind.
func (a *Archive) Objects(ctx context.Context, c inventory.Reader) error {
	for _, what := range collected {
		r := what.resource
		if what.kind.Kind != "" {
			var served bool
			var err error
			if r, served, err = c.Served(ctx, what.kind); err != nil {
				a.Problem(what.kind.String(), err)
				continue
			} else if !served {
				a.Problem(what.kind.String(), errors.New("the API server serves no such kind"))
				continue
			}
		}
		namespaces := what.namespaces
		if namespaces == nil {
			namespaces = []string{""}
		}
		var all []*unstructured.Unstructured
		for _, ns := range namespaces {
			// By name: a list that begins again hands objects over twice.
			byName := map[string]*unstructured.Unstructured{}
			err := c.Each(ctx, r, ns, migration.ListOptions{PageSize: 200}, func(u *unstructured.Unstructured) error {
				byName[u.GetNamespace()+"/"+u.GetName()] = redact.Object(u)
				return nil
			})
			all = slices.AppendSeq(all, maps.Values(byName))
			if err != nil {
				a.Problem(fmt.Sprintf("%s in %s", r.GroupResource(), cmp.Or(ns, "all namespaces")), err)
			}
		}
		if err := a.Archive.Objects(r.GroupResource().String(), all); err != nil {
			return err
		}
	}
	return ctx.Err()
}
