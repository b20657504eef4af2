package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
)

// options are what build does, and where.
type options struct {
	// Root is the folder of the repository.
	Root string
	// Version has no v: "0.1.0".
	Version string
	// Repository is the registry and the path below which images and charts are.
	Repository string
	// Into is the folder to write.
	Into string
	Key  *ecdsa.PrivateKey
	// Charts are the names of the charts to package.
	Charts []string
	// Platforms are those of the command line; images are for those with Linux.
	Platforms []platform
	// Out gets a line for each step.
	Out io.Writer
}

// tool and eventingTool are the command lines, which people run on their own machines.
const (
	tool         = "eventmesh-migrate"
	eventingTool = "kubectl-eventing"
)

var tools = []string{tool, eventingTool}

// elsewhere are programs that are not directly in cmd/, by name, and their package.
var elsewhere = map[string]string{"nats-server": "./cmd/internal/nats-server"}

// allPlatforms are the platforms of the command line. Images are for those with Linux.
var allPlatforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"}}

// platformsOf reads a list such as "linux/amd64,darwin/arm64". Without linux/amd64 there is no
// module: its lists are those of that platform.
func platformsOf(list string) ([]platform, error) {
	if list == "" {
		return allPlatforms, nil
	}
	var some []platform
	for one := range strings.SplitSeq(list, ",") {
		var p platform
		if err := p.UnmarshalText([]byte(one)); err != nil {
			return nil, fmt.Errorf("cannot build: %w", err)
		}
		some = append(some, p)
	}
	if !slices.Contains(some, allPlatforms[0]) {
		return nil, fmt.Errorf("cannot build without %s, the platform of the module. Next: add it", allPlatforms[0])
	}
	return some, nil
}

// withLinux are the platforms of images.
func withLinux(all []platform) []platform {
	return slices.DeleteFunc(slices.Clone(all), func(p platform) bool { return p.OS != "linux" })
}

type platform struct{ OS, Architecture string }

func (p platform) MarshalText() ([]byte, error) { return []byte(p.String()), nil } //nolint:unparam // encoding.TextMarshaler has the error

func (p *platform) UnmarshalText(text []byte) error {
	at := slices.IndexFunc(allPlatforms, func(p platform) bool { return p.String() == string(text) })
	if at < 0 {
		return fmt.Errorf("platform %q is none of %v", text, allPlatforms)
	}
	*p = allPlatforms[at]
	return nil
}

func (p platform) String() string { return p.OS + "/" + p.Architecture }

func (p platform) v1() v1.Platform { return v1.Platform{OS: p.OS, Architecture: p.Architecture} }

// file is the name of a program.
func (p platform) file(program string) string {
	if p.OS == "windows" {
		return program + ".exe"
	}
	return program
}

// stage is the folder of a platform below another: the programs, and licenses/<program>.
func (p platform) stage(dir string) string { return filepath.Join(dir, p.OS+"_"+p.Architecture) }

// published is release.json: what a version consists of.
type published struct {
	Version  string    `json:"version"`
	Revision string    `json:"revision"`
	Created  time.Time `json:"created"`
	// Go is the toolchain: another one gives other bytes.
	Go         string `json:"go"`
	Repository string `json:"repository"`
	// Platforms are those of the command line; images are for those with Linux.
	Platforms []platform `json:"platforms"`
	// Images are the digests of programs' indexes, Charts those of charts in a registry, Modules
	// those of components.
	Images  map[string]string `json:"images"`
	Charts  map[string]string `json:"charts"`
	Modules map[string]string `json:"modules"`
}

