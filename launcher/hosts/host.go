package hosts

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// Host is one host. It is a Transport itself: it dials if there is no connection, so
// that work can continue after one was lost.
type Host struct {
	// Resource is the host's line of the resource file.
	Resource hostfile.Host
	// Embedded tells that a server of this process serves the host.
	Embedded bool
	// Facts are written by Inspect; the zero value means that it was not called.
	Facts envsync.Facts
	// Report is written by Survey.
	Report gpuprobe.Report

	// Noise is how many bytes start-up files of the login shell print at each command. It
	// is written, with Reach.KeepNoise only, when a command has run.
	Noise atomic.Int64

	probeTime time.Duration // how long a call of nvidia-smi may take; 0: the default
	slowTool  atomic.Bool   // nvidia-smi was slow

	has   []string             // sums of blobs that the host has, as Survey found
	locks *string              // see Locks; nil: not known
	idle  atomic.Pointer[idle] // waits for the Spec of a job; nil: none does

	starting sync.Mutex // held while an agent is started that is to wait
	agents   *agents    // of this plx, for hosts whose jobs have those of another one; nil: they are not known

	// ChosenAddr is the data address on the interface that the line names; empty: not known.
	ChosenAddr string
	// InterfaceBy is the file:line that names the interface; empty: --nic has chosen it.
	InterfaceBy string
	*transport.Conn
}

// NewHost returns the host of a line, which dial connects to.
func NewHost(line hostfile.Host, dial transport.Dialer) *Host { return newHost(line, dial, false) }

func newHost(line hostfile.Host, dial transport.Dialer, embedded bool) *Host {
	return &Host{Resource: line, Embedded: embedded, Conn: transport.NewConn(line.Name, dial)}
}

// onLine notes that the host's own line names the interface.
func (h *Host) onLine(line hostfile.Host) {
	if line.Interface != "" {
		h.InterfaceBy = line.Pos.String()
	}
}

// Name returns the host's name.
func (h *Host) Name() string { return h.Resource.Name }

// Named puts the host's name before an error.
func (h *Host) Named(err error) error { return fmt.Errorf("host %s: %w", h.Name(), err) }

// Label returns the host's name, with the port if the resource file gives one.
func (h *Host) Label() string {
	if h.Resource.Port == 0 {
		return h.Name()
	}
	return net.JoinHostPort(h.Name(), strconv.Itoa(h.Resource.Port))
}

