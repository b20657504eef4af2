// Package bundle makes what a module is delivered as, checks it, and publishes it: the manifest of
// the operator, its default object, what lifecycle-manager reads, the component descriptor, lists
// of images and modules, and what users can rely on of the kinds.
//
// A bundle is plain files. The same source and the same images give the same bytes. The formats are
// those of lifecycle-manager's ModuleTemplate and ModuleReleaseMeta (v1beta2), of modulectl's
// configuration, and of the Open Component Model (v2). Nothing of those programs is linked.
package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/crd"
)

// What is where in the repository.
const (
	sourceDir = "module"
	chartDir  = "charts/eventing-manager"
)

var (
	// versionPattern is what lifecycle-manager takes: 1.0.0-rc1, and not 1.0.0-rc.1.
	versionPattern = regexp.MustCompile(`^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[a-zA-Z-][0-9a-zA-Z-]*)?$`)
	// componentPattern is that of the Open Component Model.
	componentPattern  = regexp.MustCompile(`^[a-z][-a-z0-9]*([.][a-z][-a-z0-9]*)*[.][a-z]{2,}(/[a-z][-a-z0-9_]*([.][a-z][-a-z0-9_]*)*)+$`)
	moduleNamePattern = regexp.MustCompile(`^[a-z]{3,}(-[a-z]{3,})*$`)
	channelPattern    = regexp.MustCompile(`^[a-z]{3,32}$`)
	referencePattern  = regexp.MustCompile(`^(.+/[^/:@]+):([^/:@]+)@(sha256:[0-9a-f]{64})$`)
)

const mostVersion, mostComponent = 32, 255

// Channel is a release channel, and the version of the module that it has.
type Channel struct {
	Channel string `json:"channel"`
	Version string `json:"version"`
}

func (c Channel) String() string { return c.Channel + " " + c.Version }

// Link is a picture, or a file that is downloaded.
type Link struct {
	Name string `json:"name"`
	Link string `json:"link"`
}

// Kind is a group, version and kind of Kubernetes.
type Kind struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

