package bundle

import (
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// Groups, labels and names of lifecycle-manager.
const (
	lifecycleGroup     = "operator.kyma-project.io/v1beta2"
	lifecycleNamespace = "kcp-system"
	moduleNameLabel    = "operator.kyma-project.io/module-name"
	clusterScoped      = "operator.kyma-project.io/is-cluster-scoped"
	rawManifest        = "rawManifest" // as it is called in a ModuleTemplate
)

// Names of resources in a component descriptor that are no images.
const (
	manifestResource  = "raw-manifest"
	defaultCRResource = "default-cr"
	templateResource  = "moduletemplate"
)

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// moduleTemplate is one version of the module, for lifecycle-manager.
type moduleTemplate struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   metadata     `json:"metadata"`
	Spec       templateSpec `json:"spec"`
}

type templateSpec struct {
	ModuleName          string         `json:"moduleName"`
	Version             string         `json:"version"`
	RequiresDowntime    bool           `json:"requiresDowntime"`
	Info                templateInfo   `json:"info"`
	AssociatedResources []Kind         `json:"associatedResources"`
	Data                map[string]any `json:"data"`
	Manager             Manager        `json:"manager"`
	Resources           []Link         `json:"resources"`
	Descriptor          map[string]any `json:"descriptor"`
}

type templateInfo struct {
	Repository    string `json:"repository"`
	Documentation string `json:"documentation"`
	Icons         []Link `json:"icons"`
}

// releaseMeta says which version each channel has.
type releaseMeta struct {
	APIVersion string          `json:"apiVersion"`
	Kind       string          `json:"kind"`
	Metadata   metadata        `json:"metadata"`
	Spec       releaseMetaSpec `json:"spec"`
}

type releaseMetaSpec struct {
	ModuleName       string    `json:"moduleName"`
	OCMComponentName string    `json:"ocmComponentName"`
	Channels         []Channel `json:"channels"`
}

// descriptor is a component descriptor of the Open Component Model.
type descriptor struct {
	Meta struct {
		SchemaVersion string `json:"schemaVersion"`
	} `json:"meta"`
	Component component `json:"component"`
}

type component struct {
	Name                string              `json:"name"`
	Version             string              `json:"version"`
	Provider            string              `json:"provider"`
	Labels              []label             `json:"labels,omitempty"`
	RepositoryContexts  []repositoryContext `json:"repositoryContexts"`
	ComponentReferences []json.RawMessage   `json:"componentReferences"`
	Sources             []componentSource   `json:"sources"`
	Resources           []componentResource `json:"resources"`
}

// label is one of the Open Component Model: its value is any JSON.
type label struct {
	Name    string `json:"name"`
	Value   any    `json:"value"`
	Version string `json:"version"`
}

// provider is whose component it is. The descriptor has it as one text.
type provider struct {
	Name   string  `json:"name"`
	Labels []label `json:"labels,omitempty"`
}

// repositoryContext is where a component was pushed to. The last one of a descriptor is in effect:
// lifecycle-manager takes no layer from a descriptor without one.
type repositoryContext struct {
	Type                 string `json:"type"`
	BaseURL              string `json:"baseUrl"`
	ComponentNameMapping string `json:"componentNameMapping"`
}

type componentSource struct {
	Name    string       `json:"name"`
	Type    string       `json:"type"`
	Version string       `json:"version"`
	Access  sourceAccess `json:"access"`
}

type sourceAccess struct {
	Type    string `json:"type"`
	RepoURL string `json:"repoUrl"`
	Commit  string `json:"commit"`
}

type componentResource struct {
	Name     string           `json:"name"`
	Type     string           `json:"type"`
	Relation string           `json:"relation"`
	Version  string           `json:"version"`
	Labels   []label          `json:"labels,omitempty"`
	Access   *resourceAccess  `json:"access,omitempty"`
	Digest   *componentDigest `json:"digest,omitempty"`
	// Input is only in a constructor.
	Input *resourceInput `json:"input,omitempty"`
}

type resourceAccess struct {
	Type           string `json:"type"`
	ImageReference string `json:"imageReference,omitempty"`
	LocalReference string `json:"localReference,omitempty"`
	MediaType      string `json:"mediaType,omitempty"`
}

type resourceInput struct {
	Type      string `json:"type"`
	Path      string `json:"path"`
	MediaType string `json:"mediaType"`
}

type componentDigest struct {
	HashAlgorithm          string `json:"hashAlgorithm"`
	NormalisationAlgorithm string `json:"normalisationAlgorithm"`
	Value                  string `json:"value"`
}

// constructor is what OCM's own tools make the same component from.
type constructor struct {
	Components []constructorComponent `json:"components"`
}

type constructorComponent struct {
	Name      string              `json:"name"`
	Version   string              `json:"version"`
	Provider  provider            `json:"provider"`
	Labels    []label             `json:"labels,omitempty"`
	Sources   []componentSource   `json:"sources"`
	Resources []componentResource `json:"resources"`
}

// imageList is images.json.
type imageList struct {
	Images []imageEntry `json:"images"`
}

type imageEntry struct {
	Name string `json:"name"`
	// Reference has the digest, Tag is for people.
	Reference string `json:"reference"`
	Tag       string `json:"tag"`
	Digest    string `json:"digest"`
	// Size is what a node of linux/amd64 pulls, in bytes.
	Size int64 `json:"size"`
	// SBOM is a file of the bundle, Signature a reference in the registry.
	SBOM      string `json:"sbom"`
	Signature string `json:"signature"`
}

// resource is what the image is called in a component.
func (i imageEntry) resource() (name, version string) {
	return Image{Name: i.Name, Tag: i.Tag, Digest: i.Digest}.resource()
}

// scanners is sec-scanners-config.yaml, as modulectl and Kyma's scanners read it.
type scanners struct {
	ModuleName string   `json:"module-name"`
	BDBA       []string `json:"bdba"` // images by tag
	Mend       sources  `json:"mend"`
}

// sources are what one of the scanners reads.
type sources struct {
	Language string   `json:"language"`
	Exclude  []string `json:"exclude"`
}

func toYAML(v any) []byte {
	raw, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // our own shapes of text, numbers and what YAML was read into
	}
	return raw
}

func toJSON(v any) []byte {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}
