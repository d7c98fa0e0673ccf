package jobs

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// An invalid state file is reported and does not prevent reading the others.
func TestInvalidStateFileIsSkipped(t *testing.T) {
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
	r := hosts.NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return transporttest.Shell(home), nil })
	states, err := states(t.Context(), r, console.NewPrinter(console.Terminal{Stderr: &said}))
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
		if !strings.Contains(said.String(), "/"+job+"/h1/state.json, which is not the state of a job") {
			t.Errorf("%s is not told of:\n%s", job, &said)
		}
	}
}

// A record that was built from the hosts' states never replaces this machine's
// own record, which may list more hosts.
func TestFoundRecordsAreNotSaved(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	own := Record{Job: "j", Program: "train", Hosts: []HostRecord{{Line: "h1"}, {Line: "h2"}}}
	if err := own.Save(); err != nil {
		t.Fatal(err)
	}
	found := Record{Job: "j", Hosts: []HostRecord{{Line: "h2"}}, found: true}
	if err := found.learn(protocol.State{Verdict: &protocol.Verdict{Code: 3}}); err != nil {
		t.Fatal(err)
	}
	if err := own.learn(protocol.State{Verdict: &protocol.Verdict{Code: 4}}); err != nil {
		t.Fatal(err)
	}
	rs, err := Records()
	if err != nil || len(rs) != 1 || len(rs[0].Hosts) != 2 || rs[0].Verdict == nil || rs[0].Verdict.Code != 4 {
		t.Errorf("%+v, %v", rs, err)
	}
}

// For a job that this machine launched, the record determines the command that
// reaches the hosts.
func TestRecordDeterminesVia(t *testing.T) {
	like := hosts.Reach{Via: "theirs {host}"}
	for _, c := range []struct {
		r    Record
		want string
	}{
		{Record{Way: Way{Via: "ours {host}"}}, "ours {host}"},
		{Record{}, ""}, // SSH, even if the user's current default is another command
		{Record{found: true}, "theirs {host}"},
	} {
		c.r.Hosts = []HostRecord{{Line: "space/pod"}}
		if got, err := c.r.reach(like); err != nil || got.Via != c.want {
			t.Errorf("%+v: via %q, %v, want %q", c.r, got.Via, err, c.want)
		}
	}
}
