package logstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/logs"
)

// spooler is a fake host that stores logs. Its connections break after a
// number of bytes, or its log reader ends with an error.
type spooler struct {
	dir   string
	limit func(try int) int // number of bytes after which the connection breaks; -1: never
	ends  error             // instead of a loss
	stuck bool              // true to hang instead of breaking the connection
	lives bool              // true to send keepalives instead of ending the logs
	away  atomic.Bool       // no further connection
	tries atomic.Int64
}

func (s *spooler) agent(name string, port int) *hosts.AgentHost {
	dial := func(context.Context) (transport.Transport, error) {
		if s.away.Load() {
			s.tries.Add(1)
			return nil, exit.WithHint(fmt.Errorf("host %s: connect: %w", name, io.EOF), "see whether ssh "+name+" true works")
		}
		return s, nil
	}
	return &hosts.AgentHost{Host: hosts.NewHost(hostfile.Host{Name: name, Port: port}, dial), Job: "j-1", Folder: "f"}
}

// Run is "plx agent logs".
func (s *spooler) Run(ctx context.Context, _ string, stdin io.Reader, stdout, _ io.Writer) error {
	line, err := bufio.NewReader(stdin).ReadBytes('\n')
	if err != nil {
		return err
	}
	var req logs.Request
	if err := json.Unmarshal(line, &req); err != nil {
		return err
	}
	try := int(s.tries.Add(1))
	cut := &cutter{w: stdout, left: s.limit(try)}
	if s.stuck && try > 1 {
		cut.left = 0
	}
	err = logs.Serve(ctx, s.dir, req, func() bool { return !s.lives }, cut)
	switch {
	case !cut.cut:
		return err
	case s.stuck:
		<-ctx.Done()
		return context.Cause(ctx)
	case s.ends != nil:
		return s.ends
	}
	return &transport.LostError{Host: "x", By: "ssh", Cause: errors.New("the host closed it")}
}

func (s *spooler) Copy(context.Context, io.Reader, string) error {
	panic("nothing is copied")
}
func (s *spooler) Close() error { return nil }

// cutter passes so many bytes.
type cutter struct {
	w    io.Writer
	left int
	cut  bool
}

func (c *cutter) Write(p []byte) (int, error) {
	if c.left < 0 || len(p) <= c.left {
		c.left -= min(len(p), max(c.left, 0))
		return c.w.Write(p)
	}
	n, err := c.w.Write(p[:c.left])
	if c.left, c.cut = c.left-n, true; err == nil {
		err = errors.New("cut")
	}
	return n, err
}

func whole(int) int { return -1 }

