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

// start is "agent start": it answers calls until it gets the Spec of a job, or is to connect to
// one. With a Spec it starts the job's agent, and becomes its watchdog; else it relays between the
// agent and the standard streams. A launcher that needs no agent closes the stream.
func start(ctx context.Context, _ []string, std streams) error {
	use, err := jobfolder.Enter()
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
	if err == io.EOF || errors.Is(err, protocol.ErrSilent) && s.gpus.queue == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("receive the job's specification: %w", err)
	}
	if s.job != nil {
		return s.job.visit(std, first)
	}
	if first.Spec == nil {
		return errors.New("the first message was not the job's specification")
	}
	w, err := s.begin(ctx, launcher, *first.Spec)
	if err != nil {
		return err // the launcher names the host
	}
	err = w.Run()
	if _, ended := errors.AsType[*watchdog.Ended](err); ended {
		return coded{codeNoAgent, err}
	}
	return err
}

// begin starts the agent of a job, after it has made the job's folder on this host.
func (s *session) begin(ctx context.Context, launcher *protocol.Conn, spec protocol.Spec) (w *watchdog.Watchdog, err error) {
	locks, err := s.gpus.of(spec)
	if err != nil {
		return nil, coded{codeNoAgent, err}
	}
	// A renewal that the launcher did not ask for tells it now and then that the agent is still
	// being started: large files take a while to be unpacked.
	quiet := repeat(reassureEvery, func() bool { // if it fails, what is read next fails too
		return launcher.Send(protocol.Message{Renewed: &protocol.Renew{}}) == nil
	})
	defer quiet()
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
	quiet()
	if err == nil {
		if spec.Detached {
			_ = watchdog.EnterScope(ctx, spec.Job) // "plx doctor" tells where logind would end the job
		}
		w, err = watchdog.Start(f, spec, locks)
	}
	if err != nil {
		return nil, coded{codeNoAgent, errors.Join(err, abandon(f, spec, err))}
	}
	return w, nil
}

// reassureEvery is well under what a launcher waits for a first answer, and under the
// shortest lease.
const reassureEvery = time.Second

// repeat calls f in a goroutine of its own, again and again until f returns false or stop
// is called. stop waits for the goroutine, and may be called again.
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

// fill writes what the folder has besides the secret. least is the first generation
// that the agent may prepare.
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
	if err := claim(ctx, spec.Job, spec.Checkpoints); err != nil {
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
	return f.Furnish(ctx, spec, spec.Tasks)
}

// abandon records that the agent was not started, and deletes the secret.
func abandon(f jobfolder.Folder, spec protocol.Spec, cause error) error {
	state := jobfolder.FirstState(spec)
	if before, err := f.ReadState(); err == nil {
		state.Least = before.Least
	}
	return errors.Join(f.RemoveSecret(), f.WriteState(jobfolder.Ended(state, cause.Error())))
}

// running is the agent of a job that this process is connected to.
type running struct {
	folder jobfolder.Folder
	state  protocol.State // as it was before
	raw    *net.UnixConn
	agent  *protocol.Conn // over raw
}

// errNoAgent says that the job has no agent on this host.
var errNoAgent = errors.New("no agent")

// dialJob connects to the agent of a job.
func dialJob(ctx context.Context, f jobfolder.Folder) (*running, error) {
	state, err := f.ReadState()
	if errors.Is(err, os.ErrNotExist) || err == nil && state.Socket == "" || f.Deserted() {
		return nil, errNoAgent
	}
	if errors.Is(err, jobfolder.ErrDamaged) {
		return nil, fmt.Errorf("%w: an agent that runs writes it within %s: try again then", err, jobfolder.AliveEvery)
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

// connect connects to the agent of a job. It ends what an agent left that has ended.
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
		return none{}, fmt.Errorf("end what the agent left: %w", err)
	}
	how := "the cause is not known"
	state, err := f.ReadState()
	if errors.Is(err, jobfolder.ErrDamaged) {
		how = err.Error()
	}
	if err == nil && jobfolder.Settled(state).Verdict != nil {
		how = strings.TrimPrefix(jobfolder.Settled(state).Verdict.Reason, "host "+state.Host+": ")
	}
	return none{}, &protocol.Failure{Code: protocol.CodeNoAgent, Text: how}
}

// visit relays between the launcher, which has sent first, and the agent of a job until either
// side ends. When the agent has ended, nothing of the job is left on the host.
func (r *running) visit(launcher streams, first protocol.Message) error {
	if err := r.agent.Send(first); err != nil {
		return fmt.Errorf("connect to the agent of job %s: %w", r.folder.Job(), err)
	}
	go func() {
		// A read of the standard input cannot be interrupted, so this goroutine ends with the
		// process. The end of the input is passed on.
		_, _ = io.Copy(r.raw, launcher.in)
		_ = r.raw.CloseWrite()
	}()
	_, _ = io.Copy(launcher.out, r.raw) // who has gone is seen below, or does not read
	_ = r.agent.Close()
	err := waitForDeath(r.folder, r.state)
	if s, unread := r.folder.ReadState(); err == nil && unread == nil && jobfolder.LifeOf(s) == jobfolder.Dead {
		err = reapJob(r.folder)
	}
	return err
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
	ending := false
	for began := time.Now(); watchdog() || supervisor(); time.Sleep(2 * time.Millisecond) {
		if s, err := f.ReadState(); !ending {
			ending = !watchdog() || !supervisor() || err == nil && s.Phase == protocol.Over
		}
		switch waited := time.Since(began); {
		case !ending && waited > parted:
			return nil
		case waited > leave:
			return fmt.Errorf("the agent of job %s has not ended within %s: pids %d and %d", f.Job(), leave, state.Watchdog, state.Supervisor)
		}
	}
	return nil
}
