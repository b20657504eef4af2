package backend

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	operatorv1alpha1 "github.com/kyma-project/eventmesh-migration/api/operator/v1alpha1"
)

// Set is a set of backends, in canonical spelling.
type Set []operatorv1alpha1.BackendType

// String is the set sorted, with commas: "EventMesh,NATS". That is how it is in ConfigMaps and in
// the status of Subscriptions.
func (s Set) String() string {
	names := make([]string, 0, len(s))
	for _, b := range s {
		names = append(names, string(b.Canonical()))
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), ",")
}

// Has tells whether a backend is in the set.
func (s Set) Has(b operatorv1alpha1.BackendType) bool {
	return slices.ContainsFunc(s, func(in operatorv1alpha1.BackendType) bool { return in.Canonical() == b.Canonical() })
}

// ParseSet reads what String writes. A name that is no backend is an error: a reader would serve
// less than is asked for.
func ParseSet(text string) (Set, error) {
	if text == "" {
		return nil, nil
	}
	var s Set
	for name := range strings.SplitSeq(text, ",") {
		b := operatorv1alpha1.BackendType(name)
		if !slices.Contains(operatorv1alpha1.BackendTypes, b) {
			return nil, fmt.Errorf("%q is no backend", name)
		}
		s = append(s, b)
	}
	return s, nil
}

// Backends is the ConfigMap <prefix>-backends. The operator writes it; the controller and the
// publisher follow it.
type Backends struct {
	// Epoch is new at each change of Serving, and with each new stream or Broker. A report about
	// this ConfigMap repeats it, so that a report of an earlier state is not taken for one of this.
	Epoch string
	// Serving are the backends from which the controller delivers.
	Serving Set
	// Removed: no backend serves any more, and the controller deletes what it has made for
	// Subscriptions.
	Removed bool
	// Accept are the backends to which the publisher may send. A pod whose backend is not among
	// them refuses events.
	Accept Set
	// NATS and Mesh say where the backends are; nil if there is none.
	NATS *NATSAddress
	Mesh *MeshAddress
}

// NATSAddress is where NATS is.
type NATSAddress struct {
	URL    string `json:"url"`
	Stream string `json:"stream"`
	// CA is the name of the Secret with the CA of the servers' certificates.
	CA string `json:"ca"`
}

// MeshAddress is where the Broker is.
type MeshAddress struct {
	Broker string `json:"broker"`
	URL    string `json:"url"`
}

const (
	keyEpoch   = "epoch"
	keyServing = "serving"
	keyRemoved = "removed"
	keyAccept  = "accept"
	keyNATS    = "nats"
	keyMesh    = "mesh"

	keyObserved    = "observedServing"
	keyReady       = "ready"
	keyRefuses     = "meshRefuses"
	keyLeader      = "leader"
	keyCertificate = "apiCertificate"
	keyAt          = "at"
)

// Data is the data of the ConfigMap.
func (b Backends) Data() map[string]string {
	data := map[string]string{keyEpoch: b.Epoch, keyServing: b.Serving.String(), keyAccept: b.Accept.String()}
	if b.Removed {
		data[keyRemoved] = "true"
	}
	if b.NATS != nil {
		data[keyNATS] = compact(b.NATS)
	}
	if b.Mesh != nil {
		data[keyMesh] = compact(b.Mesh)
	}
	return data
}

// Undecided tells whether it is not said yet what serves. It is so at the beginning, and when
// somebody has deleted the ConfigMap: what was served is served on, because a recreated consumer
// does not get what waited for the former one.
func (b Backends) Undecided() bool { return len(b.Serving) == 0 && !b.Removed }

// ParseBackends reads the data of the ConfigMap. All that is wrong is in the error.
func ParseBackends(data map[string]string) (Backends, error) {
	b := Backends{Epoch: data[keyEpoch], Removed: data[keyRemoved] == "true"}
	var errs []error
	if b.Epoch == "" {
		errs = append(errs, fmt.Errorf("%s is missing", keyEpoch))
	}
	var err error
	if b.Serving, err = ParseSet(data[keyServing]); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", keyServing, err))
	}
	if b.Accept, err = ParseSet(data[keyAccept]); err != nil {
		errs = append(errs, fmt.Errorf("%s: %w", keyAccept, err))
	}
	if text, ok := data[keyNATS]; ok {
		if err := json.Unmarshal([]byte(text), &b.NATS); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", keyNATS, err))
		}
	}
	if text, ok := data[keyMesh]; ok {
		if err := json.Unmarshal([]byte(text), &b.Mesh); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", keyMesh, err))
		}
	}
	if len(errs) > 0 {
		return Backends{}, errors.Join(errs...)
	}
	return b, nil
}

