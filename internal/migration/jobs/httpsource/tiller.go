package httpsource

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/internal/migration/kyma"
)

// Tiller (Helm 2) stores each revision of a release in a ConfigMap with these
// labels, and as data.release the base64 of a protobuf message, gzipped since
// Helm 2.0.
const (
	tillerSelector     = "OWNER=TILLER,STATUS=DEPLOYED"
	tillerNameLabel    = "NAME"
	tillerVersionLabel = "VERSION"
	tillerDataKey      = "release"
)

// Fields of hapi.release.Release that are read here.
const (
	fieldName     = 1
	fieldManifest = 5
)

// maxRelease bounds what a record may decompress to: etcd does not take a record
// of more than 1.5 MiB, and a release compresses to a tenth, not to a fortieth.
const maxRelease = 64 << 20

// tiller is what Tiller's storage says.
type tiller struct {
	// denied: the storage may not be read.
	denied bool
	// inUse: something is deployed by Helm 2.
	inUse bool
	// releases are the newest deployed ones of the wanted names.
	releases map[string]release
}

// release is the newest deployed revision of a Helm 2 release.
type release struct {
	configMap string
	version   int
	// hasSource says that its manifest has the HTTPSource of the release's name.
	hasSource bool
	// err says why that cannot be known.
	err error
}

// add takes a record into account. Of a release that is not wanted it only
// counts that there is one, whatever is in it.
func (t *tiller) add(record *unstructured.Unstructured, wanted map[string]bool) {
	t.inUse = true
	labels := record.GetLabels()
	name := labels[tillerNameLabel]
	if !wanted[name] {
		return
	}
	r := release{configMap: record.GetName()}
	version, err := strconv.Atoi(labels[tillerVersionLabel])
	if err != nil {
		// It may be the newest one, so it must not be passed over.
		version, r.err = math.MaxInt, fmt.Errorf("its label %s is %q, not a number", tillerVersionLabel, labels[tillerVersionLabel])
	}
	r.version = version
	if other, ok := t.releases[name]; ok && other.version > version {
		return
	}
	if r.err == nil {
		data, _, _ := unstructured.NestedString(record.Object, "data", tillerDataKey)
		r.hasSource, r.err = manifestHasSource(data, name)
	}
	t.releases[name] = r
}

// manifestHasSource decodes a record's data and says whether the manifest of the
// release has an HTTPSource of the release's name.
func manifestHasSource(data, name string) (bool, error) {
	stored, manifest, err := decodeRelease(data)
	switch {
	case err != nil:
		return false, err
	case stored != name:
		return false, fmt.Errorf("it is labelled %q and holds release %q", name, stored)
	}
	return containsSource(manifest, name)
}

// decodeRelease returns name and manifest of a stored release.
func decodeRelease(data string) (name string, manifest []byte, err error) {
	message, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return "", nil, fmt.Errorf("its data.%s is not base64: %w", tillerDataKey, err)
	}
	if bytes.HasPrefix(message, []byte{0x1f, 0x8b, 0x08}) { // gzip; the oldest records are not
		if message, err = gunzip(message, maxRelease); err != nil {
			return "", nil, fmt.Errorf("its data.%s cannot be decompressed: %w", tillerDataKey, err)
		}
	}
	for len(message) > 0 {
		field, wireType, n := protowire.ConsumeTag(message)
		if n < 0 {
			return "", nil, malformed(n)
		}
		message = message[n:]
		if (field == fieldName || field == fieldManifest) && wireType == protowire.BytesType {
			var value []byte
			if value, n = protowire.ConsumeBytes(message); n < 0 {
				return "", nil, malformed(n)
			}
			if field == fieldName {
				name = string(value)
			} else {
				manifest = value
			}
		} else if n = protowire.ConsumeFieldValue(field, wireType, message); n < 0 {
			return "", nil, malformed(n)
		}
		message = message[n:]
	}
	if name == "" {
		return "", nil, fmt.Errorf("its data.%s holds no release", tillerDataKey)
	}
	return name, manifest, nil
}

func malformed(n int) error {
	return fmt.Errorf("its data.%s is not a stored release: %w", tillerDataKey, protowire.ParseError(n))
}

func gunzip(compressed []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(plain)) > limit {
		err = fmt.Errorf("it is larger than %d bytes", limit)
	}
	return plain, err
}

// containsSource says whether a manifest, several YAML documents, has the
// HTTPSource of a name.
func containsSource(manifest []byte, name string) (bool, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifest)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("its manifest cannot be read: %w", err)
		}
		if !bytes.Contains(document, []byte(kyma.HTTPSource.Kind)) {
			continue // parsing is what costs, and few documents qualify
		}
		var object struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			Metadata   struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal(document, &object); err != nil {
			return false, fmt.Errorf("its manifest cannot be read: %w", err)
		}
		if object.Kind == kyma.HTTPSource.Kind && strings.HasPrefix(object.APIVersion, kyma.HTTPSource.Group+"/") && object.Metadata.Name == name {
			return true, nil
		}
	}
}
