// Package hosts holds one command's connections to all its hosts, and to the
// agents that run on the hosts.
//
//	set, err := hosts.Open(ctx, hosts.Reach{Hosts: lines}, printer)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	if err := set.Hosts[0].Survey(ctx); err != nil {
//		return err
//	}
//	conn, err := (&hosts.AgentHost{Host: set.Hosts[0], Job: job}).Start(ctx, spec)
//
// # Where to find what
//
// The file dial.go limits how many hosts are dialed at once; package transport
// makes the connections. The file agent.go starts and connects to agents and
// runs commands as byte streams. The file idle.go sends requests to agents
// that have no job yet. The file group.go starts several agents.
//
// # What this package does not do
//
// It does not know the stages of a launch or the meaning of a job. It opens
// lost connections again, but retries no other operation.
package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/bootstrap"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/via"
)

// FanOut is the maximum number of hosts on which a command works at once. More
// parallel connections could exceed limits of this machine or of a jump host.
const FanOut = 64

// Reach says which hosts a command uses and how to connect to them.
type Reach struct {
	// Hosts are the hosts of the resource file. Empty means an embedded
	// cluster: hosts simulated on this machine.
	Hosts []hostfile.Host
	// LocalHosts and LocalWorkers describe an embedded cluster: its number of
	// simulated hosts, and the number of workers on each.
	LocalHosts, LocalWorkers int
	// Interface is the network interface for traffic between tasks. It applies
	// to hosts whose resource line names neither an interface nor an address.
	// If it is empty, tasks use the address to which SSH connects.
	Interface string
	// AcceptNewHostKeys accepts and records the SSH host key of a host that
	// has no known key yet.
	AcceptNewHostKeys bool
	// ForwardAgent enables SSH agent forwarding to hosts for which ssh_config
	// sets ForwardAgent. Tasks of jobs cannot use the forwarded agent.
	ForwardAgent bool
	// Via is the command that connects to a host in place of ssh (see package
	// via). Empty means SSH.
	Via string
	// Slurm is the Slurm job whose allocation contains the hosts. If it is
	// set, plx reaches the hosts by Slurm job steps instead of SSH or Via.
	Slurm slurm.Run
	// SharedHome says that the nodes of the Slurm job share this machine's
	// home directory. After the Slurm job has ended, plx then reads their
	// files through an embedded server on this machine.
	SharedHome bool
	// ProbeTime is the time limit of one nvidia-smi call. 0 means
	// gpuprobe.DefaultToolTime.
	ProbeTime time.Duration
	// DialTime limits the time to open an SSH connection, and also the time to
	// start a command on it. It has no effect if the default limits are
	// shorter; 0 means the defaults.
	DialTime time.Duration
	home     bool // AtHome was called: embedded SSH servers on this machine stand in for all hosts
	// PortLow and PortHigh are the first and last port on which hosts may
	// serve the plx binary to each other. If both are 0, any port may be used.
	PortLow, PortHigh int
	// KeepStartUpOutput suppresses the note that startup files of a login
	// shell print text. plx then only counts that text, in Host.StartUpOutput.
	KeepStartUpOutput bool
}

// Lines returns the resource lines of all hosts, or generated lines for an
// embedded cluster. A line that names neither a network interface nor an
// address gets r.Interface.
func (r Reach) Lines() []hostfile.Host {
	lines := slices.Clone(r.Hosts)
	if len(lines) == 0 {
		lines = make([]hostfile.Host, r.LocalHosts)
		for i := range lines {
			lines[i] = hostfile.Host{Name: embedded.Address(i), Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: r.LocalWorkers}}
		}
	}
	for i := range lines {
		if l := &lines[i]; l.Interface == "" && l.DataAddr == "" {
			l.Interface = r.Interface
		}
	}
	return lines
}

// AtHome returns a Reach that connects to embedded servers on this machine
// instead of the hosts. It requires that the hosts share this machine's home
// directory.
func (r Reach) AtHome() Reach {
	r.home = true
	return r
}

// CheckVariables returns an error if a resource line sets an environment
// variable that plx sets itself. The error begins with file:line.
func (r Reach) CheckVariables() error {
	for _, h := range r.Hosts {
		for _, e := range h.Env {
			if err := envsync.CheckVariable(e); err != nil {
				return exit.Mistake(fmt.Errorf("%s: %w", h.Pos, err), "leave the variable out of the host's line: plx sets it")
			}
		}
	}
	return nil
}

// Set is the hosts of one command, with their connections. The zero value
// contains no hosts.
type Set struct {
	// Hosts has the order of the resource file.
	Hosts    []*Host
	mu       sync.Mutex // guards bar and, once Open has returned, clusters
	clusters []*embedded.Cluster
	turns    chan struct{} // semaphore: holds one element for each host that is being dialed
	printer  *console.Printer
	dials    *console.HostProgress // progress display of the first connections to hosts
	agents   *agents               // provides the plx binary for the hosts; nil if the Set has no hosts
	seeds    *bootstrap.Seeds
	bar      *console.Transfer // progress display of sending the plx binary; nil until a transfer begins
}

