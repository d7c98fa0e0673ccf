package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/bootstraptest"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// fronted simulates a host that already has the plx binary, so that an agent
// starts at once.
type fronted struct {
	silent
	facts  string
	gpus   bool         // the agent lists GPUs
	lacks  string       // hash of a blob that the agent reports as missing
	open   atomic.Int64 // agents that wait
	begun  atomic.Int64 // agents that were started
	probes atomic.Int64 // lists of GPUs
	specs  atomic.Int64 // number of jobs that agents received
	cut    atomic.Int64 // number of agents whose session was closed before they ended

	damaged []string        // hashes of blobs that the agent reports as damaged
	said    strings.Builder // what plx has printed

	pipes map[protocol.Method]protocol.Handler // further methods
	job   func(*protocol.Conn)                 // uses the connection after a job's Spec; nil: the agent ends
	visit func(*protocol.Conn)                 // uses the connection of a visitor; nil: the agent greets and ends
	dies  chan error                           // delivers the error with which an agent is cut off; nil: no agent is
}

const factsHere = `{"os":"linux","arch":"amd64","serverAddr":"10.0.0.1","hostName":"h1","boot":"b","fsid":"0123456789abcdef0123456789abcdef"}`

func (f *fronted) Run(ctx context.Context, command string, stdin io.Reader, stdout, _ io.Writer) error {
	if !strings.Contains(command, "agent start") {
		return &transport.ExitError{Status: 1}
	}
	f.begun.Add(1)
	f.open.Add(1)
	defer f.open.Add(-1)
	if err := bootstraptest.Runs(command, stdout); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- f.serve(stdin, stdout) }()
	select {
	case err := <-ended:
		return err
	case err := <-f.dies:
		return err
	case <-ctx.Done():
		f.cut.Add(1)
		return context.Cause(ctx)
	}
}

// serve is "agent start".
func (f *fronted) serve(stdin io.Reader, stdout io.Writer) error {
	conn, err := protocol.OpenCalls(protocol.Duplex(stdin, stdout))
	if err != nil {
		return err
	}
	methods := map[protocol.Method]protocol.Handler{
		protocol.DoSurvey: protocol.Handle(func(_ context.Context, s protocol.Survey) (protocol.Surveyed, error) {
			if f.facts == "error" {
				return protocol.Surveyed{}, errors.New("open /home/ann/.plx/x: read-only file system")
			}
			delete(s.Blobs, f.lacks)
			return protocol.Surveyed{Facts: json.RawMessage(f.facts), Has: slices.Collect(maps.Keys(s.Blobs)), Damaged: f.damaged, Locks: "@plx-gpu-0\n"}, nil
		}),
		protocol.DoProbe: protocol.Handle(func(context.Context, protocol.Probe) (gpuprobe.Output, error) {
			f.probes.Add(1)
			if !f.gpus {
				return gpuprobe.Output{}, errors.New("no list of GPUs")
			}
			return gpuprobe.Output{Mark: "m", Text: "\nm begin cpus\n12\n"}, nil
		}),
		protocol.DoHas: protocol.Handle(func(ctx context.Context, of protocol.Has) (struct{}, error) {
			if of.Manifest == "stuck" {
				<-ctx.Done()
			}
			if of.Manifest != "here" {
				return struct{}{}, errors.New("files are missing")
			}
			return struct{}{}, nil
		}),
		protocol.DoConnect: protocol.Handle(func(_ context.Context, of protocol.HostJob) (struct{}, error) {
			if of.Job == "gone" {
				return struct{}{}, &protocol.Failure{Code: protocol.CodeNoAgent, Text: "host h1: its power failed"}
			}
			return struct{}{}, nil
		}),
		protocol.DoState: protocol.Handle(func(context.Context, protocol.HostJob) (protocol.State, error) {
			return protocol.State{}, &protocol.Failure{Code: protocol.CodeForgotten, Text: "nothing is left"}
		}),
	}
	maps.Copy(methods, f.pipes)
	asked, err := protocol.Serve(context.Background(), conn, methods, time.Hour)
	switch {
	case err != nil:
	case asked.Spec != nil:
		f.specs.Add(1)
		if f.job != nil {
			f.job(conn)
		}
	case asked.Attach != nil && f.visit != nil:
		f.visit(conn)
	case asked.Attach != nil:
		return conn.Send(protocol.Message{Notice: "hello"})
	}
	return nil // like an agent that received no job
}

