// Package hosts holds the connections of one command to all of its hosts, and to
// the agents that run there.
//
//	set, err := hosts.Open(ctx, hosts.Reach{Hosts: lines}, printer)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	if err := set.Survey(ctx); err != nil {
//		return err
//	}
//	conn, err := (&hosts.AgentHost{Host: set.Hosts[0], Job: job}).Start(ctx, spec)
//
// # Where to look
//
// dial.go says what a transport is and chooses that of a host, redial.go dials a lost
// connection again. agent.go runs the agent's commands, also as byte streams. group.go
// starts several agents.
//
// # What it refuses to do
//
// It does not know the order of a launch or what a job is, and it retries nothing
// but the connection.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/placement"
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
	// AcceptNewHostKeys records the key of a host of which none is known.
	AcceptNewHostKeys bool
}

// Set is the hosts of one command. Its zero value has none.
type Set struct {
	// Hosts are in the order of the resource file.
	Hosts    []*Host
	clusters []*embedded.Cluster
	turns    chan struct{} // holds one element for each host that is being dialled
}

// Open makes the Set of the hosts that are meant. It connects to none of them.
func Open(ctx context.Context, reach Reach, printer *console.Printer) (*Set, error) {
	s := &Set{turns: make(chan struct{}, FanOut)}
	if len(reach.Hosts) == 0 {
		return s, s.embed(ctx, reach)
	}
	for _, line := range reach.Hosts {
		if isThisMachine(line) && noSSHServer(ctx) {
			if err := s.serveSelf(ctx, line, printer); err != nil {
				return s, err
			}
			continue
		}
		s.Hosts = append(s.Hosts, NewHost(line, s.inTurn(transportOf(line, reach, printer))))
	}
	return s, nil
}

// Add moves the hosts of other into s, which closes them.
func (s *Set) Add(other *Set) {
	s.Hosts, s.clusters = append(s.Hosts, other.Hosts...), append(s.clusters, other.clusters...)
}

// Each calls work for every host with its index, up to FanOut at once. It returns all
// errors, in order, with the hosts' names. An error of one host stops no other.
func (s *Set) Each(ctx context.Context, work func(ctx context.Context, i int, h *Host) error) error {
	errs := make([]error, len(s.Hosts))
	var g errgroup.Group
	g.SetLimit(FanOut)
	for i, h := range s.Hosts {
		g.Go(func() error {
			if err := work(ctx, i, h); err != nil {
				errs[i] = h.Named(err)
			}
			return nil
		})
	}
	g.Wait() // the functions return nil
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return errors.Join(errs...)
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
	return errors.Join(errs...)
}

// embed starts an embedded cluster and adds its hosts.
func (s *Set) embed(ctx context.Context, reach Reach) error {
	c, err := embedded.Start(ctx, reach.LocalHosts)
	if err != nil {
		return fmt.Errorf("start embedded cluster: %w", err)
	}
	s.clusters = append(s.clusters, c)
	for _, cfg := range c.Configs() {
		line := hostfile.Host{Name: cfg.Host, Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: reach.LocalWorkers}}
		s.Hosts = append(s.Hosts, newHost(line, s.inTurn(overSSH(cfg)), true))
	}
	return nil
}

// serveSelf adds this machine, and starts an embedded server for it.
func (s *Set) serveSelf(ctx context.Context, line hostfile.Host, printer *console.Printer) error {
	c, err := embedded.Start(ctx, 1)
	if err != nil {
		return fmt.Errorf("host %s: start embedded server: %w", line.Name, err)
	}
	printer.Printf("host %s: no SSH server listens here: plx starts an embedded one", line.Name)
	s.clusters = append(s.clusters, c)
	s.Hosts = append(s.Hosts, newHost(line, s.inTurn(overSSH(c.Configs()[0])), true))
	return nil
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
	rows := make([]gpuprobe.Row, len(set.Hosts))
	set.Each(ctx, func(ctx context.Context, i int, h *Host) error { // none returns an error: the rows have them
		row := &rows[i]
		row.Host = h.Label()
		if row.Err = h.Dial(ctx); row.Err == nil { // else the probe would dial again
			row.Report, row.Err = gpuprobe.Probe(ctx, h)
		}
		if row.Err != nil {
			row.Err = h.Named(row.Err)
			return nil
		}
		if h.Embedded {
			row.Report.AddLocal()
		}
		row.Unmet = placement.Machine{Host: h.Resource, Report: &row.Report}.Unmet()
		return nil
	})
	return rows, context.Cause(ctx)
}
