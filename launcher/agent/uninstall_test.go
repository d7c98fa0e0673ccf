//go:build linux

package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// used creates a home with all kinds of plx files, and takes the shared lock
// of ~/.plx.
func used(t *testing.T) (home string, use *jobfolder.HomeLock) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	env := filepath.Join(home, ".plx/envs/e/lib")
	for _, file := range []string{"blobs/" + strings.Repeat("1", 64), "blobs/.leaving-x/part", "files/ab/c", "envs/e/lib/x.py", "verified/x", "fsid", "tidied", "hashes", "launching/999999999"} {
		file = filepath.Join(home, ".plx", file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("text"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chtimes(filepath.Join(home, ".plx/blobs/.leaving-x"), long, long), os.Chmod(env, 0o500)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(env, 0o700) }) // it may be gone
	use, err := jobfolder.LockHome()
	if err != nil {
		t.Fatal(err)
	}
	return home, use
}

// all runs pruneAll, and returns the paths that were removed and those that
// were kept.
func all(t *testing.T, use *jobfolder.HomeLock, want protocol.PruneRequest) (gone, kept []string, answer protocol.PruneAnswer) {
	t.Helper()
	want.All = true
	answer, err := pruneAll(t.Context(), want, use)
	if err != nil || answer.Failed != "" {
		t.Fatal(err, answer.Failed)
	}
	for _, item := range answer.Items {
		if item.Outputs > 0 {
			kept = append(kept, item.Path)
		} else {
			gone = append(gone, item.Path)
		}
	}
	slices.Sort(gone)
	slices.Sort(kept)
	return gone, kept, answer
}

// If nothing must be kept, all files are removed, even read-only ones. A later
// agent can use the home as a new one. A dry run lists the same files.
func TestPruneAll(t *testing.T) {
	home, use := used(t)
	f := left(t, "j")
	fetched(t, f)
	if err := os.Mkdir(filepath.Join(home, ".plx/ckpt"), 0o700); err != nil { // a name whose checkpoints were all removed
		t.Fatal(err)
	}
	listed, _, _ := all(t, use, protocol.PruneRequest{Dry: true})
	if !there(f.State()) {
		t.Fatal("--dry-run has removed a job")
	}
	gone, kept, answer := all(t, use, protocol.PruneRequest{})
	want := []string{"blobs", "ckpt", "envs", "files", "fsid", "hashes", "jobs/j", "launching", "lock", "tidied", "verified"}
	if !slices.Equal(gone, want) || !slices.Equal(listed, want) || len(kept) > 0 || answer.Rest != "" {
		t.Errorf("removed %q, listed %q, kept %q, left %q", gone, listed, kept, answer.Rest)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("the home has %v, %v", left, err)
	}
}

