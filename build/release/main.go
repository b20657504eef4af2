// Command release makes what is published for a version: the command line for each platform,
// images, charts, the eventing module, lists of Go modules, checksums and signatures. It needs git
// and Go, and neither Docker nor root. The same commit gives the same bytes with the same Go and
// the same key.
//
//	go -C build/release run . build -version 0.1.0 -key release.key       into bin/release/0.1.0; -push pushes it, too
//	go -C build/release run . push bin/release/0.1.0                      images, charts and module into the repository that they were made for
//	go -C build/release run . verify -key release.pub bin/release/0.1.0   a folder
//	go -C build/release run . verify -key release.pub registry.example/path:0.1.0   what was pushed
//	go -C build/release run . notes -version 0.1.0                        what build writes into release-notes.txt
//	go -C build/release run . certificates                                the certificates of the images
//
// Only push, and build -push, change anything outside of the folder. The exit code is 1 if
// something failed, and 2 for a wrong command line. docs/releases.md tells what the files are, and
// how a user checks them.
package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/build/release/root"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err := root.Enter()
	if err == nil {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errUsage is part of the error for a wrong command line.
var errUsage = errors.New("go -C build/release run . build|push|verify|notes|certificates (-h lists the flags)")

// repository is where images are if nothing else is said.
const repository = "eu.gcr.io/kyma-project/eventmesh-migration"

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("name a command: %w", errUsage)
	}
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	flags.SetOutput(out)
	o := options{Root: ".", Charts: chartNames, Out: out}
	var key, platforms string
	var push bool
	verb := args[0]
	if verb == "build" || verb == "notes" {
		flags.StringVar(&o.Version, "version", "", "`version` to publish, such as 0.1.0; its tag is v0.1.0")
	}
	if verb == "build" {
		flags.StringVar(&o.Repository, "repository", repository, "`registry/path` of images, charts and module")
		flags.StringVar(&o.Into, "into", "", "`folder` to write, which must not exist (default bin/release/<version>)")
		flags.StringVar(&key, "key", "", "`file` of the private key, ECDSA P-256 in PEM")
		flags.StringVar(&platforms, "platforms", "", "`list` such as linux/amd64,linux/arm64, to try a version (default all)")
		flags.BoolVar(&push, "push", false, "push images, charts and module")
	}
	if verb == "verify" {
		flags.StringVar(&key, "key", "", "`file` of the public key in PEM")
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	if want := map[string]int{"push": 1, "verify": 1}[verb]; flags.NArg() != want {
		return fmt.Errorf("%s needs %d argument, not %q: %w", verb, want, flags.Args(), errUsage)
	}
	switch verb {
	case "build":
		if o.Into == "" {
			o.Into = filepath.Join("bin", "release", o.Version)
		}
		var err error
		if o.Key, err = privateKey(key); err != nil {
			return err
		}
		if o.Platforms, err = platformsOf(platforms); err != nil {
			return err
		}
		if err := build(ctx, o); err != nil || !push {
			return err
		}
		return pushAll(ctx, o.Into, out)
	case "push":
		return pushAll(ctx, flags.Arg(0), out)
	case "verify":
		raw, err := os.ReadFile(key)
		if err != nil {
			return fmt.Errorf("cannot read the public key: %w (name it with -key)", err)
		}
		public, err := artifact.PublicKey(raw)
		if err != nil {
			return err
		}
		return verify(ctx, flags.Arg(0), public, out)
	case "notes":
		text, err := notes(ctx, o.Root, o.Version)
		if err != nil {
			return err
		}
		_, err = io.WriteString(out, text)
		return err
	case "certificates":
		raw, err := certificates()
		if err != nil {
			return err
		}
		_, err = out.Write(raw)
		return err
	default:
		return fmt.Errorf("%q is no command: %w", verb, errUsage)
	}
}

func privateKey(file string) (*ecdsa.PrivateKey, error) {
	if strings.TrimSpace(file) == "" {
		return nil, errors.New("no key to sign with. Next: openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out release.key, then -key release.key (make: KEY=release.key)")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("cannot read the private key: %w", err)
	}
	return artifact.PrivateKey(raw, os.Getenv("COSIGN_PASSWORD"))
}
