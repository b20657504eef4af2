package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kyma-project/eventmesh-migration/build/release/artifact"
	"github.com/kyma-project/eventmesh-migration/test/helm"
)

var bashBlock = regexp.MustCompile("(?s)```bash\n(.*?)```")

// commandsOf returns the blocks of docs/releases.md that are for a shell, for the version and the
// registry of the fixture.
func commandsOf(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, block := range bashBlock.FindAllStringSubmatch(string(raw), -1) {
		blocks = append(blocks, strings.NewReplacer("0.1.0", "9.9.9", repository, made.about.Repository, "bin/release/0.1.0", made.dir).Replace(block[1]))
	}
	const documented = 7 // the last two, which need a node, are for TestReleasedCharts
	if len(blocks) != documented {
		t.Fatalf("docs/releases.md has %d blocks of commands, not %d", len(blocks), documented)
	}
	return blocks
}

// publicKey writes release.pub into a folder.
func publicKey(t *testing.T, dir string) {
	t.Helper()
	public, err := artifact.PublicKeyPEM(&made.key.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "release.pub"), public, 0o644); err != nil {
		t.Fatal(err)
	}
}

func shell(t *testing.T, dir, script string, env ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestDocumentedChecksums runs what docs/releases.md says for a machine with OpenSSL and coreutils
// alone, also on a changed file.
func TestDocumentedChecksums(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	block := commandsOf(t)[0]
	for _, tc := range []struct{ reason, change, want string }{
		{"what was downloaded", "", "eventmesh-migrate_9.9.9_linux_amd64.tar.gz: OK"},
		{"a changed program", "eventmesh-migrate_9.9.9_linux_amd64.tar.gz", "eventmesh-migrate_9.9.9_linux_amd64.tar.gz: FAILED"},
		{"changed checksums", "SHA256SUMS", "Verification failure"},
	} {
		dir := t.TempDir()
		publicKey(t, dir)
		for _, file := range []string{"eventmesh-migrate_9.9.9_linux_amd64.tar.gz", "eventing-manager-9.9.9.tgz", "SHA256SUMS", "SHA256SUMS.sig"} {
			raw, err := os.ReadFile(filepath.Join(made.dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if file == tc.change {
				raw = flip(raw)
			}
			if err := os.WriteFile(filepath.Join(dir, file), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		out, err := shell(t, dir, block)
		if (err == nil) != (tc.change == "") || !strings.Contains(out, tc.want) {
			t.Errorf("%s: %v: %s", tc.reason, err, out)
		}
	}
}

// TestDocumentedInstall unpacks the command line as docs/releases.md says, and finds the digest of
// the chart.
func TestDocumentedInstall(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(made.dir)); err != nil {
		t.Fatal(err)
	}
	blocks := commandsOf(t)
	if out, err := shell(t, dir, blocks[3]); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	out, err := shell(t, dir, "helm() { echo \"$@\"; }\n"+blocks[4])
	if want := "oci://" + made.about.Repository + "/charts/eventing-manager@" + made.about.Charts["eventing-manager"] + " "; err != nil || !strings.Contains(out, want) {
		t.Errorf("%v: it installs %s, want %s", err, out, want)
	}
}

// TestDocumentedVerify runs the program as docs/releases.md says.
func TestDocumentedVerify(t *testing.T) {
	if err := pushAll(t.Context(), made.dir, t.Output()); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	publicKey(t, dir)
	for line := range strings.Lines(commandsOf(t)[1]) {
		line = strings.TrimSpace(line)
		args, found := strings.CutPrefix(line, "go -C build/release run . ")
		if !found {
			t.Fatalf("%q is no command of this program", line)
		}
		words := strings.Fields(strings.Replace(args, "release.pub", filepath.Join(dir, "release.pub"), 1))
		if err := run(t.Context(), words, t.Output()); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestHelmInstallsTheCharts pulls the chart with the real Helm from the registry, as
// docs/releases.md says, and renders it: each image has its digest.
func TestHelmInstallsTheCharts(t *testing.T) {
	if testing.Short() {
		t.Skip("builds Helm")
	}
	if err := pushAll(t.Context(), made.dir, t.Output()); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	about, err := os.ReadFile(filepath.Join(made.dir, aboutFile))
	if err != nil {
		t.Fatal(err)
	}
	blocks := commandsOf(t)
	script := strings.Replace(blocks[2], "helm pull", "helm pull --plain-http", 1)
	// What would be installed, by the digest of the chart.
	script += strings.Replace(blocks[4], "helm upgrade --install", "helm template --plain-http --kube-version 1.36", 1)
	for _, major := range []int{3, 4} {
		h, err := helm.New(t.Context(), root, major)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, aboutFile), about, 0o600); err != nil {
			t.Fatal(err)
		}
		bin := filepath.Join(dir, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(h.Binary(), filepath.Join(bin, "helm")); err != nil {
			t.Fatal(err)
		}
		out, err := shell(t, dir, script, "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "KUBECONFIG=/dev/null")
		if err != nil {
			t.Fatalf("helm %d: %v: %s", major, err, out)
		}
		for _, program := range []string{"eventing-manager", "nats-server"} {
			if want := made.about.Repository + "/" + program + "@" + made.about.Images[program]; strings.Count(out, want) != 2 {
				t.Errorf("helm %d renders %s %d times, not once by version and once by digest", major, want, strings.Count(out, want))
			}
		}
	}
}

// TestKeysOfTheDocument makes a key as docs/releases.md says, and reads it.
func TestKeysOfTheDocument(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	raw, err := os.ReadFile("../../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(raw)) {
		if command, ok := strings.CutPrefix(line, "    openssl "); ok {
			commands = append(commands, "openssl "+command)
		}
	}
	if len(commands) != 2 {
		t.Fatalf("docs/releases.md makes a key with %d commands, not 2", len(commands))
	}
	dir := t.TempDir()
	if out, err := shell(t, dir, strings.Join(commands, "")); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	key, err := privateKey(filepath.Join(dir, "release.key"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "release.pub"))
	if err != nil {
		t.Fatal(err)
	}
	public, err := artifact.PublicKey(text)
	if err != nil || !public.Equal(&key.PublicKey) {
		t.Errorf("the public key is %v, %v", public, err)
	}
}

// TestDocumentedFiles: the table of docs/releases.md has each file of a version.
func TestDocumentedFiles(t *testing.T) {
	raw, err := os.ReadFile("../../docs/releases.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(made.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		file := strings.ReplaceAll(entry.Name(), "9.9.9", "0.1.0")
		// One platform stands for all.
		for _, p := range allPlatforms {
			file = strings.Replace(file, p.OS+"_"+p.Architecture, "linux_amd64", 1)
		}
		file = strings.Replace(file, ".zip", ".tar.gz", 1)
		if !strings.Contains(string(raw), "`"+file) {
			t.Errorf("docs/releases.md does not say what %s is", entry.Name())
		}
	}
}
