//go:build long && linux && (amd64 || arm64)

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/cudatest"
)

// The folder is small enough, and its script checks the stand-in for a GPU in full,
// for a user who has neither root nor Go. On a stand-in whose launches fail, the parts
// that launch fail.
func TestFolder(t *testing.T) {
	root, err := os.MkdirTemp("", "gpucheck")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) }) // the next test has a folder of its own
	built := filepath.Join(root, "folder")
	build := exec.Command("../../../scripts/make-gpu-check", built)
	if text, err := build.CombinedOutput(); err != nil { // it checks the size
		t.Fatalf("%v\n%s", err, text)
	}
	open(t, root)
	t.Run("good", func(t *testing.T) {
		r := runFolder(t, built, filepath.Join(root, "good"), cudatest.Options{Faults: true, Folder: root}, true)
		// The test's machine may have no nvidia-smi and no PyTorch, and nothing else.
		for _, c := range r.Checks {
			if c.Status != passed && !(c.Status == absent && slices.Contains([]string{"nvidia-smi and gpuprobe", torchPart}, c.Name)) {
				t.Errorf("%+v", c)
			}
		}
		var measured []string
		for _, name := range r.names() {
			measured = append(measured, strings.SplitAfter(name, "/")[0])
		}
		slices.Sort(measured)
		if got := strings.Join(measured, ""); got != strings.Repeat("Convolution/", 3)+strings.Repeat("Move/", 9)+strings.Repeat("Product/", 4)+strings.Repeat("Step/", 4) {
			t.Errorf("measured are %s", r.names())
		}
	})
	t.Run("planted", func(t *testing.T) {
		r := runFolder(t, built, filepath.Join(root, "planted"), cudatest.Options{Faults: true, Fault: 1, Folder: root}, false)
		for _, c := range r.Checks {
			// The fault of these is the planted one; endless work fails before it begins.
			if may := c.Name == "fault: illegal address" || c.Name == "nvidia-smi and gpuprobe" || c.Name == torchPart; c.Status != failed && !may {
				t.Errorf("the GPU fails, and the part does not: %+v", c)
			}
		}
	})
	if left, err := filepath.Glob(filepath.Join(built, "unpacked-*")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// open lets every user read and write a folder.
func open(t *testing.T, folder string) {
	t.Helper()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
}

// runFolder runs the folder's script on a stand-in, without root, and returns its record.
func runFolder(t *testing.T, built, out string, o cudatest.Options, passes bool) *record {
	t.Helper()
	d := cudatest.Start(t, o)
	run := exec.Command(filepath.Join(built, "run.sh"), "-quick", "-out", out)
	run.Env = append(d.Environment(), "PATH=/usr/bin:/bin", "HOME="+out)
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		const nobody = 65534
		run.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		open(t, out)
		open(t, filepath.Dir(d.Library))
	}
	begin := time.Now()
	text, err := run.CombinedOutput()
	t.Logf("%s", text)
	if passes != (err == nil) || err != nil && err.Error() != "exit status 1" {
		t.Fatal(err)
	}
	if spent := time.Since(begin); spent > 5*time.Minute {
		t.Errorf("the run took %v", spent)
	}
	r, err := readRecord(filepath.Join(out, "gpu-check.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Checks) != len(parts)+1 || r.GPU.Name == "" {
		t.Errorf("%d checks of %d, of the GPU %+v", len(r.Checks), len(parts)+1, r.GPU)
	}
	return r
}
