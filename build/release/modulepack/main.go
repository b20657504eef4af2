// Command modulepack makes the eventing module, checks it and publishes it. All it needs are this
// repository and the images.
//
//	modulepack render  -images LAYOUT|- [-repository REPOSITORY] [-into DIR]
//	modulepack verify  [-bundle DIR] [-images LAYOUT] [-before FILE] [-registry REGISTRY [-key PUBLIC]]
//	modulepack push    [-bundle DIR] -registry REGISTRY [-record]
//	modulepack sign    [-bundle DIR] -registry REGISTRY -key PRIVATE
//	modulepack promote FROM TO
//	modulepack images  -programs DIR -images LAYOUT -commit COMMIT
//
// render writes a bundle: the operator's manifest with its images by digest, the default object and
// samples, what lifecycle-manager reads, the component descriptor, and lists of images, of modules
// and of what each kind accepts. The images are in an OCI layout, or, with "-", in the repository.
// The same input gives the same files.
//
// verify reads a bundle, and says all that is wrong with it: file, path, value, and what to do. It
// makes no requests. With -images it compares the SBOMs with the programs, with -before the
// channels with those of an older channels.yaml, with -registry what was pushed, with -key the
// signatures.
//
// push pushes the bundle as an OCI artifact, once for each version: a version with another content
// is refused. -record stores in module/releases what later versions are compared with.
//
// sign signs the artifact and the images as cosign does. The key is ECDSA P-256 in PEM, not
// encrypted.
//
// promote gives a channel the version of another one: one line of module/channels.yaml, and the
// bundle's list of channels.
//
// images packs programs for linux/amd64 into an OCI layout, to try the module before a release.
//
// Exit codes: 0 it is done, or nothing is wrong; 1 something is wrong, or failed; 2 the command
// line is wrong. A command can be repeated.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/modulepack/bundle"
	"github.com/kyma-project/eventmesh-migration/build/release/root"
)

// defaultRepository is where the images of releases are.
const defaultRepository = "eu.gcr.io/kyma-project/eventmesh-migration"

const usage = `usage: go -C build/release run ./modulepack render|verify|push|sign|promote|images [flags]; with -h after a command, its flags`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := 1
	if err := root.Enter(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	} else {
		code = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	os.Exit(code)
}

// errUsage is an error of the command line.
var errUsage = errors.New("the command line is wrong")

// errWrong says that a bundle has faults, which were printed.
var errWrong = errors.New("the bundle is not valid")

type options struct {
	root, bundle, images, repository, before, registry, key string
	programs, commit                                        string
	record                                                  bool
	out                                                     io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := command(ctx, args, stdout, stderr)
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(stderr, err)
		return 2
	default:
		fmt.Fprintln(stderr, err)
		return 1
	}
}

func command(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	verbs := map[string]func(context.Context, options, []string) error{
		"render": render, "verify": verify, "push": push, "sign": sign, "promote": promote, "images": images,
	}
	if len(args) == 1 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		_, err := fmt.Fprintf(stdout, "modulepack makes the eventing module, checks it and publishes it: docs/eventing/module.md\n\n%s\n", usage)
		return err
	}
	if len(args) == 0 || verbs[args[0]] == nil {
		return fmt.Errorf("%w: %s", errUsage, usage)
	}
	o := options{out: stdout}
	flags := flag.NewFlagSet("modulepack "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.root, "source", ".", "`directory` of the repository")
	flags.StringVar(&o.bundle, "bundle", "", "`directory` of the bundle (default dist/<module/VERSION>)")
	flags.StringVar(&o.bundle, "into", "", "`directory` that render writes, the same as -bundle")
	flags.StringVar(&o.images, "images", "", "OCI `layout` with the images, or - for the repository")
	flags.StringVar(&o.repository, "repository", defaultRepository, "`registry/path` of the images")
	flags.StringVar(&o.before, "before", "", "`file` channels.yaml as it was: no channel may go down")
	flags.StringVar(&o.registry, "registry", "", "`registry/path` of the artifact")
	flags.StringVar(&o.key, "key", "", "`file` with a key in PEM: private to sign, public to verify")
	flags.BoolVar(&o.record, "record", false, "store in module/releases what later versions are compared with")
	flags.StringVar(&o.programs, "programs", "", "`directory` of static programs for linux/amd64")
	flags.StringVar(&o.commit, "commit", "", "`commit` that they are built from")
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if args[0] != "promote" && flags.NArg() > 0 {
		return fmt.Errorf("%w: %q is no flag", errUsage, flags.Arg(0))
	}
	return verbs[args[0]](ctx, o, flags.Args())
}

// source reads the repository, and completes the directory of the bundle.
func (o *options) source() (*bundle.Source, error) {
	s, err := bundle.ReadSource(os.DirFS(o.root))
	if err == nil && o.bundle == "" {
		o.bundle = filepath.Join(o.root, "dist", s.Version)
	}
	return s, err
}

