//go:build long

package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// Without encryption, everybody on the network between the hosts can read what
// tasks send; with encryption nobody can. The bits of the training are the
// same. Agents also encrypt what the driver of a detached job sends.
func TestTLS(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	train := []string{program, "--niters=20", "--digest", "--seed=3", "--virtual-workers=2"}
	launch := append([]string{"launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu")}, "--ps=h1")
	hosts := [2]string{b.Hosts[0].Addr, b.Hosts[1].Addr}
	run := func(flags ...string) string {
		return digestLine.FindString(b.want(0, append(append(launch, flags...), train...)...).stdout)
	}

	seen := listen(t, hosts, `"variables":`)
	want := run()
	if seen() == 0 {
		t.Fatal("the declaration of a job that is not encrypted was not seen: the test listens at a wrong place")
	}
	seen = listen(t, hosts, `"variables":`)
	if got := run("--tls"); got == "" || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := seen(); n > 0 {
		t.Errorf("the declaration of an encrypted job was seen %d times", n)
	}

	const agents = "plx-agent-1" // opens the agents' protocol
	for _, encrypted := range []bool{false, true} {
		seen := listen(t, hosts, agents)
		flags := append(launch, "--detach")
		if encrypted {
			flags = append(flags, "--tls")
		}
		job := strings.TrimSpace(b.want(0, append(flags, "sleep", "0.1")...).stdout)
		b.want(0, "attach", "--hosts", launch[2], job)
		if n := seen(); (n > 0) == encrypted {
			t.Errorf("encrypted %v: the agents' protocol was seen %d times", encrypted, n)
		}
	}
	b.hostsGone(0)
}

// For a program without plx's trainer, plx prints that the program's own
// traffic is not encrypted.
func TestTLSOfForeignPrograms(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 1})
	res := b.want(0, "launch", "--hosts", b.ResourceFile("h1: cpu"), "--tls", "true")
	if !strings.Contains(res.stderr, "--tls does not encrypt what the tasks of true send each other") {
		t.Error(res.stderr)
	}
}

// A bit that changes on the network between two hosts ends the job. The error
// names both tasks.
func TestChangedOnItsWay(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	program := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp", "-tags=failpoint")
	res := b.run("launch", "--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--ps=h1", "--setup", `export PLX_FAILPOINTS="channel.change=error@5"`,
		program, "--niters=2000")
	if res.code == 0 {
		t.Fatalf("the job is done:\n%s", res.stderr)
	}
	said := strings.TrimSpace(res.stderr)
	verdict := said[strings.LastIndex(said, "\n")+1:]
	if !strings.Contains(verdict, "what worker:0 sent to worker:1 was changed on its way") &&
		!strings.Contains(verdict, "what worker:1 sent to worker:0 was changed on its way") {
		t.Errorf("the verdict does not name the tasks:\n%s", said)
	}
	b.hostsGone(0)
}

// listen counts the packets between two hosts that contain text, until the
// returned function is called.
func listen(t *testing.T, hosts [2]string, text string) (stop func() int) {
	t.Helper()
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0) // no packet before Bind
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}); err != nil {
		t.Fatal(err)
	}
	// The kernel drops packets that do not fit into the socket's buffer. So
	// the filter admits only packets of these two hosts, and the buffer is
	// large enough for all of them.
	if err := errors.Join(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20),
		unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, between(hosts)),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all})); err != nil {
		t.Fatal(err)
	}
	var ending atomic.Bool
	count := make(chan int, 1)
	go func() {
		n, frame := 0, make([]byte, 1<<17)
		for {
			size, _, err := unix.Recvfrom(fd, frame, 0)
			if err != nil && ending.Load() {
				break // no packets are left to read
			}
			if err == nil && bytes.Contains(frame[:size], []byte(text)) {
				n++
			}
		}
		count <- n
	}()
	stop = func() int {
		ending.Store(true)
		defer unix.Close(fd)
		seen := <-count
		if stats, err := unix.GetsockoptTpacketStats(fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || stats.Drops > 0 {
			t.Errorf("the kernel has dropped %d packets that the test was to see (%v)", stats.Drops, err)
		}
		return seen
	}
	t.Cleanup(func() {
		if !ending.Load() {
			stop()
		}
	})
	return stop
}

// between returns a packet filter that admits only IPv4 packets between two
// hosts.
func between(hosts [2]string) *unix.SockFprog {
	const from, to = 26, 30 // offsets of the addresses of an IPv4 packet after an Ethernet header
	address := func(i int) uint32 {
		four := netip.MustParseAddr(hosts[i]).As4()
		return binary.BigEndian.Uint32(four[:])
	}
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	// equal skips yes instructions if the word is that of a host, else no.
	equal := func(host int, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: address(host), Jt: yes, Jf: no}
	}
	filter := []unix.SockFilter{
		load(from), equal(0, 0, 2), load(to), equal(1, 4, 3),
		equal(1, 0, 2), load(to), equal(0, 1, 0),
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1<<32 - 1},
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}
