//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/protocol"
)

// connect is "agent connect JOB FOLDER": it relays between the standard streams and
// the running agent.
func connect(ctx context.Context, f jobfolder.Folder, std streams) error {
	state, err := f.ReadState()
	if errors.Is(err, os.ErrNotExist) {
		return coded{codeNoAgent, fmt.Errorf("no job %s on this host", f.Job())}
	}
	if err != nil {
		return err
	}
	absent := coded{codeNoAgent, fmt.Errorf("job %s has no agent on this host any more", f.Job())}
	if state.Socket == "" {
		return absent
	}
	conn, err := sockets.DialLocal(ctx, state.Socket)
	if errors.Is(err, unix.ECONNREFUSED) {
		return absent
	}
	if err != nil {
		return fmt.Errorf("connect to the agent of job %s: %w", f.Job(), err)
	}
	relayBytes(conn, std)
	return waitForDeath(f, state)
}

// relayBytes copies in both directions until the agent closes its side. It passes
// the end of the standard input on.
func relayBytes(conn *net.UnixConn, std streams) {
	go func() {
		// A read of the standard input cannot be interrupted, so this goroutine
		// ends with the process.
		_, _ = io.Copy(conn, std.in)
		_ = conn.CloseWrite()
	}()
	// A failure of either side ends the relay, and the other side sees that.
	_, _ = io.Copy(std.out, conn)
	_ = conn.Close()
}

// relayMessages does the same for the connection that brought the Spec. It relays
// messages, because launcher may have buffered some.
func relayMessages(ctx context.Context, launcher *protocol.Conn, f jobfolder.Folder, socket string) error {
	raw, err := sockets.DialLocal(ctx, socket)
	if err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	state, err := f.ReadState()
	if err != nil {
		return err
	}
	agent, err := sockets.Open(ctx, raw)
	if err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	if err := agent.Send(protocol.Message{Attach: &protocol.Attach{Driver: true}}); err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	go func() {
		pump(agent, launcher) // see relayBytes
		_ = raw.CloseWrite()
	}()
	pump(launcher, agent)
	_ = agent.Close()
	return waitForDeath(f, state)
}

// pump passes messages on until either side fails.
func pump(to, from *protocol.Conn) {
	for {
		m, err := from.Receive()
		if err != nil || to.Send(m) != nil {
			return
		}
	}
}

// Bounds of waiting for an agent whose stream has ended.
const (
	parted = 300 * time.Millisecond // until it shows that the agent is ending
	leave  = 10 * time.Second       // until the agent has ended
)

// waitForDeath returns after the agent that state names has ended, if it is ending. If
// another driver has only replaced this one, it does not wait.
func waitForDeath(f jobfolder.Folder, state protocol.State) error {
	watchdog := func() bool { return process.Alive(state.Watchdog, state.WatchdogStart) }
	supervisor := func() bool { return process.Alive(state.Supervisor, state.SupervisorStart) }
	going := func() bool {
		s, err := f.ReadState()
		return !watchdog() || !supervisor() || err == nil && s.Phase == protocol.Over
	}
	for deadline := time.Now().Add(parted); !going(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return nil
		}
	}
	for deadline := time.Now().Add(leave); watchdog() || supervisor(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return coded{codeLeft, fmt.Errorf("the agent of job %s has not ended within %s: pids %d and %d",
				f.Job(), leave, state.Watchdog, state.Supervisor)}
		}
	}
	return nil
}
