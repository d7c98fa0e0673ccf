//go:build long

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// silent starts a server that accepts connections but sends nothing, and
// returns its port.
func silent(t *testing.T) int {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() }) // nothing was written
	return ln.Addr().(*net.TCPAddr).Port
}

// inside runs a line of shell on a host.
func inside(t *testing.T, h *testhosts.Host, line string) {
	t.Helper()
	if out, err := h.Command(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
		t.Fatalf("host %s: %s: %v: %s", h.Name, line, err, out)
	}
}

// finds fails the test unless stdout has exactly the wanted lines. Each
// element of want describes a line: its beginning, then words that it must
// contain.
func (b *bench) finds(res result, want [][]string) {
	b.t.Helper()
	lines := strings.Split(strings.TrimSpace(res.stdout), "\n")
	for _, words := range want {
		if !slices.ContainsFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, words[0]) && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		}) {
			b.t.Errorf("no line has %q", words)
		}
	}
	if len(lines) != len(want) || b.t.Failed() {
		b.t.Errorf("%d lines, want %d:\n%s\nstderr:\n%s", len(lines), len(want), res.stdout, res.stderr)
	}
}

// TestDoctor gives every host a different fault. One run of plx doctor finds
// all of them, and prints each in one line.
func TestDoctor(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 9, GPUs: []int{0, 0, 0, 0, 0, 0, 1}})
	config := filepath.Join(b.Home, ".ssh", "config")
	more := fmt.Sprintf("Host silent\n\tHostName 127.0.0.1\n\tPort %d\n\tConnectTimeout 2\nHost refused\n\tHostName 127.0.0.1\n\tPort 1\n", silent(t))
	if err := os.WriteFile(config, []byte(mustRead(t, config)+more), 0o600); err != nil {
		t.Fatal(err)
	}
	h := b.Hosts
	h[1].WrongHostKey()
	h[2].MountHome(testhosts.ReadOnlyHome)
	h[3].MountHome(testhosts.FullHome)
	inside(t, h[4], "mount -t tmpfs -o noexec tmpfs $HOME")
	if err := os.WriteFile(filepath.Join(h[5].HomeDir, ".bashrc"), []byte("echo welcome\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	h[6].SetGPUs(1, "mode mismatch")
	inside(t, h[7], "umount /tmp; mount -t tmpfs -o noexec tmpfs /tmp; prlimit --pid 1 --nofile=500:500")
	inside(t, h[8], "prlimit --pid 1 --nofile=500:500")

	file := b.ResourceFile("h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8", "h9", "silent", "refused")
	res := b.want(125, "doctor", "--hosts", file)
	b.finds(res, [][]string{
		{"error: host h2: ", "host key refused", "ssh-keygen -R"},
		{"error: host h3: the home folder is read-only: ", "; remedy: "},
		{"error: host h4: ", "the home folder's file system ", "plx prune"}, // the text between these words depends on how plx reached h4
		{"error: host h5: programs in ~/.plx cannot be executed: /root is mounted noexec; "},
		{"error: host silent: ", "no connection within 2s"},
		{"error: host refused: connect to 127.0.0.1:1: ", "connection refused"},
		{"error: host h7: ", "Driver/library version mismatch"},
		{"warning: host h6: start-up files"},
		{"warning: host h8: programs in /tmp cannot be executed"},
		{"warning: hosts h[8-9]: a process may open 500 files at most"},
		{"11 hosts: 7 errors, 3 warnings; nothing found on 1"},
		{"between hosts: each dialled the next one and the first, 8 of 20 pairs"},
	})
	if strings.Contains(res.stderr, "could not download plx from each other") { // h4 had no host from which it could download plx
		t.Errorf("stderr:\n%s", res.stderr)
	}

	var d struct{ Findings []struct{ Level string } }
	good := b.want(0, "doctor", "--host", "h1", "--json")
	if err := json.Unmarshal([]byte(good.stdout), &d); err != nil || len(d.Findings) != 0 {
		t.Errorf("%v: %s", err, good.stdout)
	}
	if good := b.want(0, "doctor", "--host", "h1"); good.stdout != "1 host, nothing found\n" {
		t.Errorf("%s%s", good.stdout, good.stderr)
	}
}

// TestDoctorBetweenHosts gives the network between the hosts faults that plx
// cannot observe from the launching machine.
func TestDoctorBetweenHosts(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 4, Second: true})
	h := b.Hosts
	inside(t, h[1], "ip route add unreachable "+h[2].Addr)
	for _, i := range []int{2, 3} { // the hosts send larger packets than the network transmits
		inside(t, h[i], "ip link set dev eth0 mtu 9000; tc qdisc add dev eth0 root tbf rate 1gbit burst 2000 latency 50ms")
	}
	file := b.ResourceFile("h1", "h2", "h3", "h4")
	b.finds(b.want(125, "doctor", "--hosts", file), [][]string{
		{"error: host h2: cannot connect to host h3 at " + h[2].Addr + ":", " for data: ", "no route to host"},
		{"error: host h3: connects to host h4 at " + h[3].Addr + ":", "64 KiB do not arrive: no answer within 6s", "remedy: ", "MTU"},
		{"warning: hosts h[3-4]: the interfaces for data differ in their MTU: 1500 (h[1-2]), 9000 (h[3-4])"},
		{"4 hosts: 2 errors, 1 warning; nothing found on 1"},
		{"between hosts: each dialled the next one and the first, 6 of 12 pairs"},
	})
	b.finds(b.want(125, "doctor", "--hosts", file, "--nic", "eth7"), [][]string{
		{"error: hosts h[1-4]: --nic: no network interface eth7: the host has eth0, eth1, lo; remedy: "},
		{"4 hosts: 1 error"},
	})

	for i, version := range []string{"3.11.2", "3.11.4", "3.9.1"} {
		inside(t, h[i], `printf '#!/bin/sh\necho \"noise\"; echo "plx-imported {\\"python\\": \\"`+version+`\\"}"\n' >/usr/local/bin/python3; chmod 755 /usr/local/bin/python3`)
	}
	inside(t, h[3], `printf '#!/bin/sh\necho broken >&2; exit 5\n' >/usr/local/bin/python3; chmod 755 /usr/local/bin/python3`)
	b.finds(b.want(125, "doctor", "--hosts", file, "--nic", "eth1", "--python"), [][]string{
		{"error: host h4: python3: broken (exit status 5); remedy: "},
		{"warning: host h3: python3 is not the same everywhere: 3.11 (h[1-2]), 3.9 (h3)"},
		{"4 hosts: 1 error, 1 warning; nothing found on 2"},
		{"between hosts: "},
	})
}
