package kyma

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kyma-project/eventmesh-migration/test/manifest"
)

func TestAddressed(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest string
		want     bool
	}{
		"URL":      {"Every version has a URL.", `{apiVersion: v1, kind: Channel, status: {address: {url: "http://a.b"}}}`, true},
		"Hostname": {"v1alpha1 may have the host name alone.", `{apiVersion: v1, kind: Channel, status: {address: {hostname: a.b}}}`, true},
		"Empty":    {"An address may be there and empty while the channel is made.", `{apiVersion: v1, kind: Channel, status: {address: {url: ""}}}`, false},
		"None":     {"A new Channel has no address.", `{apiVersion: v1, kind: Channel, status: {}}`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Addressed(manifest.Object(t, tc.manifest)); got != tc.want {
				t.Errorf("%s\nAddressed() = %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestControllerOf(t *testing.T) {
	cases := map[string]struct {
		reason   string
		manifest string
		want     Owner
		ok       bool
	}{
		"Controller": {
			reason: "Among several owners the one marked controller counts.",
			manifest: `{apiVersion: v1, kind: X, metadata: {ownerReferences: [
				{apiVersion: v1, kind: ConfigMap, name: a, uid: "1"},
				{apiVersion: sources.kyma-project.io/v1alpha1, kind: HTTPSource, name: b, uid: "2", controller: true}]}}`,
			want: Owner{GroupKind: HTTPSource, Name: "b", UID: "2"}, ok: true,
		},
		"CoreGroup": {
			reason:   "The core group has no name.",
			manifest: `{apiVersion: v1, kind: X, metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: a, uid: "1", controller: true}]}}`,
			want:     Owner{GroupKind: schema.GroupKind{Kind: "Pod"}, Name: "a", UID: "1"}, ok: true,
		},
		"OwnersOnly": {
			reason:   "An owner that is no controller does not control.",
			manifest: `{apiVersion: v1, kind: X, metadata: {ownerReferences: [{apiVersion: v1, kind: Pod, name: a, uid: "1", controller: false}]}}`,
		},
		"None": {
			reason:   "Most objects have no owner.",
			manifest: `{apiVersion: v1, kind: X}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, ok := ControllerOf(manifest.Object(t, tc.manifest))
			if diff := cmp.Diff(tc.want, got); diff != "" || ok != tc.ok {
				t.Errorf("%s\nControllerOf(): ok %t, want %t; -want +got:\n%s", tc.reason, ok, tc.ok, diff)
			}
		})
	}
}

func TestApplicationReaders(t *testing.T) {
	type facts struct{ OptedOut, Skips, Installed bool }
	cases := map[string]struct {
		reason   string
		manifest string
		want     facts
	}{
		"Plain":           {"An Application the operator has not seen yet.", `{apiVersion: v1, kind: Application, spec: {services: []}}`, facts{}},
		"Deployed":        {"A release that runs.", `{apiVersion: v1, kind: Application, status: {installationStatus: {status: DEPLOYED}}}`, facts{Installed: true}},
		"Failed":          {"A release that failed is a release.", `{apiVersion: v1, kind: Application, status: {installationStatus: {status: FAILED}}}`, facts{Installed: true}},
		"Skipped":         {"The operator says so itself.", `{apiVersion: v1, kind: Application, spec: {skipInstallation: true}, status: {installationStatus: {status: INSTALLATION_SKIPPED}}}`, facts{Skips: true}},
		"SkippedLater":    {"skipInstallation set on an installed one.", `{apiVersion: v1, kind: Application, spec: {skipInstallation: true}, status: {installationStatus: {status: DEPLOYED}}}`, facts{Skips: true, Installed: true}},
		"OptedOut":        {"The label with the value true opts out.", `{apiVersion: v1, kind: Application, metadata: {labels: {eventmesh-migration.kyma-project.io/skip: "true"}}}`, facts{OptedOut: true}},
		"OptedOutNotTrue": {"Any other value does not: nobody should guess.", `{apiVersion: v1, kind: Application, metadata: {labels: {eventmesh-migration.kyma-project.io/skip: "false"}}}`, facts{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj := manifest.Object(t, tc.manifest)
			got := facts{OptedOut(obj), SkipsInstallation(obj), Installed(obj)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want +got:\n%s", tc.reason, diff)
			}
		})
	}
}