// The keys of the ConfigMap <prefix>-manager-page: the pod of the operator that shows the page, and
// the SHA-256 of the certificate by which people know it.
const (
	PagePod         = "pod"
	PageCertificate = "certificate"
)

// PagePort is that of the page, on the loopback of the operator's pod. PagePath is where the page
// is, and PageStatePath what has changed since.
const (
	PagePort      = 8086
	PagePath      = "/v1/page"
	PageStatePath = "/v1/page/state"
)

// ControllerState is the ConfigMap <prefix>-controller-state. The leader of the controller writes
// it after it has read Backends from the API server, and not from a cache.
type ControllerState struct {
	// Epoch and ObservedServing are those of the Backends that the controller follows now.
	Epoch           string
	ObservedServing Set
	// Leader is the name of the pod, and APICertificate the SHA-256 of the certificate of its API,
	// in hexadecimal; "" if it has none.
	Leader         string
	APICertificate string
	// Ready says that in this epoch all Subscriptions up to a version are ready on a backend, but
	// for those that are invalid. The status of each may not say so yet.
	Ready Versions
	// MeshRefuses is why the mesh refuses each event although its Broker is ready; "" if it does
	// not.
	MeshRefuses string
	At          time.Time
}

// Versions are resource versions of Subscriptions, by backend.
type Versions map[operatorv1alpha1.BackendType]string

// String is "EventMesh=7,NATS=5", sorted.
func (v Versions) String() string {
	var all []string
	for b, version := range v {
		all = append(all, string(b)+"="+version)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// ParseVersions reads what String writes.
func ParseVersions(text string) (Versions, error) {
	v := Versions{}
	if text == "" {
		return v, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, version, _ := strings.Cut(part, "=")
		set, err := ParseSet(name)
		if err != nil || len(set) != 1 || version == "" {
			return nil, fmt.Errorf("%q is not <backend>=<resource version>", part)
		}
		v[set[0]] = version
	}
	return v, nil
}

// Data is the data of the ConfigMap. The time has seconds.
func (s ControllerState) Data() map[string]string {
	data := map[string]string{keyEpoch: s.Epoch, keyObserved: s.ObservedServing.String(), keyLeader: s.Leader, keyAt: s.At.UTC().Format(time.RFC3339)}
	if s.APICertificate != "" {
		data[keyCertificate] = s.APICertificate
	}
	if len(s.Ready) > 0 {
		data[keyReady] = s.Ready.String()
	}
	if s.MeshRefuses != "" {
		data[keyRefuses] = s.MeshRefuses
	}
	return data
}

// ParseControllerState reads the data of the ConfigMap.
func ParseControllerState(data map[string]string) (ControllerState, error) {
	s := ControllerState{Epoch: data[keyEpoch], Leader: data[keyLeader], APICertificate: data[keyCertificate], MeshRefuses: data[keyRefuses]}
	var err error
	if s.ObservedServing, err = ParseSet(data[keyObserved]); err != nil {
		return ControllerState{}, fmt.Errorf("%s: %w", keyObserved, err)
	}
	if s.Ready, err = ParseVersions(data[keyReady]); err != nil {
		return ControllerState{}, fmt.Errorf("%s: %w", keyReady, err)
	}
	if s.At, err = time.Parse(time.RFC3339, data[keyAt]); err != nil {
		return ControllerState{}, fmt.Errorf("%s: %w", keyAt, err)
	}
	return s, nil
}

// Follows tells whether the controller follows these backends: the same set and the same epoch. The
// set alone is not enough: it may have been another one in between.
func (s ControllerState) Follows(b Backends) bool {
	return b.Epoch != "" && s.Epoch == b.Epoch && s.ObservedServing.String() == b.Serving.String()
}

// AllReady tells whether the controller follows these backends, and has found all Subscriptions up
// to a version ready on one of them. What it finds later of one is in a later version of that one.
func (s ControllerState) AllReady(b Backends, on operatorv1alpha1.BackendType, version string) bool {
	order, err := resourceversion.CompareResourceVersion(version, s.Ready[on])
	return s.Follows(b) && err == nil && order <= 0
}

func compact(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // two structs of strings
	}
	return string(raw)
}
