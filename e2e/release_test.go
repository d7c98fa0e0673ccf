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

	"github.com/plx-run/plx/internal/testhosts"
)

// A release is made from this source. Its Debian package is installed on a machine that
// has nothing but the package, and launches a job from there.
func TestRelease(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 3})
	r := makeRelease(t, "linux/amd64", "linux/arm64", "darwin/arm64")
	t.Run("files", func(t *testing.T) { r.hasFiles(t) })
	t.Run("contents", func(t *testing.T) { r.hasContents(t) })
	t.Run("rpm", func(t *testing.T) { r.installsRPM(b.in(t)) })
	t.Run("deb", func(t *testing.T) { r.installs(b.in(t)) })
}

// release is a snapshot of the release.
type release struct {
	dir     string
	version string // without a leading v
}

// makeRelease makes a release for some platforms in a folder of the repository, as
// goreleaser would.
func makeRelease(t *testing.T, targets ...string) release {
	t.Helper()
	dir, err := os.MkdirTemp("..", "dist-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	tool(t, "go", "-C", "../internal/ci/release", "run", ".", "-out", filepath.Base(dir), "-targets", strings.Join(targets, ","))
	return release{dir, snapshotVersion(t)}
}

// tool runs a program of this machine and returns its output.
func tool(t *testing.T, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*patience) // it may have all to build
	defer cancel()
	out, err := exec.CommandContext(ctx, words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, clip(string(out)))
	}
	return string(out)
}

// snapshotVersion is that of goreleaser.yaml.
func snapshotVersion(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^  version_template: (\S+)$`).FindStringSubmatch(string(read(t, "../goreleaser.yaml")))
	if m == nil {
		t.Fatal("goreleaser.yaml has no snapshot.version_template")
	}
	return m[1]
}

// The next release is the newest of CHANGELOG.md.
func TestVersionOfSnapshot(t *testing.T) {
	m := regexp.MustCompile(`(?m)^## \[(\d\S*)\]`).FindStringSubmatch(string(read(t, "../CHANGELOG.md")))
	if m == nil || m[1]+"-snapshot" != snapshotVersion(t) {
		t.Errorf("CHANGELOG.md begins with %q, goreleaser.yaml makes %s", m, snapshotVersion(t))
	}
}

// hasFiles checks which files were released, and checks them as docs/install.md tells.
func (r release) hasFiles(t *testing.T) {
	want := []string{"checksums.txt"}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-arm64"} {
		want = append(want, "plx-"+platform, "plx-"+platform+".cdx.json")
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
		if !e.IsDir() {
			got = append(got, e.Name())
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("released %q\nwant %q", got, want)
	}
	const check = "sha256sum --ignore-missing -c checksums.txt"
	contains(t, string(read(t, "../docs/install.md")), "\n"+check+"\n")
	if out := tool(t, "sh", "-c", "cd "+r.dir+" && "+check); strings.Count(out, ": OK\n") != len(want)-1 {
		t.Errorf("%s:\n%s", check, out)
	}
}

