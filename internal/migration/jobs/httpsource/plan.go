package httpsource

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// parallelism is a constant because nobody needs to choose it: HTTPSources are
// independent of each other, and 16 creations under way hide the round trips to
// the API server. How hard a run may press a cluster is said by --max-unready
// and --qps, which limit what matters to it.
const parallelism = 16

// verdict is what an Application, or rather its HTTPSource, needs.
type verdict int

const (
	nothing verdict = iota // it is fine, or none of our business
	await                  // it exists and is not ready
	missing                // it is to be created, unless Helm 2 forbids
	refused                // it cannot be; the findings say why
)

// decide makes the plan. It is pure.
func decide(s *snapshot, o options) *migration.Plan {
	if !s.kinds.application.Served {
		return &migration.Plan{Findings: []migration.Finding{{
			ID: "no-applications", Severity: migration.Info,
			Problem: fmt.Sprintf("the API server serves no %s: this is no Kyma cluster with %s", spell(s.kinds.application), kyma.Component(kyma.Application)),
		}}}
	}
	d := &decision{snapshot: s, options: o, plan: &migration.Plan{Parallelism: parallelism}, decided: map[string]bool{}}
	for _, app := range s.applications {
		d.application(app)
	}
	d.adapters()
	d.preconditions()
	d.sort()
	return d.plan
}

// missing returns the names of the Applications whose HTTPSource is to be
// created as far as Tiller has no say in it; none if none can be created, since
// then Tiller need not be read.
func (s *snapshot) missing(o options) map[string]bool {
	names := map[string]bool{}
	if len(s.unserved()) > 0 {
		return names
	}
	for _, app := range s.applications {
		if v, _ := s.assess(app, o); v == missing {
			names[app.name] = true
		}
	}
	return names
}

