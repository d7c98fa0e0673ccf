package testhosts

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
)

func TestSFTPServers(t *testing.T) {
	for _, external := range []bool{false, true} {
		t.Run(fmt.Sprintf("external=%v", external), func(t *testing.T) {
			c := Start(t, Options{Hosts: 1, ExternalSFTP: external, NoisyRC: true})
			in := func(name string) string { return filepath.Join(c.Home, ".ssh", name) }
			cmd := exec.CommandContext(bounded(t), "sftp", "-b", "-", "-F", in("config"), "-i", in("id_ed25519"),
				"-o", "UserKnownHostsFile="+in("known_hosts"), "h1")
			cmd.Stdin = strings.NewReader("mkdir made\n")
			out, err := cmd.CombinedOutput()
			if external == (err == nil) {
				t.Errorf("sftp past a noisy rc file: %v: %s", err, out)
			}
		})
	}
}

func TestShape(t *testing.T) {
	c := Start(t, Options{Hosts: 1, Rate: "8mbit"})
	h := c.Hosts[0]
	const megabyte = 1 << 20
	for _, test := range []struct {
		name string
		run  func() error
	}{
		{"from", func() error {
			return c.SSH(bounded(t), h, fmt.Sprintf("head -c %d /dev/zero", megabyte)).Run()
		}},
		{"to", func() error {
			cmd := c.SSH(bounded(t), h, "cat >/dev/null")
			cmd.Stdin = bytes.NewReader(make([]byte, megabyte))
			return cmd.Run()
		}},
	} {
		start := time.Now()
		if err := test.run(); err != nil {
			t.Fatal(err)
		}
		// Sending 1 MiB at 1 MB/s takes a second, less the burst that the
		// limit allows.
		if took := time.Since(start); took < 700*time.Millisecond {
			t.Errorf("1 MiB %s the host at 8 Mbit/s took %v", test.name, took)
		}
	}
	h.Shape("")
	if out, err := exec.Command("tc", "qdisc", "show", "dev", h.link.name).Output(); err != nil || bytes.Contains(out, []byte("tbf")) {
		t.Errorf("a limit is left: %v: %s", err, out)
	}
}

func TestTwoClustersLeaveNothingBehind(t *testing.T) {
	require(t)
	var clusters [2]*Cluster
	for i := range clusters {
		c, err := Open(Options{Hosts: 2}, t)
		if err != nil {
			t.Fatal(err)
		}
		clusters[i] = c
	}
	a, b := clusters[0], clusters[1]
	if a.Hosts[0].Addr == b.Hosts[0].Addr {
		t.Fatal("two hosts have one address")
	}
	mustSSH(t, b, b.Hosts[0], "sleep 1003 >/dev/null 2>&1 </dev/null &")
	ofA, ofB := belongingsOf(t, a.net), belongingsOf(t, b.net)
	processes, err := b.Hosts[0].Processes()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("close, time %d: %v", i+1, err)
		}
	}
	mustSSH(t, a, a.Hosts[1], "true")
	ofB.assertGone(t)
	for _, p := range processes {
		if start, err := startTime(outside(p.OuterPID)); err == nil && start == p.start {
			t.Errorf("%v is left", p)
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	ofA.assertGone(t)
}

// belongings identifies everything that a cluster has created, so that it is
// not confused with things of a later cluster with the same number.
type belongings struct {
	links  []net.Interface
	marker string
}

func belongingsOf(t *testing.T, n *network) belongings {
	t.Helper()
	links, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	has := belongings{marker: filepath.Join(n.dir, newUUID())}
	if err := os.WriteFile(has.marker, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if link.Name == n.bridge() || strings.HasPrefix(link.Name, n.bridge()+"h") {
			has.links = append(has.links, link)
		}
	}
	if len(has.links) != 3 {
		t.Fatalf("links of a cluster of two: %v", has.links)
	}
	return has
}

func (b belongings) assertGone(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(b.marker); err == nil {
		t.Errorf("%s is left", filepath.Dir(b.marker))
	}
	for _, link := range b.links {
		if _, err := net.InterfaceByIndex(link.Index); err == nil {
			t.Errorf("link %s is left", link.Name)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || bytes.Contains(mounts, []byte(stateDir)) {
		t.Errorf("mounts are left: %v: %s", err, mounts)
	}
}

// TestKilledOwner kills a process that owns a cluster. The kernel must kill
// the hosts, and the next cluster must remove the rest.
func TestKilledOwner(t *testing.T) {
	require(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, Binary(t, "./cmd/plxhosts"), "-n", "2")
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var home string
	if _, err := fmt.Fscanf(out, "export HOME=%s\n", &home); err != nil {
		t.Fatal(err)
	}
	var number int
	dir := filepath.Dir(home)
	if _, err := fmt.Sscanf(filepath.Base(dir), "net-%d", &number); err != nil {
		t.Fatalf("home %s: %v", home, err)
	}
	pids, err := os.ReadFile(filepath.Join(dir, "pids"))
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	for line := range strings.Lines(string(pids)) {
		var pid int
		var start string
		if _, err := fmt.Sscanf(line, "%d %s", &pid, &start); err != nil {
			t.Fatal(err)
		}
		eventually(t, "process 1 dies with its owner", func() bool {
			now, err := startTime(outside(pid))
			return err != nil || now != start
		})
	}
	Start(t, Options{Hosts: 1})
	// Another test process may have reserved the number again, but the old
	// files must be gone.
	if text, err := os.ReadFile(filepath.Join(dir, "pids")); err == nil && bytes.Equal(text, pids) {
		t.Errorf("the files of cluster %d are left", number)
	}
}

func TestBinary(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	program := Binary(t, "./cmd/plxhosts")
	if again := Binary(t, "./cmd/plxhosts"); again != program {
		t.Errorf("two builds: %s and %s", program, again)
	}
	fresh, err := build("github.com/plx-run/plx/internal/test/testhosts/cmd/plxhosts")
	if err != nil || fresh != program {
		t.Errorf("built anew: %s, %v; was %s", fresh, err, program)
	}
	if err := exec.Command(program, "-help").Run(); err != nil {
		t.Errorf("run %s: %v", program, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"no hosts":  {},
		"too many":  {Hosts: 201},
		"more GPUs": {Hosts: 1, GPUs: []int{1, 1}},
	} {
		if _, err := Open(o, t); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}