func (f *fronted) host(t *testing.T) *Host {
	h := NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return f, nil })
	h.set = &Set{printer: console.NewPrinter(console.Terminal{Stderr: &f.said}), agents: &agents{guess: agentBlob}, seeds: bootstrap.NewSeeds(nil)}
	t.Cleanup(func() { h.Close() })
	return h
}

// meetAll makes the calls that a launch makes on a host before it places its
// tasks.
func meetAll(t *testing.T, h *Host, likely ...envsync.Blob) error {
	t.Helper()
	if err := h.Survey(t.Context(), likely...); err != nil {
		return err
	}
	return h.Agent().FindGPUs(t.Context(), nil)
}

var (
	agentBlob = envsync.Blob{Sum: "aa", Size: 3}
	otherBlob = envsync.Blob{Sum: "bb", Size: 4}
)

// The idle agent that has answered the survey starts the job, in the same
// session.
func TestIdleAgentStartsJob(t *testing.T) {
	f := &fronted{facts: factsHere, gpus: true}
	h := f.host(t)
	if err := meetAll(t, h, otherBlob); err != nil {
		t.Fatal(err)
	}
	if h.Facts.HostName != "h1" || h.Facts.ServerAddr != "10.0.0.1" || h.Report.CPUs != 12 || len(h.has) != 2 {
		t.Errorf("%+v, %+v, has %v", h.Facts, h.Report, h.has)
	}
	if lines := h.Locks(); lines != "@plx-gpu-0\n" {
		t.Errorf("locks %q", lines)
	}
	a := h.Agent()
	conn, err := a.Start(t.Context(), protocol.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Receive(); err != io.EOF {
		t.Errorf("%v", err)
	}
	if f.specs.Load() != 1 || h.idle.Load() != nil {
		t.Errorf("%d jobs", f.specs.Load())
	}
}

// An idle agent is closed if the host allows no more sessions, or if a job
// with another agent binary is to start. It is not closed for a shell script.
// Closing waits until the agent has ended.
func TestIdleAgentIsClosedWhenSessionIsNeeded(t *testing.T) {
	f := &fronted{facts: factsHere, gpus: true}
	for name, use := range map[string]func(*Host){
		"no room": func(h *Host) { h.closeIdle() },
		"the end": func(h *Host) { h.Close() },
		"another agent": func(h *Host) {
			other := &AgentHost{Host: h, Binary: envsync.BlobPath(otherBlob.Sum)}
			if i, err := other.own(t.Context(), other.begin); err != nil {
				t.Error(err)
			} else {
				i.close()
			}
		},
	} {
		h := f.host(t)
		if err := meetAll(t, h); err != nil || f.open.Load() != 1 {
			t.Fatalf("%s: %d agents wait, %v", name, f.open.Load(), err)
		}
		h.Run(t.Context(), "true", nil, nil, nil)
		if n := f.open.Load(); n != 1 {
			t.Errorf("%s: after a script %d agents wait", name, n)
		}
		use(h)
		if n := f.open.Load(); n != 0 || h.HasIdleAgent() {
			t.Errorf("%s: %d agents wait", name, n)
		}
		if n := f.cut.Swap(0); n != 0 {
			t.Errorf("%s: nobody has waited for the end of %d agents", name, n)
		}
	}
}

// One idle agent serves all calls and then starts the job, in one session. The
// first call starts it if needed. After a call without a reply, the agent is
// closed, and the next call starts another one.
func TestOneIdleAgentServesAllCalls(t *testing.T) {
	f := &fronted{facts: factsHere, gpus: true}
	h := f.host(t)
	a, b := &AgentHost{Host: h, Binary: envsync.BlobPath(agentBlob.Sum)}, &AgentHost{Host: h, Binary: envsync.BlobPath(otherBlob.Sum)}
	has := func(a *AgentHost, manifest string, limit time.Duration) error {
		_, err := Call[struct{}](t.Context(), a, limit, protocol.DoHas, protocol.Has{Manifest: manifest})
		return err
	}
	if has(a, "here", patience.Limit) != nil || has(a, "gone", patience.Limit) == nil {
		t.Error("wrong answers")
	}
	if err := a.FindGPUs(t.Context(), nil); err != nil || h.Report.CPUs != 12 {
		t.Errorf("%+v, %v", h.Report, err)
	}
	_, err := Call[struct{}](t.Context(), a, patience.Limit, "dance", nil)
	if failure := (*protocol.Failure)(nil); !errors.As(err, &failure) || !strings.Contains(err.Error(), `does not know the request "dance"`) {
		t.Errorf("%v", err)
	}
	conn, err := a.Start(t.Context(), protocol.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Receive(); err != io.EOF || f.specs.Load() != 1 || f.begun.Load() != 1 {
		t.Errorf("%d jobs, %d agents, %v", f.specs.Load(), f.begun.Load(), err)
	}
	if has(b, "here", patience.Limit) != nil || has(a, "here", patience.Limit) != nil || f.begun.Load() != 3 {
		t.Errorf("agents of two programs: %d were started", f.begun.Load())
	}
	err = has(a, "stuck", 10*time.Millisecond)
	if err == nil || err.Error() != "no answer to has within 10ms" || h.HasIdleAgent() || f.open.Load() != 0 {
		t.Errorf("%v, %d agents wait", err, f.open.Load())
	}
	if has(a, "here", patience.Limit) != nil || f.begun.Load() != 4 {
		t.Errorf("after one that was given up: %d agents", f.begun.Load())
	}
}

// Calls in progress end before the agent receives the job, and no calls
// follow.
func TestCallsEndBeforeJobStarts(t *testing.T) {
	f := &fronted{facts: factsHere, gpus: true}
	h := f.host(t)
	a := &AgentHost{Host: h, Binary: envsync.BlobPath(agentBlob.Sum)}
	if _, err := Call[struct{}](t.Context(), a, patience.Limit, protocol.DoHas, protocol.Has{Manifest: "here"}); err != nil {
		t.Fatal("wrong answer")
	}
	calls := h.idle.Load().calls
	var under []*protocol.Pending
	for range 60 { // an agent queues at most 64 calls
		p, err := calls.Begin(protocol.DoProbe, protocol.Probe{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		under = append(under, p)
	}
	if _, err := a.Start(t.Context(), protocol.Spec{}); err != nil {
		t.Fatal(err)
	}
	if n := f.probes.Load(); n != 60 {
		t.Errorf("the job was given after %d of 60 calls", n)
	}
	for _, p := range under {
		if err := p.Wait(t.Context(), nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := calls.Begin(protocol.DoProbe, protocol.Probe{}, nil); !errors.Is(err, protocol.ErrDetached) {
		t.Errorf("a call after it: %v", err)
	}
}

// A job is not started by an idle agent whose connection was lost, or that may
// have ended since the last call.
func TestEndedIdleAgentIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fronted{facts: factsHere, gpus: true}
		h := f.host(t)
		if err := meetAll(t, h); err != nil {
			t.Fatal(err)
		}
		waiting := h.idle.Load()
		waiting.stream.Cancel(io.ErrUnexpectedEOF)
		<-waiting.stream.Done()
		a := &AgentHost{Host: h, Binary: envsync.BlobPath(agentBlob.Sum)}
		next, err := a.waiting(t.Context())
		if err != nil || next == waiting {
			t.Errorf("it is used, or none in its place: %v", err)
		}
		<-time.After(idleFresh)
		last, err := a.own(t.Context(), a.begin)
		if err != nil || last == next {
			t.Errorf("one that was not asked for long is used, or none in its place: %v", err)
		}
		last.close()
	})
}

// If the job's agent no longer runs, Connect's error says how it ended, and
// the idle agent still serves calls. A connection to a running agent belongs
// to the caller.
func TestConnectWithoutAgentSaysHowItEnded(t *testing.T) {
	f := &fronted{facts: factsHere}
	h := f.host(t)
	a := &AgentHost{Host: h, Job: "gone", Folder: "h1", Binary: envsync.BlobPath(agentBlob.Sum)}
	_, err := a.Connect(t.Context())
	if !errors.Is(err, driver.ErrNoAgent) || !strings.HasSuffix(err.Error(), ": its power failed") || !h.HasIdleAgent() {
		t.Errorf("%v", err)
	}
	if _, err := a.State(t.Context()); err != ErrNoState {
		t.Errorf("%v", err)
	}
	a.Job = "runs"
	conn, err := a.Visit(t.Context())
	if err != nil || h.HasIdleAgent() || f.begun.Load() != 1 {
		t.Fatalf("%v, %d agents", err, f.begun.Load())
	}
	if m, err := conn.Receive(); err != nil || m.Notice != "hello" {
		t.Errorf("%+v, %v", m, err)
	}
	conn.Close()
}

// hanging is a host on which no command ends. The agent on it either sends its
// greeting or does not.
type hanging struct {
	silent
	greets bool
}

func (h hanging) Run(ctx context.Context, script string, stdin io.Reader, stdout, _ io.Writer) error {
	if h.greets {
		if err := bootstraptest.Runs(script, stdout); err != nil {
			return err
		}
		if conn, err := protocol.OpenCalls(protocol.Duplex(stdin, stdout)); err == nil {
			go func() { // ends with the session
				for err == nil {
					_, err = conn.Receive()
				}
			}()
		}
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// A call to a host that stops replying ends after its time limit, and the
// error names the call.
func TestHostWithoutReplyTimesOut(t *testing.T) {
	for _, c := range []struct {
		greets bool
		limit  time.Duration
		want   string
	}{{false, bootstrap.StartLimit, "no command ran within 1m0s: " + ErrStuck.Error()}, {true, AnswerTime, "no answer to state within 30s"}} {
		synctest.Test(t, func(t *testing.T) {
			h := NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return hanging{greets: c.greets}, nil })
			defer h.Close()
			a, begun := &AgentHost{Host: h, Job: "j", Folder: "h1", Binary: envsync.BlobPath(agentBlob.Sum)}, time.Now()
			_, err := a.State(t.Context())
			if took := time.Since(begun); err == nil || err.Error() != c.want || took != c.limit || h.HasIdleAgent() {
				t.Errorf("after %s: %v", took, err)
			}
			begun = time.Now()
			if _, err = a.Connect(t.Context()); err == nil || err.Error() != strings.Replace(c.want, "state", "connect", 1) || time.Since(begun) != c.limit || h.HasIdleAgent() {
				t.Errorf("connect: after %s: %v", time.Since(begun), err)
			}
		})
	}
}

// If an agent's reply is invalid or incomplete, all of it is rejected. If the
// binary's checksum is wrong, the binary is hashed before it runs again.
func TestAgentWithInvalidReplyIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		f     *fronted
		want  string
		begun int64
	}{
		"nonsense":         {&fronted{facts: `{"os":"\u001b[31m"}`, gpus: true}, "the host's answer holds control characters", 1},
		"another system":   {&fronted{facts: strings.Replace(factsHere, "linux", "freebsd", 1), gpus: true}, "it runs freebsd/amd64, a host must run linux", 1},
		"damaged":          {&fronted{facts: factsHere, gpus: true, lacks: agentBlob.Sum}, "the plx binary on the host is damaged", 2},
		"no home to write": {&fronted{facts: "error"}, "the home folder is read-only: open /home/ann/.plx/x: read-only file system", 1},
	} {
		h := c.f.host(t)
		err := meetAll(t, h)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || c.f.open.Load() != 0 || c.f.begun.Load() != c.begun || h.HasIdleAgent() {
			t.Errorf("%s: %v, %d agents wait of %d", name, err, c.f.open.Load(), c.f.begun.Load())
		}
	}
	half := &fronted{facts: factsHere}
	h := half.host(t)
	if err := meetAll(t, h); err == nil || err.Error() != "probe: no list of GPUs" || h.Report.CPUs != 0 {
		t.Errorf("half: %v, %+v", err, h.Report)
	}
	if h.Close(); half.open.Load() != 0 || half.begun.Load() != 1 {
		t.Errorf("half: %d agents wait of %d", half.open.Load(), half.begun.Load())
	}
}

// Damaged cached files on a host are reported, and are not considered present.
func TestDamagedCachedFilesAreReported(t *testing.T) {
	program := envsync.Blob{Name: "train", Sum: otherBlob.Sum, Size: otherBlob.Size}
	f := &fronted{facts: factsHere, gpus: true, lacks: program.Sum, damaged: []string{program.Sum}}
	h := f.host(t)
	const want = "plx: host h1: train is damaged in ~/.plx/blobs there; it is sent again\n"
	if err := meetAll(t, h, program); err != nil || h.Has(program) || f.said.String() != want {
		t.Errorf("%v, has it %t, said %q", err, h.Has(program), f.said.String())
	}
	f = &fronted{facts: factsHere, gpus: true, lacks: agentBlob.Sum}
	if err := meetAll(t, f.host(t)); err == nil || strings.Count(f.said.String(), "host h1: plx is damaged in ~/.plx/blobs there") != 1 {
		t.Errorf("%v, said %q", err, f.said.String())
	}
}

// shelled simulates a host whose login shell has startup files.
type shelled struct {
	fronted
	reads    bool          // the startup files read stdin until its end
	takes    time.Duration // how long the startup files take
	sessions atomic.Int64
}

func (s *shelled) Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error {
	s.sessions.Add(1)
	takes := s.takes
	if s.reads && stdin != nil {
		takes = time.Hour
	}
	if !sleep(ctx, takes) {
		return context.Cause(ctx)
	}
	if command == ":" {
		return nil
	}
	return s.fronted.Run(ctx, command, stdin, stdout, stderr)
}

// The login shell of a host may start a command slowly, or never.
func TestSlowLoginShellIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		host     *shelled
		limit    time.Duration // time limit of a command start; 0 means the default
		want     string        // prefix of the expected error; "" if none is expected
		told     string
		took     time.Duration
		sessions int64
	}{
		"quick":                 {host: &shelled{}, sessions: 1},
		"slow":                  {host: &shelled{takes: 7 * time.Second}, told: "host h1: its login shell took 7s to start a command: a start-up file", took: 7 * time.Second, sessions: 1},
		"slow as in the report": {host: &shelled{takes: 20 * time.Second}, told: "took 20s", took: 20 * time.Second, sessions: 2},
		"slower":                {host: &shelled{takes: 50 * time.Second}, told: "took 50s", took: 50 * time.Second, sessions: 2},
		"too slow":              {host: &shelled{takes: 70 * time.Second}, want: "no command ran within 1m0s: ForceCommand", took: time.Minute, sessions: 2},
		"too slow for this":     {host: &shelled{takes: 70 * time.Second}, limit: 8 * time.Second, want: "no command ran within 8s: ForceCommand", took: 8 * time.Second, sessions: 1},
		"reads":                 {host: &shelled{reads: true}, want: errReads.Error(), took: askAfter + askAgain, sessions: 2},
		"is slow and reads":     {host: &shelled{reads: true, takes: 9 * time.Second}, want: errReads.Error(), took: askAfter + askAgain + 9*time.Second, sessions: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close() // error ignored: the pipe was only read
			synctest.Test(t, func(t *testing.T) {
				c.host.facts, c.host.gpus = factsHere, true
				h := NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return c.host, nil })
				defer h.Close()
				h.set, h.startTime = &Set{printer: console.NewPrinter(console.Terminal{Stderr: w}), agents: &agents{guess: agentBlob}}, c.limit
				began := time.Now()
				err := h.Survey(t.Context())
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), c.want)) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if took := time.Since(began); took != c.took || c.host.sessions.Load() != c.sessions {
					t.Errorf("it took %s and %d sessions", took, c.host.sessions.Load())
				}
			})
			w.Close() // the pipe's buffer holds all of the output
			if told, err := io.ReadAll(r); err != nil || !strings.Contains(string(told), c.told) || c.told == "" && len(told) > 0 {
				t.Errorf("the user was told %q, %v, want %q", told, err, c.told)
			}
		})
	}
}
