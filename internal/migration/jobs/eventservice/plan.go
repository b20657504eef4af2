package eventservice

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// decide makes the plan, which only waits, and returns the Applications whose
// event-service is expected to post to the mesh. It is pure.
func decide(s *snapshot, o options) (plan *migration.Plan, expected []string) {
	plan = &migration.Plan{}
	find := func(f migration.Finding) { plan.Findings = append(plan.Findings, f) }
	if slices.Contains(s.kinds.missing, kyma.Application) {
		find(migration.Finding{
			ID: "no-applications", Severity: migration.Info,
			Problem: fmt.Sprintf("the API server serves no kind Application (%s): this is no Kyma cluster with %s", kyma.Application.Group, kyma.Component(kyma.Application)),
		})
		return plan, nil
	}
	for _, name := range s.migrations {
		find(migration.Finding{
			ID: "stock-migration-runs", Severity: migration.Error, Object: "Job " + kyma.SystemNamespace + "/" + name,
			Problem: "Kyma's own migration is running: what is verified now may not hold when it ends",
			Note:    kyma.StopMeshMigration,
			Command: migration.Kubectl(kyma.SystemNamespace, "delete", "job", name),
		})
	}
	ready, podsOf := 0, byApplication(s.pods)
	for _, name := range slices.Sorted(maps.Keys(s.applications)) {
		app := s.applications[name]
		ref := migration.Ref{Resource: s.kinds.application, Name: name}
		switch {
		case kyma.OptedOut(app):
			find(migration.Finding{ID: "left-out", Severity: migration.Info, Object: ref.String(), Problem: fmt.Sprintf("left out: it carries the label %s=true", kyma.OptOutLabel)})
			continue
		case app.GetDeletionTimestamp() != nil:
			continue
		case kyma.SkipsInstallation(app):
			find(skipped(s.deployments[kyma.EventServiceName(name)], podsOf[name], ref, o))
			continue
		}
		expected = append(expected, name)
		deployment := migration.Ref{Resource: deployments, Namespace: o.namespace, Name: kyma.EventServiceName(name)}
		source := migration.Ref{Resource: s.kinds.httpSource, Namespace: o.namespace, Name: name}
		e := eventService{name: name, namespace: o.namespace, application: app, deployment: s.deployments[deployment.Name], image: o.image}
		e.pods = func() []*unstructured.Unstructured { return podsOf[name] }
		fine := true
		if st := e.status(); st.State != migration.Met {
			fine = false
			plan.Units = append(plan.Units, await(deployment, st.Message))
		} else if description, failed := kyma.InstallationFailed(app); failed {
			f := migration.Finding{
				ID: "release-failed-on-mesh", Severity: migration.Warning, Object: ref.String(),
				Problem: "its event-service posts to the mesh, but its Helm release has failed: " + description,
				Note:    "Events flow. Fix this error before the release is upgraded again.",
				Command: applicationOf(name),
			}
			if conflicting(description) {
				f.Note = "Do not delete the HTTPSource now: it carries live events. Each later upgrade of the release fails the same way. At a time without events, delete it and restart application-operator."
			}
			find(f)
		}
		mesh := eventpath.Source{Name: name, Namespace: o.namespace, HTTPSource: s.sources[name], Channel: s.channels[name], Adapter: s.services[name]}
		if why := mesh.TakesEvents(); !why.OK() {
			fine = false
			plan.Units = append(plan.Units, await(source, why.About(kyma.HTTPSource, o.namespace, name)))
		}
		if fine {
			ready++
		}
	}
	if len(plan.Units) > 0 {
		for _, gk := range s.kinds.missing {
			find(migration.Finding{
				ID: "kind-not-served", Severity: migration.Error,
				Problem: fmt.Sprintf("the API server serves no kind %s (%s), without which no event enters the mesh", gk.Kind, gk.Group),
				Note:    kyma.Install(gk),
			})
		}
	}
	if len(expected) > 0 {
		find(migration.Finding{
			ID: "verified", Severity: migration.Info,
			Problem: fmt.Sprintf("%d of %d Applications posted to the mesh, with all they need, when this began", ready, len(expected)),
		})
	}
	// Everything is waited for at once: one report names all that is not right.
	return plan, expected
}

func await(ref migration.Ref, why string) migration.Unit {
	return migration.Unit{ID: ref.String(), Changes: []migration.Change{{Verb: migration.Await, Ref: ref, Why: why}}}
}

// skipped tells what spec.skipInstallation means for the events of an
// Application.
func skipped(deployment *unstructured.Unstructured, pods []*unstructured.Unstructured, ref migration.Ref, o options) migration.Finding {
	service := eventpath.EventService{Application: ref.Name, Namespace: o.namespace, Deployment: deployment, Former: eventpath.Former(ref.Name, pods), Optional: true}
	why := service.Switched()
	switch {
	case deployment == nil && why.OK():
		return migration.Finding{
			ID: "skipped-installation", Severity: migration.Info, Object: ref.String(),
			Problem: "spec.skipInstallation is true and it has no event-service: there are no events to take",
		}
	case why.OK():
		return migration.Finding{
			ID: "skipped-installation", Severity: migration.Info, Object: ref.String(),
			Problem: "spec.skipInstallation is true: it is not upgraded any more, but its event-service posts to the mesh",
		}
	}
	return migration.Finding{
		ID: "skipped-with-release", Severity: migration.Warning, Object: ref.String(),
		Problem: fmt.Sprintf("spec.skipInstallation is true, so application-operator does not upgrade its release, and its event-service goes on posting to the Event Bus: %s", why.About(eventpath.Deployment, o.namespace, kyma.EventServiceName(ref.Name))),
		Note:    "Set spec.skipInstallation to false, or delete its release. Until then eventbus-scaledown leaves the Event Bus up.",
		Command: migration.Kubectl(o.namespace, "get", "deployment", kyma.EventServiceName(ref.Name)),
	}
}