// unserved are the kinds that must be there to create an HTTPSource and to see
// it ready.
func (s *snapshot) unserved() []migration.Kind {
	var kinds []migration.Kind
	for _, k := range []migration.Kind{s.kinds.httpSource, s.kinds.channel, s.kinds.service} {
		if !k.Served {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// assess says what an Application needs, by everything but Helm 2.
func (s *snapshot) assess(app application, o options) (verdict, []migration.Finding) {
	ref := s.kinds.application.Ref("", app.name)
	source := s.kinds.httpSource.Ref(o.namespace, app.name)
	obj := s.sources[app.name]
	say := func(id string, severity migration.Severity, problem, note, command string) []migration.Finding {
		return []migration.Finding{{ID: id, Severity: severity, Object: ref.String(), Problem: problem, Note: note, Command: command}}
	}
	switch {
	case app.optedOut:
		return nothing, say("left-out", migration.Info, fmt.Sprintf("skipped: it carries the label %s=true", kyma.OptOutLabel), "", "")
	case app.terminating:
		// Its release goes with it, and the HTTPSource with the release.
		return nothing, nil
	case obj != nil && obj.GetDeletionTimestamp() != nil:
		return refused, say("httpsource-being-deleted", migration.Error, fmt.Sprintf("%s is being deleted", source),
			"Wait until it is gone, and run the job again. If it stays, a finalizer holds it.",
			migration.Kubectl(o.namespace, "wait", "--for=delete", s.kinds.httpSource.Named(app.name)))
	case obj != nil && kyma.SourceOf(obj) != app.name:
		return refused, say("httpsource-name-taken", migration.Error, fmt.Sprintf("%s is of source %q, not of %q, and so takes the name of the one it needs", source, kyma.SourceOf(obj), app.name),
			"Rename or delete that HTTPSource. "+orLeaveOut, optOut(s.kinds.application, app.name))
	case obj != nil && s.ready(app.name).State == migration.Met:
		return nothing, nil
	case obj == nil && app.skips:
		return nothing, []migration.Finding{skipped(ref, source, app)}
	}
	if why := validation.IsDNS1035Label(app.name); len(why) > 0 {
		return refused, say("application-name-invalid", migration.Error,
			fmt.Sprintf("%s cannot work: its adapter is a Knative Service of the same name, and %s", source, strings.Join(why, "; ")),
			"Create the Application under another name. "+orLeaveOut, optOut(s.kinds.application, app.name))
	}
	if obj != nil {
		return await, nil
	}
	if findings := s.foreign(app, o); len(findings) > 0 {
		return refused, findings
	}
	return missing, nil
}

// skipped tells what spec.skipInstallation means for the events of an
// Application without HTTPSource.
func skipped(ref, source migration.Ref, app application) migration.Finding {
	if app.installed {
		return migration.Finding{
			ID: "skipped-with-release", Severity: migration.Warning, Object: ref.String(),
			Problem: fmt.Sprintf("spec.skipInstallation is true, but it has a former Helm release. Its event-service still uses the Event Bus, and loses events once that is gone. %s is not created, since an upgrade of the release might fail on it", source),
			Note:    "Delete the release. Or let application-operator upgrade it, which creates the HTTPSource.",
			Command: installation(ref.Name),
		}
	}
	return migration.Finding{
		ID: "skipped-installation", Severity: migration.Info, Object: ref.String(),
		Problem: fmt.Sprintf("spec.skipInstallation is true, so it has no event-service and no events. %s is not created, since a later installation of the release would fail on it", source),
		Note:    "The installation creates the HTTPSource when spec.skipInstallation is false.",
	}
}

// foreign finds objects that have the name of those which the controller would
// make for the HTTPSource, and belong to something else.
//
// One that is controlled by an HTTPSource of the name, although there is none,
// is left over from an earlier one and about to be garbage-collected: it is no
// obstacle, since the controller makes a new one when it goes
// (docs/decisions/0101).
func (s *snapshot) foreign(app application, o options) []migration.Finding {
	var findings []migration.Finding
	for _, child := range []struct {
		kind migration.Kind
		in   objects
	}{
		{s.kinds.channel, s.channels},
		{s.kinds.service, s.services},
	} {
		obj := child.in[app.name]
		if obj == nil {
			continue
		}
		owner, controlled := kyma.ControllerOf(obj)
		if controlled && owner.GroupKind == kyma.HTTPSource && owner.Name == app.name {
			continue
		}
		belongs := "belongs to no HTTPSource"
		if controlled {
			belongs = fmt.Sprintf("belongs to %s %s", owner.Kind, owner.Name)
		}
		findings = append(findings, migration.Finding{
			ID: "object-name-taken", Severity: migration.Error,
			Object:  child.kind.Ref(o.namespace, app.name).String(),
			Problem: fmt.Sprintf("%s, but has the name of the one that Application %s needs: the controller of HTTPSources would overwrite it", belongs, app.name),
			Note:    "Rename it. If nothing uses it, delete it. " + orLeaveOut,
			Command: optOut(s.kinds.application, app.name),
		})
	}
	return findings
}

// orLeaveOut goes before optOut.
const orLeaveOut = "Or leave the Application out:"

func optOut(k migration.Kind, name string) string {
	return migration.Kubectl("", "label", k.Named(name), kyma.OptOutLabel+"=true")
}

// installation is the command that lets application-operator install an Application.
func installation(name string) string {
	return migration.Kubectl("", "patch", migration.Kind{GroupKind: kyma.Application}.Named(name), "--type=merge", "-p", `{"spec":{"skipInstallation":false}}`)
}

// decision is a plan in the making.
type decision struct {
	*snapshot
	options options
	plan    *migration.Plan
	// decided are the names with a unit or a refusal, and those left out: their
	// adapters need no unit of their own.
	decided map[string]bool
	// work says that something is to be created or waited for.
	work bool
}

func (d *decision) find(findings ...migration.Finding) {
	d.plan.Findings = append(d.plan.Findings, findings...)
}

func (d *decision) unit(ch migration.Change) {
	d.decided[ch.Ref.Name] = true
	d.plan.Units = append(d.plan.Units, migration.Unit{ID: ch.Ref.String(), Changes: []migration.Change{ch}})
}

func (d *decision) application(app application) {
	v, findings := d.assess(app, d.options)
	d.find(findings...)
	if v == refused || app.optedOut {
		d.decided[app.name] = true
	}
	ref := d.kinds.httpSource.Ref(d.options.namespace, app.name)
	switch v {
	case await:
		d.work = true
		d.unit(migration.Change{Verb: migration.Await, Ref: ref, Why: d.ready(app.name).Message})
	case missing:
		d.work = true
		if d.helm2Allows(app) {
			d.unit(migration.Change{
				Verb: migration.Create, Ref: ref, Object: newHTTPSource(ref),
				Why: fmt.Sprintf("Application %s has no HTTPSource", app.name),
			})
		}
	}
}

// newHTTPSource returns the HTTPSource of an Application as the chart renders it,
// with what Helm 3 asks for before it adopts an object (docs/decisions/0101).
func newHTTPSource(ref migration.Ref) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": ref.GroupVersion().String(),
		"kind":       ref.Kind,
		"metadata": map[string]any{
			"name":      ref.Name,
			"namespace": ref.Namespace,
			"labels":    map[string]any{kyma.HelmManagedByLabel: kyma.HelmManagedBy},
			"annotations": map[string]any{
				kyma.HelmReleaseNameAnnotation:      ref.Name,
				kyma.HelmReleaseNamespaceAnnotation: ref.Namespace,
			},
		},
		"spec": map[string]any{"source": ref.Name},
	}}
}