// build makes everything for a version. It writes o.Into only when all else has worked.
func build(ctx context.Context, o options) (err error) {
	from, err := check(ctx, o.Root, o.Version)
	if err != nil {
		return err
	}
	if _, err := os.Stat(o.Into); err == nil {
		return fmt.Errorf("%s exists. Next: rm -r %s", o.Into, o.Into)
	}
	if err := os.MkdirAll(filepath.Dir(o.Into), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(o.Into), ".building-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	programs, err := programsOf(o.Root)
	if err != nil {
		return err
	}
	staged := filepath.Join(work, "staged")
	for _, p := range o.Platforms {
		of := tools
		if p.OS == "linux" {
			of = programs
		}
		if err := compile(ctx, o, p, of, staged); err != nil {
			return err
		}
	}
	into := filepath.Join(work, "release")
	if err := assemble(ctx, o, from, programs, staged, into); err != nil {
		return err
	}
	text, err := notes(ctx, o.Root, o.Version)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, notesFile), []byte(text), 0o644); err != nil {
		return err
	}
	if err := seal(into, o.Key); err != nil {
		return err
	}
	if err := os.Rename(into, o.Into); err != nil {
		return err
	}
	fmt.Fprintf(o.Out, "%s has version %s. Next: go -C build/release run . verify -key KEY.pub %s\n", o.Into, o.Version, o.Into)
	return nil
}

