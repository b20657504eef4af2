package httpsource

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// sourceManifest is what the application chart of Kyma 1.9 and later renders,
// among other things, as Tiller stores it.
const sourceManifest = `
---
# Source: application/templates/service-account.yaml
apiVersion: v1
kind: ServiceAccount
metadata:
  name: shop-event-service
---
# Source: application/templates/httpsource.yaml
apiVersion: sources.kyma-project.io/v1alpha1
kind: HTTPSource
metadata:
  name: shop
  namespace: kyma-integration
spec:
  source: shop
`

const oldManifest = `
---
# Source: application/templates/deployment.yaml, which mentions no HTTPSource but here
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
`

// storedRelease is a hapi.release.Release with the fields Tiller fills in.
func storedRelease(name, manifest string) []byte {
	var b []byte
	str := func(field protowire.Number, s string) {
		b = protowire.AppendTag(b, field, protowire.BytesType)
		b = protowire.AppendString(b, s)
	}
	str(1, name)
	str(2, "\x0a\x06\x08\xd0\x8c\xf5\xf2\x05") // info, a message
	str(3, "chart")
	str(4, "config")
	str(5, manifest)
	str(6, "hook: kind: HTTPSource")
	b = protowire.AppendTag(b, 7, protowire.VarintType)
	b = protowire.AppendVarint(b, 3)
	str(8, "kyma-integration")
	return b
}

func gzipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}

