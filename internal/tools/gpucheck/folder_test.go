//go:build long && linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
)

// The folder is small enough, and its script checks the stand-in for a GPU in full,
// for a user who has neither root nor Go.
func TestFolder(t *testing.T) {
	root, err := os.MkdirTemp("", "gpucheck")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // the next test has a folder of its own
	built, out := filepath.Join(root, "folder"), filepath.Join(root, "out")
	build := exec.Command("../../../scripts/make-gpu-check", built)
	if text, err := build.CombinedOutput(); err != nil { // it checks the size
		t.Fatalf("%v\n%s", err, text)
	}
	d := cudatest.Start(t, cudatest.Options{Faults: true, Folder: root})
	run := exec.Command(filepath.Join(built, "run.sh"), "-quick", "-out", out)
	run.Env = append(d.Environment(), "PATH=/usr/bin:/bin", "HOME="+out)
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		const nobody = 65534
		run.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for path, mode := range map[string]os.FileMode{root: 0o755, out: 0o777, filepath.Dir(d.Library): 0o777} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	text, err := run.CombinedOutput()
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
	if spent := time.Since(begin); spent > 5*time.Minute {
		t.Errorf("the run took %v", spent)
	}
	r, err := readRecord(filepath.Join(out, "gpu-check.json"))
	if err != nil {
		t.Fatal(err)
	}
	// The test's machine may have no nvidia-smi and no PyTorch, and nothing else.
	may := map[string]bool{"nvidia-smi and gpuprobe": true, "PyTorch": true}
	for i, o := range r.Parts {
		if o.Part != parts[i].name || o.Status != passed && !(o.Status == absent && may[o.Part]) {
			t.Errorf("%+v", o)
		}
	}
	if want := len(moves(true)) + len(sizes(true)); len(r.Parts) != len(parts) || len(r.Figures) != want {
		t.Errorf("%d parts of %d, %d figures of %d", len(r.Parts), len(parts), len(r.Figures), want)
	}
	if left, err := filepath.Glob(filepath.Join(built, "unpacked-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}
