package eventservice

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma/eventpath"
	"github.com/kyma-project/eventmesh-migration/pkg/migration"
)

// crashes is after how many restarts a container that crashes is given up. A new
// pod may well crash once or twice until its sidecar lets it through; five take
// about five minutes of back-off.
const crashes = 5

// eventService is what there is to know about one.
type eventService struct {
	name, namespace string
	application     *unstructured.Unstructured
	deployment      *unstructured.Unstructured
	// pods are asked for only when the Deployment is on the mesh: thousands of
	// event-services wait for the operator, and each change of a pod wakes them all.
	pods func() []*unstructured.Unstructured
	// image it must run; "" accepts any.
	image string
}

// onTheMesh is met when an Application's event-service posts to the mesh.
func onTheMesh(ref migration.Subject, image string) migration.Condition {
	name := strings.TrimSuffix(ref.Name, kyma.EventServiceName(""))
	application := migration.SubjectOf(kyma.Application, "", name)
	// A release that had failed before this run is upgraded again by the
	// operator's start; one that fails during the run is not. This is all the
	// condition remembers.
	var first sync.Once
	var before string
	return migration.Condition{
		Text: "it to be rolled out on the mesh",
		On:   []migration.Subject{ref, application, {GroupKind: pods.GroupKind(), Namespace: ref.Namespace}},
		Eval: func(v migration.View) migration.Status {
			e := eventService{
				name: name, namespace: ref.Namespace, image: image,
				application: v.Get(application), deployment: v.Get(ref),
				pods: func() []*unstructured.Unstructured {
					return byApplication(v.List(pods.GroupKind(), ref.Namespace))[name]
				},
			}
			if e.application == nil || e.application.GetDeletionTimestamp() != nil || kyma.SkipsInstallation(e.application) {
				return migration.Status{State: migration.Met} // nothing is expected of it any more
			}
			st := e.status()
			description, failed := kyma.InstallationFailed(e.application)
			first.Do(func() { before = description })
			if failed && st.State == migration.Pending && description != before {
				st.State = migration.Failed
			}
			return st
		},
	}
}

// status says whether the event-service of an Application is rolled out on the mesh,
// naming the first thing that is wrong. It is pure.
func (e *eventService) status() migration.Status {
	// Why it is not updated is the operator's to say.
	release := func(message string) migration.Status {
		if description, failed := kyma.InstallationFailed(e.application); failed {
			st := migration.Status{
				Message: fmt.Sprintf("%s; the Helm release of Application %s has failed: %s", message, e.name, description),
				Note:    "Fix this error. Then restart application-operator. It tries again only when it starts.",
				Command: migration.Kubectl(e.namespace, "rollout", "restart", "statefulset", "application-operator"),
			}
			if conflicting(description) {
				st.Note = "An HTTPSource that the release did not create is in its way. It carries no events while the event-service posts to the Event Bus. " +
					"After its deletion, restart StatefulSet application-operator, which creates it. To delete it:"
				st.Command = migration.Kubectl(e.namespace, "delete", migration.Kind{GroupKind: kyma.HTTPSource}.Named(e.name))
			}
			return st
		}
		return migration.Status{
			Message: message + "; application-operator has not upgraded the Application's release yet",
			Note:    "The log of application-operator says why.",
			Command: migration.Kubectl(e.namespace, "logs", "statefulset/application-operator"),
		}
	}
	service := eventpath.EventService{Application: e.name, Namespace: e.namespace, Deployment: e.deployment}
	switch why := service.Switched(); {
	case why.Defect == eventpath.EventServiceMissing:
		return release("it does not exist")
	case why.Defect == eventpath.EventServiceNotSwitched:
		return release(fmt.Sprintf("it %s (image %s)", why.Problem, e.imageOf(e.deployment)))
	case e.image != "" && e.imageOf(e.deployment) != e.image:
		return release(fmt.Sprintf("it runs image %s, not %s", e.imageOf(e.deployment), e.image))
	}
	st := e.rollout()
	if st.State != migration.Met {
		return st
	}
	own := e.pods()
	service.Former = eventpath.Former(e.name, own)
	if why := service.Switched(); !why.OK() {
		return migration.Status{Message: why.About(eventpath.Deployment, e.namespace, e.deployment.GetName()), Note: why.Note, Command: why.Command}
	}
	for _, pod := range own {
		if image := e.imageOf(pod); image != e.imageOf(e.deployment) && !kyma.Ended(pod) {
			return migration.Status{
				Message: fmt.Sprintf("Pod %s/%s still runs the former image %s", pod.GetNamespace(), pod.GetName(), image),
				Note:    "Check why it does not end.",
				Command: e.describe("pod", pod.GetName()),
			}
		}
	}
	return migration.Status{State: migration.Met}
}

