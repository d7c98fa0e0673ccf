package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// childVariable has this program save a checkpoint in a folder instead of
// running tests: "killed FOLDER" or "full FOLDER".
const childVariable = "PLX_TEST_CHECKPOINT"

func TestMain(m *testing.M) {
	if what, dir, ok := strings.Cut(os.Getenv(childVariable), " "); ok {
		if err := child(what, dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func child(what, dir string) error {
	if what == "full" {
		signal.Ignore(syscall.SIGXFSZ)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: writeBuffer, Max: writeBuffer}); err != nil {
			return err
		}
	}
	f, err := OpenFolder(dir)
	if err != nil {
		return err
	}
	if err := save(f, id(30)); err != nil {
		return err
	}
	fmt.Println("saved")
	_, err = f.Retain(1, "")
	return err
}

// run runs a child and returns what it printed, and what became of it.
func run(t *testing.T, what, dir, faults string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+what+" "+dir, "PLX_FAILPOINTS="+faults)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	return out.String(), err
}

// TestKilledEverywhere kills a process at each place there is.
func TestKilledEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, name := range hookNames {
		killed := 0
		for ; ; killed++ {
			f := open(t, t.TempDir())
			saved(t, f, id(10), id(20))
			half(t, f, id(25))
			fault := fmt.Sprintf("%s=kill@%d", name, killed+1)
			out, err := run(t, "killed", f.dir, fault)
			wantOffered(t, f, fault, out)
			if err == nil {
				break // it had no more such places
			}
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("%s: %v: %s", fault, err, out)
			}
		}
		if killed == 0 {
			t.Errorf("%s: nobody came there", name)
		}
	}
}

func wantOffered(t *testing.T, f *Folder, fault, out string) {
	t.Helper()
	got := offered(t, f)
	if got != id(30) && (out == "saved\n" || got != id(20)) {
		t.Errorf("%s: %q is offered; it said %q", fault, got, out)
	}
	saved(t, f, id(40))
	if _, err := f.Retain(1, ""); err != nil {
		t.Errorf("%s: %v", fault, err)
	}
	if left := ids(listed(t, f)); len(left) != 1 || left[0] != id(40) {
		t.Errorf("%s: afterwards %v are left", fault, left)
	}
}

// TestFullDisk has a limit instead of a small disk, which takes root: the
// system writes as much as it can and then says why no more.
func TestFullDisk(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	out, err := run(t, "full", f.dir, "")
	want := fmt.Sprintf("checkpoint %s: write %s in %s: file too large\n", id(30), names[0], f.dir)
	if err == nil || out != want {
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