const (
	// acceptConflict is the flag that creates an HTTPSource in spite of Helm 2.
	acceptConflict = "--httpsource-sync.on-helm2-conflict=" + create
	onConflict     = `If the upgrade of the release fails with "already exists", delete the HTTPSource. application-operator then creates it.`
)

// helm2Allows says whether creating the HTTPSource of an Application leaves its
// Helm 2 release upgradable, and reports it if not (docs/decisions/0101).
func (d *decision) helm2Allows(app application) bool {
	t := d.tiller
	if t == nil || t.denied || !t.inUse {
		return true // a denial is one finding for all, in preconditions
	}
	ref := d.kinds.application.Ref("", app.name)
	source := d.kinds.httpSource.Ref(d.options.namespace, app.name)
	override := d.options.onHelm2Conflict == create
	record, found := t.releases[app.name]
	stored := migration.Ref{Resource: configMaps, Namespace: d.options.tillerNamespace, Name: record.configMap}
	switch {
	case found && record.err != nil && override:
		d.find(migration.Finding{
			ID: "helm2-conflict-accepted", Severity: migration.Warning, Object: stored.String(),
			Problem: fmt.Sprintf("cannot read the Helm 2 release of %s: %v; %s is created, as asked for", ref, record.err, source),
			Note:    onConflict,
			Command: migration.Kubectl(d.options.namespace, "delete", d.kinds.httpSource.Named(app.name)),
		})
		return true
	case found && record.err != nil:
		d.find(migration.Finding{
			ID: "helm2-release-unreadable", Severity: migration.Error, Object: stored.String(),
			Problem: fmt.Sprintf("cannot read the Helm 2 release of %s: %v; whether %s may be created is unknown", ref, record.err, source),
			Note:    "Repair or delete the record, or accept a conflict with " + acceptConflict + ". " + orLeaveOut,
			Command: optOut(d.kinds.application, app.name),
		})
		d.decided[app.name] = true
		return false
	case found && record.hasSource:
		return true
	}
	state, risk := fmt.Sprintf("its Helm 2 release (%s) lacks %s", stored, source),
		`the next upgrade of the release fails over it ("already exists in the cluster and wasn't defined in the previous release")`
	if !found {
		state, risk = "it has no deployed Helm 2 release", `the installation of its release fails over it ("already exists")`
	}
	if override {
		d.find(migration.Finding{
			ID: "helm2-conflict-accepted", Severity: migration.Warning, Object: ref.String(),
			Problem: fmt.Sprintf("%s is created as asked for, although %s: %s", source, state, risk),
			Note:    onConflict,
			Command: migration.Kubectl(d.options.namespace, "delete", d.kinds.httpSource.Named(app.name)),
		})
		return true
	}
	d.find(migration.Finding{
		ID: "left-to-operator", Severity: migration.Warning, Object: ref.String(),
		Problem: fmt.Sprintf("left to the application-operator, since %s. If it is created now, %s. Events are refused until it is ready", state, risk),
		Note:    "To create it now and accept the conflict, add " + acceptConflict + ". After the upgrade of application-connector, check it:",
		Command: migration.Kubectl(d.options.namespace, "get", d.kinds.httpSource.Named(app.name)),
	})
	return false
}