// rollout says how far the Deployment's rollout is, by its controller's word and
// by its new pods.
func (e *eventService) rollout() migration.Status {
	result, err := status.Compute(e.deployment)
	if err != nil {
		return migration.Status{Message: "its status cannot be read: " + err.Error()}
	}
	if result.Status == status.CurrentStatus {
		return migration.Status{State: migration.Met}
	}
	st := migration.Status{
		Message: "it is not rolled out: " + lowerFirst(result.Message),
		Note:    "Its conditions and Events say what is missing.",
		Command: e.describe("deployment", e.deployment.GetName()),
	}
	if eventpath.Paused(e.deployment) {
		st.Message = "somebody has paused it, so that its pods are not replaced"
		st.Note, st.Command = "To end that:", migration.Kubectl(e.namespace, "rollout", "resume", "deployment", e.deployment.GetName())
		return st
	}
	for _, pod := range e.pods() {
		if !eventpath.PostsToMesh(pod) || pod.GetDeletionTimestamp() != nil || e.imageOf(pod) != e.imageOf(e.deployment) {
			continue
		}
		if problem, permanent := podProblem(pod); problem != "" {
			st.Message = fmt.Sprintf("Pod %s/%s: %s", pod.GetNamespace(), pod.GetName(), problem)
			st.Note, st.Command = "Its conditions and Events say why.", e.describe("pod", pod.GetName())
			if permanent {
				st.State = migration.Failed
			}
			break
		}
	}
	if result.Status == status.FailedStatus {
		st.State = migration.Failed
		st.Message += " (" + lowerFirst(result.Message) + ")"
	}
	return st
}

// podProblem says why a pod does not become ready, and whether waiting longer cannot
// change that; "" if nothing is known to be wrong.
func podProblem(obj *unstructured.Unstructured) (problem string, permanent bool) {
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &pod); err != nil {
		return "its status cannot be read: " + err.Error(), false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("it has no node (%s): %s", c.Reason, c.Message), false
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		waiting, last := c.State.Waiting, c.LastTerminationState.Terminated
		if last == nil {
			last = c.State.Terminated
		}
		switch {
		case waiting != nil && waiting.Reason == "CrashLoopBackOff", last != nil && last.ExitCode != 0 && !c.Ready:
			problem = fmt.Sprintf("container %s crashed %s", c.Name, times(c.RestartCount))
			if last != nil {
				problem += fmt.Sprintf(", the last time with exit code %d (%s)", last.ExitCode, last.Reason)
				if words := strings.TrimSpace(last.Message); words != "" {
					problem += fmt.Sprintf(", saying %q", lastLine(words))
				}
			}
			return problem, c.RestartCount >= crashes
		case waiting != nil && (waiting.Reason == "ErrImagePull" || waiting.Reason == "ImagePullBackOff" || waiting.Reason == "RegistryUnavailable"):
			return fmt.Sprintf("the image of container %s cannot be pulled (%s): %s", c.Name, waiting.Reason, waiting.Message), false
		case waiting != nil && (waiting.Reason == "InvalidImageName" || waiting.Reason == "ErrImageNeverPull"):
			return fmt.Sprintf("the image of container %s cannot be pulled (%s): %s", c.Name, waiting.Reason, waiting.Message), true
		case waiting != nil && waiting.Message != "":
			return fmt.Sprintf("container %s does not start (%s): %s", c.Name, waiting.Reason, waiting.Message), false
		}
	}
	return "", false
}