func encoded(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func TestManifestHasSource(t *testing.T) {
	whole := gzipped(storedRelease("shop", sourceManifest))
	plain := storedRelease("shop", sourceManifest)
	cases := map[string]struct {
		reason string
		data   string
		want   bool
		err    string
	}{
		"Gzipped":    {"As Helm 2 writes it.", encoded(whole), true, ""},
		"Plain":      {"The oldest records are not compressed.", encoded(plain), true, ""},
		"Lacks":      {"A release from before 1.9; a comment and a hook are no object.", encoded(gzipped(storedRelease("shop", oldManifest))), false, ""},
		"NoManifest": {"A chart may render nothing.", encoded(gzipped(storedRelease("shop", ""))), false, ""},
		"OtherName": {"An HTTPSource of another name is not the Application's.",
			encoded(gzipped(storedRelease("shop", strings.ReplaceAll(sourceManifest, "name: shop\n  namespace", "name: store\n  namespace")))), false, ""},
		"OtherGroup": {"Another group's kind of that name is another kind.",
			encoded(gzipped(storedRelease("shop", strings.ReplaceAll(sourceManifest, "sources.kyma-project.io", "sources.example.org")))), false, ""},
		"OtherRelease": {"A record of another release under this label tells nothing about this one.",
			encoded(gzipped(storedRelease("store", sourceManifest))), false, `it is labelled "shop" and holds release "store"`},
		"Empty":           {"A record without data is broken.", "", false, "its data.release holds no release"},
		"NotBase64":       {"Something else wrote it.", "%%%", false, "its data.release is not base64"},
		"NotProtobuf":     {"Neither is this a release.", encoded([]byte("just some text")), false, "its data.release is not a stored release"},
		"TruncatedBase64": {"Cut off in the middle of the encoding.", encoded(whole)[:len(encoded(whole))/2/4*4-1], false, "its data.release"},
		"TruncatedGzip":   {"Cut off in the middle of the compression.", encoded(whole[:len(whole)/2]), false, "its data.release cannot be decompressed"},
		"TruncatedPlain":  {"Cut off in the middle of the message.", encoded(plain[:len(plain)/2]), false, "its data.release is not a stored release"},
		"BadYAML": {"A manifest that cannot be parsed where it matters tells nothing.",
			encoded(gzipped(storedRelease("shop", "kind: HTTPSource\nmetadata: [\n"))), false, "its manifest cannot be read"},
		"BadYAMLElsewhere": {"Where it does not matter it is not looked at.",
			encoded(gzipped(storedRelease("shop", "kind: Other\nmetadata: [\n---\n"+sourceManifest))), true, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := manifestHasSource(tc.data, "shop")
			switch {
			case tc.err == "" && err != nil, tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%s\nerror %v, want %q", tc.reason, err, tc.err)
			case got != tc.want:
				t.Errorf("%s\nmanifestHasSource() = %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

func TestGunzipLimit(t *testing.T) {
	const limit = 1 << 16
	if _, err := gunzip(gzipped(make([]byte, limit+1)), limit); err == nil {
		t.Error("a record that decompresses to more than any release is taken")
	}
	if got, err := gunzip(gzipped(make([]byte, limit)), limit); err != nil || len(got) != limit {
		t.Errorf("a record of just the limit: %d bytes, %v", len(got), err)
	}
}

func record(configMap, name, version, data string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"name": configMap, "namespace": "kube-system",
			"labels": map[string]any{"OWNER": "TILLER", "STATUS": "DEPLOYED", "NAME": name, "VERSION": version},
		},
		"data": map[string]any{"release": data},
	}}
}

func TestTillerAdd(t *testing.T) {
	has, lacks := encoded(gzipped(storedRelease("shop", sourceManifest))), encoded(gzipped(storedRelease("shop", oldManifest)))
	type brief struct {
		InUse     bool
		ConfigMap string
		HasSource bool
		Broken    bool
	}
	cases := map[string]struct {
		reason  string
		records []*unstructured.Unstructured
		want    brief
	}{
		"None":        {"No record, no Helm 2.", nil, brief{}},
		"Others":      {"Any release says that Helm 2 is in use; what is not an Application's is not even decoded.", []*unstructured.Unstructured{record("core.v1", "core", "1", "%%%")}, brief{InUse: true}},
		"One":         {"The release of the Application.", []*unstructured.Unstructured{record("shop.v1", "shop", "1", has)}, brief{InUse: true, ConfigMap: "shop.v1", HasSource: true}},
		"NewestFirst": {"The newest revision wins, by number and not by text.", []*unstructured.Unstructured{record("shop.v10", "shop", "10", has), record("shop.v9", "shop", "9", lacks)}, brief{InUse: true, ConfigMap: "shop.v10", HasSource: true}},
		"NewestLast":  {"Whatever order they come in.", []*unstructured.Unstructured{record("shop.v9", "shop", "9", has), record("shop.v10", "shop", "10", lacks)}, brief{InUse: true, ConfigMap: "shop.v10"}},
		"OldBroken":   {"An older revision that is broken does not matter.", []*unstructured.Unstructured{record("shop.v1", "shop", "1", "%%%"), record("shop.v2", "shop", "2", has)}, brief{InUse: true, ConfigMap: "shop.v2", HasSource: true}},
		"NewBroken":   {"The newest one does.", []*unstructured.Unstructured{record("shop.v2", "shop", "2", "%%%"), record("shop.v1", "shop", "1", has)}, brief{InUse: true, ConfigMap: "shop.v2", Broken: true}},
		"NoVersion":   {"One of unknown age may be the newest.", []*unstructured.Unstructured{record("shop.v2", "shop", "", has), record("shop.v1", "shop", "1", has)}, brief{InUse: true, ConfigMap: "shop.v2", Broken: true}},
		"Twice":       {"A list that begins again hands records over twice.", []*unstructured.Unstructured{record("shop.v1", "shop", "1", has), record("shop.v1", "shop", "1", has)}, brief{InUse: true, ConfigMap: "shop.v1", HasSource: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tl := &tiller{releases: map[string]release{}}
			for _, r := range tc.records {
				tl.add(r, map[string]bool{"shop": true})
			}
			r := tl.releases["shop"]
			if len(tl.releases) > 1 || len(tl.releases) == 1 && tl.releases["shop"].configMap == "" {
				t.Errorf("%s\nreleases %v: more than the wanted one is kept", tc.reason, tl.releases)
			}
			if diff := cmp.Diff(tc.want, brief{tl.inUse, r.configMap, r.hasSource, r.err != nil}); diff != "" {
				t.Errorf("%s\nadd(): -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// FuzzManifestHasSource looks for data that makes the decoder panic or hang:
// whoever can write ConfigMaps in kube-system must not be able to stop a
// migration by more than a refusal.
func FuzzManifestHasSource(f *testing.F) {
	plain := storedRelease("shop", sourceManifest)
	f.Add(gzipped(plain), sourceManifest)
	f.Add(plain, oldManifest)
	f.Add(plain[:len(plain)/2], "kind: HTTPSource\n---\nkind: &a [*a]")
	f.Add([]byte{}, "---HTTPSource")
	f.Add([]byte{0x1f, 0x8b, 0x08}, "{HTTPSource: ")
	f.Fuzz(func(t *testing.T, message []byte, manifest string) {
		if _, err := manifestHasSource(encoded(message), "shop"); err != nil && err.Error() == "" {
			t.Error("an error without a word")
		}
		want, wantErr := containsSource([]byte(manifest), "shop")
		got, err := manifestHasSource(encoded(storedRelease("shop", manifest)), "shop")
		if got != want || (err == nil) != (wantErr == nil) {
			t.Errorf("decoded from a record: %t, %v; directly: %t, %v", got, err, want, wantErr)
		}
	})
}
