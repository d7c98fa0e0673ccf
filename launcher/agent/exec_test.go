//go:build linux

package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// marked is the job and folder that mark the processes of the tests' commands.
var marked = protocol.HostJob{Job: "exec-test", Folder: "gpu01"}

// runs sends a request to run a shell script, and returns the number of the
// call.
func (l *line) runs(script string) uint64 {
	l.t.Helper()
	l.asked++
	l.send(protocol.Message{Call: &protocol.Call{ID: l.asked, Do: protocol.DoExec, In: encode(l.t, protocol.ExecRequest{
		Mark: marked, Command: protocol.Command{Name: "sh", Args: []protocol.Raw{"-c", protocol.Raw(script)}}, Lease: time.Hour, Grace: 300 * time.Millisecond})}})
	return l.asked
}

// ran waits for the end of a command, and returns its output by stream and the
// reply.
func (l *line) ran() (out [3]string, r protocol.Reply) {
	l.t.Helper()
	r = *l.wait("Reply", func(m protocol.Message) bool {
		if m.Piece != nil {
			out[m.Piece.Stream] += string(m.Piece.Data)
		}
		return m.Reply != nil
	}).Reply
	return out, r
}

// An agent runs several commands in sequence, and can start a job after them.
func TestExecBeforeAJob(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1, "exit", "0")
	l := h.dial("start")
	for range 2 {
		l.runs("echo out; echo err >&2; setsid sleep 1000 >/dev/null 2>&1 & exit 3")
		out, r := l.ran()
		if out[1] != "out\n" || !strings.HasPrefix(out[2], "err\n") || !strings.Contains(out[2], "left processes in the background") || string(r.Out) != `{"status":3}` {
			t.Errorf("%q, %+v", out, r)
		}
		call[gpuprobe.Output](l, protocol.DoProbe, protocol.Probe{ToolTime: patience.Limit}) // it starts programs itself
	}
	l.send(protocol.Message{Spec: &h.spec})
	l.wait("State", func(m protocol.Message) bool { return m.State != nil })
	l.end(h, 0)
}

// No process of a command is left after one of its two agent processes was
// killed or its launcher has disconnected.
func TestExecLeavesNoProcess(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, l *line, runner int){
		"order": func(_ *testing.T, l *line, _ int) {
			l.send(protocol.Message{Order: &protocol.Order{ID: 1, Data: []byte{protocol.ExecKill}}})
		},
		"runner":       func(t *testing.T, _ *line, runner int) { kill(t, runner) },
		"agent":        func(t *testing.T, l *line, _ int) { kill(t, l.cmd.Process.Pid) },
		"the launcher": func(_ *testing.T, l *line, _ int) { l.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1)
			l := h.dial("start")
			pids := filepath.Join(t.TempDir(), "pids")
			l.runs("trap 'exit 0' TERM; env -i setsid sleep 1000 & echo $$ $! $PPID >" + pids + "; mv " + pids + " " + pids + ".whole; wait")
			var all []string
			eventually(t, "the command runs", func() bool {
				text, err := os.ReadFile(pids + ".whole")
				all = strings.Fields(string(text))
				return err == nil
			})
			var living []process.Process
			for _, text := range all {
				pid, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				p, err := process.Read(pid)
				if err != nil {
					t.Fatal(err)
				}
				living = append(living, p)
			}
			if left, err := process.OfJob(marked.Job, ""); err != nil || len(left) < 2 {
				t.Errorf("%d processes are marked, %v", len(left), err)
			}
			end(t, l, living[2].PID)
			switch name {
			case "order":
				if _, r := l.ran(); string(r.Out) != `{"status":137}` {
					t.Errorf("%+v", r)
				}
			case "runner":
				if _, r := l.ran(); r.Err == nil || r.Err.Code != protocol.CodeKilled {
					t.Errorf("%+v", r)
				}
			}
			eventually(t, "nothing is left", func() bool {
				for _, p := range living {
					if process.Alive(p.PID, p.Start) {
						return false
					}
				}
				return true
			})
		})
	}
}
