//go:build linux

package agent

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// surveyed starts "agent start" and makes the calls Survey and Probe.
func surveyed(t *testing.T, h *testHost) *line {
	t.Helper()
	l := h.dial("start")
	said := call[protocol.Surveyed](l, protocol.DoSurvey, protocol.Survey{Blobs: map[string]int64{"0123": 4}})
	facts, err := envsync.ReadFacts(said.Facts)
	if err != nil || facts.OS != "linux" || len(said.Has) != 0 {
		t.Errorf("%+v, %v, has %v", facts, err, said.Has)
	}
	gpus := call[gpuprobe.Output](l, protocol.DoProbe, protocol.Probe{})
	if report := gpuprobe.Output(gpus).Report(); report.CPUs == 0 {
		t.Errorf("%+v", report)
	}
	return l
}

// inspected makes what the script makes on a host.
func inspected(t *testing.T, h *testHost) {
	t.Helper()
	plx := filepath.Join(h.home, ".plx")
	name := []byte(strings.Repeat("0a", 16) + "\n")
	if err := errors.Join(os.Mkdir(filepath.Join(plx, "blobs"), 0o700), os.WriteFile(filepath.Join(plx, "fsid"), name, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// One agent process answers the survey and then starts the job.
func TestSurveyBeforeAJob(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1, "exit", "0")
	inspected(t, h)
	l := surveyed(t, h)
	l.send(protocol.Message{Spec: &h.spec})
	l.wait("State", func(m protocol.Message) bool { return m.State != nil })
	go l.renew(h.spec.Lease / 5)
	l.run(0)
	l.exits(1)
	l.end(h, 0)
}

// A launcher that surveys a host without starting a job leaves no process and
// no folder.
func TestSurveyWithoutAJob(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	inspected(t, h)
	l := surveyed(t, h)
	l.conn.Close()
	<-l.ended
	if l.code != 0 || l.stderr.Len() > 0 {
		t.Errorf("exit status %d, %q", l.code, l.stderr)
	}
}

// A home that something is wrong with is the script's.
func TestSurveyOfAHostThatWasNotInspected(t *testing.T) {
	t.Parallel()
	h := newHost(t, 1)
	l := h.dial("start")
	if r := l.call(protocol.DoSurvey, protocol.Survey{}); r.Err == nil {
		t.Error("it answered")
	}
}

// early returns the logs that "agent start" sends for a job with one worker
// that runs args.
func early(t *testing.T, args ...string) []byte {
	t.Helper()
	h := newHost(t, 1, args...)
	h.spec.Logs = true
	l, _ := h.launch()
	l.exits(1)
	l.end(h, 0)
	for range l.in { // to its end
	}
	var all []byte
	for i, part := range l.logged {
		if all = append(all, part.Data...); part.Done != (i == len(l.logged)-1) {
			t.Errorf("part %d of %d: done %v", i, len(l.logged), part.Done)
		}
	}
	return all
}

// The agent itself sends all of a short output. For the rest of a long output,
// the launcher needs a separate command.
func TestEarlyLogs(t *testing.T) {
	t.Parallel()
	for n, whole := range map[string]bool{"1600": true, "1000000": false} {
		all := early(t, "flood", n)
		if len(all) > protocol.EarlyLogs {
			t.Errorf("%s bytes: %d came", n, len(all))
		}
		chunks, lines := logs.NewReader(bytes.NewReader(all)), 0
		c, err := chunks.Next()
		for ; err == nil; c, err = chunks.Next() {
			lines += bytes.Count(c.Data, []byte("\n"))
		}
		if (err == io.EOF) != whole || whole && lines != 100 {
			t.Errorf("%s bytes: %d lines, %v", n, lines, err)
		}
	}
}

// listLocks returns the GPU locks and no other sockets.
func TestListLocks(t *testing.T) {
	t.Parallel()
	for _, name := range []string{protocol.LockPrefix + "of-a-test", "plx-other-of-a-test"} {
		ln, err := net.Listen("unix", "@"+name)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close() // nothing connects
	}
	if list := listLocks(); !strings.Contains(list, "@"+protocol.LockPrefix+"of-a-test\n") || strings.Contains(list, "plx-other") {
		t.Errorf("%q", list)
	}
}
