package standin

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestTillerRelease(t *testing.T) {
	// What proto.Marshal of k8s.io/helm v2.16.3 makes of the same release.
	const want = "0a0473686f70121e0a0208011a0608a0f8fdf2052a105570677261646520636f6d706c657465" +
		"2a116b696e643a2048545450536f757263650a380342106b796d612d696e746567726174696f6e"

	u := TillerRelease("shop", "kyma-integration", 3, "DEPLOYED", "kind: HTTPSource\n")
	encoded, _, err := unstructured.NestedString(u.Object, "data", "release")
	if err != nil {
		t.Fatal(err)
	}
	compressed, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatalf("data.release is not base64: %v", err)
	}
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		t.Fatalf("data.release is not compressed: %v", err)
	}
	release, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("data.release is not compressed: %v", err)
	}
	if diff := cmp.Diff(want, hex.EncodeToString(release)); diff != "" {
		t.Errorf("release differs from Helm's own (-want +got):\n%s", diff)
	}

	got := map[string]any{"namespace": u.GetNamespace(), "name": u.GetName(), "labels": u.GetLabels()}
	wantMeta := map[string]any{
		"namespace": "kube-system", "name": "shop.v3",
		"labels": map[string]string{"NAME": "shop", "OWNER": "TILLER", "STATUS": "DEPLOYED", "VERSION": "3", "MODIFIED_AT": "1583316000"},
	}
	if diff := cmp.Diff(wantMeta, got); diff != "" {
		t.Errorf("ConfigMap (-want +got):\n%s", diff)
	}
}
