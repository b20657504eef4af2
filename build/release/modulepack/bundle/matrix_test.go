package bundle

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

// promised are objects that users have: those of the users' document, and what users of Kyma's own
// operator write. Each is tried for both backends.
var promised = map[string]string{
	"the object of the users' document": "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: default-kyma-eventing, namespace: kcp-system, labels: {operator.kyma-project.io/kyma-name: eventing-sample}}, spec: {backend: {type: BACKEND}}}",
	"an Eventing with all fields that users of Kyma's operator set": "{apiVersion: operator.kyma-project.io/v1alpha1, kind: Eventing, metadata: {name: eventing, namespace: kyma-system}, spec: {annotations: {a: b}, labels: {c: d}, logging: {logLevel: Warn}, " +
		"publisher: {replicas: {min: 2, max: 4}, resources: {limits: {cpu: 500m, memory: 512Mi}, requests: {cpu: 40m, memory: 256Mi}}}, " +
		"backend: {type: BACKEND, config: {natsStreamStorageType: File, natsStreamReplicas: 3, natsStreamMaxSize: 700Mi, natsMaxMsgsPerTopic: 1000000, eventTypePrefix: sap.kyma.custom, domain: kyma.example.com}}}}",
	"a Subscription":                       "{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: orders, namespace: shop}, spec: {id: orders, sink: 'http://orders.shop.svc.cluster.local', source: commerce, types: [order.created.v1]}}",
	"a Subscription with exact names":      "{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: orders, namespace: shop}, spec: {sink: 'http://orders.shop.svc.cluster.local:8080/path', source: '', typeMatching: exact, types: [sap.kyma.custom.commerce.order.created.v1]}}",
	"a Subscription with its own settings": "{apiVersion: eventing.kyma-project.io/v1alpha2, kind: Subscription, metadata: {name: orders, namespace: shop}, spec: {sink: 'https://orders.shop.svc.cluster.local', source: commerce, typeMatching: standard, types: [order.created.v1, order.changed.v1], config: {maxInFlightMessages: '5'}}}",
}

// matrix returns what a channel cannot take: each channel's version is asked about each object for
// both backends, and each later version has to take what an earlier one took. The schemas of a
// released version are those that were recorded; those of this one are in the bundle.
func matrix(t *testing.T, s *Source, files Files, all map[string]string) (wrong []string) {
	t.Helper()
	locks := func(version string) map[string]*crd.Lock {
		if r, ok := s.Released[version]; ok {
			return r.Locks
		}
		found := map[string]*crd.Lock{}
		for name, raw := range files {
			if file, ok := strings.CutPrefix(name, lockDir); ok && version == s.Version {
				lock, err := crd.ParseLock(raw)
				if err != nil {
					t.Fatal(err)
				}
				found[file] = lock
			}
		}
		return found
	}
	for _, channel := range s.Channels {
		has := locks(channel.Version)
		if len(has) == 0 {
			wrong = append(wrong, channel.String()+": no schemas are known of this version")
		}
		for _, other := range s.Channels {
			if later, err := lower(channel.Version, other.Version); err != nil || !later {
				continue
			}
			for name, lock := range has {
				for _, b := range crd.Breaks(lock, locks(other.Version)[name]) {
					wrong = append(wrong, channel.String()+" to "+other.String()+": "+b.Path+" "+b.What)
				}
			}
		}
		for reason, text := range all {
			for _, backend := range []string{"nats", "NATS", "EventMesh"} {
				u, err := parseObject([]byte(strings.ReplaceAll(text, "BACKEND", backend)))
				if err != nil {
					t.Fatal(err)
				}
				if why := judge(t, has, u); why != "" {
					wrong = append(wrong, channel.String()+", "+backend+", "+reason+": "+why)
				}
			}
		}
	}
	slices.Sort(wrong)
	return wrong
}

// judge says why a version would refuse an object; "" if it would not.
func judge(t *testing.T, locks map[string]*crd.Lock, u *unstructured.Unstructured) string {
	t.Helper()
	for _, lock := range locks {
		if lock.Kind != u.GetKind() || lock.Group+"/"+lock.Version != u.GetAPIVersion() {
			continue
		}
		d := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: lock.Group, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: lock.Kind, Plural: lock.Plural}, Scope: apiextensionsv1.ResourceScope(lock.Scope),
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: lock.Version, Served: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: lock.Schema}}},
		}}
		v, err := crd.New(d, lock.Version)
		if err != nil {
			t.Fatal(err)
		}
		faults, err := v.Validate(t.Context(), u)
		if err != nil {
			return err.Error()
		}
		if len(faults) > 0 {
			return faults.ToAggregate().Error()
		}
		return ""
	}
	return "the kind is not served"
}

// TestChannelMatrix: the version of each channel takes what users have, for both backends, and so
// do the module's own objects.
func TestChannelMatrix(t *testing.T) {
	s, _, files := rendered(t)
	all := map[string]string{}
	for reason, text := range promised {
		all[reason] = text
	}
	for name, raw := range s.CRs {
		all[name] = string(raw)
	}
	if wrong := matrix(t, s, files, all); len(wrong) > 0 {
		t.Errorf("%s", strings.Join(wrong, "\n"))
	}

	// A channel that stays behind: its version is known by what was recorded.
	former := Release{Locks: map[string]*crd.Lock{}}
	for name, raw := range files {
		if file, ok := strings.CutPrefix(name, lockDir); ok {
			lock, err := crd.ParseLock(raw)
			if err != nil {
				t.Fatal(err)
			}
			former.Locks[file] = lock
		}
	}
	s.Released, s.Channels = map[string]Release{"0.0.9": former}, []Channel{{"fast", s.Version}, {"regular", "0.0.9"}}
	if wrong := matrix(t, s, files, all); len(wrong) > 0 {
		t.Errorf("with a channel that stays behind:\n%s", strings.Join(wrong, "\n"))
	}

	// The answer names the refused channel and backend.
	spec := former.Locks["eventings.v1alpha1.json"].Schema.Properties["spec"]
	backend := spec.Properties["backend"]
	kind := backend.Properties["type"]
	kind.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"nats"`)}, {Raw: []byte(`"NATS"`)}, {Raw: []byte(`"kafka"`)}}
	backend.Properties["type"] = kind
	delete(former.Locks, "subscriptions.v1alpha2.json")
	got := strings.Join(matrix(t, s, files, promised), "\n")
	for _, want := range []string{
		"regular 0.0.9, EventMesh, the object of the users' document: spec.backend.type: Unsupported value",
		"regular 0.0.9, nats, a Subscription: the kind is not served",
		"regular 0.0.9 to fast " + s.Version + ": ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("not said %q:\n%s", want, got)
		}
	}
	for _, unwanted := range []string{"fast " + s.Version + ", ", "regular 0.0.9, NATS, the object"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("it says %q of what is taken:\n%s", unwanted, got)
		}
	}
	s.Channels = []Channel{{"fast", "0.0.8"}}
	if got := matrix(t, s, files, nil); len(got) != 1 || !strings.Contains(got[0], "no schemas are known") {
		t.Errorf("a version that nobody knows: %q", got)
	}
}
