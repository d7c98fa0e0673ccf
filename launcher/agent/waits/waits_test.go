//go:build linux

package waits

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/protocol"
)

// patience bounds the wait until a process waits as it should.

// await collects what a process waits for, again and again until done accepts
// the result.
func await(t *testing.T, pid int, done func([]protocol.Process) bool) []protocol.Process {
	t.Helper()
	var all []protocol.Process
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		seen, err := Collect([]int{pid})
		if err != nil {
			t.Fatal(err)
		}
		if all = seen[pid]; len(all) > 0 && len(all[0].Threads) > 0 && done(all) {
			return all
		}
	}
	t.Fatalf("after %s: %+v", patience.Limit, all)
	return nil
}

func start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a process group, so that a shell's children are killed too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it may have ended
		cmd.Wait()                                      // it was killed
	})
	return cmd
}

func waitsFor(w protocol.Wait) func([]protocol.Process) bool {
	return func(all []protocol.Process) bool { return all[0].Threads[0].Wait == w }
}

func TestSleeps(t *testing.T) {
	p := await(t, start(t, "sleep", "600").Process.Pid, waitsFor(protocol.Sleeps))[0]
	if p.Name != "sleep" || p.Threads[0].Count != 1 {
		t.Errorf("%+v", p)
	}
}

func TestStopped(t *testing.T) {
	pid := start(t, "sleep", "600").Process.Pid
	await(t, pid, waitsFor(protocol.Sleeps))
	if out, err := exec.Command("kill", "-STOP", strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	await(t, pid, waitsFor(protocol.Stopped))
}

func TestChild(t *testing.T) {
	pid := start(t, "sh", "-c", "sleep 600; true").Process.Pid
	all := await(t, pid, func(all []protocol.Process) bool {
		return len(all) == 2 && all[0].Threads[0].Wait == protocol.OnChild && len(all[1].Threads) > 0 && all[1].Threads[0].Wait == protocol.Sleeps
	})
	if !slices.Equal(all[0].Threads[0].PIDs, []int{all[1].PID}) || all[1].Parent != pid {
		t.Errorf("%+v", all)
	}
}

// A process that writes to a full pipe waits for the process that has the read
// end.
func TestPipe(t *testing.T) {
	pid := start(t, "sh", "-c", "cat /dev/zero | sleep 600").Process.Pid
	all := await(t, pid, func(all []protocol.Process) bool {
		i := slices.IndexFunc(all, func(p protocol.Process) bool {
			return p.Name == "cat" && len(p.Threads) > 0 && p.Threads[0].Wait == protocol.OnWrite
		})
		return i > 0 && len(all) == 3
	})
	for _, p := range all {
		if p.Name == "cat" && len(p.Threads[0].PIDs) != 1 || p.Name == "cat" && !strings.HasPrefix(p.Threads[0].What, "pipe:[") {
			t.Errorf("cat waits for %+v", p.Threads[0])
		}
	}
}

func TestFileLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	holder := start(t, "flock", file, "sleep", "600").Process.Pid
	await(t, holder, func(all []protocol.Process) bool { return len(all) == 2 })
	second := start(t, "flock", file, "true").Process.Pid
	waits := waitsFor(protocol.OnFile)
	// Repeat: Collect reads descriptors and locks before the states of threads,
	// so they may still be those of the starting C library.
	await(t, second, func(all []protocol.Process) bool {
		first := all[0].Threads[0]
		return waits(all) && first.What == file && slices.Equal(first.PIDs, []int{holder})
	})
}

// A process reads from a TCP connection on which it has sent bytes.
func TestSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pid := start(t, "bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; echo hello >&3; read -u 3", ln.Addr().(*net.TCPAddr).Port)).Process.Pid
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	p := await(t, pid, func(all []protocol.Process) bool { return len(all[0].Threads[0].Sockets) == 1 })[0]
	s := p.Sockets[p.Threads[0].Sockets[0]]
	if s.Peer != ln.Addr().String() || s.Listening || s.Unsent != 0 {
		t.Errorf("%+v, want a connection to %s", s, ln.Addr())
	}
	if _, err := conn.Write([]byte("no line")); err != nil {
		t.Fatal(err)
	}
}

// What a Python process waits for, in threads, poll, select and epoll.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	const begin = "import os, select, signal, subprocess, threading\nr, w = os.pipe()\nchild = subprocess.Popen(['sleep', '600'], pass_fds=[w])\nos.close(w)\n"
	for name, c := range map[string]struct {
		text   string
		wait   protocol.Wait
		follow bool
	}{
		"poll":   {"p = select.poll(); p.register(r, select.POLLIN); p.poll()", protocol.OnPoll, true},
		"select": {"select.select([r], [], [])", protocol.OnPoll, true},
		"epoll":  {"e = select.epoll(); e.register(r, select.EPOLLIN); e.poll()", protocol.OnPoll, true},
		"read":   {"os.read(r, 1)", protocol.OnRead, true},
		"lock":   {"l = threading.Lock(); l.acquire(); l.acquire()", protocol.OnLock, false},
		"pause":  {"signal.pause()", protocol.Sleeps, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pid := start(t, python, "-c", begin+c.text).Process.Pid
			all := await(t, pid, func(all []protocol.Process) bool {
				return len(all) == 2 && waitsFor(c.wait)(all) && all[1].Name == "sleep"
			})
			var want []int
			if c.follow {
				want = []int{all[1].PID}
			}
			if !slices.Equal(all[0].Threads[0].PIDs, want) {
				t.Errorf("%+v, want to wait for %v", all[0].Threads[0], want)
			}
		})
	}
}

func TestParseCall(t *testing.T) {
	for text, want := range map[string]int64{
		"": -1, "running\n": -1, "-1 0x7ffe 0x7f\n": -1, "x 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0": -1, "7 zz 0x0 0x0 0x0 0x0 0x0 0x0 0x0": -1,
		"230 0x0 0x1 0x7ffe 0x0 0xffffffff 0x0 0x7ffe 0x7f\n": 230,
	} {
		nr, args, ok := parseCall(text)
		if ok != (want >= 0) || ok && (nr != want || args[1] != 1 || args[4] != 0xffffffff) {
			t.Errorf("%q: %d %x %t", text, nr, args, ok)
		}
	}
}

func TestHolders(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 10 fe:00:1 0 EOF
1: -> POSIX  ADVISORY  WRITE 11 fe:00:1 0 EOF
2: FLOCK  ADVISORY  WRITE 20 fe:00:2 0 EOF
2: -> FLOCK  ADVISORY  WRITE 21 fe:00:2 0 EOF
2: -> FLOCK  ADVISORY  READ  22 fe:00:2 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fe:00:3 0 EOF
3: -> OFDLCK ADVISORY  WRITE 31 fe:00:3 0 EOF
short
`
	for pid, want := range map[int][]int{10: nil, 11: {10}, 22: {20}, 31: nil, 99: nil} {
		if got := holders(locks, pid); !slices.Equal(got, want) {
			t.Errorf("%d waits for %v, want %v", pid, got, want)
		}
	}
}
