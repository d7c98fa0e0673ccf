package launcher

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/live"
	"github.com/plx-run/plx/launcher/logstream"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
	"github.com/plx-run/plx/trainer/cluster"
)

// From the start of the tasks to the end of the job, plx displays what it
// waits for.
func TestEveryLongPhaseIsDisplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, terminal := range []bool{true, false} {
			var stderr bytes.Buffer
			to := console.Terminal{Stdout: &stderr, Stderr: &stderr, StderrTTY: terminal}
			printer := console.NewPrinter(to)
			d := &drive{line: live.New(nil), launch: &launch{cfg: Config{Program: "python3", Args: []string{"train.py"}, Terminal: to}, printer: printer}}
			for _, name := range []string{"h1", "h2"} {
				host := hosts.NewHost(hostfile.Host{Name: name}, transport.Dialer(nil))
				d.members = append(d.members, &member{drive: d, agent: &hosts.AgentHost{Host: host}})
			}
			d.agents, d.reconnecting = printer.NewHostProgress("starting agents", 2), printer.NewHostProgress("no connection to", 0)
			d.out = logstream.NewOutput(logstream.Config{Printer: printer, Logs: logs.Options{}})
			shows := func(after time.Duration, want string) {
				t.Helper()
				if !terminal { // once, after 2 s
					want = strings.Replace(want, " for 10s", " for 2s", 1)
				}
				time.Sleep(after)
				d.hide()
				if got := stderr.String(); !strings.Contains(got, want) || want == "" && got != "" {
					t.Errorf("terminal %t: %q, want %q", terminal, got, want)
				}
				stderr.Reset()
			}
			d.show(console.Waiting("starting 4 tasks on 2 hosts", d.namesOf(unstarted)))
			d.members[0].Started(protocol.Started{PIDs: map[cluster.Task]int{{Role: cluster.Worker, Index: 0}: 1, {Role: cluster.Worker, Index: 1}: 2}})
			d.members[1].running.Store(2)
			shows(11*time.Second, "starting 4 tasks on 2 hosts: waiting for h2 for 10s")
			d.PhaseChanged(protocol.Running)
			shows(11*time.Second, "the tasks run: waiting for the first line of train (10s)")
			d.PhaseChanged(protocol.Stopping)
			shows(11*time.Second, "ending the tasks: waiting for h[1-2] for 10s")
			d.members[0].Exited(protocol.Exit{})
			d.members[0].Exited(protocol.Exit{})
			d.PhaseChanged(protocol.Stopping)
			shows(11*time.Second, "ending the tasks: waiting for h2 for 10s")
			d.members[0].Made(protocol.FileCounts{})
			d.PhaseChanged(protocol.Over)
			shows(11*time.Second, "ending the agents: waiting for h2 for 10s")
			d.PhaseChanged(protocol.Idle)
			d.PhaseChanged(protocol.Ready)
			shows(11*time.Second, "starting the tasks: waiting for h[1-2] for 10s")
		}
	})
}

// A task that has exited with status 0 is not counted as missing; a failed one
// is.
func TestFinishedTasksAreNotExpectedToRun(t *testing.T) {
	d := &drive{line: live.New(nil)}
	d.line.Update(func(s *live.State) { s.Doing = "running" })
	m := &member{drive: d, agent: &hosts.AgentHost{Host: hosts.NewHost(hostfile.Host{Name: "h1"}, nil)}}
	m.Started(protocol.Started{PIDs: map[cluster.Task]int{{Role: cluster.Worker, Index: 0}: 1, {Role: cluster.Worker, Index: 1}: 2, {Role: cluster.Worker, Index: 2}: 3}})
	for _, c := range []struct {
		code int
		want string
	}{{0, "2 tasks"}, {1, "1 of 2 tasks"}} {
		m.Exited(protocol.Exit{Code: c.code})
		if parts := d.line.Parts(false); len(parts) != 2 || parts[1] != c.want {
			t.Errorf("after exit status %d: %q, want %s", c.code, parts, c.want)
		}
	}
}
