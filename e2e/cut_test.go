//go:build long

package e2e

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/patience"
	"github.com/plx-run/plx/internal/testhosts"
)

// flood is a job of two hosts in the middle of a flood of output.
type flood struct {
	*running
	b    *bench
	kept string // the log folder
	stop string // once there is such a file, the tasks end
}

// startFlood starts it: about 1.5 MB/s of numbers from each task, none twice.
func startFlood(b *bench, more ...string) *flood {
	b.t.Helper()
	f := &flood{b: b, kept: b.t.TempDir(), stop: filepath.Join(b.shared(), "stop")}
	task := b.script("flood", "i=0\nwhile [ ! -e "+f.stop+" ]; do seq $i $((i+19999)); i=$((i+20000)); sleep 0.1; done\n")
	args := append([]string{"launch", "--hosts", b.ResourceFile(), "--ps", "none", "--log-dir", f.kept}, more...)
	f.running = b.start(append(args, task)...)
	f.flows()
	return f
}

// flows waits until another MiB has come from each task.
func (f *flood) flows() {
	f.t.Helper()
	for i := range f.b.Hosts {
		path := f.file(i)
		more := length(path) + 1<<20
		f.until(path+" grows", func() bool { return length(path) > more })
	}
}

func (f *flood) file(i int) string { return filepath.Join(f.kept, fmt.Sprintf("worker-%d.stdout", i)) }

// end ends the tasks and compares what was received with the hosts' spools.
func (f *flood) end() result {
	f.t.Helper()
	if err := os.WriteFile(f.stop, nil, 0o644); err != nil {
		f.t.Fatal(err)
	}
	res := f.want(0)
	for i, h := range f.b.Hosts {
		received := f.file(i)
		spooled := f.b.spool(h, filepath.Base(received))
		if got, want := hash(f.t, received), hash(f.t, spooled); got != want {
			f.t.Errorf("%s: received %d bytes with hash %s, the spool has %d with %s", h.Name, length(received), got, length(spooled), want)
		}
	}
	f.b.hostsGone(0)
	return res
}

// TestNetworkCut takes the link of one host away for 8 s, which TCP tolerates, and
// that of another until plx gives its SSH connection up for silence and replaces it.
// Not a byte may be lost.
func TestNetworkCut(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	f := startFlood(b, "--lease", "60s")
	// TCP sends again 6 s, 13 s and 25 s after the cut: the last would be too late.
	healedFirst := b.Hosts[0].CutFor(8 * time.Second)
	b.Hosts[1].Cut()
	f.await(f.stderr, "host h2: connection lost")
	<-healedFirst
	b.Hosts[1].Heal()
	healed := time.Now()
	f.flows()
	b.took("until both flowed again", healed, patience.Limit)
	res := f.end()
	b.says(res, "host h2: connection lost")
	b.says(res, "host h2: connected")
	if strings.Contains(res.stderr, "host h1: connection lost") {
		t.Errorf("8 s are no reason to give a connection up:\n%s", res.stderr)
	}
}

// TestConnectionKilled kills what serves a connection on a host: first the SSH
// server's process, then plx's own on the next connection.
func TestConnectionKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	h2 := b.Hosts[1]
	f := startFlood(b, "--lease", lease.String())
	for _, p := range b.processes(h2) {
		if p.Server && p.PID != 1 {
			b.kill(p)
		}
	}
	f.await(f.stderr, "host h2: connected")
	f.flows()
	b.kill(b.process(h2, "agent connect"))
	b.kill(b.process(h2, "agent logs"))
	f.until("it has connected twice", func() bool { return strings.Count(f.stderr.String(), "host h2: connected") >= 2 })
	f.flows()
	f.end()
}

func length(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func hash(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}
