//go:build linux

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/agent/sockets"
	"github.com/plx-run/plx/launcher/agent/watchdog"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// start is "agent start". It answers the launcher's calls until one of three
// things happens. When it receives the Spec of a job, it starts the job's
// supervisor and becomes its watchdog. After a Connect call, it relays between
// the launcher and a running job's agent. When the launcher closes the stream,
// it ends.
func start(ctx context.Context, _ []string, std streams) error {
	use, err := jobfolder.LockHome()
	if err != nil {
		return err
	}
	launcher, err := protocol.OpenCalls(protocol.Duplex(std.in, std.out))
	if err != nil {
		return err
	}
	s := &session{use: use}
	first, err := protocol.Serve(ctx, launcher, s.methods(), protocol.MostSilence)
	s.seed.close()
	s.usage.close()
	if err == io.EOF || errors.Is(err, protocol.ErrPeerTimeout) && s.gpus.queue == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive the job's specification: %w", err)
	}
	if s.job != nil {
		return s.job.relay(std, first)
	}
	if first.Spec == nil {
		return errors.New("the first message was not the job's specification")
	}
	w, err := s.begin(ctx, launcher, *first.Spec)
	if err != nil {
		return err // the launcher adds the host's name to this error
	}
	err = w.Run()
	if _, ended := errors.AsType[*watchdog.SupervisorEnded](err); ended {
		return coded{codeNoAgent, err}
	}
	return err
}

// begin makes the job's folder on this host and starts the job's supervisor.
// The returned watchdog watches the supervisor.
func (s *session) begin(ctx context.Context, launcher *protocol.Conn, spec protocol.Spec) (w *watchdog.Watchdog, err error) {
	locks, err := s.gpus.of(spec)
	if err != nil {
		return nil, coded{codeNoAgent, err}
	}
	// Unpacking large files can take long. Until the agent has started, send a
	// Renewed message every second, which shows the launcher that this process
	// works.
	stopKeepalive := repeat(keepaliveEvery, func() bool { // if Send fails, the next read from the launcher fails too
		return launcher.Send(protocol.Message{Renewed: &protocol.Renew{}}) == nil
	})
	defer stopKeepalive()
	f, err := jobfolder.Of(spec.Job, spec.Folder)
	if err != nil {
		return nil, err
	}
	if len(spec.Secret) != cluster.SecretSize {
		return nil, fmt.Errorf("the job's secret has %d bytes, want %d", len(spec.Secret), cluster.SecretSize)
	}
	least, err := f.Create(spec.Secret)
	if err != nil {
		return nil, err
	}
	err = fill(ctx, f, spec, least)
	stopKeepalive()
	if err == nil {
		if spec.Detached {
			_ = watchdog.EnterScope(ctx, spec.Job) // ignore the error: without a scope, logind may kill a detached job at logout, and "plx doctor" warns of that
		}
		w, err = watchdog.Start(f, spec, locks)
	}
	if err != nil {
		return nil, coded{codeNoAgent, errors.Join(err, abandon(f, spec, err))}
	}
	return w, nil
}

// keepaliveEvery is the interval of the messages that show the launcher that
// the agent is still starting. It is much shorter than the shortest lease, and
// than the time that the launcher waits for the agent's first message.
const keepaliveEvery = time.Second

// repeat calls f at an interval, in a new goroutine, until f returns false or
// the returned function stop is called. stop waits until the goroutine has
// ended; further calls of stop do nothing.
func repeat(every time.Duration, f func() bool) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var goroutine sync.WaitGroup
	goroutine.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !f() {
					return
				}
			}
		}
	})
	return func() {
		cancel()
		goroutine.Wait()
	}
}

// fill writes the job's folder: the state file, the lists of cached files that
// the job uses, and the tasks' working directories. least is the first
// generation (run of all tasks) that the new agent may start.
func fill(ctx context.Context, f jobfolder.Folder, spec protocol.Spec, least int) error {
	own, err := process.Read(os.Getpid())
	if err != nil {
		return err
	}
	state := jobfolder.FirstState(spec)
	state.Watchdog, state.WatchdogStart, state.Least = own.PID, own.Start, least
	if err := f.WriteState(state); err != nil {
		return err
	}
	if err := checkNameFree(ctx, spec.Job, spec.Checkpoints); err != nil {
		return err
	}
	if err := f.RecordBlobs(spec); err != nil {
		return err
	}
	if v := spec.Command.Venv; v != nil {
		if _, err := jobfolder.Env(v); err != nil {
			return err
		}
	}
	return f.Provision(ctx, spec, spec.Tasks)
}

// abandon records in the state file that the job's agent could not be started,
// and deletes the job's secret.
func abandon(f jobfolder.Folder, spec protocol.Spec, cause error) error {
	state := jobfolder.FirstState(spec)
	if before, err := f.ReadState(); err == nil {
		state.Least = before.Least
	}
	return errors.Join(f.RemoveSecret(), f.WriteState(jobfolder.Ended(state, cause.Error())))
}

