package failpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// childVariable makes the test binary a program with a place that it comes by
// three times.
const childVariable = "FAILPOINT_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	for i := range 3 {
		fmt.Println(i+1, Here("file.write"))
	}
}

// program is the test binary as a child, its output in files.
type program struct {
	*exec.Cmd
	folder string
}

// start starts a child that a minute is plenty for.
func start(t *testing.T, failpoints string) program {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p := program{exec.CommandContext(ctx, os.Args[0]), t.TempDir()}
	p.Env = append(os.Environ(), childVariable+"=1", variable+"="+failpoints)
	out, complaint := create(t, p.folder, "out"), create(t, p.folder, "err")
	defer out.Close()
	defer complaint.Close()
	p.Stdout, p.Stderr = out, complaint
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

func create(t *testing.T, folder, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// checkSaid compares all that the child has written so far.
func (p program) checkSaid(t *testing.T, out, complaint string) {
	t.Helper()
	for name, want := range map[string]string{"out": out, "err": complaint} {
		got, err := os.ReadFile(filepath.Join(p.folder, name))
		if err != nil || string(got) != want {
			t.Errorf("standard %s is %q (%v), want %q", name, got, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	p := start(t, "file.write=enospc@2;other=kill;file.write=short@3;file.write=error")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	p.checkSaid(t,
		"1 failpoint file.write: an error\n2 failpoint file.write: no space left on device\n3 failpoint file.write: half a write\n",
		"failpoint file.write: error\nfailpoint file.write: enospc\nfailpoint file.write: short\n")
}

func TestNothingWanted(t *testing.T) {
	for _, failpoints := range []string{"", "file.writes=kill", "file.write=kill@4"} {
		p := start(t, failpoints)
		if err := p.Wait(); err != nil {
			t.Error(err)
		}
		p.checkSaid(t, "1 <nil>\n2 <nil>\n3 <nil>\n", "")
	}
}

func TestKill(t *testing.T) {
	p := start(t, "file.write=kill@2")
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("ended with %v", err)
	}
	p.checkSaid(t, "1 <nil>\n", "failpoint file.write: kill\n")
}

func TestExit(t *testing.T) {
	p := start(t, "file.write=exit@2")
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	p.checkSaid(t, "1 <nil>\n", "failpoint file.write: exit\n")
}

func TestStop(t *testing.T) {
	p := start(t, "file.write=stop@2")
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("not stopped but %#x: %v", status, err)
	}
	p.checkSaid(t, "1 <nil>\n", "failpoint file.write: stop\n")
	if err := p.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
	p.checkSaid(t, "1 <nil>\n2 <nil>\n3 <nil>\n", "failpoint file.write: stop\n")
}

// A fault that was misspelt ends the program before it does anything.
func TestMisspelt(t *testing.T) {
	p := start(t, "file.write=kil")
	var ended *exec.ExitError
	if err := p.Wait(); !errors.As(err, &ended) || ended.ExitCode() != 2 {
		t.Errorf("ended with %v", err)
	}
	p.checkSaid(t, "", "PLX_FAILPOINTS: entry \"file.write=kil\": action \"kil\", want one of enospc, error, exit, kill, short, stop\n")
}

func TestErrorsAreTyped(t *testing.T) {
	f, err := parse("a=enospc;b=short;c=error")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hit("a"); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := f.hit("b"); !errors.Is(err, ErrShort) {
		t.Error(err)
	}
	if err := f.hit("c"); err == nil || errors.Is(err, ErrShort) || errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

// Of many goroutines at one place, one is the fifth.
func TestHitsAreCounted(t *testing.T) {
	f, err := parse("a=error@5")
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if f.hit("a") != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if n := failed.Load(); n != 1 {
		t.Errorf("%d of 20 hits failed", n)
	}
}

// A file says when, once, to one of many goroutines.
func TestFilesAreAwaited(t *testing.T) {
	file := filepath.Join(t.TempDir(), "now")
	f, err := parse("a=enospc@" + file + ";a=error@3")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.hit("a"); err != nil {
		t.Errorf("before there is a file: %v", err)
	}
	if err := create(t, filepath.Dir(file), "now").Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.hit("a"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("when the file is there: %v", err)
	}
	if err := f.hit("a"); err == nil || errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the third hit: %v", err)
	}
	if err := f.hit("a"); err != nil {
		t.Errorf("after it: %v", err)
	}
}

func BenchmarkHere(b *testing.B) {
	for b.Loop() {
		if err := Here("file.write"); err != nil {
			b.Fatal(err)
		}
	}
}