// newSpooler returns a fake host that has the given number of log lines of
// each task.
func newSpooler(t *testing.T, limit func(int) int, lines int, tasks ...string) *spooler {
	t.Helper()
	s := &spooler{dir: t.TempDir(), limit: limit}
	for i, task := range tasks {
		w, err := logs.Create(s.dir, logs.Source{Task: task, Stream: logs.Stream(i % 2)}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for n := range lines {
			if _, err := fmt.Fprintf(w, "%s line %d %s\n", task, n, strings.Repeat("x", n%97)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// show returns what plx logs would print for the agents.
func show(t *testing.T, req logs.Request, agents ...*hosts.AgentHost) (string, error) {
	t.Helper()
	var out bytes.Buffer
	term := console.Terminal{Stdout: &out, Stderr: &out}
	opts := logs.Options{}
	for _, a := range agents {
		opts.Hosts = append(opts.Hosts, a.Name())
	}
	o := NewOutput(Config{Printer: console.NewPrinter(term), Logs: opts})
	err := errors.Join(Print(t.Context(), agents, req, o, 30*time.Second, nil), o.Close())
	return out.String(), err
}

// However often connections break, all lines are printed in order, even for
// hosts that differ only in their port.
func TestLogsSurviveLostConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	limits := make([]int, 100)
	for i := range limits {
		limits[i] = 60_000 + rng.IntN(90_000)
	}
	cuts := func(try int) int { return limits[try%len(limits)] }
	spoolers := []*spooler{
		newSpooler(t, cuts, 4000, "worker:0", "ps:0"), newSpooler(t, cuts, 3000, "worker:1"), newSpooler(t, cuts, 3000, "worker:2"),
	}
	for _, tt := range []struct {
		name string
		req  logs.Request
	}{
		{"all", logs.Request{TailLines: -1}},
		{"the last lines", logs.Request{TailLines: 2500}},
		{"following", logs.Request{TailLines: -1, Follow: true}},
		{"following the last lines", logs.Request{TailLines: 2500, Follow: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			print := func() (text string) {
				agents := []*hosts.AgentHost{spoolers[0].agent("h1", 0), spoolers[1].agent("h2", 22), spoolers[2].agent("h2", 2222)}
				text, err := show(t, tt.req, agents...)
				if err != nil {
					t.Fatal(err)
				}
				return text
			}
			cut := print()
			for _, h := range spoolers {
				if h.tries.Swap(0) < 2 {
					t.Errorf("a host lost no connection")
				}
				h.limit = whole
				defer func() { h.limit = cuts }()
			}
			want := print()
			for _, h := range spoolers {
				if h.tries.Swap(0) != 1 {
					t.Errorf("a host lost a connection")
				}
			}
			if tt.req.Follow { // with Follow, the order of lines of different hosts is arbitrary
				cut, want = byTask(cut), byTask(want)
			}
			if cut != want {
				t.Errorf("%d bytes over lost connections, %d over one, or others", len(cut), len(want))
			}
		})
	}
}

// byTask sorts the lines by task and keeps the order within each task.
func byTask(text string) string {
	tasks := map[string][]string{}
	for line := range strings.Lines(text) {
		task, _, _ := strings.Cut(line, " ")
		tasks[task] = append(tasks[task], line)
	}
	return fmt.Sprint(tasks)
}

// Hosts that are unreachable at first or later are reported with a hint, and
// do not delay the logs of other hosts.
func TestUnreachableHostsAreReported(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	good, bad := newSpooler(t, whole, 10, "worker:0"), newSpooler(t, whole, 10, "worker:1")
	bad.away.Store(true)
	text, err := show(t, logs.Request{TailLines: -1}, good.agent("h1", 0), bad.agent("h2", 0))
	if strings.Count(text, "\n") != 10 || err == nil || err.Error() != "host h2: logs: connect: EOF" || bad.tries.Load() != 1 {
		t.Errorf("%v, after %d attempts:\n%s", err, bad.tries.Load(), text)
	}
	if hint := exit.Hint(err); !strings.Contains(hint, "ssh h2 true") || !strings.Contains(hint, "plx logs j-1 --host h2") {
		t.Errorf("hint %q", hint)
	}
	lost := newSpooler(t, func(int) int { return 50_000 }, 2000, "worker:1")
	f := lost.feed(time.Second)
	defer f.close()
	n := 0
	for err = nil; err == nil; n++ {
		_, err = f.next(t.Context())
		lost.away.Store(true)
	}
	if n < 2 || !strings.HasPrefix(err.Error(), "out of reach for ") || !strings.HasSuffix(err.Error(), ": connect: EOF") || exit.Hint(err) == "" {
		t.Errorf("%d chunks, %v", n, err)
	}
}

// Once another host has reported the end of the job, plx does not wait a whole
// lease for a rebooted host: neither if that host is silent, nor if it sends
// only keepalives after the end of the job.
func TestSilentHostIsGivenUpAfterJobEnd(t *testing.T) {
	verdict := protocol.State{Verdict: &protocol.Verdict{}}
	over := verdict
	over.JobPhase = protocol.Over
	for name, x := range map[string]struct {
		state protocol.State
		lives bool
		early bool
	}{
		"silent, a verdict":   {verdict, false, true},
		"silent, no verdict":  {protocol.State{JobPhase: protocol.Running}, false, false},
		"it lives, over":      {over, true, true},
		"it lives, a verdict": {verdict, true, false}, // the result of a host that the job may have continued without
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				good, lost := newSpooler(t, whole, 10, "worker:0"), newSpooler(t, func(int) int { return 50_000 }, 2000, "worker:1")
				if lost.stuck, lost.lives = true, x.lives; x.lives {
					lost.limit = whole
				}
				asked, begun := 0, time.Now()
				state := func(_ context.Context, a *hosts.AgentHost) (protocol.State, error) {
					asked++
					return x.state, nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience+10*time.Second)
				defer cancel()
				var out bytes.Buffer
				o := NewOutput(Config{Printer: console.NewPrinter(console.Terminal{Stdout: &out, Stderr: &out}), Logs: logs.Options{Hosts: []string{"h1", "h2"}}})
				err := Print(ctx, []*hosts.AgentHost{good.agent("h1", 0), lost.agent("h2", 0)}, logs.Request{TailLines: -1, Follow: true}, o, time.Hour, state)
				early := time.Since(begun) < patience+5*time.Second
				if asked != 1 || early != x.early || err == nil || x.early && err.Error() != "host h2: logs: the last lines may be missing" {
					t.Errorf("after %v, %d questions: %v", time.Since(begun), asked, err)
				}
			})
		})
	}
}

