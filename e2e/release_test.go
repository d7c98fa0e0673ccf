//go:build long

package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// This test makes a release from this source. It installs the Debian package
// on a machine that has nothing else, and trains on two hosts from that
// machine.
func TestRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	r := makeRelease(t)
	t.Run("files", func(t *testing.T) { r.hasFiles(t) })
	t.Run("contents", func(t *testing.T) { r.hasContents(t) })
	t.Run("formula", func(t *testing.T) { r.hasFormula(t) })
	t.Run("deb", func(t *testing.T) { r.installs(b.in(t)) })
	t.Run("rpm", func(t *testing.T) { r.installsRPM(t) })
}

// release is a release that was made for a test.
type release struct {
	dir     string
	version string // without a leading v
}

// makeRelease makes a release of the newest commit, in a clone of the
// repository.
func makeRelease(t *testing.T) release {
	t.Helper()
	clone := filepath.Join(t.TempDir(), "plx")
	tool(t, "git", "clone", "--quiet", "..", clone)
	tool(t, filepath.Join(clone, "scripts/release-snapshot"))
	version := regexp.MustCompile(`(?m)^  version_template: (\S+)$`).FindSubmatch(read(t, "../goreleaser.yaml"))
	if version == nil {
		t.Fatal("goreleaser.yaml has no snapshot.version_template")
	}
	return release{filepath.Join(clone, "dist"), string(version[1])}
}

// tool runs a program on this machine and returns its output.
func tool(t *testing.T, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience.Limit) // a long limit, because the program may have to build everything
	defer cancel()
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, clip(string(out)))
	}
	return string(out)
}

// hasFiles checks the list of released files, and verifies them as
// docs/install.md describes.
func (r release) hasFiles(t *testing.T) {
	want := []string{"checksums.txt", "plx.rb"}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		contains(t, string(read(t, filepath.Join(r.dir, "checksums.txt"))), "  plx-"+platform+"\n") // uploaded from a folder of its own
		want = append(want, "plx-"+platform+".cdx.json")
		formats := []string{"tar.gz", "deb", "rpm", "apk"}
		if strings.HasPrefix(platform, "darwin") {
			formats = formats[:1]
		}
		for _, format := range formats {
			want = append(want, "plx_"+r.version+"_"+strings.ReplaceAll(platform, "-", "_")+"."+format)
		}
	}
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		if !e.IsDir() && !slices.Contains([]string{"artifacts.json", "config.yaml", "metadata.json"}, e.Name()) { // goreleaser's own
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("released %q\nwant %q", got, want)
	}
	const check = "sha256sum --ignore-missing -c checksums.txt"
	contains(t, string(read(t, "../docs/install.md")), "\n"+check+"\n")
	if out := tool(t, "sh", "-c", "cd "+r.dir+" && "+check); strings.Count(out, ": OK\n") != len(want)-2 {
		t.Errorf("%s:\n%s", check, out)
	}
}

// hasContents checks the contents of the archives, the packages and the lists
// of modules.
func (r release) hasContents(t *testing.T) {
	const doc, rest = "usr/share/doc/plx/", "usr/share/bash-completion/completions/plx usr/share/fish/vendor_completions.d/plx.fish usr/share/man/man1/plx.1.gz usr/share/man/man1/plx-launch.1.gz usr/share/plx/examples/torch/train.py "
	for name, want := range map[string]string{
		"linux_amd64.tar.gz":  "plx LICENSE README.md CHANGELOG.md examples/torch/train.py man/plx.1.gz man/plx-launch.1.gz completions/plx.bash completions/_plx completions/plx.fish",
		"darwin_arm64.tar.gz": "plx plx-linux-amd64 plx-linux-arm64 LICENSE examples/torch/train.py man/plx.1.gz completions/_plx",
		"linux_amd64.rpm":     "usr/bin/plx usr/share/licenses/plx/LICENSE usr/share/zsh/site-functions/_plx " + rest + doc + "README.md",
		"linux_arm64.apk":     "usr/bin/plx usr/share/licenses/plx/LICENSE usr/share/zsh/site-functions/_plx " + rest + doc + "README.md",
	} {
		folder := ""
		if system, isArchive := strings.CutSuffix(name, ".tar.gz"); isArchive {
			folder = "plx_" + r.version + "_" + system + "/"
		}
		listed := strings.Split(tool(t, "bsdtar", "-tf", filepath.Join(r.dir, "plx_"+r.version+"_"+name)), "\n")
		for _, file := range strings.Fields(want) {
			if !slices.ContainsFunc(listed, func(l string) bool { return strings.TrimLeft(l, "./") == folder+file }) {
				t.Errorf("%s has no %s:\n%s", name, file, strings.Join(listed, "\n"))
			}
		}
	}
	modules := string(read(t, filepath.Join(r.dir, "plx-linux-arm64.cdx.json")))
	contains(t, modules, `"bomFormat": "CycloneDX"`, "pkg:golang/golang.org/x/crypto@")
	if strings.Contains(modules, "gorgonia") {
		t.Error("plx is made of Gorgonia")
	}
}

