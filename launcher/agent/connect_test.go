//go:build linux

package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

func TestNewDriverReplacesTheOld(t *testing.T) {
	h, old, _ := ready(t, "wait")
	l, state := h.attach(true)
	if state.Phase != protocol.Running || state.Tasks["worker:0"].PID == 0 {
		t.Errorf("state %+v", state)
	}
	old.closed()
	select {
	case <-old.ended:
		t.Error("the watchdog ended with its first driver")
	default:
	}
	l.end(h, time.Second)
}

func TestReconnectedDriverGetsTheCurrentState(t *testing.T) {
	h := newHost(t, 2, "native", "deaf")
	old, pids := h.launch()
	h.greets(0)
	h.prints("worker-1.stdout", "ready")
	old.leave()
	kill(t, pids[worker(1)])
	h.exitOf(worker(1))
	l, state := h.attach(true)
	if e := state.Tasks["worker:1"].Exit; e == nil || e.Signal != int(unix.SIGKILL) {
		t.Errorf("exit %+v", e)
	}
	if now := state.Tasks["worker:0"]; now.Exit != nil || !now.Native || now.PID != pids[worker(0)] {
		t.Errorf("worker:0 %+v", now)
	}
	// If the driver repeats a request, the agent repeats its reply and starts
	// no task twice.
	l.send(protocol.Message{Start: &protocol.Start{}})
	again := l.wait("Started", func(m protocol.Message) bool { return m.Started != nil }).Started.PIDs
	if again[worker(0)] != pids[worker(0)] {
		t.Errorf("started again: %v, %v before", again, pids)
	}
	l.end(h, time.Second)
}

func TestVisitorSeesChangesAndAsksToStop(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, _ := h.start()
	go l.renew(time.Second)
	v, state := h.attach(false)
	if state.Phase != protocol.Idle {
		t.Errorf("phase %s", state.Phase)
	}
	l.run(0)
	v.wait("Running", func(m protocol.Message) bool { return m.State != nil && m.State.Phase == protocol.Running })
	v.send(protocol.Message{End: &protocol.End{}}) // the agent ignores this message from a visitor
	v.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Second, Reason: "stopped by alice", Code: 143}})
	ask := l.wait("StopAsk", func(m protocol.Message) bool { return m.StopAsk != nil }).StopAsk
	if ask.Reason != "stopped by alice" || ask.Code != 143 {
		t.Errorf("%+v", ask)
	}
	l.end(h, time.Second)
	v.gone(h)
}

func TestVisitorStopsJobWithoutDriver(t *testing.T) {
	h, l, _ := ready(t, "wait")
	l.leave()
	v, _ := h.attach(false)
	v.send(protocol.Message{Stop: &protocol.Stop{Grace: time.Second, Reason: "stopped by alice", Code: 143}})
	state := v.gone(h)
	if state.Verdict.Code != 143 || state.Verdict.Reason != "stopped by alice" {
		t.Errorf("verdict %+v", state.Verdict)
	}
}

func TestAgentDoesNotWaitForADisconnectedVisitor(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, _ := h.launch()
	v, _ := h.attach(false)
	begun := time.Now()
	v.conn.Close()
	<-v.ended
	if d := time.Since(begun); d > patience.Limit || v.code != 0 {
		t.Errorf("the relay took %s, exit status %d", d, v.code)
	}
	l.end(h, time.Second)
}

func TestConnectFailsWithoutAgent(t *testing.T) {
	h := newHost(t, 1, "wait")
	for do, want := range map[protocol.Method]protocol.Code{protocol.DoConnect: protocol.CodeNoAgent, protocol.DoState: protocol.CodeForgotten} {
		if err := h.ask(do).Err; err == nil || err.Code != want || err.Text == "" {
			t.Errorf("%s of an unknown job: %+v", do, err)
		}
	}
	l := h.dial("start")
	for _, do := range []protocol.Method{protocol.DoConnect, protocol.DoState, protocol.DoReap, protocol.DoDiscard} {
		for _, of := range []protocol.HostJob{{}, {Job: "../x", Folder: "y"}, {Job: h.spec.Job, Folder: ".."}} {
			if err := l.call(do, of).Err; err == nil || err.Code != "" {
				t.Errorf("%s of %+v: %+v", do, of, err)
			}
		}
	}
	if _, stderr, code := h.agent("logs", "a/b", "c"); code != codeFailed {
		t.Errorf("logs: exit status %d, %q", code, stderr)
	}
	if _, _, code := h.agent("dance"); code != codeUsage {
		t.Errorf("unknown subcommand: exit status %d", code)
	}
}

func TestInvalidMessagesDoNotAffectTheJob(t *testing.T) {
	h := newHost(t, 1, "wait")
	l, state := h.start()
	go l.renew(time.Second)
	l.run(0)
	h.prints("worker-0.stdout", "ready")
	junk := make([]byte, 64<<10)
	rand.Read(junk)
	frame := append([]byte("plx-agent-1\n"), 0xff, 0xff, 0xff, 0xff)
	for _, place := range []struct{ network, addr string }{{"tcp", state.Addr}, {"unix", state.Socket}} {
		for _, bytes := range [][]byte{nil, junk, []byte("GET / HTTP/1.1\r\n\r\n"), []byte("plx-peer-1\n"), frame, append(frame[:12:12], "\x02\x00\x00\x00{}"...)} {
			conn, err := net.Dial(place.network, place.addr)
			if err != nil {
				t.Fatal(err)
			}
			conn.SetDeadline(time.Now().Add(patience.Limit))
			conn.Write(bytes) // refused early, perhaps
			if c, ok := conn.(interface{ CloseWrite() error }); ok {
				c.CloseWrite()
			}
			if got, err := io.ReadAll(conn); os.IsTimeout(err) {
				t.Errorf("%s: still open, said %q", place.network, got)
			}
			conn.Close()
		}
	}
	if s, _ := h.folder().ReadState(); s.Phase != protocol.Running {
		t.Errorf("phase %s", s.Phase)
	}
	l.end(h, time.Second)
}

