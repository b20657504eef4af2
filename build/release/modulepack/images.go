package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
)

var commitPattern = regexp.MustCompile(`^[0-9a-f]{40}$`)

// images packs programs for linux/amd64 into an OCI layout, each alone in its image: to try the
// module before a release. The images of a release also have licences, certificates and other
// platforms.
func images(_ context.Context, o options, _ []string) error {
	if o.images == "" || o.programs == "" || !commitPattern.MatchString(o.commit) {
		return fmt.Errorf("%w: name the programs, the layout and the commit, -programs DIR -images LAYOUT -commit $(git rev-parse HEAD)", errUsage)
	}
	s, err := o.source()
	if err != nil {
		return err
	}
	names, err := s.Programs()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(o.images); err != nil {
		return err
	}
	into, err := layout.Write(o.images, empty.Index)
	if err != nil {
		return err
	}
	for _, program := range names {
		raw, err := os.ReadFile(filepath.Join(o.programs, program))
		if err != nil {
			return fmt.Errorf("cannot pack the image of %s: %w", program, err)
		}
		layer, err := artifact.Layer(map[string]artifact.File{program: {Content: raw, Executable: true}})
		if err != nil {
			return err
		}
		image, err := artifact.Image(artifact.ImageOptions{
			Platform: v1.Platform{OS: "linux", Architecture: "amd64"}, Layers: []v1.Layer{layer}, Entrypoint: []string{"/" + program}, User: "65532:65532",
			Labels: map[string]string{"org.opencontainers.image.revision": o.commit}, Created: time.Unix(0, 0),
		})
		if err != nil {
			return err
		}
		ref := program + ":" + s.Version
		if err := into.AppendImage(image, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref})); err != nil {
			return err
		}
		digest, err := image.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(o.out, "%s@%s\n", ref, digest)
	}
	return nil
}
