//go:build linux

package checkup

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// writeFiles writes files below a new folder that stands for the root folder,
// and returns that folder.
func writeFiles(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLogindKills(t *testing.T) {
	const file, dropIn = "etc/systemd/logind.conf", "etc/systemd/logind.conf.d/a.conf"
	for _, c := range []struct {
		files map[string]string
		want  bool
	}{
		{nil, false},
		{map[string]string{file: "[Login]\n#KillUserProcesses=yes\n"}, false},
		{map[string]string{file: "[Login]\nKillUserProcesses=yes\n"}, true},
		{map[string]string{file: " KillUserProcesses = Yes"}, true},
		{map[string]string{file: "KillUserProcesses=yes\n", dropIn: "KillUserProcesses=no\n"}, false},
		{map[string]string{dropIn: "KillUserProcesses=1\n"}, true},
		{map[string]string{"usr/lib/systemd/logind.conf.d/z.conf": "KillUserProcesses=no\n", dropIn: "KillUserProcesses=true\n"}, true},
	} {
		if got := logindKills(writeFiles(t, c.files)); got != c.want {
			t.Errorf("%q: %v", c.files, got)
		}
	}
}

func TestPidsMax(t *testing.T) {
	const own = "proc/self/cgroup"
	for _, c := range []struct {
		files map[string]string
		want  int64
	}{
		{nil, 0},
		{map[string]string{own: "0::/a/b\n"}, 0},
		{map[string]string{own: "0::/a/b\n", "sys/fs/cgroup/a/b/pids.max": "max\n"}, 0},
		{map[string]string{own: "1:cpu:/x\n0::/a/b\n", "sys/fs/cgroup/a/b/pids.max": "900\n", "sys/fs/cgroup/a/pids.max": "500\n"}, 500},
		{map[string]string{own: "0::/a/b\n", "sys/fs/cgroup/a/b/pids.max": "400\n", "sys/fs/cgroup/pids.max": "500\n"}, 400},
		// The process has a cgroup namespace of its own.
		{map[string]string{own: "0::/../..\n", "sys/fs/cgroup/pids.max": "7\n"}, 7},
	} {
		if got := pidsMax(writeFiles(t, c.files)); got != c.want {
			t.Errorf("%q: %d, want %d", c.files, got, c.want)
		}
	}
}

// The processes of an ended job of this machine are found. Those of a job of
// another machine are not.
func TestLeftoversAreProcessesOfDeadJobs(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for job, machine := range map[string]string{"dead": jobfolder.Machine(), "elsewhere": "other x y", "clean": jobfolder.Machine()} {
		f, err := jobfolder.Of(job, "h1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Create(make([]byte, 32)); err != nil {
			t.Fatal(err)
		}
		if err := f.WriteState(protocol.State{Job: job, Phase: protocol.Over, Processes: protocol.Processes{Machine: machine}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range []string{"dead", "elsewhere"} {
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{"PLX_JOB=" + job, "PLX_HOST_FOLDER=h1"}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait() // it was killed
		defer cmd.Process.Kill()
		if job != "dead" {
			continue
		}
		strays, old, err := leftovers(time.Now())
		// Wait until the kernel has set up the process's environment.
		for begun := time.Now(); len(strays) == 0 && time.Since(begun) < patience.Limit; {
			strays, old, err = leftovers(time.Now())
		}
		if err != nil || old != 0 || len(strays) != 1 || strays[0].Job != "dead" || !slices.Equal(strays[0].PIDs, []int{cmd.Process.Pid}) {
			t.Errorf("%+v %d %v, want process %d", strays, old, err, cmd.Process.Pid)
		}
	}
	strays, old, err := leftovers(time.Now().Add(oldJob + time.Hour))
	if err != nil || old != 2 || len(strays) != 1 {
		t.Errorf("a month later: %+v, %d old jobs, %v", strays, old, err)
	}
}

// The agent reports its findings, accepts peers that know the secret, and
// dials the given peers.
func TestAgentReportsServesAndDials(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	secret := bytes.Repeat([]byte{7}, 32)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var a Agent
	report, err := a.Report(ctx, protocol.Checkup{Secret: secret, Index: 4, Addr: "127.0.0.1"})
	if err != nil || report.Addr == "" || report.Refused != "" || report.Interface != "lo" || report.NoSubreaper != "" {
		t.Fatalf("%+v %v", report, err)
	}
	for _, c := range []struct {
		secret    []byte
		connected bool
	}{{secret, true}, {bytes.Repeat([]byte{8}, 32), false}} {
		connected, err := sockets.Identity{Secret: c.secret, HostIndex: 1}.Exchange(t.Context(), protocol.Peer{Index: 4, Addr: report.Addr})
		if connected != c.connected || (err == nil) != c.connected {
			t.Errorf("secret %d: connected %v, %v", c.secret[0], connected, err)
		}
	}
	failures, err := a.DialPeers(ctx, []protocol.Peer{{Index: 4, Addr: report.Addr}, {Index: 9, Addr: "127.0.0.1:1"}})
	if err != nil || len(failures) != 1 || failures[0].Peer.Index != 9 || failures[0].Connected {
		t.Errorf("%+v %v", failures, err)
	}
	cancel()
	for begun := time.Now(); err == nil && time.Since(begun) < patience.Limit; {
		_, err = sockets.Identity{Secret: secret, HostIndex: 1}.Exchange(t.Context(), protocol.Peer{Index: 4, Addr: report.Addr})
	}
	if err == nil {
		t.Error("it serves after the end")
	}
}
