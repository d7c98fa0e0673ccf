// Package hosts holds the connections of one command to all of its hosts, and to
// the agents that run there.
//
//	set, err := hosts.Open(ctx, hosts.Reach{Hosts: lines}, printer)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	if err := set.Hosts[0].Meet(ctx); err != nil {
//		return err
//	}
//	conn, err := (&hosts.AgentHost{Host: set.Hosts[0], Job: job}).Start(ctx, spec)
//
// # Where to look
//
// dial.go says in which order hosts are dialled, over a transport (package transport).
// agent.go runs the agent's commands, also as byte streams. group.go starts several agents.
//
// # What it refuses to do
//
// It does not know the order of a launch or what a job is, and it retries nothing
// but the connection.
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

// FanOut is how many hosts a command works on at once. More could exceed the limits
// of this machine, or of a jump host.
const FanOut = 64

// Reach tells which hosts are meant and how to reach them.
type Reach struct {
	// Hosts come from the resource file. Empty: an embedded cluster.
	Hosts []hostfile.Host
	// LocalHosts is the number of hosts of an embedded cluster, LocalWorkers the
	// number of workers of each.
	LocalHosts, LocalWorkers int
	// Interface is the network interface for data of all hosts whose lines name neither
	// an interface nor an address. Empty: the one that SSH arrives at.
	Interface string
	// AcceptNewHostKeys records the key of a host of which none is known.
	AcceptNewHostKeys bool
	// ForwardAgent forwards the user's SSH agent to hosts for which the ssh configuration says so.
	// Tasks do not get it.
	ForwardAgent bool
	// Via is a command that reaches a host instead of SSH, see package via. Empty: SSH.
	Via string
	// Slurm is the job of Slurm in whose allocation the hosts are. They are reached by its
	// steps, and not by SSH or Via. Zero: there is none.
	Slurm slurm.Run
	// SharedHome tells that the nodes of Slurm's job have the home of this machine. Once the
	// job is over an embedded server stands in for them, which serves what they have left.
	SharedHome bool
	// ProbeTime is how long one call of nvidia-smi may take. 0: gpuprobe.DefaultToolTime.
	ProbeTime time.Duration
	// DialTime bounds a connection by SSH, and then the start of a command, if it is shorter than
	// what else does.
	// 0: nothing else bounds it.
	DialTime time.Duration
	home     bool // embedded servers on this machine stand in for the hosts; set by AtHome
	// PortLow and PortHigh are the first and the last port on which hosts may give plx to each
	// other; 0 and 0: any.
	PortLow, PortHigh int
	// KeepNoise leaves it to Host.Noise to tell that start-up files print. Otherwise the
	// user is told.
	KeepNoise bool
}

// Lines returns the hosts, also those of an embedded cluster, with their interfaces.
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

// AtHome returns a Reach for the home of this machine, which the hosts share.
func (r Reach) AtHome() Reach {
	r.home = true
	return r
}

// CheckVariables refuses variables of the hosts' lines that plx sets itself. An error
// begins with file:line.
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

// Set is the hosts of one command. Its zero value has none.
type Set struct {
	// Hosts are in the order of the resource file.
	Hosts    []*Host
	mu       sync.Mutex // guards clusters after Open, and bar
	clusters []*embedded.Cluster
	turns    chan struct{} // holds one element for each host that is being dialled
	printer  *console.Printer
	dials    *console.Tally // first connections to hosts
	agents   *agents        // what the hosts get as plx; nil: the Set has no hosts
	seeds    *bootstrap.Seeds
	bar      *console.Transfer // shows that plx is sent; nil: it was not yet
}

// Open makes the Set of the hosts that are meant. It connects to none of them.
func Open(ctx context.Context, reach Reach, printer *console.Printer) (*Set, error) {
	s, err := open(ctx, reach, printer)
	for _, h := range s.Hosts {
		h.set, h.startTime, h.probeTime, h.ports = s, reach.DialTime, reach.ProbeTime, [2]int{reach.PortLow, reach.PortHigh}
	}
	return s, err
}