// installs installs the Debian package into an empty folder and uses this
// folder as the root of host h3. From h3, the first training of README.md runs
// on the two other hosts. Everything must take at most five minutes.
func (r release) installs(b *bench) {
	needTorch(b.t)
	root := filepath.Join(b.shared(), "root")
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "proc", "dev", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	for path, text := range map[string]string{"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "resources.txt": "h1: cpu*2\nh2: cpu*2\n"} {
		put(b.t, filepath.Join(root, path), text, 0o644)
	}
	begun := time.Now()
	tool(b.t, "dpkg", "--root="+root, "--install", filepath.Join(r.dir, "plx_"+r.version+"_linux_"+runtime.GOARCH+".deb"))
	installed := time.Now()
	tool(b.t, "cp", "-a", filepath.Join(b.Home, ".ssh"), filepath.Join(root, "root"))
	b.trainsFirst(root)
	b.t.Logf("the package was installed in %.0f s, and %.0f s later the first training on two hosts had ended", installed.Sub(begun).Seconds(), time.Since(installed).Seconds())
	if took := time.Since(begun); took > 5*time.Minute {
		b.t.Errorf("it took %v", took)
	}

	head := strings.Fields(tool(b.t, "git", "show", "-s", "--format=%H %ct", "HEAD"))
	seconds, err := strconv.ParseInt(head[1], 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	contains(b.t, inRoot(b, root, "plx", "version"), "plx v"+r.version+" (commit "+head[0],
		", "+time.Unix(seconds, 0).UTC().Format(time.RFC3339)+", "+runtime.Version()+", linux/"+runtime.GOARCH+")\n")

	page, err := gzip.NewReader(bytes.NewReader(read(b.t, filepath.Join(root, "usr/share/man/man1/plx.1.gz"))))
	if err != nil {
		b.t.Fatal(err)
	}
	text, err := io.ReadAll(page)
	if err != nil {
		b.t.Fatal(err)
	}
	contains(b.t, string(text), `.TH plx 1`, "plx-launch")
	for file, shell := range map[string]string{"bash-completion/completions/plx": "bash", "zsh/vendor-completions/_plx": "zsh", "fish/vendor_completions.d/plx.fish": "fish"} {
		same(b.t, file, []byte(inRoot(b, root, "plx", "completion", shell)), read(b.t, filepath.Join(root, "usr/share", file)))
	}

	agent := fmt.Sprintf("%x", sha256.Sum256(read(b.t, filepath.Join(root, "usr/bin/plx"))))
	for _, h := range b.Hosts[:2] {
		if _, err := os.Stat(filepath.Join(h.HomeDir, ".plx/blobs", agent)); err != nil {
			b.t.Errorf("%s did not get the program of the package as its agent: %v", h.Name, err)
		}
	}
	b.hostsGone(0)
}

// installsRPM installs the RPM package, for Fedora and similar systems, into
// an empty folder.
func (r release) installsRPM(t *testing.T) {
	root := t.TempDir()
	tool(t, "rpm", "--root="+root, "--install", filepath.Join(r.dir, "plx_"+r.version+"_linux_"+runtime.GOARCH+".rpm"))
	contains(t, tool(t, filepath.Join(root, "usr/bin/plx"), "version"), "plx v"+r.version+" (commit ")
	contains(t, tool(t, "rpm", "--root="+root, "--query", "--list", "plx"), "/usr/share/man/man1/plx-launch.1.gz\n")
}

// trainsFirst runs the commands of README.md for machines without a clone and
// without Go, with the path at which the package installs the example.
func (b *bench) trainsFirst(root string) {
	b.t.Helper()
	ran := 0
	for _, command := range commandsOf(b.t, "../README.md") {
		if strings.HasPrefix(command, "plx probe") || strings.Contains(command, "python3 train.py") {
			ran++
			out := inRoot(b, root, strings.Fields(strings.ReplaceAll(command, " examples/", " /usr/share/plx/examples/"))...)
			if strings.HasPrefix(command, "plx probe") {
				contains(b.t, out, "\nh1 ", "\nh2 ", " ok\n")
				continue
			}
			contains(b.t, out, "worker:0 h1 | 4 ranks begin after step 0", ": done")
			finalLoss(b.t, out)
		}
	}
	if ran != 2 {
		b.t.Errorf("README.md has %d commands for a package alone, want plx probe and python3 train.py", ran)
	}
}

// inRoot runs a program on h3 with a folder as the root directory, and returns
// its output.
func inRoot(b *bench, root string, words ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	const enter = `mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"`
	cmd := b.Hosts[2].Command(ctx, "unshare", append([]string{"--mount", "sh", "-c", enter, root}, words...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%q: %v\n%s", words, err, clip(string(out)))
	}
	return string(out)
}

// hasFormula compares the Homebrew formula with the archives. Without one of
// the archives, no formula can be made.
func (r release) hasFormula(t *testing.T) {
	formula := string(read(t, filepath.Join(r.dir, "plx.rb")))
	contains(t, formula, "\n  version \""+r.version+"\"\n")
	for _, platform := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
		name := "plx_" + r.version + "_" + platform + ".tar.gz"
		hash := fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(r.dir, name))))
		contains(t, formula, "\n      url \"https://github.com/plx-run/plx/releases/download/v"+r.version+"/"+name+"\"\n      sha256 \""+hash+"\"\n")
	}
	sums := filepath.Join(t.TempDir(), "checksums.txt")
	put(t, sums, strings.Repeat("0", 64)+"  plx_1.2.3_darwin_arm64.tar.gz\n", 0o644)
	if out, err := exec.Command("../scripts/homebrew-formula", "1.2.3", sums).CombinedOutput(); err == nil || !strings.Contains(string(out), "checksums.txt does not have plx_1.2.3_darwin_amd64.tar.gz") {
		t.Errorf("a release that lacks an archive: %v\n%s", err, out)
	}
}
