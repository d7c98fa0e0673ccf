package e2e

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestWorkdir sends a folder to two hosts whose tasks run in it.
func TestWorkdir(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1: cpu*2", "h2: cpu*2")
	b.dir = t.TempDir()
	put(t, filepath.Join(b.dir, "pkg", "values.py"), "text = 'from the package'\n", 0o644)
	put(t, filepath.Join(b.dir, ".gitignore"), "*.log\n", 0o644)
	put(t, filepath.Join(b.dir, "old.log"), "stays here", 0o644)
	put(t, filepath.Join(b.dir, "venv", "pyvenv.cfg"), "", 0o644)
	put(t, filepath.Join(b.dir, "config.json"), "{}", 0o644)
	if err := os.Symlink("config.json", filepath.Join(b.dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	// In the first generation, one rank on each host writes a file for which
	// the other ranks of the host wait. Then the chief (worker 0) fails. The
	// second generation must find all of these files.
	written := b.shared()
	put(t, filepath.Join(b.dir, "train.py"), `
import glob, os, sys, time
from pkg.values import text
first, generation = os.environ["LOCAL_RANK"] == "0", int(os.environ["PLX_GENERATION"])
if first and generation == 0:
    open("part", "w").write("downloaded"); os.rename("part", "download")
    open("`+written+`/" + os.environ["RANK"], "w").close()
deadline = time.time() + `+fmt.Sprint(patience.Limit.Seconds())+`
while not os.path.exists("download") and time.time() < deadline:
    time.sleep(0.01)
if generation == 0 and os.environ["RANK"] == "0":
    while len(glob.glob("`+written+`/*")) < 2:
        time.sleep(0.01)
    sys.exit("fails once")
while generation == 0:
    time.sleep(0.1)
open("config.json", "a").write("changed")
print(text, open("download").read(), os.readlink("link.json"), sorted(n for n in os.listdir(".") if n != "__pycache__"))
`, 0o644)

	res := b.want(2, "launch", "--hosts", file, "python3", "-u", "train.py", "--config", "config.json")
	contains(t, res.stderr, "hint: train.py is a local file: add --workdir .")
	b.hostsGone(0)

	res = b.want(0, "launch", "--hosts", file, "--workdir", ".", "--max-restarts", "1", "--restart-backoff", "1ms", "python3", "-u", "train.py")
	want := "from the package downloaded config.json ['.gitignore', 'config.json', 'download', 'link.json', 'pkg', 'train.py']"
	for _, task := range []string{"worker:0", "worker:1", "worker:2", "worker:3"} {
		if got := strings.Join(lines(res.stdout, task), "\n"); got != want {
			t.Errorf("%s printed %q, want %q", task, got, want)
		}
	}

	// The next job gets a new folder, which contains the file changed here but
	// no file that the previous job wrote.
	put(t, filepath.Join(b.dir, "pkg", "values.py"), "text = 'changed here'\n", 0o644)
	put(t, filepath.Join(b.dir, "show.sh"), "#!/bin/sh\ncat config.json pkg/values.py; ls; [ \"$0\" = \"$PWD/show.sh\" ] || echo $0\n", 0o755)
	res = b.want(0, "launch", "--hosts", file, "--workdir", ".", "-n", "1", "./show.sh")
	if got, want := strings.Join(lines(res.stdout, "worker:0"), "|"), "{}text = 'changed here'|config.json|link.json|pkg|show.sh|train.py"; got != want {
		t.Errorf("the second job printed %q, want %q", got, want)
	}
	b.hostsGone(0)
	t.Run("decay", func(t *testing.T) { workdirDecays(b.in(t), file) })
	t.Run("full disk", func(t *testing.T) { workdirOnFullDisk(b.in(t), file) })
}

// workdirOnFullDisk launches on a host that has no room, first for the store's
// copy of the folder, then for the copy in which the tasks run. Each error
// names the host and a file, comes before any task starts, and leaves no
// files. plx writes the files at the same time, so the error may name any of
// them.
func workdirOnFullDisk(b *bench, file string) {
	put(b.t, filepath.Join(b.dir, "data.bin"), strings.Repeat("x", 3<<20), 0o644)
	h2 := b.Hosts[1]
	for _, c := range []struct {
		folder string
		says   string
	}{
		{".plx/files", `host h2: .*/\.plx/files has 1 MiB left.*the largest is data\.bin`},
		{".plx/jobs", `host h2: .*make the working directory: make (data\.bin|train\.py|show\.sh|config\.json|\.gitignore|pkg/values\.py): no space left on device`},
	} {
		mount := "mount -t tmpfs -o size=1500k,mode=700 tmpfs ~/" + c.folder
		if out, err := h2.Command(b.t.Context(), "sh", "-c", mount).CombinedOutput(); err != nil {
			b.t.Fatalf("%s: %v: %s", mount, err, out)
		}
		res := b.run("launch", "--hosts", file, "--workdir", ".", "sh", "-c", "echo started")
		if res.code != 125 || strings.Contains(res.stdout, "started") {
			b.t.Errorf("%s is full: exit status %d, stdout:\n%s", c.folder, res.code, res.stdout)
		}
		if n := len(regexp.MustCompile(c.says).FindAllString(res.stderr, -1)); n != 1 || strings.Count(res.stderr, "host h2: ") != 1 {
			b.t.Errorf("want one error, %q, not\n%s", c.says, res.stderr)
		}
		b.hostsGone(patience.Limit)
		left := "find ~/" + c.folder + " -name data.bin -o -name '.work*' -o -path '*/incoming/*'; umount ~/" + c.folder
		if out, err := h2.Command(b.t.Context(), "sh", "-c", left).CombinedOutput(); err != nil || len(out) > 0 {
			b.t.Errorf("left in %s: %v: %s", c.folder, err, out)
		}
	}
}

// workdirDecays changes bytes of files in a host's store, but not their times.
// The next launch must use the correct content, and name the files that it has
// repaired.
func workdirDecays(b *bench, file string) {
	b.dir = b.t.TempDir()
	const content = "these bytes are right\n"
	put(b.t, filepath.Join(b.dir, "data.txt"), content, 0o644)
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(content)))
	kept := filepath.Join(b.Hosts[1].HomeDir, ".plx/files", sum[:2], sum[2:])
	decay := func() {
		b.t.Helper()
		before, err := os.Stat(kept)
		if err == nil {
			err = errors.Join(os.WriteFile(kept, []byte(strings.Replace(content, "right", "wrong", 1)), 0o600), os.Chtimes(kept, before.ModTime(), before.ModTime()))
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	launch := func(code int, flags ...string) result {
		b.t.Helper()
		res := b.want(code, append(append([]string{"launch", "--hosts", file, "--workers-per-host", "1"}, flags...), "cat", "data.txt")...)
		if got := res.stdout; code == 0 && strings.Count(got, strings.TrimSpace(content)) != 2 {
			b.t.Errorf("the tasks printed %q", got)
		}
		return res
	}
	mended := func(res result) {
		b.t.Helper()
		if n := strings.Count(res.stderr, "and removed there: data.txt; plx sends them again"); n != 1 || !strings.Contains(res.stderr, "host h2: files that it keeps were damaged in ") {
			b.t.Errorf("it has told %d times what it has mended: %s", n, res.stderr)
		}
	}
	launch(0, "--workdir", ".")
	decay()
	mended(launch(0, "--workdir", "."))
	decay()
	put(b.t, filepath.Join(b.dir, "more.txt"), "a file that the hosts lack", 0o644)
	mended(launch(0, "--workdir", "."))
	if res := launch(0, "--workdir", "."); strings.Contains(res.stderr, "damaged") {
		b.t.Errorf("nothing was damaged: %s", res.stderr)
	}
	// The agent puts the files of --copy into the tasks' folders, at a time
	// when the launcher no longer sends files.
	decay()
	contains(b.t, launch(125, "--copy", "data.txt").stderr, "removed there: data.txt: launch again")
	launch(0, "--copy", "data.txt")

	const program = "#!/bin/sh\necho the program is right\n"
	put(b.t, filepath.Join(b.dir, "prog.sh"), program, 0o755)
	b.want(0, "launch", "--hosts", file, "./prog.sh")
	kept = filepath.Join(b.Hosts[1].HomeDir, ".plx/blobs", fmt.Sprintf("%x", sha256.Sum256([]byte(program))))
	if err := os.WriteFile(kept, []byte(strings.Replace(program, "right", "wrong", 1)), 0o700); err != nil {
		b.t.Fatal(err)
	}
	res := b.want(0, "launch", "--hosts", file, "--workers-per-host", "1", "./prog.sh")
	if strings.Count(res.stdout, "the program is right") != 2 || strings.Count(res.stderr, "host h2: prog.sh is damaged in ~/.plx/blobs there; it is sent again") != 1 {
		b.t.Errorf("with a damaged program: %s%s", res.stdout, res.stderr)
	}
	b.hostsGone(0)
}
