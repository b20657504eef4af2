// Package diagnose makes the archive for a support ticket: what the jobs say, their
// state, and the objects of the event path, without secrets.
package diagnose

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/knative"
	"github.com/kyma-project/eventmesh-migration/internal/migration/inventory"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/redact"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// Archive is a tar.gz that is being written.
type Archive struct {
	root string
	gz   *gzip.Writer
	tar  *tar.Writer
	at   time.Time
	// problems are what could not be collected: no reason not to hand over the rest.
	problems []string
}

// New begins an archive; root is the folder that everything is in.
func New(w io.Writer, root string, at time.Time) *Archive {
	gz := gzip.NewWriter(w)
	return &Archive{root: root, gz: gz, tar: tar.NewWriter(gz), at: at}
}

// Text adds a file, without what looks like a secret.
func (a *Archive) Text(name, text string) error { return a.add(name, []byte(redact.Text(text))) }

// JSON adds a value, without what looks like a secret.
func (a *Archive) JSON(name string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("cannot encode %s: %w", name, err)
	}
	return a.Text(name, string(raw)+"\n")
}

// Problem notes what could not be collected.
func (a *Archive) Problem(what string, err error) {
	a.problems = append(a.problems, redact.Text(fmt.Sprintf("%s: %v", what, err)))
}

// Missing is what could not be collected, and why.
func (a *Archive) Missing() []string { return slices.Clone(a.problems) }

func (a *Archive) add(name string, content []byte) error {
	header := &tar.Header{Name: path.Join(a.root, name), Mode: 0o600, Size: int64(len(content)), ModTime: a.at, Format: tar.FormatPAX}
	if err := a.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("cannot write %s into the archive: %w", name, err)
	}
	if _, err := a.tar.Write(content); err != nil {
		return fmt.Errorf("cannot write %s into the archive: %w", name, err)
	}
	return nil
}

// Close ends the archive, with a list of what is missing.
func (a *Archive) Close() error {
	list := "Everything was collected.\n"
	if len(a.problems) > 0 {
		list = strings.Join(a.problems, "\n") + "\n"
	}
	return errors.Join(a.Text("missing.txt", list), a.tar.Close(), a.gz.Close())
}

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
		slices.SortFunc(all, func(x, y *unstructured.Unstructured) int {
			return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
		})
		var b strings.Builder
		for _, u := range all {
			raw, err := yaml.Marshal(u.Object)
			if err != nil {
				return fmt.Errorf("cannot encode %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
			}
			b.WriteString("---\n")
			b.Write(raw)
		}
		if err := a.Text("objects/"+fileName(r.GroupResource().String())+".yaml", b.String()); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// fileName makes a name for a file of the name of an object.
func fileName(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, strings.Join(parts, "_"))
}
