// Package stored decodes the kinds of eventing leniently, because stored objects may be invalid: an
// older version, or another definition of the kind, has accepted them. With the types of api/, one
// such object fails every list and watch.
package stored

import (
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	eventingv1alpha2 "github.com/kyma-project/eventmesh-migration/api/eventing/v1alpha2"
	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// AddToScheme makes clients and caches read these types, in the place of those of api/.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypeWithName(operatorv1alpha1.GroupVersion.WithKind("Eventing"), &Eventing{})
	scheme.AddKnownTypeWithName(operatorv1alpha1.GroupVersion.WithKind("EventingList"), &EventingList{})
	metav1.AddToGroupVersion(scheme, operatorv1alpha1.GroupVersion)
	scheme.AddKnownTypeWithName(eventingv1alpha2.GroupVersion.WithKind("Subscription"), &Subscription{})
	scheme.AddKnownTypeWithName(eventingv1alpha2.GroupVersion.WithKind("SubscriptionList"), &SubscriptionList{})
	metav1.AddToGroupVersion(scheme, eventingv1alpha2.GroupVersion)
	return nil
}

// Eventing is one as it is stored. Write only its metadata and its status: a spec that cannot be
// decoded is empty here.
type Eventing struct {
	operatorv1alpha1.Eventing `json:",inline"`
	// Problem is why the spec cannot be decoded; nil if it was.
	Problem error `json:"-"`
}

// EventingList is a list of Eventings.
type EventingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Eventing `json:"items"`
}

// Subscription is one as it is stored. Write only its metadata and its status: a spec that cannot
// be decoded is empty here.
type Subscription struct {
	eventingv1alpha2.Subscription `json:",inline"`
	// Problem is why the spec cannot be decoded; nil if it was.
	Problem error `json:"-"`
}

// SubscriptionList is a list of Subscriptions.
type SubscriptionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Subscription `json:"items"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (e *Eventing) UnmarshalJSON(raw []byte) (err error) {
	e.Problem, err = decode(raw, &e.TypeMeta, &e.ObjectMeta, &e.Spec, &e.Status)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Subscription) UnmarshalJSON(raw []byte) (err error) {
	s.Problem, err = decode(raw, &s.TypeMeta, &s.ObjectMeta, &s.Spec, &s.Status)
	return err
}

// decode reads an object in parts. A status that cannot be decoded is empty: whose it is, writes it
// again.
func decode[Spec, Status any](raw []byte, kind *metav1.TypeMeta, meta *metav1.ObjectMeta, spec *Spec, status *Status) (problem, err error) {
	var parts struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
		Spec            json.RawMessage   `json:"spec"`
		Status          json.RawMessage   `json:"status"`
	}
	if err := utiljson.Unmarshal(raw, &parts); err != nil {
		return nil, err
	}
	*kind, *meta = parts.TypeMeta, parts.Metadata
	problem = part(parts.Spec, spec)
	_ = part(parts.Status, status)
	return problem, nil
}

// Parts are the spec and the status of a Subscription that was read without its type, decoded by
// the same rules. problem is why the spec cannot be decoded; nil if it was.
func Parts(u *unstructured.Unstructured) (spec eventingv1alpha2.SubscriptionSpec, status eventingv1alpha2.SubscriptionStatus, problem error) {
	problem = part(u.Object["spec"], &spec)
	_ = part(u.Object["status"], &status)
	return spec, status, problem
}

// part reads a part of an object, and leaves it empty if that fails.
func part[T any](of any, into *T) error {
	var read T
	var err error
	switch of := of.(type) {
	case nil:
	case json.RawMessage:
		if len(of) > 0 {
			err = utiljson.Unmarshal(of, &read)
		}
	case map[string]any:
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(of, &read)
	default:
		err = errors.New("this is no object")
	}
	if err != nil {
		read = *new(T)
	}
	*into = read
	return err
}

// DeepCopyObject implements runtime.Object.
func (e *Eventing) DeepCopyObject() runtime.Object { return e.DeepCopy() }

// DeepCopy is a copy.
func (e *Eventing) DeepCopy() *Eventing {
	return &Eventing{*e.Eventing.DeepCopy(), e.Problem}
}

// DeepCopyObject implements runtime.Object.
func (s *Subscription) DeepCopyObject() runtime.Object { return s.DeepCopy() }

// DeepCopy is a copy.
func (s *Subscription) DeepCopy() *Subscription {
	return &Subscription{*s.Subscription.DeepCopy(), s.Problem}
}

// DeepCopyObject implements runtime.Object.
func (l *EventingList) DeepCopyObject() runtime.Object {
	out := &EventingList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *SubscriptionList) DeepCopyObject() runtime.Object {
	out := &SubscriptionList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopy())
	}
	return out
}
