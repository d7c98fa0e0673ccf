//go:build long

package e2e

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

// TestHostilePeers attacks the ports of a running job without knowing the
// job's secret, by garbage, recorded proofs and thousands of connections. The
// bits of the training stay the same, memory and file descriptors stay
// bounded, and tasks and agents of the job can still connect.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	program := testhosts.Binary(t, "github.com/plx-run/plx/internal/test/chaos/workload")
	over := filepath.Join(b.shared(), "over")
	flags := []string{"--steps=60", "--digest", "--seed=3", "--virtual-workers=2", "--peer-timeout=1m"}
	want := b.digest(nil, program, append(flags, "--pace=1ms")...)

	recorded := recordProofs(t)
	job := b.detach(append([]string{"--hosts", b.ResourceFile("h1: cpu", "h2: cpu"), "--ps=h1", program, "--pace=5s", "--pace-until=" + over}, flags...)...)
	follow := b.start("logs", "-f", job)
	follow.await(follow.stdout, "step 1 ")
	ports := append(b.ports(0, job), b.ports(1, job)...)
	secret := b.secretOf(b.Hosts[0], job)
	replayed := map[string]int{}
	for _, p := range ports {
		for _, handshake := range recorded()[p.addr] {
			p.replay(t, handshake)
			replayed[p.name]++
		}
		p.garbage(t)
		p.crowd(t, secret)
	}
	for _, name := range []string{"agent:1", "ps:0"} { // the driver has connected to agent:1, and worker:1 to ps:0
		if replayed[name] == 0 {
			t.Errorf("proofs were recorded for %v only", replayed)
		}
	}
	put(t, over, "", 0o644)
	follow.want(0)
	b.want(0, "attach", job)
	if got := digestLine.FindAllString(follow.stdout.String(), -1); len(got) != 1 || got[0] != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if j := b.jobsOf()[job]; j.State != "done" {
		t.Errorf("plx jobs: %+v", j)
	}
	b.hostsGone(patience.Limit)
}

// port is an address on which a process of a job listens.
type port struct {
	name string // name of the task or agent that listens
	addr string
	pid  int // process number, as this machine sees it
}

// ports returns the ports on which processes of a job listen at the address
// that a host uses for data.
func (b *bench) ports(host int, job string) (all []port) {
	b.t.Helper()
	h := b.Hosts[host]
	for _, p := range b.processes(h) {
		name := fmt.Sprintf("agent:%d", host)
		if slices.Contains(p.Environ, "PLX_JOB="+job) {
			name = variable(p, "PLX_ROLE") + ":" + variable(p, "PLX_TASK_INDEX")
		} else if !slices.Contains(p.Args, "agent") {
			continue
		}
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.OuterPID))
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.OuterPID))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			const local, state, inode, listening = 1, 3, 9, "0A"
			if f[state] != listening || !slices.ContainsFunc(links, func(link string) bool {
				to, _ := os.Readlink(link)
				return to == "socket:["+f[inode]+"]"
			}) {
				continue
			}
			ip, number, _ := strings.Cut(f[local], ":")
			n, err := strconv.ParseUint(number, 16, 16)
			raw, bad := hex.DecodeString(ip)
			if err != nil || bad != nil {
				b.t.Fatalf("/proc/net/tcp: %q", line)
			}
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(raw)))), uint16(n))
			if addr.Addr().String() == h.Addr {
				all = append(all, port{name, addr.String(), p.OuterPID})
			}
		}
	}
	return all
}

func variable(p testhosts.Process, name string) string {
	for _, v := range p.Environ {
		if value, found := strings.CutPrefix(v, name+"="); found {
			return value
		}
	}
	return ""
}

// secretOf reads the secret of a job on a host.
func (b *bench) secretOf(h *testhosts.Host, job string) []byte {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	text, err := h.Command(ctx, "sh", "-c", "cat ~/.plx/jobs/"+job+"/*/secret").Output()
	secret, bad := hex.DecodeString(strings.TrimSpace(string(text)))
	if err := errors.Join(err, bad); err != nil {
		b.t.Fatal(err)
	}
	return secret
}

