package hosts

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/ssh"
	"github.com/plx-run/plx/launcher/transport"
)

// overSSH returns a Dialer that connects to an SSH server.
func overSSH(cfg ssh.Config) transport.Dialer {
	return func(ctx context.Context) (transport.Transport, error) { return ssh.Dial(ctx, cfg) }
}

// limitDials wraps dial so that at most FanOut first connections to hosts are
// opened at once. A reconnection does not wait for others, because the host's
// agent would stop its tasks if its lease expired.
func (s *Set) limitDials(name string, dial transport.Dialer) transport.Dialer {
	var reached atomic.Bool
	return func(ctx context.Context) (conn transport.Transport, err error) {
		if reached.Load() {
			return dial(ctx)
		}
		defer func() { reached.Store(err == nil) }()
		select {
		case s.turns <- struct{}{}:
			defer func() { <-s.turns }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		s.dials.Begin(name)
		defer s.dials.End(name)
		return dial(ctx)
	}
}

// isThisMachine reports whether a resource file line names this machine (such
// as localhost) without a port.
func isThisMachine(line hostfile.Host) bool {
	return line.Port == 0 && slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, line.Name)
}

// noSSHServer reports whether a connection to port 22 of this machine is
// refused.
func noSSHServer(ctx context.Context) bool {
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "tcp", "127.0.0.1:22")
	if err == nil {
		c.Close() // error ignored: nothing was sent over c
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}
