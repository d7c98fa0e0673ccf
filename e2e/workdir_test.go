package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// TestWorkdir sends a folder to two hosts whose tasks run in it.
func TestWorkdir(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
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
	// In the first generation one rank of each host writes what the others of its host
	// wait for. The chief then fails, and the second generation finds all of it.
	put(t, filepath.Join(b.dir, "train.py"), `
import os, sys, time
from pkg.values import text
first, generation = os.environ["LOCAL_RANK"] == "0", int(os.environ["PLX_GENERATION"])
if first and generation == 0:
    open("part", "w").write("downloaded"); os.rename("part", "download")
deadline = time.time() + 60
while not os.path.exists("download") and time.time() < deadline:
    time.sleep(0.01)
if generation == 0 and os.environ["RANK"] == "0":
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

	// The next job has a folder of its own, with what changed here, and none of what
	// the last job wrote.
	put(t, filepath.Join(b.dir, "pkg", "values.py"), "text = 'changed here'\n", 0o644)
	put(t, filepath.Join(b.dir, "show.sh"), "#!/bin/sh\ncat config.json pkg/values.py; ls; [ \"$0\" = \"$PWD/show.sh\" ] || echo $0\n", 0o755)
	res = b.want(0, "launch", "--hosts", file, "--workdir", ".", "-n", "1", "./show.sh")
	if got, want := strings.Join(lines(res.stdout, "worker:0"), "|"), "{}text = 'changed here'|config.json|link.json|pkg|show.sh|train.py"; got != want {
		t.Errorf("the second job printed %q, want %q", got, want)
	}
	b.hostsGone(0)
}
