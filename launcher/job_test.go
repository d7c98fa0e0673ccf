package launcher

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

// shell is a transport to this machine, with a home of its own.
type shell string

func (s shell) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	cmd.Env = append(os.Environ(), "HOME="+string(s))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	err := cmd.Run()
	if e := (&exec.ExitError{}); errors.As(err, &e) {
		return exited{e}
	}
	return err
}

// exited is an exit status as transports tell it.
type exited struct{ *exec.ExitError }

func (e exited) ExitStatus() int { return e.ExitCode() }

func (s shell) Copy(context.Context, io.Reader, int64, string, fs.FileMode) error {
	panic("nothing is copied")
}
func (s shell) Close() error { return nil }

// One file that is no state hides no other, and is told of.
func TestStatesOfAHostWithJunk(t *testing.T) {
	home := t.TempDir()
	write := func(job, text string) {
		folder := filepath.Join(home, ".plx", "jobs", job, "h1")
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "state.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{"job":"JOB","host":"h1","folder":"h1","binary":".plx/blobs/abc","tasks":{"worker:0":{}}}`
	write("a", strings.Replace(good, "JOB", "a", 1))
	write("b-junk", "{")
	write("c-evil", strings.Replace(strings.Replace(good, "JOB", "c-evil", 1), "abc", "x; rm -rf", 1))
	write("d", strings.Replace(good, ",", ",\n", 1)+"\n")
	write("d", strings.Replace(strings.Replace(good, "JOB", "d", 1), ",", ",\n", 1)+"\n")
	var said bytes.Buffer
	r := newRemote(hostfile.Host{Name: "h1"}, func(context.Context) (transport, error) { return shell(home), nil }, false)
	states, err := r.states(t.Context(), newVoice(Terminal{Stderr: &said}))
	if err != nil {
		t.Fatal(err)
	}
	var jobs []string
	for _, s := range states {
		jobs = append(jobs, s.Job)
	}
	if got := strings.Join(jobs, " "); got != "a d" {
		t.Errorf("jobs %q, want \"a d\"", got)
	}
	for _, job := range []string{"b-junk", "c-evil"} {
		if !strings.Contains(said.String(), "/"+job+"/h1/state.json is not a job's state") {
			t.Errorf("%s is not told of:\n%s", job, &said)
		}
	}
}

// What hosts tell of a job is never written over this machine's own record of
// it, which may know more hosts.
func TestFoundRecordsAreNotSaved(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	own := record{Job: "j", Program: "train", Hosts: []hostRecord{{Line: "h1"}, {Line: "h2"}}}
	if err := saveRecord(own); err != nil {
		t.Fatal(err)
	}
	found := record{Job: "j", Hosts: []hostRecord{{Line: "h2"}}, elsewhere: true}
	if err := found.learn(protocol.State{Verdict: &protocol.Verdict{Code: 3}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := own.learn(protocol.State{Verdict: &protocol.Verdict{Code: 4}}, nil); err != nil {
		t.Fatal(err)
	}
	rs, err := loadRecords()
	if err != nil || len(rs) != 1 || len(rs[0].Hosts) != 2 || rs[0].Verdict == nil || rs[0].Verdict.Code != 4 {
		t.Errorf("%+v, %v", rs, err)
	}
}
