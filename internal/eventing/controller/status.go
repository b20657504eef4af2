package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/backend"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/delivery"
	"github.com/kyma-project/eventmesh-migration/internal/eventing/health"
)

// findings are what a reconcile has found out about a Subscription.
type findings struct {
	// problems of the spec.
	problems []string
	// known is false if there is no backend yet; serving is meaningless then.
	known   bool
	serving backend.Backends
	// ready has the backends that deliver; why is what keeps the others from it, "" without a
	// reason.
	ready map[operatorv1alpha1.BackendType]bool
	why   string
	// failed is set if something could not be asked or written.
	failed bool
	// consumer is its name in NATS, "" if there is none.
	consumer string
	// health of the sink, and whether its Service exists.
	health  health.Health
	service bool
	sink    delivery.Sink
	// delivery are the numbers that the status is to have. waits says that events may wait.
	delivery *eventingv1alpha2.DeliveryStatus
	waits    bool
}

// because adds what keeps a backend from delivering.
func (f *findings) because(why string) {
	if f.why != "" {
		f.why += "; "
	}
	f.why += why
}

// waiting says what becomes of the events of NATS that a sink does not take.
func (f *findings) waiting(now time.Time) string {
	text := "Events wait, and are sent again" + f.nextTry(now)
	if b := f.health.Blocking; b.ID != "" {
		text = fmt.Sprintf("Event %q is refused since %s, and all later ones wait for it", b.ID, b.Since.UTC().Format(time.RFC3339))
		if next := f.nextTry(now); next != "" {
			text += "; it is sent again" + next
		}
	}
	if !f.health.Letter.IsZero() {
		text += fmt.Sprintf("; one that waited too long became a dead letter at %s", f.health.Letter.UTC().Format(time.RFC3339))
	}
	return text
}

// soonTry is until when the next try is told without its time: most delays are shorter, and each
// time would be another message.
const soonTry = 30 * time.Second

// nextTry says when the sink is asked again, if that is known.
func (f *findings) nextTry(now time.Time) string {
	switch next := f.health.Next; {
	case next.IsZero():
		return ""
	case next.Sub(now) <= soonTry:
		return " within 30 seconds"
	default:
		return " from " + next.UTC().Format(time.RFC3339) + " on"
	}
}

// named is the time of the next try that a status names; zero if it names none.
func (f *findings) named(now time.Time) time.Time {
	if f.health.Next.Sub(now) <= soonTry {
		return time.Time{}
	}
	return f.health.Next
}

// failsSince begins what the message of the condition says behind the last answer.
const failsSince = "; deliveries fail since "

// keeps tells whether the status has to say on what a former process has seen of the sink: this one
// has seen nothing yet, and events wait.
func (f *findings) keeps(s *eventingv1alpha2.Subscription) bool {
	i := slices.IndexFunc(s.Status.Conditions, func(c eventingv1alpha2.Condition) bool { return c.Type == eventingv1alpha2.ConditionDelivering })
	if i < 0 || f.health.Known || !f.service || !f.waits || s.Status.Conditions[i].Status != corev1.ConditionFalse {
		return false
	}
	return !strings.HasPrefix(s.Status.Conditions[i].Message, f.missing()) &&
		slices.ContainsFunc(s.Status.Backends, func(b eventingv1alpha2.BackendReadiness) bool { return b.ObservedGeneration == s.Generation })
}

// since is when the sink began not to take events, by what a former process has seen, too.
func (f *findings) since(s *eventingv1alpha2.Subscription) time.Time {
	since := f.health.Since
	for _, c := range s.Status.Conditions {
		if c.Type == eventingv1alpha2.ConditionDelivering && c.Status == corev1.ConditionFalse && !since.IsZero() &&
			c.LastTransitionTime.Time.Before(since) && !strings.HasPrefix(c.Message, f.missing()) {
			since = c.LastTransitionTime.Time
		}
	}
	return since
}

// missing says that there is no Service.
func (f *findings) missing() string {
	return fmt.Sprintf("Service %s/%s does not exist: create it", f.sink.Namespace, f.sink.Service)
}

// failing tells whether the status says that the sink takes no events.
func failing(s *eventingv1alpha2.Subscription) bool {
	return slices.ContainsFunc(s.Status.Conditions, func(c eventingv1alpha2.Condition) bool {
		return c.Type == eventingv1alpha2.ConditionDelivering && c.Status == corev1.ConditionFalse
	})
}