func (s *spooler) feed(patience time.Duration) *feed {
	return &feed{agent: s.agent("h2", 0), req: logs.Request{TailLines: -1}, cursor: new(logs.Cursor), liveness: new(liveness), patience: patience}
}

// drain reads a feed to its end and returns the number of bytes.
func (f *feed) drain(ctx context.Context) (n int, err error) {
	for {
		c, err := f.next(ctx)
		if err == nil {
			c, err = f.cursor.Take(f.agent.Label(), c)
		}
		if err != nil {
			return n, err
		}
		n += len(c.Data)
	}
}

// A host that is connected but sends nothing is given up after a time limit.
func TestStuckHostTimesOut(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	s := newSpooler(t, func(int) int { return 50_000 }, 2000, "worker:1")
	s.stuck = true
	f := s.feed(time.Second)
	defer f.close()
	n, err := f.drain(t.Context())
	if n == 0 || err == io.EOF || !strings.Contains(err.Error(), "no byte arrived") || exit.Hint(err) == "" || s.tries.Load() < 2 {
		t.Errorf("%d bytes, %v, after %d connections", n, err, s.tries.Load())
	}
}

// Time during which plx did not read from a host does not count as silence of
// the host.
func TestPausedReadIsNotHostSilence(t *testing.T) {
	t.Parallel()
	s := newSpooler(t, func(try int) int { return 50_000 * try * try }, 2000, "worker:1")
	f := s.feed(time.Minute)
	defer f.close()
	c, err := f.next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.cursor.Take(f.agent.Label(), c); err != nil {
		t.Fatal(err)
	}
	f.liveness.at.Store(time.Now().Add(-time.Hour).UnixNano())
	if _, err := f.drain(t.Context()); err != io.EOF || s.tries.Load() < 2 {
		t.Errorf("%v, after %d connections", err, s.tries.Load())
	}
}

// A reader of plx's output may pause for a long time, even after the job's
// end, without losing a line.
func TestPausedReaderLosesNoLine(t *testing.T) {
	const lines = 3000
	dir := newSpooler(t, whole, lines, "worker:0").dir
	synctest.Test(t, func(t *testing.T) {
		s := &spooler{dir: dir, limit: whole}
		reader := pausing{pauses: 3}
		term := console.Terminal{Stdout: &reader, Stderr: io.Discard}
		o := NewOutput(Config{Printer: console.NewPrinter(term), Logs: logs.Options{Hosts: []string{"h1"}}})
		var g Streams
		g.Follow(s.agent("h1", 0), nil, o, time.Second)
		failed := g.Wait(nil, nil)
		if err := o.Close(); err != nil || len(failed) > 0 || bytes.Count(reader.got.Bytes(), []byte("\n")) != lines {
			t.Errorf("%d of %d lines, %v, %v", bytes.Count(reader.got.Bytes(), []byte("\n")), lines, failed, err)
		}
	})
}

// pausing is a writer whose first Write calls take a minute each.
type pausing struct {
	got    bytes.Buffer
	pauses int
}

func (p *pausing) Write(b []byte) (int, error) {
	if p.pauses > 0 {
		p.pauses--
		time.Sleep(time.Minute)
	}
	return p.got.Write(b)
}

// A host whose connections all break before a whole record is given up after a
// time limit, with an error that says so.
func TestRepeatedlyBreakingConnectionsTimeOut(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		limit int
		says  string
		tries int64
	}{
		"before a byte":       {0, "ssh: the host closed it", 2},
		"in the first record": {20, "each connection breaks immediately: ssh: the host closed it", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpooler(t, func(int) int { return tt.limit }, 10, "worker:1")
			f := s.feed(time.Second)
			defer f.close()
			_, err := f.drain(t.Context())
			if err == nil || err.Error() != tt.says || exit.Hint(err) == "" || s.tries.Load() < tt.tries {
				t.Errorf("%v, after %d connections", err, s.tries.Load())
			}
		})
	}
}