// Manager is the object whose state is that of the module.
type Manager struct {
	Kind      `json:",inline"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// Config is module-config.yaml, as modulectl reads it. In the source it has no version, in a bundle
// it has.
type Config struct {
	Name                string  `json:"name"`
	Version             string  `json:"version,omitempty"`
	Manifest            string  `json:"manifest"`
	DefaultCR           string  `json:"defaultCR"`
	Repository          string  `json:"repository"`
	Documentation       string  `json:"documentation"`
	Team                string  `json:"team"`
	Icons               []Link  `json:"icons"`
	Manager             Manager `json:"manager"`
	AssociatedResources []Kind  `json:"associatedResources"`
	RequiresDowntime    bool    `json:"requiresDowntime"`
	Internal            bool    `json:"internal,omitempty"`
	Beta                bool    `json:"beta,omitempty"`
	// Security is the file for the security scanners.
	Security string `json:"security,omitempty"`
}

// Module is the short name: that behind the last slash.
func (c *Config) Module() string { return path.Base(c.Name) }

// Release is what is recorded of a version when it is pushed: what later versions are compared
// with.
type Release struct {
	// Registry is where the artifact was pushed to, "registry.example/path".
	Registry string `json:"registry"`
	// Artifact is the digest of the pushed artifact, in that registry.
	Artifact string `json:"artifact"`
	// Locks are those of the kinds, by file name.
	Locks map[string]*crd.Lock `json:"-"`
}

// Source is what is written by people. Everything else in a bundle follows from it, from the chart
// and from the images.
type Source struct {
	Version  string
	Channels []Channel
	Config   Config
	// CRs are the default object and the samples, by file name, as they are written.
	CRs map[string][]byte
	// Released are the versions that were pushed.
	Released map[string]Release

	root fs.FS
}

// ReadSource reads the directory module of a repository. It checks the syntax; Verify checks what a
// bundle of it says.
func ReadSource(root fs.FS) (*Source, error) {
	s := &Source{root: root, CRs: map[string][]byte{}}
	raw, err := fs.ReadFile(root, sourceDir+"/VERSION")
	if err != nil {
		return nil, err
	}
	s.Version = strings.TrimSpace(string(raw))
	if !versionPattern.MatchString(s.Version) {
		return nil, fmt.Errorf("cannot use %s/VERSION: %q is not X.Y.Z or X.Y.Z-name", sourceDir, s.Version)
	}
	if raw, err = fs.ReadFile(root, sourceDir+"/channels.yaml"); err != nil {
		return nil, err
	}
	if s.Channels, err = ParseChannels(raw); err != nil {
		return nil, fmt.Errorf("cannot read %s/channels.yaml: %w", sourceDir, err)
	}
	if raw, err = fs.ReadFile(root, sourceDir+"/module-config.yaml"); err != nil {
		return nil, err
	}
	if err := sigsyaml.UnmarshalStrict(raw, &s.Config); err != nil {
		return nil, fmt.Errorf("cannot read %s/module-config.yaml: %w", sourceDir, err)
	}
	if s.Config.Version != "" {
		return nil, fmt.Errorf("cannot use %s/module-config.yaml: remove the version, which is in %s/VERSION", sourceDir, sourceDir)
	}
	files, err := fs.Glob(root, sourceDir+"/cr/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if s.CRs[path.Base(name)], err = fs.ReadFile(root, name); err != nil {
			return nil, err
		}
	}
	s.Released, err = readReleases(root)
	return s, err
}

func readReleases(root fs.FS) (map[string]Release, error) {
	all := map[string]Release{}
	versions, err := fs.ReadDir(root, sourceDir+"/releases")
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, err
	}
	for _, v := range versions {
		dir := path.Join(sourceDir, "releases", v.Name())
		r := Release{Locks: map[string]*crd.Lock{}}
		raw, err := fs.ReadFile(root, dir+"/release.yaml")
		if err != nil {
			return nil, err
		}
		if err := sigsyaml.UnmarshalStrict(raw, &r); err != nil {
			return nil, fmt.Errorf("cannot read %s/release.yaml: %w", dir, err)
		}
		locks, err := fs.Glob(root, dir+"/*.json")
		if err != nil {
			return nil, err
		}
		for _, name := range locks {
			raw, err := fs.ReadFile(root, name)
			if err != nil {
				return nil, err
			}
			if r.Locks[path.Base(name)], err = crd.ParseLock(raw); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		all[v.Name()] = r
	}
	return all, nil
}

// ParseChannels reads channels.yaml: a map from channel to version, in the order of the file.
func ParseChannels(raw []byte) ([]Channel, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	if len(document.Content) != 1 || document.Content[0].Kind != yaml.MappingNode {
		return nil, errors.New("no map from channel to version")
	}
	var all []Channel
	for i := 0; i+1 < len(document.Content[0].Content); i += 2 {
		key, value := document.Content[0].Content[i], document.Content[0].Content[i+1]
		if value.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: the version of channel %s is no text", value.Line, key.Value)
		}
		if slices.ContainsFunc(all, func(c Channel) bool { return c.Channel == key.Value }) {
			return nil, fmt.Errorf("line %d: channel %s is there twice", key.Line, key.Value)
		}
		all = append(all, Channel{key.Value, value.Value})
	}
	return all, nil
}

// Promote returns channels.yaml with the version of one channel in another one. It changes one line
// and nothing else. It fails if one of the channels is not there, or if the version would go down.
func Promote(channels []byte, from, to string) ([]byte, error) {
	all, err := ParseChannels(channels)
	if err != nil {
		return nil, err
	}
	of := func(name string) (string, error) {
		for _, c := range all {
			if c.Channel == name {
				return c.Version, nil
			}
		}
		return "", fmt.Errorf("cannot promote: there is no channel %q", name)
	}
	is, err := of(from)
	if err != nil {
		return nil, err
	}
	was, err := of(to)
	if err != nil {
		return nil, err
	}
	if is == was {
		return channels, nil
	}
	if down, err := lower(is, was); err != nil {
		return nil, err
	} else if down {
		return nil, fmt.Errorf("cannot promote %s to %s: channel %s already has %s, which is newer", is, to, to, was)
	}
	line := regexp.MustCompile(`(?m)^(` + regexp.QuoteMeta(to) + `:[ \t]*)[^ \t\r\n#]+`)
	if n := len(line.FindAll(channels, -1)); n != 1 {
		return nil, fmt.Errorf("cannot promote: channel %s has to be one line such as %q", to, to+": "+was)
	}
	return line.ReplaceAll(channels, []byte("${1}"+is)), nil
}

// lower says whether a version is lower than another one.
func lower(version, than string) (bool, error) {
	a, err := semver.StrictNewVersion(version)
	if err != nil {
		return false, fmt.Errorf("cannot compare version %q: %w", version, err)
	}
	b, err := semver.StrictNewVersion(than)
	if err != nil {
		return false, fmt.Errorf("cannot compare version %q: %w", than, err)
	}
	return a.LessThan(b), nil
}

// Programs are the names of the images, in the order of the alphabet: those for which the chart of
// the operator takes a digest.
func (s *Source) Programs() ([]string, error) {
	raw, err := fs.ReadFile(s.root, chartDir+"/values.yaml")
	if err != nil {
		return nil, err
	}
	var values struct {
		Image struct {
			Digests map[string]string `json:"digests"`
		} `json:"image"`
	}
	if err := sigsyaml.Unmarshal(raw, &values); err != nil {
		return nil, fmt.Errorf("cannot read %s/values.yaml: %w", chartDir, err)
	}
	return slices.Sorted(maps.Keys(values.Image.Digests)), nil
}