// statusOf is the status of a Subscription after these findings. What others wrote in it stays.
func statusOf(s *eventingv1alpha2.Subscription, f findings, now time.Time) eventingv1alpha2.SubscriptionStatus {
	status := *s.Status.DeepCopy()
	valid := len(f.problems) == 0
	status.Ready = valid && f.known && len(f.serving.Serving) > 0
	status.Types = []eventingv1alpha2.EventType{}
	status.Backend = eventingv1alpha2.BackendStatus{}
	for _, t := range s.Spec.Types {
		status.Types = append(status.Types, eventingv1alpha2.EventType{OriginalType: t, CleanType: t})
		if f.consumer != "" {
			status.Backend.Types = append(status.Backend.Types, eventingv1alpha2.BackendEventType{OriginalType: t, ConsumerName: f.consumer})
		}
	}
	status.Backends = nil
	status.Delivery = f.delivery
	set := f.serving.Serving.String()
	active, inactive := eventingv1alpha2.ReasonNATSActive, eventingv1alpha2.ReasonNATSNotActive
	for name := range strings.SplitSeq(set, ",") {
		if name == "" {
			continue
		}
		b := operatorv1alpha1.BackendType(name)
		ready := valid && f.ready[b]
		status.Ready = status.Ready && ready
		if b == operatorv1alpha1.EventMesh && (!ready || !f.serving.Serving.Has(operatorv1alpha1.NATS)) {
			active, inactive = eventingv1alpha2.ReasonMeshActive, eventingv1alpha2.ReasonMeshNotActive
		}
		status.Backends = append(status.Backends, eventingv1alpha2.BackendReadiness{
			Type: name, Ready: ready, ObservedGeneration: s.Generation, Serving: set, Epoch: f.serving.Epoch,
		})
	}

	condition := func(of eventingv1alpha2.ConditionType, is bool, yes, no, why string) {
		reason, value := no, corev1.ConditionFalse
		if is {
			reason, value = yes, corev1.ConditionTrue
		}
		status.Conditions = withCondition(status.Conditions, eventingv1alpha2.Condition{Type: of, Status: value, Reason: reason, Message: why}, now)
	}
	condition(eventingv1alpha2.ConditionSpecValid, valid, eventingv1alpha2.ReasonSpecValid, eventingv1alpha2.ReasonSpecInvalid, strings.Join(f.problems, "; "))
	why := f.why
	switch {
	case status.Ready:
		why = ""
	case !valid:
		why = "the spec has validation errors"
	case !f.known || len(f.serving.Serving) == 0:
		why = "there is no backend: create an Eventing"
	}
	condition(eventingv1alpha2.ConditionActive, status.Ready, active, inactive, why)
	problem := f.health.Problem
	if problem == "" && !f.health.Known && valid && !f.service {
		problem = f.missing()
	}
	if since := f.since(s); problem != "" && !since.IsZero() {
		problem += failsSince + since.UTC().Format(time.RFC3339)
	}
	switch {
	case problem == "":
	case f.known && f.serving.Serving.String() == string(operatorv1alpha1.EventMesh):
		problem += ". Events are refused, and clients send them again"
	default:
		problem += ". " + f.waiting(now)
	}
	if keys := withoutEffect(s.Spec.Config); len(keys) > 0 {
		condition(eventingv1alpha2.ConditionConfigUsed, false, "", eventingv1alpha2.ReasonNoEffect, fmt.Sprintf("config has no effect here: %s. Remove what you do not need", strings.Join(keys, ", ")))
	} else {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c eventingv1alpha2.Condition) bool { return c.Type == eventingv1alpha2.ConditionConfigUsed })
	}
	if valid && !f.keeps(s) { // without delivery, what was said of the sink stays
		condition(eventingv1alpha2.ConditionDelivering, problem == "", eventingv1alpha2.ReasonDelivering, eventingv1alpha2.ReasonRetrying, problem)
	}
	return status
}

// withoutEffect are the keys of a Subscription's config that nothing here reads, sorted: Kyma's own
// eventing knows some for SAP Event Mesh.
func withoutEffect(config map[string]string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(config)), func(key string) bool { return key == eventingv1alpha2.MaxInFlight })
}

// withCondition is the conditions with one of them changed. Its time changes only with its status.
func withCondition(all []eventingv1alpha2.Condition, c eventingv1alpha2.Condition, now time.Time) []eventingv1alpha2.Condition {
	i := slices.IndexFunc(all, func(is eventingv1alpha2.Condition) bool { return is.Type == c.Type })
	if i < 0 {
		c.LastTransitionTime = metav1.NewTime(now)
		return append(all, c)
	}
	c.LastTransitionTime = all[i].LastTransitionTime
	if all[i].Status != c.Status {
		c.LastTransitionTime = metav1.NewTime(now)
	}
	all[i] = c
	return all
}

// sameStatus tells whether a status needs no write.
func sameStatus(is, want eventingv1alpha2.SubscriptionStatus) bool {
	return is.Types != nil && equality.Semantic.DeepEqual(is, want)
}

// onlyDetails tells whether two statuses say the same but for numbers and the message about the
// sink; and whether that message differs, and the answer of the sink in it.
func onlyDetails(is, want eventingv1alpha2.SubscriptionStatus) (only, message, answer bool) {
	without := func(s eventingv1alpha2.SubscriptionStatus) (rest eventingv1alpha2.SubscriptionStatus, said string) { // and the message
		s.Delivery, s.Conditions = nil, slices.Clone(s.Conditions)
		for i := range s.Conditions {
			if c := &s.Conditions[i]; c.Type == eventingv1alpha2.ConditionDelivering {
				said, c.Message = c.Message, ""
			}
		}
		return s, said
	}
	isRest, isSaid := without(is)
	wantRest, wantSaid := without(want)
	isAnswer, _, _ := strings.Cut(isSaid, failsSince)
	wantAnswer, _, _ := strings.Cut(wantSaid, failsSince)
	return sameStatus(isRest, wantRest), isSaid != wantSaid, isAnswer != wantAnswer
}

// saysReady tells whether the status says that what served then delivers by the present spec.
func saysReady(s *eventingv1alpha2.Subscription) bool {
	return s.Status.Ready && !slices.ContainsFunc(s.Status.Backends, func(b eventingv1alpha2.BackendReadiness) bool { return b.ObservedGeneration != s.Generation })
}

// judged tells whether the status says that a backend is ready, for this generation and these
// backends.
func judged(s *eventingv1alpha2.Subscription, b operatorv1alpha1.BackendType, of backend.Backends) bool {
	return slices.Contains(s.Status.Backends, eventingv1alpha2.BackendReadiness{
		Type: string(b), Ready: true, ObservedGeneration: s.Generation, Serving: of.Serving.String(), Epoch: of.Epoch,
	})
}
