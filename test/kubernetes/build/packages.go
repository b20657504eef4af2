package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// cniDir is where Debian has the CNI plugins.
const cniDir = "/usr/lib/cni"

// aptPackage is a Debian package and the file that tells whether it is there, however it came.
type aptPackage struct {
	name, file string
}

// aptPackages are what a node needs that is no Go program, or needs a C compiler.
var aptPackages = []aptPackage{
	{name: "containerd", file: "containerd"},
	{name: "runc", file: "runc"},
	{name: "containernetworking-plugins", file: cniDir + "/ptp"},
	{name: "iproute2", file: "ip"},
	// The CNI plugin masquerades with iptables, kube-proxy speaks nftables.
	{name: "iptables", file: "iptables"},
	{name: "nftables", file: "nft"},
}

// installPackages makes sure that this machine has what a node needs.
func installPackages(ctx context.Context, stderr io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("cannot run a node: containers, network and mounts need root")
	}
	missing := missingPackages(aptPackages)
	if len(missing) == 0 {
		return nil
	}
	names := strings.Join(missing, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("cannot run a node: install what Debian calls %s", names)
	}
	fmt.Fprintf(stderr, "cluster: installing Debian packages: %s\n", names)
	for _, args := range [][]string{
		{"update", "-qq", "-o", "Acquire::Retries=5"},
		slices.Concat([]string{"install", "-qq", "-y", "-o", "Acquire::Retries=5", "--no-install-recommends"}, missing),
	} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot install Debian packages %s: apt-get %s: %w\n%s", names, args[0], err, lastLines(out, 15))
		}
	}
	if missing := missingPackages(aptPackages); len(missing) > 0 {
		return fmt.Errorf("cannot run a node: Debian packages %s are installed, but do not bring what they should", strings.Join(missing, " "))
	}
	return nil
}

func missingPackages(packages []aptPackage) []string {
	var missing []string
	for _, p := range packages {
		if _, err := exec.LookPath(p.file); err != nil {
			missing = append(missing, p.name)
		}
	}
	return missing
}