// A symbolic link ~/.plx to a folder on another disk stays, because the user
// has made it.
func TestPruneAllKeepsALink(t *testing.T) {
	home, use := used(t)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.Rename(filepath.Join(home, ".plx"), disk), os.Symlink(disk, filepath.Join(home, ".plx"))); err != nil {
		t.Fatal(err)
	}
	all(t, use, protocol.PruneRequest{})
	if left, err := os.ReadDir(filepath.Join(home, ".plx")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// Nothing is removed while a job or another plx process uses ~/.plx.
func TestPruneAllIsRefused(t *testing.T) {
	me, err := process.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	state := func(f jobfolder.Folder, s protocol.State) error {
		s.Job, s.Folder, s.Phase = f.Job(), f.Name(), protocol.Running
		return f.WriteState(s)
	}
	for want, busy := range map[string]func(home string) error{
		"job j runs": func(string) error {
			return state(left(t, "j"), protocol.State{Processes: protocol.Processes{Machine: jobfolder.Machine(), Supervisor: os.Getpid(), SupervisorStart: me.Start}})
		},
		"job j may run on h9, which has the same home": func(string) error {
			return state(left(t, "j"), protocol.State{Processes: protocol.Processes{Machine: "h9 boot table"}})
		},
		"another plx works there, such as a launch or plx exec": func(string) error {
			_, err := jobfolder.LockHome()
			return err
		},
		"plx is just being sent there": func(home string) error {
			return os.WriteFile(filepath.Join(home, ".plx/blobs/.plx-A"), nil, 0o600)
		},
		"a launch is being prepared there, by process 77": func(home string) error {
			f, err := os.Create(filepath.Join(home, ".plx/launching/77"))
			if err == nil {
				t.Cleanup(func() { f.Close() }) // releases the lock
				err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
			}
			return err
		},
	} {
		home, use := used(t)
		if err := busy(home); err != nil {
			t.Fatal(err)
		}
		gone, _, answer := all(t, use, protocol.PruneRequest{Discard: true})
		if answer.Busy != want || len(gone) > 0 || !there(filepath.Join(home, ".plx/fsid")) {
			t.Errorf("busy %q, want %q; removed %q", answer.Busy, want, gone)
		}
		if _, err := jobfolder.LockHome(); err != nil { // others may go on
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Unfetched outputs, checkpoints and the launcher's records of this home stay,
// with all files that the kept jobs use. Everything else is removed.
func TestPruneAllKeeps(t *testing.T) {
	put := func(path ...string) func(string) error {
		return func(home string) error {
			for _, p := range path {
				file := filepath.Join(home, ".plx", p)
				if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte("{"), 0o600)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, x := range map[string]struct {
		made func(home string) error
		want protocol.PruneRequest
		kept string // "": all goes
		goes protocol.PruneRequest
	}{
		"outputs":     {func(string) error { left(t, "j"); return nil }, protocol.PruneRequest{}, "jobs/j/gpu01", protocol.PruneRequest{Discard: true}},
		"checkpoints": {put("ckpt/j/1/part"), protocol.PruneRequest{}, "ckpt/j", protocol.PruneRequest{Discard: true}},
		"damaged":     {put("jobs/j/h/state.json"), protocol.PruneRequest{}, "jobs/j/h", protocol.PruneRequest{Discard: true}},
		"a record":    {put("jobs/j/job.json"), protocol.PruneRequest{Discard: true}, "jobs/j/job.json", protocol.PruneRequest{Discard: true, Forgotten: []string{"j"}}},
	} {
		home, use := used(t)
		used, unused := filepath.Join(home, ".plx/blobs", strings.Repeat("7", 64)), filepath.Join(home, ".plx/blobs", strings.Repeat("1", 64))
		if err := errors.Join(os.WriteFile(used, nil, 0o700), x.made(home)); err != nil {
			t.Fatal(err)
		}
		if name == "outputs" {
			if err := os.WriteFile(filepath.Join(home, ".plx/jobs/j/gpu01/blobs"), []byte(strings.Repeat("7", 64)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		_, kept, _ := all(t, use, x.want)
		if !slices.Equal(kept, []string{x.kept}) || there(unused) || there(used) != (name == "outputs") || !there(filepath.Join(home, ".plx", x.kept)) {
			t.Errorf("%s: kept %q; an unused program is there: %t, a used one: %t", name, kept, there(unused), there(used))
		}
		if _, kept, _ = all(t, use, x.goes); len(kept) > 0 || there(filepath.Join(home, ".plx")) {
			t.Errorf("%s: kept %q", name, kept)
		}
	}
}

// An agent that starts during a removal waits for its end. It fails if its own
// binary was removed, so that the launcher sends it again.
func TestAgentStartWaitsForPruneAll(t *testing.T) {
	h := newHost(t, 1, "wait")
	t.Setenv("HOME", h.home)
	use, err := jobfolder.LockHome()
	if err != nil || !use.Alone() {
		t.Fatal("somebody else is there", err)
	}
	entered := make(chan error, 1)
	go func() {
		_, err := jobfolder.LockHome()
		entered <- err
	}()
	select {
	case err := <-entered:
		t.Fatalf("entered during a removal: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	use.Share()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	program := filepath.Join(h.home, ".plx", jobfolder.LeavingMark+"x", "blob")
	text, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.MkdirAll(filepath.Dir(program), 0o700), executable.Write(program, text, 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := h.command("start")
	cmd.Path = program
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "plx prune has just removed plx there") {
		t.Errorf("%v, %q", err, out)
	}
}
