package standin

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// releaseStatus are the codes of hapi.release.Status.
var releaseStatus = map[string]uint64{
	"DEPLOYED":         1,
	"DELETED":          2,
	"SUPERSEDED":       3,
	"FAILED":           4,
	"DELETING":         5,
	"PENDING_INSTALL":  6,
	"PENDING_UPGRADE":  7,
	"PENDING_ROLLBACK": 8,
}

// TillerRelease returns the ConfigMap in which Tiller (Helm 2) keeps one
// revision of a release: a hapi.release.Release in protobuf, compressed and in
// base64. Chart, values and hooks are left out.
func TillerRelease(name, namespace string, version int, status, manifest string) *unstructured.Unstructured {
	u := TillerConfigMap(name, version, status, encodeRelease(name, namespace, version, status, manifest))
	return u
}

// TillerConfigMap returns a ConfigMap of Tiller's storage with any content, for
// storage that cannot be read.
func TillerConfigMap(name string, version int, status, release string) *unstructured.Unstructured {
	u := object(corev1.SchemeGroupVersion.WithKind("ConfigMap"), TillerNamespace, fmt.Sprintf("%s.v%d", name, version), map[string]any{
		"data": map[string]any{"release": release},
	})
	u.SetLabels(map[string]string{
		"NAME":        name,
		"OWNER":       "TILLER",
		"STATUS":      status,
		"VERSION":     strconv.Itoa(version),
		"MODIFIED_AT": "1583316000",
	})
	return u
}

func encodeRelease(name, namespace string, version int, status, manifest string) string {
	code, ok := releaseStatus[status]
	if !ok {
		panic("kyma: no status of a Helm 2 release: " + status)
	}
	// Field numbers are those of hapi/release/{release,info,status}.proto.
	var stat, info, release []byte
	stat = protowire.AppendTag(stat, 1, protowire.VarintType)
	stat = protowire.AppendVarint(stat, code)
	info = appendBytes(info, 1, stat)
	info = appendBytes(info, 3, timestamp(1583316000))
	info = appendBytes(info, 5, []byte("Upgrade complete"))
	release = appendBytes(release, 1, []byte(name))
	release = appendBytes(release, 2, info)
	release = appendBytes(release, 5, []byte(manifest))
	release = protowire.AppendTag(release, 7, protowire.VarintType)
	release = protowire.AppendVarint(release, uint64(version))
	release = appendBytes(release, 8, []byte(namespace))

	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	// Neither fails on a buffer.
	_, _ = w.Write(release)
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(buf.Bytes())
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func timestamp(seconds uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), seconds)
}

// ApplicationManifest returns what the application chart rendered for a release,
// abridged; charts before Kyma 1.9 had no HTTPSource.
func ApplicationManifest(app string, httpSource bool) string {
	manifest := fmt.Sprintf(`
---
# Source: application/templates/event-service.yaml
apiVersion: v1
kind: Service
metadata:
  name: %[1]s-event-service
  namespace: kyma-integration
  labels:
    app: %[1]s-event-service
    release: %[1]s
    heritage: Tiller
spec:
  ports:
    - port: 8081
      protocol: TCP
      name: http-ext-api-port
  selector:
    app: %[1]s-event-service
    release: %[1]s
---
# Source: application/templates/event-service.yaml
apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s-event-service
  namespace: kyma-integration
spec:
  replicas: 1
`, app)
	if httpSource {
		manifest += fmt.Sprintf(`---
# Source: application/templates/httpsource.yaml
apiVersion: sources.kyma-project.io/v1alpha1
kind: HTTPSource
metadata:
  name: %[1]s
  namespace: kyma-integration
spec:
  source: %[1]s
`, app)
	}
	return manifest
}
