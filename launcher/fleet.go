package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/gpuprobe"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/ssh"
)

// fanOut is how many hosts are worked on at once. More would meet the limits
// of sshd and of the launching machine at the same time.
const fanOut = 64

// fleet is the hosts of one command, in the order of the resource file.
type fleet struct {
	remotes  []*remote
	clusters []*embedded.Cluster
	turns    chan struct{} // holds one for each host that is being dialled
}

func newFleet() *fleet { return &fleet{turns: make(chan struct{}, fanOut)} }

// openFleet makes a fleet of the wanted hosts without reaching any.
func openFleet(ctx context.Context, reach Reach, v *voice) (*fleet, error) {
	f := newFleet()
	if len(reach.Hosts) == 0 {
		return f, f.embed(ctx, reach, v)
	}
	for _, h := range reach.Hosts {
		cfg := ssh.Config{User: h.User, Host: h.Name, Port: h.Port, AcceptNewHostKeys: reach.AcceptNewHostKeys,
			Notice: func(text string) { v.say("%s", text) }} // it names the host
		r := newRemote(h, f.overSSH(cfg), false)
		if isThisMachine(h) && refused(ctx) {
			if err := f.serveSelf(ctx, r, v); err != nil {
				return f, err
			}
		}
		f.remotes = append(f.remotes, r)
	}
	return f, nil
}

// overSSH dials with a configuration.
func (f *fleet) overSSH(cfg ssh.Config) dialler {
	return f.bounded(func(ctx context.Context) (transport, error) {
		c, err := ssh.Dial(ctx, cfg)
		if err != nil {
			return nil, err
		}
		return c, nil
	})
}

// bounded dials for the first time once it is the host's turn: up to fanOut of a
// fleet's are dialled at once, also by a command that works on all of them for as
// long as a job runs. A host that was there does not wait for others that are gone:
// its lease would run out meanwhile.
func (f *fleet) bounded(dial dialler) dialler {
	var reached atomic.Bool
	return func(ctx context.Context) (conn transport, err error) {
		if reached.Load() {
			return dial(ctx)
		}
		defer func() { reached.Store(err == nil) }()
		select {
		case f.turns <- struct{}{}:
			defer func() { <-f.turns }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return dial(ctx)
	}
}

// embed starts the embedded cluster.
func (f *fleet) embed(ctx context.Context, reach Reach, v *voice) error {
	c, err := embedded.Start(ctx, reach.LocalHosts)
	if err != nil {
		return fmt.Errorf("start embedded cluster: %w", err)
	}
	f.clusters = append(f.clusters, c)
	for _, cfg := range c.Configs() {
		host := hostfile.Host{Name: cfg.Host, Devices: hostfile.Devices{Kind: hostfile.CPUs, Count: reach.LocalWorkers}}
		f.remotes = append(f.remotes, newRemote(host, f.overSSH(cfg), true))
	}
	return nil
}

// isThisMachine reports whether the line means the launching machine by
// whatever way plx likes to reach it.
func isThisMachine(h hostfile.Host) bool {
	return h.Port == 0 && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, h.Name)
}

// refused reports whether no SSH server listens on this machine.
func refused(ctx context.Context) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", "127.0.0.1:22")
	if err == nil {
		c.Close() // it was opened to see that it can be
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// serveSelf gives this machine an embedded server, as it has no sshd.
func (f *fleet) serveSelf(ctx context.Context, r *remote, v *voice) error {
	c, err := embedded.Start(ctx, 1)
	if err != nil {
		return fmt.Errorf("host %s: start embedded server: %w", r.host.Name, err)
	}
	v.say("host %s: no SSH server listens here, plx serves it itself", r.host.Name)
	f.clusters = append(f.clusters, c)
	r.dial, r.embedded = f.overSSH(c.Configs()[0]), true
	return nil
}

// each does work on every host, up to fanOut at once, and returns all errors
// with their hosts' names, in file order. One host's error stops no other.
func (f *fleet) each(ctx context.Context, work func(ctx context.Context, r *remote) error) error {
	errs := make([]error, len(f.remotes))
	var g errgroup.Group
	g.SetLimit(fanOut)
	for i, r := range f.remotes {
		g.Go(func() error {
			if err := work(ctx, r); err != nil {
				errs[i] = r.named(err)
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

// survey connects to every host, and learns what it is and what it has.
func (f *fleet) survey(ctx context.Context) error {
	return f.each(ctx, func(ctx context.Context, r *remote) error {
		if err := r.inspect(ctx); err != nil {
			return err
		}
		report, err := gpuprobe.Probe(ctx, r)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		r.report = report
		return nil
	})
}

// machines returns the hosts with what survey found on them.
func (f *fleet) machines() []machine {
	var ms []machine
	for _, r := range f.remotes {
		ms = append(ms, machine{Host: r.host, report: &r.report})
	}
	return ms
}

// checkTwins refuses two names of one machine where they share a GPU, and
// tells the user where they do not. Servers of an embedded cluster are one
// machine on purpose.
func (f *fleet) checkTwins(p placement, v *voice) error {
	seen := map[string]placed{}
	for _, h := range p.hosts {
		r := f.remotes[h.machine]
		if r.embedded || r.facts.BootID == "" {
			continue
		}
		id := r.facts.BootID + "/" + r.facts.HostName
		first, twice := seen[id]
		if !twice {
			seen[id] = h
			continue
		}
		names := fmt.Sprintf("hosts %s and %s are one machine (%s)", f.remotes[first.machine].host.Name, r.host.Name, r.facts.HostName)
		if gpu := shared(first, h); gpu != "" {
			return fmt.Errorf("%s, and both would use %s", names, gpu)
		}
		v.say("%s", names)
	}
	return nil
}

// shared names a GPU that both hosts' tasks use, or "".
func shared(a, b placed) string {
	for _, x := range a.tasks {
		for _, y := range b.tasks {
			if x.visible != "" && x.device == y.device {
				return x.device
			}
		}
	}
	return ""
}

// Close ends every connection and the embedded servers, in bounded time.
func (f *fleet) Close() error {
	errs := make([]error, len(f.remotes))
	var wg sync.WaitGroup
	for i, r := range f.remotes {
		wg.Go(func() { errs[i] = r.Close() })
	}
	wg.Wait()
	for _, c := range f.clusters {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