// programsOf returns the programs of which there are images.
func programsOf(root string) ([]string, error) {
	mains, err := filepath.Glob(filepath.Join(root, "cmd", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		return nil, cmp.Or(err, fmt.Errorf("cannot find cmd/*/main.go below %s", root))
	}
	programs := slices.Collect(maps.Keys(elsewhere))
	for _, main := range mains {
		programs = append(programs, filepath.Base(filepath.Dir(main)))
	}
	slices.Sort(programs)
	return programs, nil
}

// compile builds programs for one platform, and collects their licences. The bytes depend on the
// source, the version and Go: not on the folder, the environment or the tags of the clone.
func compile(ctx context.Context, o options, p platform, programs []string, staged string) error {
	start := time.Now()
	into, err := filepath.Abs(p.stage(staged))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X github.com/kyma-project/eventmesh-migration/internal/version.linked=" + o.Version, "-o", into + string(filepath.Separator)}
	licences := []string{"run", "./build/licenses", "-into", filepath.Join(into, "licenses"), "-programs", into, "-platform", p.String()}
	for _, program := range programs {
		of, is := elsewhere[program], "="+elsewhere[program]
		if of == "" {
			of, is = "./cmd/"+program, ""
		}
		args, licences = append(args, of), append(licences, program+is)
	}
	env := []string{"CGO_ENABLED=0", "GOOS=" + p.OS, "GOARCH=" + p.Architecture, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off"}
	if err := goCommand(ctx, o.Root, env, args...); err != nil {
		return fmt.Errorf("cannot build for %s: %w", p, err)
	}
	if err := goCommand(ctx, o.Root, []string{"GOFLAGS=", "GOWORK=off"}, licences...); err != nil {
		return fmt.Errorf("cannot collect the licences for %s: %w", p, err)
	}
	fmt.Fprintf(o.Out, "%-14s %2d programs in %s\n", p, len(programs), time.Since(start).Round(time.Second))
	return nil
}

func goCommand(ctx context.Context, root string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// assemble makes everything that is built from staged programs: archives, images, charts and the
// module.
func assemble(ctx context.Context, o options, from source, programs []string, staged, into string) error {
	if err := os.MkdirAll(into, 0o755); err != nil {
		return err
	}
	for _, p := range o.Platforms {
		for _, program := range tools {
			if err := archive(o, from, program, p, p.stage(staged), into); err != nil {
				return fmt.Errorf("cannot archive %s for %s: %w", program, p, err)
			}
		}
	}
	if err := packageManagers(o, into); err != nil {
		return fmt.Errorf("cannot write the files for package managers: %w", err)
	}
	l, err := newLayout(filepath.Join(into, ociFolder), o.Repository, o.Key)
	if err != nil {
		return err
	}
	all := published{Version: o.Version, Revision: from.Revision, Created: from.Date, Go: runtime.Version(), Repository: o.Repository, Platforms: o.Platforms,
		Images: map[string]string{}, Charts: map[string]string{}, Modules: map[string]string{}}
	for _, program := range programs {
		if all.Images[program], err = addImage(l, o, from, program, staged); err != nil {
			return fmt.Errorf("cannot make the image of %s: %w", program, err)
		}
		fmt.Fprintf(o.Out, "%s/%s@%s\n", o.Repository, program, all.Images[program])
	}
	for _, name := range o.Charts {
		c, err := packageChart(o, name, all.Images)
		if err != nil {
			return fmt.Errorf("cannot package chart %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(into, chartFile(name, o.Version)), c.archive, 0o644); err != nil {
			return err
		}
		if all.Charts[name], err = addChart(l, from, c); err != nil {
			return fmt.Errorf("cannot package chart %s: %w", name, err)
		}
		fmt.Fprintf(o.Out, "%s/%s@%s\n", o.Repository, chartRepository(name), all.Charts[name])
	}
	component, digest, err := addModule(ctx, l, o, into)
	if err != nil {
		return err
	}
	all.Modules[component] = digest
	fmt.Fprintf(o.Out, "%s/%s@%s\n", o.Repository, bundle.Repository(component), digest)
	about, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	about = append(about, '\n')
	if err := addAbout(l, from, o.Version, about); err != nil {
		return err
	}
	public, err := artifact.PublicKeyPEM(&o.Key.PublicKey)
	if err != nil {
		return err
	}
	var references bytes.Buffer
	for _, program := range programs {
		fmt.Fprintf(&references, "%s/%s:%s@%s\n", o.Repository, program, o.Version, all.Images[program])
	}
	return errors.Join(
		os.WriteFile(filepath.Join(into, aboutFile), about, 0o644),
		os.WriteFile(filepath.Join(into, "images.txt"), references.Bytes(), 0o644),
		os.WriteFile(filepath.Join(into, "cosign.pub"), public, 0o644),
	)
}

// archiveName is the name of a command line's archive for a platform, without what tells its
// format.
func archiveName(program, version string, p platform) string {
	return fmt.Sprintf("%s_%s_%s_%s", program, version, p.OS, p.Architecture)
}

// archiveFile is the file of a command line's archive for a platform.
func archiveFile(program, version string, p platform) string {
	if p.OS == "windows" {
		return archiveName(program, version, p) + ".zip"
	}
	return archiveName(program, version, p) + ".tar.gz"
}

// archive writes a command line with its licences and its SBOM.
func archive(o options, from source, name string, p platform, staged, into string) error {
	program, err := os.ReadFile(filepath.Join(staged, p.file(name)))
	if err != nil {
		return err
	}
	files, err := tree(filepath.Join(staged, "licenses", name), "licenses")
	if err != nil {
		return err
	}
	license, ok := files["licenses/LICENSE"]
	if !ok {
		return errors.New("its licences have no LICENSE")
	}
	files["LICENSE"] = license
	files[p.file(name)] = artifact.File{Content: program, Executable: true}
	packed := archiveName(name, o.Version, p)
	modules, err := modulesOf(program, o.Version, sum(program), from.Date)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(into, packed+".spdx.json"), modules, 0o644); err != nil {
		return err
	}
	if p.OS == "windows" {
		raw, err := artifact.Zip(files)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(into, archiveFile(name, o.Version, p)), raw, 0o644)
	}
	raw, err := artifact.Tar(files)
	if err != nil {
		return err
	}
	if raw, err = artifact.Gzip(raw); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(into, archiveFile(name, o.Version, p)), raw, 0o644)
}

// tree returns the files below a folder, with paths below another.
func tree(dir, below string) (map[string]artifact.File, error) {
	files := map[string]artifact.File{}
	root := os.DirFS(dir)
	names, err := filesIn(root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		files[strings.TrimPrefix(below+"/"+name, "/")] = artifact.File{Content: content}
	}
	return files, nil
}
