package jobs

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/filelock"
)

// A launch is found while its process prepares the job, and files of dead
// launches are removed.
func TestLaunchingsFindsOnlyLiveLaunches(t *testing.T) {
	t.Setenv("HOME", filepath.Join(t.TempDir(), "[of] a user*")) // no pattern
	done, err := Announce("name", "train")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := launchingFolder()
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(dir, "1")
	if err := os.WriteFile(dead, []byte(`{"pid":1,"name":"name"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	begun := filepath.Join(dir, "2") // the launching process died before it wrote the file's content
	if err := os.WriteFile(begun, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := launchings()
	if err != nil || len(all) != 1 || all[0].PID != os.Getpid() || all[0].label() != "name" {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, path := range []string{dead, begun} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what a dead launch has left: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, filepath.Base(all[0].path))); err != nil {
		t.Errorf("a launch that lives: %v", err)
	}
	done()
	if all, err := launchings(); len(all) > 0 || err != nil {
		t.Errorf("after its end: %+v, %v", all, err)
	}
}

// Announce removes the file of a dead launch. It makes a second file if a
// launch on another machine, whose process has the same pid, uses the usual
// name.
func TestAnnounceRemovesDeadLaunches(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	dir, err := launchingFolder()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	dead, other := filepath.Join(dir, "1"), filepath.Join(dir, strconv.Itoa(os.Getpid()))
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(other)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !filelock.Lock(f, other) {
		t.Fatal("no lock")
	}
	done, err := Announce("name", "train")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a dead launch has left: %v", err)
	}
	if all, err := launchings(); err != nil || len(all) != 1 || all[0].label() != "name" {
		t.Errorf("%+v, %v", all, err)
	}
	done()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v, %v, want that of the other machine", left, err)
	}
}

// A launch on another machine is not stopped, because a local process may have
// the same pid.
func TestStopRefusesLaunchOfAnotherMachine(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	defer signal.Stop(ended)
	l := Launching{PID: os.Getpid(), Host: "another", Program: "train"}
	if _, err := l.stop(t.Context()); err == nil || !strings.Contains(err.Error(), "by process") || !strings.Contains(err.Error(), "on another") {
		t.Errorf("%v, want where it runs", err)
	}
}

// After a launch has ended, stop returns the job of this launch and not of an
// earlier or another one.
func TestStopOfALaunchReturnsItsOwnJob(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	here, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	l := Launching{PID: gone.Process.Pid, Host: here, Begun: time.Now()}
	for job, r := range map[string]Record{
		"another": {Launcher: l.PID + 1, Created: l.Begun.Add(time.Second)}, "earlier": {Launcher: l.PID, Created: l.Begun.Add(-time.Hour)},
	} {
		r.Job, r.Hosts = job, []HostRecord{{Line: "h1"}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	if job, err := l.stop(t.Context()); job != "" || err != nil {
		t.Errorf("it had no job, and got %q, %v", job, err)
	}
	r := Record{Job: "own", Launcher: l.PID, Created: l.Begun, Hosts: []HostRecord{{Line: "h1"}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	if job, err := l.stop(t.Context()); job != "own" || err != nil {
		t.Errorf("%q, %v, want its own", job, err)
	}
}
