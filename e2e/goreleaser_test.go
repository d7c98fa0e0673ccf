//go:build long

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// goreleaser is not the newest version: a test takes one that builds everywhere. Releases
// are made by the newest.
const goreleaser = "github.com/goreleaser/goreleaser/v2@v2.15.2"

// goreleaser takes goreleaser.yaml, makes the same files of it as internal/ci/release,
// and signs them. It replaces the folder dist.
func TestGoreleaser(t *testing.T) {
	bin := t.TempDir()
	home := t.TempDir()
	run := func(env []string, words ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, words[0], words[1:]...)
		cmd.Dir, cmd.Env = "..", append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", words, err, clip(string(out)))
		}
		return string(out)
	}
	run([]string{"GOBIN=" + bin, "CGO_ENABLED=0"}, "go", "install", goreleaser)
	program := filepath.Join(bin, "goreleaser")
	run(nil, program, "check")

	key := "GNUPGHOME=" + home
	run([]string{key}, "gpg", "--batch", "--passphrase", "", "--quick-gen-key", "Test <test@example.org>", "ed25519", "sign", "never")
	t.Cleanup(func() { run([]string{key}, "gpgconf", "--kill", "gpg-agent") })
	run([]string{key, "GPG_FINGERPRINT=test@example.org"}, program, "release", "--snapshot", "--clean")
	run([]string{key}, "gpg", "--batch", "--verify", "dist/checksums.txt.asc", "dist/checksums.txt")

	ours := makeRelease(t, "linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64")
	theirs := sums(t, "../dist")
	for name, sum := range sums(t, ours.dir) {
		other, found := theirs[name]
		// Archives have the times of files, and lists of modules the time when they were made.
		changes := slices.ContainsFunc([]string{".tar.gz", ".cdx.json"}, func(end string) bool { return strings.HasSuffix(name, end) })
		if !found || sum != other && !changes {
			t.Errorf("%s: hash %s by internal/ci/release, %q by goreleaser", name, sum, other)
		}
		delete(theirs, name)
	}
	if len(theirs) > 0 {
		t.Errorf("goreleaser makes more: %v", theirs)
	}
	for _, platform := range []string{"linux_amd64", "darwin_arm64"} {
		name := "plx_" + ours.version + "_" + platform + ".tar.gz"
		want, got := listing(t, filepath.Join("../dist", name)), listing(t, filepath.Join(ours.dir, name))
		if !slices.Equal(got, want) {
			t.Errorf("%s has %q by internal/ci/release, %q by goreleaser", name, got, want)
		}
	}
}

// sums reads a release's checksums by the names of its files.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	for line := range strings.Lines(string(read(t, filepath.Join(dir, "checksums.txt")))) {
		words := strings.Fields(line)
		sums[words[1]] = words[0]
	}
	return sums
}

// listing is what an archive holds, sorted.
func listing(t *testing.T, archive string) []string {
	t.Helper()
	return slices.Sorted(strings.Lines(tool(t, "bsdtar", "-tf", archive)))
}
