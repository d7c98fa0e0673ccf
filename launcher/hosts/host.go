package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/transport"
)

// Host is one host. It is a Transport itself: it dials if there is no connection, so
// that work can continue after one was lost.
type Host struct {
	// Resource is the host's line of the resource file.
	Resource hostfile.Host
	// Embedded tells that a server of this process serves the host.
	Embedded bool
	// Facts are written by Meet and Learn; the zero value means that none was called.
	Facts envsync.Facts
	// Report is written by AgentHost.FindGPUs.
	Report gpuprobe.Report

	// Noise is how many bytes start-up files of the login shell print at each command. It
	// is written, with Reach.KeepNoise only, when a command has run.
	Noise atomic.Int64

	startTime time.Duration // bounds the start of a command, if it is shorter than usual; 0: nothing else bounds it
	probeTime time.Duration // how long a call of nvidia-smi may take; 0: the default
	slowTool  atomic.Bool   // nvidia-smi was slow
	slowShell atomic.Bool   // the login shell was slow, which the user was told

	set   *Set   // nil: the host is alone, and gets no plx
	ports [2]int // first and last on which it may give plx to others
	plx   string // path of the plx that was placed there, relative to the home; "": none was

	has   []string             // sums of blobs that the host has, as Meet found
	locks string               // see Locks
	idle  atomic.Pointer[idle] // waits for the Spec of a job; nil: none does

	starting sync.Mutex // held while an agent is started that is to wait

	// ChosenAddr is the data address on the interface that the line names; empty: not known.
	ChosenAddr string
	// InterfaceBy is the file:line that names the interface; empty: --nic has chosen it.
	InterfaceBy string
	*transport.Conn
}

// NewHost returns the host of a line, which dial connects to.
func NewHost(line hostfile.Host, dial transport.Dialer) *Host {
	return &Host{Resource: line, Conn: transport.NewConn(line.Name, dial)}
}

// onLine notes that the host's own line names the interface.
func (h *Host) onLine(line hostfile.Host) {
	if line.Interface != "" {
		h.InterfaceBy = line.Pos.String()
	}
}

// Name returns the host's name.
func (h *Host) Name() string { return h.Resource.Name }

// Named puts the host's name before an error, which may name it already.
func (h *Host) Named(err error) error {
	return fmt.Errorf("host %s: %w", h.Name(), transport.Unnamed(h.Name(), err))
}

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

// HintAtSlowTools tells what makes nvidia-smi quick, if it is slow on some of the hosts.
func (s *Set) HintAtSlowTools() {
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
	addr := cmp.Or(h.Resource.DataAddr, h.ChosenAddr, h.Facts.ServerAddr)
	if addr == "" {
		return "", errors.New("its address is not known: no SSH server has told it by SSH_CONNECTION: add addr=IP or nic=NAME to its line in the resource file")
	}
	if ip, err := netip.ParseAddr(addr); err == nil && ip.Is6() && ip.IsLinkLocalUnicast() {
		line := h.Resource.Bare()
		line.DataAddr = "IP"
		return "", exit.Mistake(fmt.Errorf("%w: %s", ErrLinkLocal, addr), "write an address of another kind, %q, or nic=NAME for an interface that has one", line.String())
	}
	return addr, nil
}

// ErrLinkLocal is the error of a host whose tasks other hosts cannot dial. An interface has
// another name on each of them.
var ErrLinkLocal = errors.New("its address is link-local, and other hosts cannot dial it without the name of an interface of their own")

// Close ends the connection.
func (h *Host) Close() error {
	h.makeRoom()
	return h.Conn.Close()
}

// Script runs a POSIX shell script. Its error is a [ScriptError] if the script wrote to
// stderr.
func (h *Host) Script(ctx context.Context, script string, stdin io.Reader, stdout io.Writer) error {
	stderr := &tail{limit: 4 << 10}
	err := h.Run(ctx, script, stdin, stdout, stderr)
	if why := transport.WhyLost(err); why != "" {
		return transport.Reworded(err, why)
	}
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		return &ScriptError{text, err}
	}
	return err
}

// ScriptError is the error of a script that wrote to stderr.
type ScriptError struct {
	Stderr string // the last bytes that the script wrote to stderr
	Err    error  // how the script ended
}

func (e *ScriptError) Error() string { return fmt.Sprintf("%s (%v)", e.Stderr, e.Err) }
func (e *ScriptError) Unwrap() error { return e.Err }

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

// Has reports whether the host is known to have a blob.
func (h *Host) Has(b envsync.Blob) bool { return slices.Contains(h.has, b.Sum) }

// Machines returns the hosts with what was found of them.
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