func TestCheckReportsUnreachableHosts(t *testing.T) {
	a, b, stranger := newHost(t, 1, "wait"), newHost(t, 1, "wait"), newHost(t, 1, "wait")
	b.spec.HostIndex, stranger.spec.HostIndex = 1, 2
	stranger.spec.Secret = bytes.Repeat([]byte{9}, cluster.SecretSize)
	la, _ := a.start()
	lb, sb := b.start()
	ls, ss := stranger.start()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := free.Addr().String()
	free.Close()
	la.send(protocol.Message{Check: &protocol.Check{Peers: []protocol.Peer{
		{Index: 0, Host: "self"}, {Index: 1, Host: "b", Addr: sb.Addr}, {Index: 3, Host: "other", Addr: sb.Addr},
		{Index: 2, Host: "stranger", Addr: ss.Addr}, {Index: 4, Host: "nobody", Addr: nobody},
	}}})
	checked := la.wait("Checked", func(m protocol.Message) bool { return m.Checked != nil }).Checked
	failed := []string{}
	for _, f := range checked.Failures {
		failed = append(failed, f.Peer.Host)
		if f.Cause == "" {
			t.Errorf("%s: no cause", f.Peer.Host)
		}
	}
	slices.Sort(failed)
	if want := []string{"nobody", "other", "stranger"}; !slices.Equal(failed, want) {
		t.Errorf("failed %v, want %v", failed, want)
	}
	la.end(a, 0)
	lb.end(b, 0)
	ls.end(stranger, 0)
}

func TestDriverOnAnotherHost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	h := newHost(t, 1, "exit", "4")
	l, state := h.start()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	raw, err := sockets.Identity{Secret: h.spec.Secret, HostIndex: 5}.Dial(ctx, protocol.Peer{Addr: state.Addr})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := sockets.Open(ctx, raw)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Send(protocol.Message{Attach: &protocol.Attach{Driver: true}}); err != nil {
		t.Fatal(err)
	}
	if m, err := conn.Receive(); err != nil || m.State == nil {
		t.Fatalf("%+v, %v, want State", m, err)
	}
	l.closed() // replaced
	if err := conn.Send(protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Code: 4, Reason: "over TCP"}}}); err != nil {
		t.Fatal(err)
	}
	var last protocol.State
	for {
		m, err := conn.Receive()
		if err != nil {
			if err != io.EOF {
				t.Errorf("the stream ended with %v", err)
			}
			break
		}
		if m.State != nil {
			last = *m.State
		}
	}
	if last.Phase != protocol.Over || last.Verdict.Reason != "over TCP" {
		t.Errorf("the last state was %+v", last)
	}
	eventually(t, "nothing is left", func() bool {
		left, err := process.OfJob(h.spec.Job, "")
		return err == nil && len(left) == 0
	})
}

func TestSocketsThatCannotBeOpened(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*protocol.Spec)
		want []string
	}{
		"not this host's address": {func(s *protocol.Spec) { s.DataAddr = "192.0.2.7" }, []string{"192.0.2.7 is not an address of this host", "addr=", "127.0.0.1"}},
		"a name":                  {func(s *protocol.Spec) { s.DataAddr = "gpu01" }, []string{"gpu01", "IP address"}},
		"range too small":         {func(s *protocol.Spec) { s.PortLow, s.PortHigh = 47010, 47011 }, []string{"47010-47011", "--port-range"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, 1, "wait")
			test.edit(&h.spec)
			l, _ := h.start()
			p := l.ask(0, h.spec.Tasks)
			for _, part := range test.want {
				if !strings.Contains(p.Error, part) {
					t.Errorf("error %q does not say %q", p.Error, part)
				}
			}
			l.end(h, 0)
		})
	}
}

func TestPortsAreInTheConfiguredRange(t *testing.T) {
	h := newHost(t, 2, "wait")
	h.spec.PortLow = freePorts(t, 5) // a range of exactly five ports, which is enough
	h.spec.PortHigh = h.spec.PortLow + 4
	l, state := h.start()
	open, reserved := l.prepare(0)
	seen := map[string]bool{}
	for _, addr := range append(append([]string{state.Addr}, open.Worker...), reserved.Worker...) {
		_, port, err := net.SplitHostPort(addr)
		n, _ := strconv.Atoi(port)
		if err != nil || n < h.spec.PortLow || n > h.spec.PortHigh || seen[port] {
			t.Errorf("address %s, %v", addr, err)
		}
		seen[port] = true
	}
	l.end(h, 0)
}

// freePorts returns the first of n consecutive free ports, below the range
// from which the kernel chooses ports.
func freePorts(t *testing.T, n int) int {
	t.Helper()
	for low := 20000; low < 30000; low += n {
		free := 0
		for port := low; port < low+n; port++ {
			if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				ln.Close()
				free++
			}
		}
		if free == n {
			return low
		}
	}
	t.Fatal("no free ports")
	return 0
}
