package checkpoint

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// childVariable names an environment variable. If it is set to a folder, the
// test program saves a checkpoint there under a small file size limit, instead
// of running tests.
const childVariable = "PLX_TEST_CHECKPOINT"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		if err := child(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: writeBuffer, Max: writeBuffer}); err != nil {
		return err
	}
	f, err := OpenFolder(dir)
	if err != nil {
		return err
	}
	return save(f, id(30))
}

// TestFullDiskKeepsEarlierCheckpoint uses a limit of the file size instead of
// a full disk, which only root could set up: both make the system write a part
// and then fail.
func TestFullDiskKeepsEarlierCheckpoint(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+f.dir)
	out, err := cmd.Output()
	want := fmt.Sprintf("checkpoint %s: write %s in %s: file too large\n", id(30), names[0], f.dir)
	if err == nil || string(out) != want {
		t.Errorf("%v: got %q, want %q", err, out, want)
	}
	if left := temporaries(t, f); len(left) > 0 || offered(t, f) != id(20) {
		t.Errorf("left %v, offered %s", left, offered(t, f))
	}
	if err := f.Discard(id(30)); err != nil {
		t.Fatal(err)
	}
	if got := len(listed(t, f)); got != 2 {
		t.Errorf("%d checkpoints after discarding the third", got)
	}
}