// Open returns the Set of hosts that reach describes. It does not connect to
// any host.
func Open(ctx context.Context, reach Reach, printer *console.Printer) (*Set, error) {
	s, err := open(ctx, reach, printer)
	for _, h := range s.Hosts {
		h.set, h.startTime, h.probeTime, h.ports = s, reach.DialTime, reach.ProbeTime, [2]int{reach.PortLow, reach.PortHigh}
	}
	return s, err
}

func open(ctx context.Context, reach Reach, printer *console.Printer) (*Set, error) {
	own, _ := artifacts.Own() // the error is ignored: if plx's own binary cannot run on the hosts, guess is zero, and plx first asks each host for its platform
	s := &Set{turns: make(chan struct{}, FanOut), printer: printer, dials: printer.NewHostProgress("connecting", len(reach.Lines())),
		agents: &agents{printer: printer, guess: own, made: map[envsync.Platform]*artifacts.Set{}}}
	s.seeds = bootstrap.NewSeeds(func(why string) {
		printer.Printf("hosts could not download plx from each other, so this machine sends it: %s", why)
	})
	if len(reach.Hosts) == 0 {
		if reach.Via != "" {
			return s, exit.Mistake(errors.New("--via needs at least one host"), "name them with --hosts FILE or --host LINE")
		}
		return s, s.embed(ctx, reach.Lines())
	}
	if err := enoughFiles(distantFiles, len(reach.Hosts)); err != nil {
		return s, err
	}
	if reach.home {
		return s, s.embed(ctx, reach.Lines())
	}
	if reach.Slurm != (slurm.Run{}) {
		return s, s.overCommand(ctx, reach, via.Config{Command: slurm.Command(reach.Slurm.ID), Env: slurm.Environ(), Step: true})
	}
	if reach.Via != "" {
		return s, s.overCommand(ctx, reach, via.Config{Command: reach.Via})
	}
	var asked *questions // asked stays nil if there is no terminal on which to ask the user
	if printer.CanAsk() {
		asked = &questions{turn: make(chan struct{}, 1), answers: map[string]string{}, ask: printer.Ask}
	}
	for i, line := range reach.Lines() {
		if strings.Contains(line.Name, "/") {
			return s, exit.Mistake(fmt.Errorf("host %s: the name of an SSH host cannot contain a slash", line.Name), "write the name alone; only a command of --via takes such names")
		}
		if isThisMachine(line) && noSSHServer(ctx) {
			printer.Printf("host %s: no SSH server listens here: plx starts an embedded one", line.Name)
			if err := s.embed(ctx, []hostfile.Host{line}); err != nil {
				return s, fmt.Errorf("host %s: %w", line.Name, err)
			}
			s.Hosts[i].onLine(reach.Hosts[i])
			continue
		}
		cfg := ssh.Config{User: line.User, Host: line.Name, Port: line.Port, AcceptNewHostKeys: reach.AcceptNewHostKeys, ForwardAgent: reach.ForwardAgent, DialAtMost: reach.DialTime,
			Notice: func(text string) { printer.Printf("%s", text) }}
		if asked != nil {
			cfg.Ask = asked.answer
		}
		var h *Host
		cfg.OnSessionRefused = func() { h.closeIdle() }
		if reach.KeepStartUpOutput {
			cfg.OnStartUpOutput = func(bytes int) { h.StartUpOutput.Store(int64(bytes)) }
		}
		h = NewHost(line, s.limitDials(line.Name, overSSH(cfg)))
		h.onLine(reach.Hosts[i])
		s.Hosts = append(s.Hosts, h)
	}
	return s, nil
}

// Add moves the hosts of other into s. s.Close then also closes their
// connections. plx must not have been sent to these hosts before.
func (s *Set) Add(other *Set) {
	for _, h := range other.Hosts {
		h.set = s
	}
	s.Hosts, s.clusters = append(s.Hosts, other.Hosts...), append(s.clusters, other.clusters...)
}

// Each calls work for every host, for at most FanOut hosts at once. If ctx is
// canceled, it returns the cause. Otherwise it returns the errors of all hosts
// in order, each with its host's name. An error of one host does not stop work
// on the others.
func Each[H interface{ Named(error) error }](ctx context.Context, all []H, work func(i int, h H) error) error {
	errs := make([]error, len(all))
	var g errgroup.Group
	g.SetLimit(FanOut)
	for i, h := range all {
		g.Go(func() error {
			if err := work(i, h); err != nil {
				errs[i] = h.Named(err)
			}
			return nil
		})
	}
	g.Wait() // error ignored: the functions return nil, and errs has the errors of work
	return cmp.Or(context.Cause(ctx), errors.Join(errs...))
}

// sending returns the progress display for sending the plx binary, and creates
// it if needed.
func (s *Set) sending() *console.Transfer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar == nil {
		s.bar = s.printer.NewTransfer("sending")
	}
	return s.bar
}

