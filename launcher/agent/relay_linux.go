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

	"github.com/plx-run/plx/launcher/protocol"
)

// connect is "agent connect JOB FOLDER": it relays between the standard
// streams and the running agent.
func connect(ctx context.Context, args []string, std streams) error {
	if len(args) != 2 {
		return usage("connect: want a job and a folder")
	}
	f, err := folderOf(args[0], args[1])
	if err != nil {
		return err
	}
	state, err := readState(f)
	if errors.Is(err, os.ErrNotExist) {
		return coded{codeNoAgent, fmt.Errorf("no job %s on this host", args[0])}
	}
	if err != nil {
		return err
	}
	absent := coded{codeNoAgent, fmt.Errorf("job %s has no agent on this host any more", args[0])}
	if state.Socket == "" {
		return absent
	}
	conn, err := dialLocal(ctx, state.Socket)
	if errors.Is(err, unix.ECONNREFUSED) {
		return absent
	}
	if err != nil {
		return fmt.Errorf("connect to the agent of job %s: %w", args[0], err)
	}
	d := watchDeath(f)
	defer d.close()
	relayBytes(conn, std)
	return d.wait()
}

// relayBytes copies until the agent closes its side. The end of the standard
// input is passed on.
func relayBytes(conn *net.UnixConn, std streams) {
	go func() {
		// A read of the standard input cannot be interrupted: this ends
		// with the process, which is about to.
		_, _ = io.Copy(conn, std.in)
		_ = conn.CloseWrite()
	}()
	// Either side's failure ends the relay, and is told by no bytes coming.
	_, _ = io.Copy(std.out, conn)
	_ = conn.Close()
}

// relayMessages does the same for the connection that brought the Spec, of
// which the first messages may be read already.
func relayMessages(ctx context.Context, launcher *protocol.Conn, f folder, socket string) error {
	raw, err := dialLocal(ctx, socket)
	if err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	d := watchDeath(f)
	defer d.close()
	agent, err := openWithin(ctx, raw)
	if err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	if err := agent.Send(protocol.Message{Attach: &protocol.Attach{Conductor: true}}); err != nil {
		return fmt.Errorf("connect to the agent just started: %w", err)
	}
	go func() {
		pump(agent, launcher) // see relayBytes
		_ = raw.CloseWrite()
	}()
	pump(launcher, agent)
	_ = agent.Close()
	return d.wait()
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

// Bounds of the wait for an agent whose stream has ended: for it to turn out
// that it is going at all, and for it to be gone.
const (
	parted = 300 * time.Millisecond
	leave  = 10 * time.Second
)

// death watches the two processes of an agent.
type death struct {
	folder               folder
	guardian, supervisor handle
}

// watchDeath holds the agent's processes, so that their pids cannot come to
// mean others.
func watchDeath(f folder) *death {
	d := &death{folder: f, guardian: handle{fd: -1}, supervisor: handle{fd: -1}}
	if s, err := readState(f); err == nil { // else nothing can be waited for
		d.guardian, _ = hold(process{pid: s.Guardian, start: s.GuardianStart})
		d.supervisor, _ = hold(process{pid: s.Supervisor, start: s.SupervisorStart})
	}
	return d
}

func (d *death) close() {
	d.guardian.close()
	d.supervisor.close()
}

// wait returns once the agent is gone, if it is going: when it only took
// another conductor, there is nothing to wait for.
func (d *death) wait() error {
	for deadline := time.Now().Add(parted); !d.going(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return nil
		}
	}
	for deadline := time.Now().Add(leave); !d.gone(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			return coded{codeLeft, fmt.Errorf("the agent of job %s has not ended within %s: pids %d and %d",
				d.folder.job(), leave, d.guardian.pid, d.supervisor.pid)}
		}
	}
	return nil
}

func (d *death) going() bool {
	if d.guardian.gone() || d.supervisor.gone() {
		return true
	}
	s, err := readState(d.folder)
	return err == nil && s.Phase == protocol.Over
}

func (d *death) gone() bool { return d.guardian.gone() && d.supervisor.gone() }