// running is a connection of this process to the supervisor of a running job.
type running struct {
	folder jobfolder.Folder
	state  protocol.State // content of the job's state file before this process connected
	raw    *net.UnixConn
	agent  *protocol.Conn // message protocol on top of raw
}

// errNoAgent means that the job has no running agent on this host.
var errNoAgent = errors.New("no agent")

// dialJob connects to the job's supervisor through its local socket.
func dialJob(ctx context.Context, f jobfolder.Folder) (*running, error) {
	state, err := f.ReadState()
	if errors.Is(err, os.ErrNotExist) || err == nil && state.Socket == "" || f.StateAbandoned() {
		return nil, errNoAgent
	}
	if errors.Is(err, jobfolder.ErrDamaged) {
		return nil, fmt.Errorf("%w: a running agent rewrites it within %s: try again then", err, jobfolder.AliveEvery)
	}
	if err != nil {
		return nil, err
	}
	r := &running{folder: f, state: state}
	r.raw, err = sockets.DialLocal(ctx, state.Socket)
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, errNoAgent
	}
	if err == nil {
		r.agent, err = sockets.Open(ctx, r.raw)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the agent of job %s: %w", f.Job(), err)
	}
	return r, nil
}

// connect connects this session to a running job's agent. If the agent has
// ended, connect kills the processes that the agent has left behind, and
// returns an error that says how the agent ended.
func (s *session) connect(ctx context.Context, of protocol.HostJob) (none, error) {
	f, err := jobfolder.Of(of.Job, of.Folder)
	if err != nil {
		return none{}, err
	}
	s.job, err = dialJob(ctx, f)
	if err != errNoAgent {
		return none{}, err
	}
	if err := reapJob(f); err != nil {
		return none{}, fmt.Errorf("kill the processes that the agent left: %w", err)
	}
	how := "the cause is not known"
	state, err := f.ReadState()
	if errors.Is(err, jobfolder.ErrDamaged) {
		how = err.Error()
	}
	if err == nil && jobfolder.Current(state).Verdict != nil {
		how = strings.TrimPrefix(jobfolder.Current(state).Verdict.Reason, "host "+state.Host+": ")
	}
	return none{}, &protocol.Failure{Code: protocol.CodeNoAgent, Text: how}
}

// relay copies messages between the launcher and the agent of a running job
// until one of them closes its stream. first is a message that this process
// has already received from the launcher. If the agent has died by then, relay
// kills all processes that the agent has left behind.
func (r *running) relay(launcher streams, first protocol.Message) error {
	if err := r.agent.Send(first); err != nil {
		return fmt.Errorf("connect to the agent of job %s: %w", r.folder.Job(), err)
	}
	go func() {
		// A read from standard input cannot be interrupted, so this goroutine
		// ends only with the process. At the end of the launcher's input,
		// close the stream to the agent, which then sees end of file.
		_, _ = io.Copy(r.raw, launcher.in)
		_ = r.raw.CloseWrite()
	}()
	_, _ = io.Copy(launcher.out, r.raw) // a broken stream to the launcher is no error; waitForDeath reports the end of the agent
	_ = r.agent.Close()
	err := waitForDeath(r.folder, r.state)
	if s, unread := r.folder.ReadState(); err == nil && unread == nil && jobfolder.LifeOf(s) == jobfolder.Dead {
		err = reapJob(r.folder)
	}
	return err
}

// Timeouts of waitForDeath. The time counts from the end of the connection to
// the agent.
const (
	endingTimeout = 300 * time.Millisecond // how long to wait for signs that the agent is ending
	endTimeout    = 10 * time.Second       // how long to wait for the end of the agent's processes
)

// waitForDeath waits for the end of the agent whose process ids are in state,
// if the agent is ending. The connection to an agent also ends if another
// driver (process that controls the job) has connected in its place. The agent
// then lives on, and waitForDeath returns soon.
func waitForDeath(f jobfolder.Folder, state protocol.State) error {
	watchdog := func() bool { return process.Alive(state.Watchdog, state.WatchdogStart) }
	supervisor := func() bool { return process.Alive(state.Supervisor, state.SupervisorStart) }
	ending := false
	for began := time.Now(); watchdog() || supervisor(); time.Sleep(2 * time.Millisecond) {
		if s, err := f.ReadState(); !ending {
			ending = !watchdog() || !supervisor() || err == nil && s.Phase == protocol.Over
		}
		switch waited := time.Since(began); {
		case !ending && waited > endingTimeout:
			return nil
		case waited > endTimeout:
			return fmt.Errorf("the agent of job %s has not ended within %s: pids %d and %d", f.Job(), endTimeout, state.Watchdog, state.Supervisor)
		}
	}
	return nil
}
