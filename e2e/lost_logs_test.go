//go:build long

package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// TestLogsThroughLostConnections kills the sshd process of one host's
// connection while plx logs -f, plx attach and plx logs print many lines. They
// must print exactly the bytes that the hosts have stored.
func TestLogsThroughLostConnections(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2})
	dir := b.shared()
	job := b.detach("--hosts", b.ResourceFile(), "--ps", "none", "--lease", lease.String(), b.script("flood", `echo up
while [ ! -e `+dir+`/go ]; do sleep 0.05; done
i=0 n=2000
while [ ! -e `+dir+`/end ]; do
	seq -f "%0120.0f of worker:$PLX_RANK" $i $((i+n-1)); i=$((i+n)); sleep 0.1
	[ $i -lt 80000 ] || n=100 # enough is there: who reads it on a busy machine shall reach the end
done
printf 'no newline at the end'
`))
	readers := []*reader{b.read("logs", "-f", job), b.read("attach", job)}
	put(t, filepath.Join(dir, "go"), "", 0o644)
	for _, r := range readers {
		r.flows()
		r.lose()
		r.flows()
	}
	spool := b.spool(b.Hosts[1], "worker-1.stdout")
	readers[0].until("the spool is larger than what is sent ahead", func() bool { return length(spool) > 6<<20 })
	t.Run("plx logs while it runs", func(t *testing.T) { testLogsThroughLoss(b.in(t), job, length(spool)) })
	put(t, filepath.Join(dir, "end"), "", 0o644)
	for _, r := range readers {
		t.Run("plx "+r.args[0], func(t *testing.T) {
			r.t, r.b = t, b.in(t)
			r.want(0)
			for i := range b.Hosts {
				same(t, "what was received", append(r.kept(i), '\n'), r.received(i))
			}
		})
	}
	b.hostsGone(patience.Limit)
	t.Run("plx logs after it ended", func(t *testing.T) { testLogsThroughLoss(b.in(t), job, length(spool)+1) })
	t.Run("a host that stays away", func(t *testing.T) { testHostStaysAway(b.in(t), job) })
}

// testLogsThroughLoss breaks a connection of plx logs while at least this
// number of bytes of the second host is still to come.
func testLogsThroughLoss(b *bench, job string, least int64) {
	r := b.pause("logs", job)
	r.lose()
	r.goOn()
	r.want(0)
	for i, h := range b.Hosts {
		got, kept := r.received(i), append(r.kept(i), '\n')
		if i == 1 && int64(len(got)) < least {
			b.t.Errorf("%d bytes of %s, it had %d", len(got), h.Name, least)
		}
		if cut := len(got) - 1; len(got) < len(kept) && kept[cut] != '\n' {
			kept[cut] = '\n' // ends the line that was being written at that moment
		}
		same(b.t, "what was received of "+h.Name, kept[:min(len(got), len(kept))], got)
	}
}

// testHostStaysAway powers a host off during plx logs, and before plx logs.
func testHostStaysAway(b *bench, job string) {
	h2, advice := b.Hosts[1], "plx logs "+job+" --host h2"
	r := b.pause("logs", job)
	r.lose() // otherwise plx would notice the loss only after a long time without data
	h2.PowerOff()
	r.goOn()
	lost := time.Now()
	res := r.want(125)
	b.took("to give the host up", lost, lease+patience.Limit) // plx treats a connection without data as lost after 20 to 25 s
	b.says(res, "host h2: logs: out of reach for ")           // a new connection, perhaps, that was there before it went down
	b.says(res, "hint: ", advice)
	same(b.t, "what was received of the other host", append(r.kept(0), '\n'), r.received(0))

	res = b.want(125, "logs", "--tail", "1", job)
	b.says(res, "host h2: logs: connect to "+h2.Addr)
	b.says(res, "hint: ", advice)
	if got := lines(res.stdout, "worker:0"); !slices.Equal(got, []string{"no newline at the end"}) {
		b.t.Errorf("of the other host: %q", got)
	}
	h2.PowerOn()
	b.want(0, "logs", "--host", "h2", "--tail", "1", job)
}

// reader is a plx process that prints the logs of two hosts.
type reader struct {
	*running
	b        *bench
	tap      *tap
	goOn     func()
	sessions []testhosts.Process // sshd processes on the second host that serve this plx process
}

// read starts plx and waits until it has printed at least a line of every
// task.
func (b *bench) read(args ...string) *reader {
	b.t.Helper()
	return b.tapped(func(r *reader) bool {
		r.goOn()
		return len(r.received(0)) > 0 && len(r.received(1)) > 0
	}, args)
}

// pause starts plx and reads only its first output, which plx prints after it
// has received data from every host.
func (b *bench) pause(args ...string) *reader {
	b.t.Helper()
	return b.tapped(func(r *reader) bool { return r.stdout.String() != "" }, args)
}

// tapped starts plx and waits until up returns true, when plx has a connection
// to each host.
func (b *bench) tapped(up func(*reader) bool, args []string) *reader {
	b.t.Helper()
	before := map[int]bool{}
	for _, p := range b.processes(b.Hosts[1]) {
		before[p.PID] = true
	}
	tap := &tap{watched: newWatched(), opened: make(chan struct{})}
	cmd, stderr := b.command(args...), newWatched()
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = tap, stderr, 5*time.Second
	r := &reader{running: b.spawn(cmd, stderr), b: b, tap: tap, goOn: sync.OnceFunc(func() { close(tap.opened) })}
	b.t.Cleanup(r.goOn) // otherwise waiting for the end of plx would block forever
	r.stdout = tap.watched
	r.until("it is up", func() bool { return up(r) })
	for _, p := range b.processes(b.Hosts[1]) {
		if p.Server && !before[p.PID] {
			r.sessions = append(r.sessions, p)
		}
	}
	return r
}

// lose kills the sshd processes that serve plx's connection to the second
// host.
func (r *reader) lose() {
	r.t.Helper()
	if len(r.sessions) == 0 {
		r.t.Fatalf("plx %q has no connection to h2", r.args)
	}
	for _, p := range r.sessions {
		r.b.kill(p)
	}
}

// flows waits until plx prints more lines of the second host.
func (r *reader) flows() {
	r.t.Helper()
	more := r.tap.lines.Load() + 5000
	r.until("worker:1 goes on", func() bool { return r.tap.lines.Load() > more })
}

// received returns what plx has printed of worker i.
func (r *reader) received(i int) (all []byte) {
	prefix := []byte([]string{"worker:0 h1 | ", "worker:1 h2 | "}[i])
	for line := range bytes.Lines([]byte(r.stdout.String())) {
		if text, of := bytes.CutPrefix(line, prefix); of {
			all = append(all, text...)
		}
	}
	return all
}

// kept returns what the host of worker i has stored of its output.
func (r *reader) kept(i int) []byte {
	r.t.Helper()
	file := []string{"worker-0.stdout", "worker-1.stdout"}[i]
	text, err := os.ReadFile(r.b.spool(r.b.Hosts[i], file))
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// tap is the stdout of a plx process; it blocks the process until the test
// opens it.
type tap struct {
	*watched
	opened chan struct{}
	lines  atomic.Int64 // number of lines of worker:1, without lines that are split over two writes
}

func (w *tap) Write(p []byte) (int, error) {
	w.lines.Add(int64(bytes.Count(p, []byte("of worker:1\n"))))
	n, err := w.watched.Write(p)
	<-w.opened
	return n, err
}
