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

// Host is one host and the connection to it. Its methods connect if there is
// no connection, so that work continues after a connection was lost.
type Host struct {
	// Resource is the host's parsed line of the resource file.
	Resource hostfile.Host
	// Embedded is true if an SSH server inside this process stands in for the
	// host (an embedded cluster).
	Embedded bool
	// Facts are the host's platform and addresses. Survey and AgentHost.UpdateFacts set them;
	// the zero value means that neither was called.
	Facts envsync.Facts
	// Report lists the host's GPUs. AgentHost.FindGPUs sets it.
	Report gpuprobe.Report

	// StartUpOutput is the number of bytes that the login shell's startup
	// files print before each command. It is set by the first command that
	// runs, if Reach.KeepStartUpOutput is set.
	StartUpOutput atomic.Int64

	startTime time.Duration // time limit for the start of a command, if shorter than the default; 0 uses the default
	probeTime time.Duration // time limit of one nvidia-smi call; 0 uses the default
	slowTool  atomic.Bool   // nvidia-smi was slow on this host
	slowShell atomic.Bool   // the login shell was slow, and the user has been notified

	set   *Set   // the Set that contains this host; nil for a host outside a Set, to which plx cannot be sent
	ports [2]int // first and last port on which the host may serve the plx binary to other hosts; 0 allows any port
	plx   string // path of this plx version's binary on the host, relative to the home directory; "" before Survey

	has   []string             // SHA-256 sums of the files that Survey has found in the host's cache (~/.plx/blobs)
	locks string               // lines of /proc/net/unix that the method Locks returns
	idle  atomic.Pointer[idle] // agent on the host that waits for a job's Spec; nil if there is none

	starting sync.Mutex // locked while an idle agent is started, so that at most one is started

	// ChosenAddr is the host's address on the network interface of its
	// resource line. It is empty if not yet known.
	ChosenAddr string
	// InterfaceBy is the position (file:line) of the resource line that names
	// the interface. It is empty if the interface comes from --nic.
	InterfaceBy string
	*transport.Conn
}

// NewHost returns the host of a resource line. The Dialer dial connects to the
// host.
func NewHost(line hostfile.Host, dial transport.Dialer) *Host {
	return &Host{Resource: line, Conn: transport.NewConn(line.Name, dial)}
}

// onLine records the position of the resource line in InterfaceBy if this line
// names a network interface.
func (h *Host) onLine(line hostfile.Host) {
	if line.Interface != "" {
		h.InterfaceBy = line.Pos.String()
	}
}

// Name returns the host's name.
func (h *Host) Name() string { return h.Resource.Name }

// Named prefixes an error with the host's name, and removes the name from err
// if err already contains it.
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

// Probe asks nvidia-smi on the host for the GPUs. If nvidia-smi is slow, Probe
// shows a note in tally, which may be nil.
func (h *Host) Probe(ctx context.Context, tally *console.HostProgress) (gpuprobe.Report, error) {
	return gpuprobe.Probe(ctx, h, gpuprobe.Options{ToolTime: h.probeTime, Slow: func() { h.slow(tally) }})
}

// slow records that nvidia-smi is slow on this host, and shows a note in
// tally.
func (h *Host) slow(tally *console.HostProgress) {
	h.slowTool.Store(true)
	tally.Note(h.Name(), "nvidia-smi is slow there, --probe-timeout bounds it")
}

// PrintSlowToolHints prints, for each host on which nvidia-smi was slow, how to
// make it faster.
func (s *Set) PrintSlowToolHints() {
	var lines []string
	for _, h := range s.Hosts {
		if h.slowTool.Swap(false) {
			lines = append(lines, fmt.Sprintf("host %s: nvidia-smi is slow there: persistence mode makes it quick (sudo nvidia-smi -pm 1)", h.Name()))
		}
	}
	s.printer.Lines(lines)
}

// DataAddr returns the address at which tasks on other hosts connect to tasks
// on this host.
func (h *Host) DataAddr() (string, error) {
	addr := cmp.Or(h.Resource.DataAddr, h.ChosenAddr, h.Facts.ServerAddr)
	if addr == "" {
		return "", errors.New("its address is not known: no SSH server has told it by SSH_CONNECTION: add addr=IP or nic=NAME to its line in the resource file")
	}
	if ip, err := netip.ParseAddr(addr); err == nil && ip.Is6() && ip.IsLinkLocalUnicast() {
		line := h.Resource.WithoutSettings()
		line.DataAddr = "IP"
		return "", exit.Mistake(fmt.Errorf("%w: %s", ErrLinkLocal, addr), "write an address of another kind, %q, or nic=NAME for an interface that has one", line.String())
	}
	return addr, nil
}

// ErrLinkLocal means that the host's only address is an IPv6 link-local one.
// Other hosts would need the name of their own interface to connect to such an
// address.
var ErrLinkLocal = errors.New("its address is link-local, and other hosts cannot dial it without the name of an interface of their own")

// Close ends the host's idle agent and the connection.
func (h *Host) Close() error {
	h.closeIdle()
	return h.Conn.Close()
}

// Script runs a POSIX shell script on the host. If the script fails after
// writing to stderr, the error is a [ScriptError].
func (h *Host) Script(ctx context.Context, script string, stdin io.Reader, stdout io.Writer) error {
	stderr := &tail{limit: 4 << 10}
	err := h.Run(ctx, script, stdin, stdout, stderr)
	if why := transport.LossReason(err); why != "" {
		return transport.WithMessage(err, why)
	}
	if text := strings.TrimSpace(stderr.String()); err != nil && text != "" {
		return &ScriptError{text, err}
	}
	return err
}

// ScriptError is the error of a failed script that wrote to stderr.
type ScriptError struct {
	Stderr string // the last bytes that the script wrote to stderr
	Err    error  // exit status or connection error of the script
}

func (e *ScriptError) Error() string { return fmt.Sprintf("%s (%v)", e.Stderr, e.Err) }
func (e *ScriptError) Unwrap() error { return e.Err }

// tail is an io.Writer that keeps only the last bytes written.
type tail struct {
	limit int // maximum number of bytes to keep
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

// Has reports whether Survey has found the file b in the host's cache.
func (h *Host) Has(b envsync.Blob) bool { return slices.Contains(h.has, b.Sum) }

// Machines returns the hosts with their GPU reports, as package placement
// needs them.
func (s *Set) Machines() (machines []placement.Machine) {
	for _, h := range s.Hosts {
		m := placement.Machine{Host: h.Resource, Report: &h.Report}
		if !h.Embedded && h.Facts.BootID != "" { // no ID for embedded hosts: an equal ID would mean that one machine is listed twice, but they share this machine on purpose
			m.ID = h.Facts.BootID + "/" + h.Facts.HostName
		}
		machines = append(machines, m)
	}
	return machines
}