// An error that a new connection would not cure ends the feed at once.
func TestPermanentErrorsAreNotRetried(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ends  error
		limit int
		tries int64
	}{
		"the agent refuses":     {&transport.ExitError{Status: 3}, 0, 1},
		"it is killed at once":  {&transport.ExitError{Status: 128 + 9}, 4, maxKills + 1},
		"it is killed at times": {&transport.ExitError{Status: 128 + 9}, 70_000, 0},
		"not plx's":             {io.ErrShortWrite, -2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSpooler(t, func(int) int { return tt.limit }, 4000, "worker:1")
			s.ends = tt.ends
			f := s.feed(time.Minute)
			if tt.limit == -2 {
				f.agent.Host = noise(s)
			}
			defer f.close()
			_, err := f.drain(t.Context())
			if tt.tries == 0 {
				if err != io.EOF || s.tries.Load() < maxKills {
					t.Errorf("%v, after %d connections", err, s.tries.Load())
				}
				return
			}
			if err == io.EOF || s.tries.Load() != tt.tries {
				t.Errorf("%v, after %d connections, want %d", err, s.tries.Load(), tt.tries)
			}
		})
	}
}

// noise returns a host that replies with bytes that are not plx's log format.
func noise(s *spooler) *hosts.Host {
	return hosts.NewHost(hostfile.Host{Name: "h2"}, func(context.Context) (transport.Transport, error) {
		return noisy{s}, nil
	})
}

type noisy struct{ *spooler }

func (n noisy) Run(_ context.Context, _ string, _ io.Reader, stdout, _ io.Writer) error {
	n.tries.Add(1)
	_, err := io.WriteString(stdout, "Welcome to h2\n")
	return err
}

// A host that invents more and more tasks is reported, uses no memory and does
// not disturb other hosts.
func TestFloodingHostIsIsolated(t *testing.T) {
	t.Parallel()
	honest := newSpooler(t, whole, 100, "worker:0")
	flood := &flooder{}
	liar := flood.agent("h2")
	for _, follow := range []bool{true, false} {
		before := heap()
		text, err := show(t, logs.Request{TailLines: -1, Follow: follow}, honest.agent("h1", 0), liar)
		if err == nil || !strings.Contains(err.Error(), "host h2: logs: ") || !strings.Contains(err.Error(), "more than 4096 streams") {
			t.Errorf("following %v: %v", follow, err)
		}
		if n := strings.Count(text, "worker:0 line "); n != 100 {
			t.Errorf("following %v: %d lines of the other host", follow, n)
		}
		if grown := heap() - before; grown > 64<<20 {
			t.Errorf("following %v: %d MiB more", follow, grown>>20)
		}
	}
	if n := flood.tries.Load(); n != 4 {
		t.Errorf("%d connections, want 4: two would do, and each is lost once", n)
	}
}

// heap returns the number of bytes on this process's heap.
func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// flooder is a fake host that endlessly sends chunks, each of a new task. Its
// first connection breaks after some tasks.
type flooder struct{ tries atomic.Int64 }

func (f *flooder) agent(name string) *hosts.AgentHost {
	dial := func(context.Context) (transport.Transport, error) { return f, nil }
	return &hosts.AgentHost{Host: hosts.NewHost(hostfile.Host{Name: name}, dial), Job: "j-1", Folder: "f"}
}

// Run imitates "plx agent logs" with invented tasks.
func (f *flooder) Run(ctx context.Context, _ string, _ io.Reader, stdout, _ io.Writer) error {
	odd := f.tries.Add(1)%2 == 1
	if _, err := io.WriteString(stdout, "plg\x01"); err != nil {
		return err
	}
	for i := 0; ctx.Err() == nil; i++ {
		if odd && i == 3000 {
			return &transport.LostError{Host: "h2", By: "ssh", Cause: errors.New("cut")}
		}
		name, data := fmt.Sprintf("liar:%d", i), bytes.Repeat([]byte("x"), 1000)
		if !odd {
			name = fmt.Sprintf("other:%d", i)
		}
		header := make([]byte, 24)
		header[0], header[2] = 1, byte(len(name))
		binary.LittleEndian.PutUint32(header[4:], uint32(len(data)))
		if _, err := stdout.Write(append(append(header, name...), data...)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (f *flooder) Copy(context.Context, io.Reader, string) error {
	panic("nothing is copied")
}
func (f *flooder) Close() error { return nil }