// hasContents looks into archives, packages and lists of modules.
func (r release) hasContents(t *testing.T) {
	const doc, rest = "usr/share/doc/plx/", "usr/share/bash-completion/completions/plx usr/share/fish/vendor_completions.d/plx.fish usr/share/man/man1/plx.1.gz usr/share/man/man1/plx-launch.1.gz "
	for name, want := range map[string]string{
		"linux_amd64.tar.gz":  "plx LICENSE README.md CHANGELOG.md man/plx.1.gz man/plx-launch.1.gz completions/plx.bash completions/_plx completions/plx.fish",
		"darwin_arm64.tar.gz": "plx plx-linux-amd64 plx-linux-arm64 LICENSE man/plx.1.gz completions/_plx",
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

// installs installs the Debian package into an empty folder, which becomes the root of
// a machine that has h3's network. A job is launched from there on the two other hosts.
func (r release) installs(b *bench) {
	root := filepath.Join(b.shared(), "root")
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "proc", "dev", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(root, folder), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	for path, text := range map[string]string{"var/lib/dpkg/status": "", "etc/passwd": "root:x:0:0::/root:/bin/sh\n", "root/hosts.txt": "h1\nh2\n"} {
		put(b.t, filepath.Join(root, path), text, 0o644)
	}
	tool(b.t, "dpkg", "--root="+root, "--install", filepath.Join(r.dir, "plx_"+r.version+"_linux_"+runtime.GOARCH+".deb"))
	tool(b.t, "cp", "-a", filepath.Join(b.Home, ".ssh"), filepath.Join(root, "root"))

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

	out := inRoot(b, root, "plx", "launch", "--hosts", "/root/hosts.txt", "sh", "-c", "echo rank $RANK on $(cat /etc/hostname)")
	contains(b.t, out, "worker:0 h1 | rank 0 on h1\n", "worker:1 h2 | rank 1 on h2\n", ": done\n")
	agent := fmt.Sprintf("%x", sha256.Sum256(read(b.t, filepath.Join(root, "usr/bin/plx"))))
	for _, h := range b.Hosts[:2] {
		if _, err := os.Stat(filepath.Join(h.HomeDir, ".plx/blobs", agent)); err != nil {
			b.t.Errorf("%s did not get the program of the package as its agent: %v", h.Name, err)
		}
	}
	b.hostsGone(0)
}

// installsRPM installs the package for rpm into an empty folder.
func (r release) installsRPM(b *bench) {
	root := filepath.Join(b.shared(), "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		b.t.Fatal(err)
	}
	tool(b.t, "rpm", "--root", root, "--initdb")
	tool(b.t, "rpm", "--root", root, "--install", filepath.Join(r.dir, "plx_"+r.version+"_linux_"+runtime.GOARCH+".rpm"))
	contains(b.t, tool(b.t, filepath.Join(root, "usr/bin/plx"), "version"), "plx v"+r.version+" (commit ")
	tool(b.t, "rpm", "--root", root, "--erase", "plx")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/plx")); err == nil {
		b.t.Error("plx is still there after it was removed")
	}
}

// inRoot runs a program in a folder as the root of h3 and returns its output.
func inRoot(b *bench, root string, words ...string) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const enter = `mount -t proc proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"`
	cmd := b.Hosts[2].Command(ctx, "unshare", append([]string{"--mount", "sh", "-c", enter, root}, words...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%q: %v\n%s", words, err, clip(string(out)))
	}
	return string(out)
}

// The formula has the archive of each platform, and its hash.
func TestHomebrewFormula(t *testing.T) {
	sums := filepath.Join(t.TempDir(), "checksums.txt")
	text, hashes := "", map[string]string{}
	for i, platform := range []string{"darwin_arm64", "darwin_amd64", "linux_arm64", "linux_amd64"} {
		hashes[platform] = strings.Repeat(fmt.Sprint(i), 64)
		text += hashes[platform] + "  plx_1.2.3_" + platform + ".tar.gz\n"
	}
	put(t, sums, text, 0o644)
	formula := tool(t, "../scripts/homebrew-formula", "1.2.3", sums)
	contains(t, formula, "\n  version \"1.2.3\"\n")
	for platform, hash := range hashes {
		contains(t, formula, "\n      url \"https://github.com/plx-run/plx/releases/download/v1.2.3/plx_1.2.3_"+platform+".tar.gz\"\n      sha256 \""+hash+"\"\n")
	}
	put(t, sums, text[:strings.Index(text, "\n")+1], 0o644)
	if out, err := exec.Command("../scripts/homebrew-formula", "1.2.3", sums).CombinedOutput(); err == nil || !strings.Contains(string(out), "checksums.txt does not have plx_1.2.3_darwin_amd64.tar.gz") {
		t.Errorf("a release that lacks an archive: %v\n%s", err, out)
	}
}