var unsafeInFolder = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^A-Za-z0-9.-]`) })

// JobFolder returns the name of the host's folder under ~/.plx/jobs/<job>/.
func (h *Host) JobFolder() string { return jobFolder(h.Resource) }

func jobFolder(line hostfile.Host) string {
	name := unsafeInFolder().ReplaceAllString(line.Name, "_")
	if line.Port != 0 {
		name += "_" + strconv.Itoa(line.Port)
	}
	return name
}

// Inspect connects to the host and writes Facts.
func (h *Host) Inspect(ctx context.Context) error {
	if err := h.Dial(ctx); err != nil { // to tell its error from that of the script
		return err
	}
	facts, err := envsync.Inspect(ctx, h)
	if err != nil {
		return err
	}
	if facts.OS != "linux" {
		return fmt.Errorf("it runs %s, a host must run linux", facts.Platform)
	}
	h.Facts = facts
	return nil
}

// survey writes Facts and Report. It asks an agent of an earlier launch if there is one, which
// also tells which of the likely blobs the host has; else it asks for both by scripts, at once.
// The tally shows it.
func (h *Host) survey(ctx context.Context, probes *console.Tally, likely []envsync.Blob) error {
	h.makeRoom()
	h.has, h.locks = nil, nil
	if err := h.Dial(ctx); err != nil {
		return err
	}
	probes.Begin(h.Name())
	defer probes.End(h.Name())
	err := h.ask(ctx, likely, true, probes)
	if err == nil {
		return nil
	}
	if errors.Is(err, envsync.ErrStuck) {
		return fmt.Errorf("inspect: %w", envsync.ErrStuck)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var report gpuprobe.Report
	probed := make(chan error, 1)
	go func() {
		var err error
		report, err = h.Probe(ctx, probes)
		probed <- err
	}()
	if err := h.Inspect(ctx); err != nil { // says more of a host on which nothing runs
		cancel()
		<-probed
		return err
	}
	if err := <-probed; err != nil {
		return fmt.Errorf("probe: %w", err)
	}
	h.Report = report
	return nil
}

// Probe asks the host for its GPUs. The tally, which may be nil, shows that nvidia-smi is
// slow.
func (h *Host) Probe(ctx context.Context, tally *console.Tally) (gpuprobe.Report, error) {
	return gpuprobe.Probe(ctx, h, gpuprobe.Options{ToolTime: h.probeTime, Slow: func() { h.slow(tally) }})
}

// slow notes that nvidia-smi is slow.
func (h *Host) slow(tally *console.Tally) {
	h.slowTool.Store(true)
	tally.Note(h.Name(), "nvidia-smi is slow there, --probe-timeout bounds it")
}

// hintAtSlowTools tells what makes nvidia-smi quick, if it is slow on some of the hosts.
func (s *Set) hintAtSlowTools() {
	var lines []string
	for _, h := range s.Hosts {
		if h.slowTool.Swap(false) {
			lines = append(lines, fmt.Sprintf("host %s: nvidia-smi is slow there: persistence mode makes it quick (sudo nvidia-smi -pm 1)", h.Name()))
		}
	}
	s.printer.Lines(lines)
}

// DataAddr returns the address that tasks of other hosts dial.
func (h *Host) DataAddr() (string, error) {
	switch {
	case h.Resource.DataAddr != "":
		return h.Resource.DataAddr, nil
	case h.ChosenAddr != "":
		return h.ChosenAddr, nil
	case h.Facts.ServerAddr != "":
		return h.Facts.ServerAddr, nil
	}
	return "", errors.New("its address is not known: no SSH server has told it by SSH_CONNECTION: add addr=IP or nic=NAME to its line in the resource file")
}

// Close ends the connection.
func (h *Host) Close() error {
	h.makeRoom()
	return h.Conn.Close()
}

// Script runs a POSIX shell script. Its error is a [ScriptError] if the script wrote to
// stderr.
func (h *Host) Script(ctx context.Context, script string, stdin io.Reader, stdout io.Writer) error {
	stderr := &tail{limit: 4 << 10}
	return explain(h.Run(ctx, script, stdin, stdout, stderr), stderr)
}

// ScriptError is the error of a script that wrote to stderr.
type ScriptError struct {
	Stderr string // the last bytes that the script wrote to stderr
	Err    error  // how the script ended
}

func (e *ScriptError) Error() string { return fmt.Sprintf("%s (%v)", e.Stderr, e.Err) }
func (e *ScriptError) Unwrap() error { return e.Err }

// explain adds what a script wrote on stderr to its error.
func explain(err error, stderr *tail) error {
	if why := transport.WhyLost(err); why != "" {
		return transport.Reworded(err, why)
	}
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		return &ScriptError{text, err}
	}
	return err
}

// tail keeps the last bytes written to it.
type tail struct {
	limit int // most bytes to keep
	mu    sync.Mutex
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	t.buf = t.buf[max(0, len(t.buf)-t.limit):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// Send brings the agent to the host, which was inspected, whatever it was known to have.
func (h *Host) Send(ctx context.Context, agent envsync.Blob) error {
	h.has = nil
	return transport.Unnamed(h.Name(), envsync.Sync(ctx, []envsync.Target{h.target()}, agent, nil, nil))
}

// Ports are the first and the last port on which hosts may give files to each other; 0 and 0:
// any.
type Ports struct{ Low, High int }

// SendAll brings the agent to hosts that were inspected, and shows the progress. Hosts that
// have it give it to others.
func SendAll(ctx context.Context, to []*Host, agent envsync.Blob, ports Ports, bar *console.Transfer) error {
	var targets []envsync.Target
	for _, h := range to {
		t := h.target()
		if addr, err := h.DataAddr(); err == nil {
			o := protocol.Offer{Addr: addr, Low: ports.Low, High: ports.High, Token: rand.Text()}
			t.Offer = func(ctx context.Context) (envsync.Offer, error) { return h.offer(ctx, agent, o) }
		}
		targets = append(targets, t)
	}
	err := envsync.Sync(ctx, targets, agent, bar.Moved, func(why string) {
		bar.Note("hosts could not give plx to each other, so this machine has sent it: " + why)
	})
	if err == nil {
		for _, h := range to {
			h.has = append(h.has, agent.Sum)
		}
	}
	return err
}

func (h *Host) target() envsync.Target {
	return envsync.Target{Name: h.Name(), Host: h, FileSystem: h.Facts.FileSystem, Has: h.has}
}

// Has reports whether the host is known to have a blob.
func (h *Host) Has(b envsync.Blob) bool { return slices.Contains(h.has, b.Sum) }

// offer has the agent give itself to other hosts. ctx bounds the beginning.
func (h *Host) offer(ctx context.Context, agent envsync.Blob, o protocol.Offer) (envsync.Offer, error) {
	s := h.Stream(ctx, (&AgentHost{Host: h, Binary: envsync.BlobPath(agent.Sum)}).shell("offer"))
	stop := context.AfterFunc(ctx, func() { s.Close() })
	err := json.NewEncoder(s).Encode(o)
	var port int
	if err == nil {
		_, err = fmt.Fscanln(io.LimitReader(s, 16), &port)
	}
	if !stop() || err != nil {
		s.Close()
		return envsync.Offer{}, cmp.Or(context.Cause(ctx), err)
	}
	return envsync.Offer{Host: o.Addr, Port: strconv.Itoa(port), Token: o.Token, Close: func() { _ = s.Finish() }}, nil
}

// Survey connects to every host, and writes its Facts and Report. Likely are the blobs that
// the hosts will probably need, the agent first.
func (s *Set) Survey(ctx context.Context, likely ...envsync.Blob) error {
	probes := s.printer.NewTally("probing", len(s.Hosts))
	defer s.hintAtSlowTools()
	return Each(ctx, s.Hosts, func(_ int, h *Host) error { return h.survey(ctx, probes, likely) })
}

// Machines returns the hosts as Survey found them.
func (s *Set) Machines() (machines []placement.Machine) {
	for _, h := range s.Hosts {
		m := placement.Machine{Host: h.Resource, Report: &h.Report}
		if !h.Embedded && h.Facts.BootID != "" { // the servers of an embedded cluster share a machine on purpose
			m.ID = h.Facts.BootID + "/" + h.Facts.HostName
		}
		machines = append(machines, m)
	}
	return machines
}