func (p port) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.addr, patience.Limit)
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	conn.SetDeadline(time.Now().Add(patience.Limit))
	return conn
}

// garbage sends bytes that no valid peer sends, and expects the process to
// close the connection.
func (p port) garbage(t *testing.T) {
	t.Helper()
	random := make([]byte, 1<<20)
	rand.Read(random)
	hello := "plx-peer-1\n\x07agent:1\x07agent:0" + strings.Repeat("c", 32)
	for _, said := range []string{
		string(random), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\xff", 600),
		"plx-agent-1\n\xff\xff\xff\xff", strings.Repeat("\xff\xff\xff\xff\xff\xff\xff\x7f", 1000),
		"plx-peer-1\n" + strings.Repeat("\xff", 1000), hello + strings.Repeat("p", 33) + strings.Repeat("\xff", 1<<16),
	} {
		conn := p.dial(t)
		io.WriteString(conn, said) // ignore the error: the process may close the connection before everything is sent
		if got, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || len(got) > 32 {
			t.Errorf("%s: after %.20q it says %d bytes, %v", p.name, said, len(got), err)
		}
		conn.Close()
	}
}

// replay sends the recorded bytes of a task or agent of the job. It expects
// the process to answer with its own fresh nonce and then to close the
// connection.
func (p port) replay(t *testing.T, h handshake) {
	t.Helper()
	conn := p.dial(t)
	defer conn.Close()
	if _, err := conn.Write(h.hello); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 32)); err != nil {
		t.Errorf("%s does not answer %.40q: %v", p.name, h.hello, err)
	}
	conn.Write(h.proof) // ignore the error: the process may have closed the connection
	if n, err := conn.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: a recorded proof is answered: %d bytes, %v", p.name, n, err)
	}
}

const (
	crowded = 2000     // connections at a time
	places  = 512      // number of unauthenticated connections that a process keeps open
	growth  = 32 << 20 // bytes by which a process's memory may grow: more than these connections need
)

// crowd opens thousands of connections, and sends half of a hello message on
// each.
func (p port) crowd(t *testing.T, secret []byte) {
	t.Helper()
	open, memory := p.descriptors(t), p.memory(t)
	mostOpen, mostMemory := open, memory
	look := func() {
		mostOpen, mostMemory = max(mostOpen, p.descriptors(t)), max(mostMemory, p.memory(t))
	}
	var crowd []net.Conn
	for i := range crowded {
		if conn, err := net.DialTimeout("tcp", p.addr, patience.Limit); err == nil { // otherwise the process has refused the connection
			defer conn.Close()
			io.WriteString(conn, "plx-peer-1\n\xff") // ignore the error: the process may have closed the connection
			crowd = append(crowd, conn)
		}
		if i%100 == 0 {
			look()
		}
	}
	for end := time.Now().Add(patience.Limit); mostOpen < open+200; time.Sleep(time.Millisecond) {
		if look(); time.Now().After(end) {
			t.Fatalf("%s at %s has %d descriptors, %d before: it did not take the connections", p.name, p.addr, mostOpen, open)
		}
	}
	var err error
	for end := time.Now().Add(patience.Limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		look()
		if err = p.prove(t, secret); err == nil {
			break
		}
	}
	look()
	if err != nil {
		t.Errorf("%s: a peer with the secret is kept out: %v", p.name, err)
	}
	t.Logf("%s: %d connections: %d descriptors more, %d KiB of memory more", p.name, crowded, mostOpen-open, (mostMemory-memory)>>10)
	if mostOpen > open+places+50 || mostMemory > memory+growth {
		t.Errorf("%s: %d descriptors and %d MiB, before the crowd %d and %d MiB", p.name, mostOpen, mostMemory>>20, open, memory>>20)
	}
	for _, conn := range crowd {
		conn.Close()
	}
	for end := time.Now().Add(patience.Limit); p.descriptors(t) > open+50; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s keeps %d descriptors, %d before", p.name, p.descriptors(t), open)
		}
	}
}

