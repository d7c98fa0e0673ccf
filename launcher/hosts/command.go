package hosts

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/embedded"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
	"github.com/plx-run/plx/launcher/via"
)

// overCommand adds hosts to s that plx reaches by a command instead of SSH,
// such as that of --via or Slurm's srun. The argument like configures that
// command.
func (s *Set) overCommand(ctx context.Context, reach Reach, like via.Config) error {
	if err := via.Check(ctx, like.Command); err != nil {
		return err
	}
	for i, line := range reach.Lines() {
		if line.User != "" || line.Port != 0 {
			err := fmt.Errorf("host %s: its line has a user or a port, which plx cannot pass to a --via command", line.Name)
			return exit.Mistake(err, "write the name alone, as the command wants it")
		}
		cfg := like
		cfg.Host, cfg.Guess, cfg.Agent = line.Name, s.agents.guess, s.agents.of
		dial := func(ctx context.Context) (transport.Transport, error) { return via.Dial(ctx, cfg) }
		if reach.SharedHome {
			dial = s.orHome(reach.Slurm, dial)
		}
		h := NewHost(line, s.limitDials(line.Name, dial))
		h.onLine(reach.Hosts[i])
		s.Hosts = append(s.Hosts, h)
	}
	return nil
}

// orHome returns a Dialer that connects to a node by a Slurm job step. After
// the Slurm job has ended, the Dialer connects to this machine instead, which
// shares its home directory with the nodes.
func (s *Set) orHome(run slurm.Run, step transport.Dialer) transport.Dialer {
	return func(ctx context.Context) (transport.Transport, error) {
		conn, err := step(ctx)
		if err == nil {
			return conn, nil
		}
		if ended, asked := run.HasCleanedUp(ctx); asked != nil || !ended {
			return nil, err
		}
		cfg, home := s.home(ctx)
		if home != nil {
			return nil, errors.Join(err, home)
		}
		return overSSH(cfg)(ctx)
	}
}

// home returns the SSH configuration of an embedded server, which serves this
// machine's home directory. The first call starts the server.
func (s *Set) home(ctx context.Context) (ssh.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.clusters) == 0 {
		c, err := embedded.Start(ctx, 1)
		if err != nil {
			return ssh.Config{}, err
		}
		s.clusters = append(s.clusters, c)
	}
	return s.clusters[0].Configs()[0], nil
}

// agents provides the plx binary for each platform of the hosts, and caches
// the binaries that were built.
type agents struct {
	printer *console.Printer
	guess   envsync.Blob // binary that most hosts will need; plx offers it to a host whose platform is not known yet; zero if unknown
	// only is nil if agents run the same plx version as this process.
	// Otherwise it returns the agent's binary for a platform, or an error if
	// it has none.
	only func(envsync.Platform) (envsync.Blob, error)

	mu   sync.Mutex
	made map[envsync.Platform]*artifacts.Set
}

// PlatformError means that there is no plx for the host's platform.
type PlatformError struct{ envsync.Platform }

func (e *PlatformError) Error() string {
	return fmt.Sprintf("it runs %s, a host must run linux", e.Platform)
}

func (a *agents) of(ctx context.Context, p envsync.Platform) (envsync.Blob, error) {
	if p.OS != "linux" {
		return envsync.Blob{}, &PlatformError{p}
	}
	if a.only != nil {
		return a.only(p)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made[p] == nil {
		set, err := artifacts.Pack(ctx, artifacts.Source{}, []envsync.Platform{p}, a.printer)
		if err != nil {
			return envsync.Blob{}, err
		}
		a.made[p] = set
	}
	return a.made[p].Agent(p), nil
}

// Agent returns the plx binary for hosts of platform p.
func (s *Set) Agent(ctx context.Context, p envsync.Platform) (envsync.Blob, error) {
	return s.agents.of(ctx, p)
}

// UseAgent makes s send a binary of(p) to hosts of the platform p, instead of
// the binary of the plx that runs here. guess is the binary for most hosts.
func (s *Set) UseAgent(guess envsync.Blob, of func(envsync.Platform) (envsync.Blob, error)) {
	s.agents.guess, s.agents.only = guess, of
}

func (a *agents) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var errs []error
	for _, set := range a.made {
		errs = append(errs, set.Close())
	}
	clear(a.made)
	return errors.Join(errs...)
}