// access is how registries are asked: with the credentials of docker login.
func access(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

func (o *options) read(ctx context.Context, s *bundle.Source) ([]bundle.Image, error) {
	programs, err := s.Programs()
	if err != nil {
		return nil, err
	}
	if o.images == "-" {
		return bundle.RemoteImages(ctx, o.repository, s.Version, programs, access(ctx)...)
	}
	return bundle.LayoutImages(o.images, o.repository, s.Version, programs)
}

func render(ctx context.Context, o options, _ []string) error {
	if o.images == "" {
		return fmt.Errorf("%w: name the images, -images LAYOUT or -images -", errUsage)
	}
	s, err := o.source()
	if err != nil {
		return err
	}
	images, err := o.read(ctx, s)
	if err != nil {
		return err
	}
	files, err := bundle.Render(s, images)
	if err != nil {
		return err
	}
	if err := files.Write(o.bundle); err != nil {
		return err
	}
	fmt.Fprintf(o.out, "%s: %d files. Next: go -C build/release run ./modulepack verify -bundle %s\n", o.bundle, len(files), o.bundle)
	return nil
}

// against is what the bundle is compared with.
func (o *options) against(ctx context.Context, s *bundle.Source) (bundle.Against, error) {
	a := bundle.Against{Channels: s.Channels, Released: s.Released, Programs: map[string]*debug.BuildInfo{}}
	if o.before != "" {
		raw, err := os.ReadFile(o.before)
		if err != nil {
			return a, err
		}
		if a.Before, err = bundle.ParseChannels(raw); err != nil {
			return a, fmt.Errorf("cannot read %s: %w", o.before, err)
		}
	}
	if o.images != "" {
		images, err := o.read(ctx, s)
		if err != nil {
			return a, err
		}
		for _, i := range images {
			a.Programs[i.Name] = i.Info
		}
	}
	return a, nil
}

func verify(ctx context.Context, o options, _ []string) error {
	if o.key != "" && o.registry == "" {
		return fmt.Errorf("%w: -key needs -registry, where the signatures are", errUsage)
	}
	s, err := o.source()
	if err != nil {
		return err
	}
	files, err := bundle.ReadFiles(o.bundle)
	if err != nil {
		return err
	}
	against, err := o.against(ctx, s)
	if err != nil {
		return err
	}
	found := bundle.Verify(ctx, files, against)
	if o.registry != "" {
		var check func(context.Context, name.Digest) error
		if o.key != "" {
			raw, err := os.ReadFile(o.key)
			if err != nil {
				return err
			}
			key, err := artifact.PublicKey(raw)
			if err != nil {
				return err
			}
			check = func(ctx context.Context, ref name.Digest) error {
				return artifact.Verify(ctx, ref, key, access(ctx)...)
			}
		}
		pushed, err := bundle.VerifyPushed(ctx, files, against, o.registry, check, access(ctx)...)
		if err != nil {
			return err
		}
		found = append(found, pushed...)
	}
	for _, f := range found {
		fmt.Fprintln(o.out, f)
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s, number of faults %d", errWrong, o.bundle, len(found))
	}
	fmt.Fprintf(o.out, "%s: nothing is wrong\n", o.bundle)
	return nil
}

func push(ctx context.Context, o options, _ []string) error {
	if o.registry == "" {
		return fmt.Errorf("%w: name the registry, -registry registry.example/path", errUsage)
	}
	s, err := o.source()
	if err != nil {
		return err
	}
	files, err := bundle.ReadFiles(o.bundle)
	if err != nil {
		return err
	}
	against, err := o.against(ctx, s)
	if err != nil {
		return err
	}
	// What was pushed cannot be replaced.
	if found := bundle.Verify(ctx, files, against); len(found) > 0 {
		for _, f := range found {
			fmt.Fprintln(o.out, f)
		}
		return fmt.Errorf("cannot push: %w: %s, number of faults %d", errWrong, o.bundle, len(found))
	}
	ref, err := files.Push(ctx, o.registry, access(ctx)...)
	if err != nil {
		return err
	}
	fmt.Fprintln(o.out, ref)
	if !o.record {
		return nil
	}
	return files.Record(o.registry, ref.DigestStr()).Write(filepath.Join(o.root, "module", "releases", s.Version))
}

func sign(ctx context.Context, o options, _ []string) error {
	if o.registry == "" || o.key == "" {
		return fmt.Errorf("%w: name the registry and the key, -registry registry.example/path -key FILE", errUsage)
	}
	raw, err := os.ReadFile(o.key)
	if err != nil {
		return err
	}
	key, err := artifact.PrivateKey(raw, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return err
	}
	if _, err := o.source(); err != nil {
		return err
	}
	files, err := bundle.ReadFiles(o.bundle)
	if err != nil {
		return err
	}
	done, err := files.Sign(ctx, o.registry, func(ctx context.Context, ref name.Digest) error {
		return artifact.Sign(ctx, ref, key, access(ctx)...)
	})
	for _, ref := range done {
		fmt.Fprintln(o.out, "signed", ref)
	}
	return err
}

func promote(_ context.Context, o options, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%w: name two channels, go -C build/release run ./modulepack promote fast regular", errUsage)
	}
	file := filepath.Join(o.root, "module", "channels.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	promoted, err := bundle.Promote(raw, args[0], args[1])
	if err != nil {
		return err
	}
	if string(promoted) == string(raw) {
		fmt.Fprintf(o.out, "channel %s already has the version of %s\n", args[1], args[0])
	} else if err := os.WriteFile(file, promoted, 0o644); err != nil {
		return err
	}
	s, err := o.source()
	if err != nil {
		return err
	}
	// Without a bundle there is nothing to write: render writes it.
	if _, err := os.Stat(o.bundle); err == nil {
		name, content := s.ReleaseMeta()
		if err := os.WriteFile(filepath.Join(o.bundle, name), content, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(o.out, strings.TrimSpace(string(promoted)))
	return nil
}