func open(ctx context.Context, reach Reach, printer *console.Printer) (*Set, error) {
	own, _ := artifacts.Own() // without it each host tells its platform first
	s := &Set{turns: make(chan struct{}, FanOut), printer: printer, dials: printer.NewTally("connecting", len(reach.Lines())),
		agents: &agents{printer: printer, guess: own, made: map[envsync.Platform]*artifacts.Set{}}}
	s.seeds = bootstrap.NewSeeds(func(why string) {
		printer.Printf("hosts could not give plx to each other, so this machine has sent it: %s", why)
	})
	if len(reach.Hosts) == 0 {
		if reach.Via != "" {
			return s, exit.Mistake(errors.New("--via says how to reach hosts, and no host is named"), "name them with --hosts FILE or --host LINE")
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
	var asked *questions // nil: there is no terminal
	if printer.CanAsk() {
		asked = &questions{turn: make(chan struct{}, 1), answers: map[string]string{}, ask: printer.Ask}
	}
	for i, line := range reach.Lines() {
		if strings.Contains(line.Name, "/") {
			return s, exit.Mistake(fmt.Errorf("host %s: no host of SSH has a slash in its name", line.Name), "write the name alone; only a command of --via takes such names")
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
		cfg.Crowded = func() { h.makeRoom() }
		if reach.KeepNoise {
			cfg.Noisy = func(bytes int) { h.Noise.Store(int64(bytes)) }
		}
		h = NewHost(line, s.inTurn(line.Name, overSSH(cfg)))
		h.onLine(reach.Hosts[i])
		s.Hosts = append(s.Hosts, h)
	}
	return s, nil
}

// Add moves the hosts of other, on which nothing was placed yet, into s, which closes them.
func (s *Set) Add(other *Set) {
	for _, h := range other.Hosts {
		h.set = s
	}
	s.Hosts, s.clusters = append(s.Hosts, other.Hosts...), append(s.clusters, other.clusters...)
}

// Each calls work for every host with its index, up to FanOut at once. It returns all
// errors, in order, with the hosts' names, or the cause if ctx has ended. An error of one
// host stops no other.
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
	g.Wait() // the functions return nil
	return cmp.Or(context.Cause(ctx), errors.Join(errs...))
}

// sending returns what shows that plx is sent.
func (s *Set) sending() *console.Transfer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar == nil {
		s.bar = s.printer.NewTransfer("sending")
	}
	return s.bar
}

// moved shows how much of plx was sent to a host.
func (s *Set) moved(host, _ string, sent, total int64) {
	s.sending().MovedOf("plx", host, "plx", sent, total)
}

// left counts bytes of plx that have left this machine.
func (s *Set) left(bytes int64) { s.sending().Left(bytes) }

// Pause ends the display of plx that is sent, until more is.
func (s *Set) Pause() {
	s.mu.Lock()
	bar := s.bar
	s.mu.Unlock()
	if bar != nil {
		bar.Close()
	}
}

// Sending returns what has shown that plx was sent, for what is sent besides. The caller calls
// Sent.
func (s *Set) Sending() *console.Transfer {
	bar := s.sending()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bar = nil
	return bar
}

// Placed tells how much of plx was sent, if any was. err is that of a host which did not get it.
func (s *Set) Placed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		s.bar.Sent(err)
	}
	s.bar = nil
}

// Close ends every connection and the embedded servers, in bounded time.
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

// embed starts an embedded server for each line, and adds the hosts.
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
		h := NewHost(lines[i], s.inTurn(lines[i].Name, overSSH(cfg)))
		h.Embedded = true
		s.Hosts = append(s.Hosts, h)
	}
	return nil
}

// files are what hosts need of open files.
type files struct {
	anyhow, each int
	format       string // of the error
	hint         string
}

// Of an embedded cluster 97 were open with 8 hosts and 361 with 32. A connection is one file.
var (
	embeddedFiles = files{64, 12, "an embedded cluster of %d hosts opens %d files, and the limit of this process is %d (ulimit -Hn)", "a smaller --local HOSTSxWORKERS, or a higher ulimit -n"}
	distantFiles  = files{24, 1, "connections to %d hosts take %d files at least, and the limit of this process is %d (ulimit -Hn)", "fewer hosts, or a higher ulimit -n"}
)

// enoughFiles refuses more hosts than this process may open files for. The Go runtime has
// raised the soft limit to the hard one.
func enoughFiles(f files, hosts int) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil // then the limit, if there is one, shows later
	}
	need := uint64(f.anyhow + f.each*hosts)
	if uint64(limit.Max) >= need {
		return nil
	}
	return exit.Mistake(fmt.Errorf(f.format, hosts, need, limit.Max), "%s", f.hint)
}

// Probe looks at every host, in file order, and starts nothing. The row of a host that
// could not be reached has the error. So has the row of a host that lacks a GPU of its
// line, for which a launch would be refused.
func Probe(ctx context.Context, reach Reach, t console.Terminal) ([]gpuprobe.Row, error) {
	set, err := Open(ctx, reach, console.NewPrinter(t))
	if err != nil {
		return nil, err
	}
	defer set.Close() // nothing was written
	rows, probes := make([]gpuprobe.Row, len(set.Hosts)), set.printer.NewTally("probing", len(set.Hosts))
	defer set.HintAtSlowTools()
	return rows, Each(ctx, set.Hosts, func(i int, h *Host) error { // it returns no error: the rows have them
		row := &rows[i]
		row.Host = h.Label()
		if row.Err = h.Dial(ctx); row.Err == nil { // else the probe would dial again
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