// adapters adds a unit for each adapter without a Channel that no Application's
// unit waits for already: of an HTTPSource whose Application is gone, or that
// was made by hand.
func (d *decision) adapters() {
	for _, name := range slices.Sorted(maps.Keys(d.services)) {
		if d.decided[name] || d.channels[name] != nil {
			continue
		}
		service, source := d.services[name], d.sources[name]
		owner, _ := kyma.ControllerOf(service)
		if owner.GroupKind != kyma.HTTPSource || source != nil && kyma.OptedOut(source) {
			continue
		}
		d.work = true
		d.unit(migration.Change{
			Verb: migration.Await, Ref: d.kinds.service.Ref(d.options.namespace, name),
			Why: adapterWithoutChannel(d.options.namespace, name),
		})
	}
}

// preconditions refuses the plan, if there is work, for what it lacks.
func (d *decision) preconditions() {
	if !d.work {
		return
	}
	for _, k := range d.unserved() {
		d.find(migration.Finding{
			ID: "kind-not-served", Severity: migration.Error,
			Problem: fmt.Sprintf("the API server serves no %s, without which no HTTPSource becomes ready", spell(k)),
			Note:    kyma.Install(k.GroupKind),
		})
	}
	namespace := migration.Ref{Resource: namespaces, Name: d.options.namespace}
	switch d.namespace {
	case namespaceMissing:
		d.find(migration.Finding{
			ID: "integration-namespace-missing", Severity: migration.Error, Object: namespace.String(), Problem: "does not exist, so no HTTPSource can be created in it",
			Note: "Install the component application-connector, or name another namespace with --httpsource-sync.integration-namespace.",
		})
	case namespaceTerminating:
		d.find(migration.Finding{
			ID: "integration-namespace-terminating", Severity: migration.Error, Object: namespace.String(), Problem: "is being deleted, so no HTTPSource can be created in it",
			Note: "Wait until it is gone. Then install the component application-connector again.",
		})
	}
	if d.tiller == nil || !d.tiller.denied {
		return
	}
	problem := fmt.Sprintf("Tiller's releases cannot be read: no permission to list configmaps in namespace %s", d.options.tillerNamespace)
	if d.options.onHelm2Conflict == create {
		d.find(migration.Finding{
			ID: "helm2-conflict-accepted", Severity: migration.Warning, Problem: problem + "; HTTPSources are created, as asked for",
			Note: onConflict,
		})
		return
	}
	d.find(migration.Finding{
		ID: "tiller-unreadable", Severity: migration.Error, Problem: problem + "; whether HTTPSources may be created is unknown",
		Note:    fmt.Sprintf("Grant this account list on configmaps in namespace %s. If the cluster has no Tiller, set --httpsource-sync.tiller-namespace to the empty text. To check the permission:", d.options.tillerNamespace),
		Command: migration.Kubectl(d.options.tillerNamespace, "auth", "can-i", "list", "configmaps"),
	})
}

func (d *decision) sort() {
	slices.SortFunc(d.plan.Units, func(a, b migration.Unit) int { return strings.Compare(a.ID, b.ID) })
	d.plan.SortFindings()
}

// spell names a kind with its group, as Knative's share their names with others.
func spell(k migration.Kind) string { return fmt.Sprintf("kind %s (%s)", k.Kind, k.Group) }