// prove proves that it knows the secret, and requests something that no task
// or agent offers.
func (p port) prove(t *testing.T, secret []byte) error {
	t.Helper()
	conn, err := net.DialTimeout("tcp", p.addr, patience.Limit)
	if err != nil {
		return err
	}
	defer conn.Close()
	self, peer := "worker:1/nothing", p.name+"/nothing"
	if strings.HasPrefix(p.name, "agent:") {
		self, peer = "agent:7", p.name
	}
	_, err = channel.Dial(t.Context(), conn, channel.Config{Key: cluster.PeerKey(secret, 0)}, self, peer)
	return err
}

func (p port) descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	return len(all)
}

// memory returns the resident memory of the process, in bytes.
func (p port) memory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// handshake is what the client of a connection sends to prove that it knows
// the job's secret.
type handshake struct{ hello, proof []byte }

// recordProofs records the handshakes between all test hosts. The returned
// function returns the handshakes recorded so far, by the server's address.
func recordProofs(t *testing.T) func() map[string][]handshake {
	t.Helper()
	all := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		t.Fatal(err)
	}
	const room = 256 << 20 // bytes of buffer for packets that arrive while this process is not scheduled
	if err := errors.Join(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, room)); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[[2]netip.AddrPort]*handshake{}
	next := map[[2]netip.AddrPort]uint32{} // TCP sequence number of the first byte of a proof, by connection
	end, ended := make(chan bool), make(chan bool)
	go func() {
		defer close(ended)
		frame := make([]byte, 1<<17)
		for {
			select {
			case <-end:
				return
			default:
			}
			n, _, err := unix.Recvfrom(fd, frame, 0)
			if err != nil {
				continue // nothing for a moment
			}
			flow, number, payload := segment(frame[:n])
			mu.Lock()
			switch h := seen[flow]; {
			case len(payload) == 0:
			case h == nil && bytes.HasPrefix(payload, []byte("plx-peer-1\n")):
				seen[flow], next[flow] = &handshake{hello: bytes.Clone(payload)}, number+uint32(len(payload))
			case h != nil && h.proof == nil && number == next[flow]:
				h.proof = bytes.Clone(payload)
			}
			mu.Unlock()
		}
	}()
	t.Cleanup(func() { close(end); <-ended; unix.Close(fd) })
	return func() map[string][]handshake {
		mu.Lock()
		defer mu.Unlock()
		whole := map[string][]handshake{}
		for flow, h := range seen {
			if h.proof != nil {
				whole[flow[1].String()] = append(whole[flow[1].String()], *h)
			}
		}
		return whole
	}
}

// segment parses an Ethernet frame with a TCP segment over IPv4. It returns
// both endpoints, the sequence number of the first byte, and the payload.
func segment(frame []byte) (flow [2]netip.AddrPort, number uint32, payload []byte) {
	const ethernet, least, tcp = 14, 20, 6
	if len(frame) < ethernet+2*least || binary.BigEndian.Uint16(frame[12:]) != unix.ETH_P_IP || frame[ethernet+9] != tcp {
		return flow, 0, nil
	}
	ip := frame[ethernet:]
	length, header := int(binary.BigEndian.Uint16(ip[2:])), 4*int(ip[0]&15)
	if length > len(ip) || header+least > length {
		return flow, 0, nil
	}
	segment := ip[header:length]
	flow[0] = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[12:16])), binary.BigEndian.Uint16(segment))
	flow[1] = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[16:20])), binary.BigEndian.Uint16(segment[2:]))
	if header = 4 * int(segment[12]>>4); header > len(segment) {
		return flow, 0, nil
	}
	return flow, binary.BigEndian.Uint32(segment[4:]), segment[header:]
}