func times(n int32) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// lastLine is what a container said last, cut to what fits into a report.
func lastLine(words string) string {
	const most = 300
	words = words[strings.LastIndexByte(words, '\n')+1:]
	if len(words) > most {
		words = "…" + strings.ToValidUTF8(words[len(words)-most:], "")
	}
	return words
}

func lowerFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

// imageOf is that of the event-service's own container: a pod has a sidecar, too.
func (e *eventService) imageOf(obj *unstructured.Unstructured) string {
	path := []string{"spec", "containers"}
	if obj.GetKind() == deployments.Kind {
		path = []string{"spec", "template", "spec", "containers"}
	}
	containers, _, _ := unstructured.NestedFieldNoCopy(obj.Object, path...)
	list, _ := containers.([]any)
	image := ""
	for i, c := range list {
		container, _ := c.(map[string]any)
		if i == 0 || container["name"] == kyma.EventServiceName(e.name) {
			image, _ = container["image"].(string)
		}
	}
	return image
}

func (e *eventService) describe(kind, name string) string {
	return migration.Kubectl(e.namespace, "describe", kind, name)
}

// byApplication sorts pods, terminating ones among them, by the Application whose
// event-service they are, and then by name.
func byApplication(all []*unstructured.Unstructured) map[string][]*unstructured.Unstructured {
	sorted := map[string][]*unstructured.Unstructured{}
	for _, pod := range all {
		for _, app := range eventpath.ApplicationsOf(pod) {
			sorted[app] = append(sorted[app], pod)
		}
	}
	for _, own := range sorted {
		slices.SortFunc(own, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	return sorted
}

// conflicting says whether a release failed on an HTTPSource that it does not
// know.
func conflicting(description string) bool {
	return strings.Contains(description, "HTTPSource") && strings.Contains(description, "already exists")
}

// applicationOf is the command that shows an Application.
func applicationOf(name string) string {
	return migration.Kubectl("", "get", migration.Kind{GroupKind: kyma.Application}.Named(name), "-o", "yaml")
}

// sourceReady is met when an HTTPSource, its Channel and its adapter can take
// events.
func sourceReady(ref migration.Ref) migration.Condition {
	application, own := migration.SubjectOf(kyma.Application, "", ref.Name), ref.Subject()
	channel, service := migration.SubjectOf(kyma.Channel, ref.Namespace, ref.Name), migration.SubjectOf(kyma.Service, ref.Namespace, ref.Name)
	return migration.Condition{
		Text: "it, its Channel and its adapter to be ready",
		On:   []migration.Subject{own, channel, service, application},
		Eval: func(v migration.View) migration.Status {
			app := v.Get(application)
			if app == nil || app.GetDeletionTimestamp() != nil || kyma.SkipsInstallation(app) {
				return migration.Status{State: migration.Met}
			}
			source := eventpath.Source{Name: ref.Name, Namespace: ref.Namespace, HTTPSource: v.Get(own), Channel: v.Get(channel), Adapter: v.Get(service)}
			why := source.TakesEvents()
			if why.OK() {
				return migration.Status{State: migration.Met}
			}
			if why.Defect == eventpath.HTTPSourceMissing {
				why.Note = "application-operator creates it with the upgrade of the Application's release. Or the job httpsource-sync creates it."
			}
			return migration.Status{Message: why.About(kyma.HTTPSource, ref.Namespace, ref.Name), Note: why.Note, Command: why.Command}
		},
	}
}