// showSent updates the progress display with how many bytes of the plx binary a
// host has received.
func (s *Set) showSent(host, _ string, sent, total int64) {
	s.sending().MovedOf("plx", host, "plx", sent, total)
}

// countSent adds bytes to the number that this machine has sent of the plx
// binary. The display shows this number separately, because hosts also send
// the binary to each other.
func (s *Set) countSent(bytes int64) { s.sending().AddSent(bytes) }

// Pause hides the progress display of sending plx until more bytes are sent.
func (s *Set) Pause() {
	s.mu.Lock()
	bar := s.bar
	s.mu.Unlock()
	if bar != nil {
		bar.Close()
	}
}

// Sending returns the progress display of sending plx. The caller continues it
// for other files, and must call the display's method Sent at the end.
func (s *Set) Sending() *console.Transfer {
	bar := s.sending()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = nil
	return bar
}

// Placed ends the progress display of sending plx, if there is one, and prints
// a summary. err is the error of the hosts that did not receive plx.
func (s *Set) Placed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		s.bar.Finish(err)
	}
	s.bar = nil
}

// Close closes all connections and stops the embedded servers. Each step has a
// time limit.
func (s *Set) Close() error {
	errs := make([]error, len(s.Hosts))
	var wg sync.WaitGroup
	for i, h := range s.Hosts {
		wg.Go(func() { errs[i] = h.Close() })
	}
	wg.Wait()
	for _, c := range s.clusters {
		errs = append(errs, c.Close())
	}
	if s.agents != nil {
		errs = append(errs, s.agents.close())
	}
	return errors.Join(errs...)
}

// embed starts an embedded SSH server on this machine for each line, and adds
// the servers as hosts.
func (s *Set) embed(ctx context.Context, lines []hostfile.Host) error {
	if err := enoughFiles(embeddedFiles, len(lines)); err != nil {
		return err
	}
	c, err := embedded.Start(ctx, len(lines))
	if err != nil {
		return err
	}
	s.clusters = append(s.clusters, c)
	for i, cfg := range c.Configs() {
		h := NewHost(lines[i], s.limitDials(lines[i].Name, overSSH(cfg)))
		h.Embedded = true
		s.Hosts = append(s.Hosts, h)
	}
	return nil
}

// files computes how many open files this process needs for n hosts: anyhow +
// each*n.
type files struct {
	anyhow, each int
	format       string // format of the error message; its arguments are the number of hosts, the files needed and the limit
	hint         string
}

// Measured for an embedded cluster: 97 open files with 8 hosts, 361 with 32
// hosts. A connection to a remote host takes one open file.
var (
	embeddedFiles = files{64, 12, "an embedded cluster of %d hosts opens %d files, and the limit of this process is %d (ulimit -Hn)", "a smaller --local HOSTSxWORKERS, or a higher ulimit -n"}
	distantFiles  = files{24, 1, "connections to %d hosts take %d files at least, and the limit of this process is %d (ulimit -Hn)", "fewer hosts, or a higher ulimit -n"}
)

// enoughFiles returns an error if connections to this number of hosts need
// more open files than the process may have. It compares with the hard limit,
// because the Go runtime has raised the soft limit to it.
func enoughFiles(f files, hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // no error: if the limit is too low, opening a file will fail later
	}
	need := uint64(f.anyhow + f.each*hosts)
	if uint64(limit.Max) >= need {
		return nil
	}
	return exit.Mistake(fmt.Errorf(f.format, hosts, need, limit.Max), "%s", f.hint)
}

// Probe returns one row per host with the host's GPUs, in the order of the
// resource file. It starts no job. If a host cannot be reached, its row
// contains the error. If a host lacks a GPU that its resource line names, the
// row's Unmet is set.
func Probe(ctx context.Context, reach Reach, t console.Terminal) ([]gpuprobe.Row, error) {
	set, err := Open(ctx, reach, console.NewPrinter(t))
	if err != nil {
		return nil, err
	}
	defer set.Close() // error ignored: Probe changes nothing on the hosts
	rows, probes := make([]gpuprobe.Row, len(set.Hosts)), set.printer.NewHostProgress("probing", len(set.Hosts))
	defer set.PrintSlowToolHints()
	return rows, Each(ctx, set.Hosts, func(i int, h *Host) error { // the function never returns an error to Each; it stores errors in rows
		row := &rows[i]
		row.Host = h.Label()
		if row.Err = h.Dial(ctx); row.Err == nil { // without a connection, do not call h.Probe: it would dial the host a second time
			probes.Begin(h.Name())
			defer probes.End(h.Name())
			row.Report, row.Err = h.Probe(ctx, probes)
		}
		if row.Err != nil {
			row.Err = h.Named(row.Err)
			return nil
		}
		row.Unmet = placement.Machine{Host: h.Resource, Report: &row.Report}.Unmet()
		return nil
	})
}
