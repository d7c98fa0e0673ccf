package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// Exit codes of a trainer program: 0, a failure of any kind, a mistake in the
// flags, and what a shell gives a program that SIGTERM ended, for one that was
// told to stop.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitStopped = 128 + int(syscall.SIGTERM)
)

var (
	errStopped   = errors.New("told to stop")
	errAgentSays = fmt.Errorf("%w by the agent", errStopped)
	errAgentGone = errors.New("the launcher's agent is gone")
)

// Main runs a trainer program in the role that the launcher gave it: a worker
// runs train, a server serves the workers, and without a launcher train runs
// alone. It does not return.
//
// It parses the command line, flags that the program has defined with package
// flag and the trainer's own, which --help lists apart: define flags before,
// and leave flag.Parse to Main.
//
// The context that train gets ends when the job is told to stop, with SIGTERM,
// SIGINT or by the launcher; a second signal ends the process at once. When
// train returns an error other than ErrDone the process exits with 1 and the
// job fails.
func Main(train func(ctx context.Context, job *Job) error, settings ...Setting) {
	p := process{getenv: os.Getenv, log: os.Stderr, out: os.Stdout, config: defaults()}
	for _, set := range settings {
		set(&p.config)
	}
	if err := p.config.parseCommandLine(ownName(os.Getenv)); err != nil {
		p.complain("start", err)
		os.Exit(exitUsage)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := <-signals
		signal.Stop(signals) // the next one ends the process
		cancel(signalled{s})
	}()
	os.Exit(p.run(ctx, cancel, train))
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal os.Signal }

func (s signalled) Error() string { return fmt.Sprintf("%v by %v", errStopped, s.signal) }

// Is says that the task was told to stop.
func (signalled) Is(target error) bool { return target == errStopped }

// stoppedCode is the exit code of a task that cause has stopped.
func stoppedCode(cause error) int {
	var s signalled
	if errors.As(cause, &s) && s.signal == os.Interrupt {
		return 128 + int(syscall.SIGINT)
	}
	return exitStopped
}

// ownName is the task that the launcher made this process, "" without one.
func ownName(getenv func(string) string) string {
	if getenv("PLX_ROLE") == "" {
		return ""
	}
	return getenv("PLX_ROLE") + ":" + getenv("PLX_TASK_INDEX")
}

// process is a task with what it has of the world.
type process struct {
	getenv   func(string) string
	log, out io.Writer
	config   config
}

// run does what Main does and returns the exit code. cancel ends ctx.
func (p process) run(ctx context.Context, cancel context.CancelCauseFunc, train func(context.Context, *Job) error) int {
	t, err := p.open(cancel)
	if err != nil {
		p.complain("start", err)
		return exitFailed
	}
	defer t.close()
	name := t.job.contract.Task.String()
	err = t.job.openDepot(ctx)
	switch {
	case err != nil:
	case t.job.contract.Task.Role == cluster.PS:
		err = t.serve(ctx)
	default:
		err = t.work(ctx, train)
	}
	stopped := errors.Is(context.Cause(ctx), errStopped)
	if err != nil && stopped {
		return stoppedCode(context.Cause(ctx))
	}
	if err == nil {
		t.job.leaveDepot(ctx)
	}
	if err != nil {
		t.say(cluster.ControlMessage{Kind: cluster.Failed, Step: t.job.steps.Load(), Cause: err.Error(), Peer: t.culprit(err)})
		p.complain(name, err)
		return exitFailed
	}
	if err := t.say(cluster.ControlMessage{Kind: cluster.Finished, Step: t.job.steps.Load()}); err != nil {
		p.complain(name, fmt.Errorf("tell the agent: %w", err))
		return exitFailed
	}
	return 0
}

// complain writes an error and, where the user can do something, a hint.
func (p process) complain(subject string, err error) {
	var panicked *panicError
	if errors.As(err, &panicked) {
		p.log.Write(panicked.stack) // before the message, which is to be the last word
	}
	fmt.Fprintf(p.log, "plx: %s: %v\n", subject, err) // nobody is left to be told of a broken stderr
	var helpful interface{ Hint() string }
	if errors.As(err, &helpful) {
		fmt.Fprintf(p.log, "plx: hint: %s\n", helpful.Hint())
	}
}

// task is a process that knows its role.
type task struct {
	job     *Job
	control *cluster.Control // nil without a launcher
	quit    chan struct{}
	running chan struct{} // closed when beat has ended
}

// open reads the contract, says hello and opens the door to the other tasks.
// cancel is called when the launcher says stop or is gone.
func (p process) open(cancel context.CancelCauseFunc) (*task, error) {
	contract, launched, err := cluster.FromEnvironment(p.getenv)
	if err != nil {
		return nil, err
	}
	if !launched {
		contract = soloContract
		contract.LogLevel = p.getenv("PLX_LOG_LEVEL")
	}
	t := &task{quit: make(chan struct{}), running: make(chan struct{})}
	if contract.ControlFD > 0 {
		if t.control, err = contract.Control(); err != nil {
			return nil, err
		}
		if err := t.say(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion}); err != nil {
			return nil, err
		}
	}
	if t.job, err = p.prepare(contract, launched); err != nil {
		t.say(cluster.ControlMessage{Kind: cluster.Failed, Cause: err.Error()}) // the exit status says it too
		return nil, err
	}
	t.job.tell = t.say
	if t.control != nil {
		go t.obey(cancel) // ends when close closes the channel
	}
	go t.beat()
	return t, nil
}

// prepare makes what a task needs before its role begins.
func (p process) prepare(contract cluster.Contract, launched bool) (*Job, error) {
	if err := wire.CheckHost(); err != nil {
		return nil, err
	}
	j, err := newJob(contract, p.config, p.log, p.out)
	if err != nil {
		return nil, err
	}
	if contract.Task.Role == cluster.Worker {
		library, err := blas.Use(p.getenv("PLX_BLAS"), 1)
		if err != nil {
			return nil, err
		}
		j.library, j.numerics = library.String(), numerics(library)
	}
	if launched {
		if err := j.listen(); err != nil {
			return nil, err
		}
	}
	j.openMesh()
	return j, nil
}

// say sends a control message, where there is a launcher.
func (t *task) say(m cluster.ControlMessage) error {
	if t.control == nil {
		return nil
	}
	return t.control.Send(m)
}

// obey hears what the agent says until the channel ends.
func (t *task) obey(cancel context.CancelCauseFunc) {
	for {
		m, err := t.control.Receive()
		switch {
		case err != nil:
			cancel(errAgentGone)
			return
		case m.Kind == cluster.Stop:
			cancel(errAgentSays)
		case m.Kind == cluster.Checkpoint:
			t.checkpoint(m)
		case m.Kind == cluster.Resume:
			if r := t.job.replica.Load(); r != nil && r.saver != nil {
				r.saver.resume(m.Request)
			}
		default:
			t.job.Logf(slog.LevelDebug, "the agent says %s, which this version does not know", m.Kind)
		}
	}
}

// heartbeat is how often a task tells its agent that it lives.
const heartbeat = 2 * time.Second

func (t *task) beat() {
	defer close(t.running)
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	first := t.job.begun
	for {
		select {
		case <-first:
			first = nil
			t.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: t.job.steps.Load()})
		case <-ticker.C:
			t.say(cluster.ControlMessage{Kind: cluster.Heartbeat, Step: t.job.steps.Load()}) // obey notices a dead channel
		case <-t.quit:
			return
		}
	}
}

// close ends what open began.
func (t *task) close() {
	close(t.quit)
	<-t.running
	t.job.close()
	if t.control != nil {
		t.control.Close() // the last word was said
	}
}

// work runs the program as a worker.
func (t *task) work(ctx context.Context, train func(context.Context, *Job) error) error {
	training, cancel := context.WithCancel(ctx)
	err := guarded(func() error { return train(training, t.job) })
	cancel() // ends a step that the program left behind
	r := t.job.replica.Load()
	if finished(err) {
		err = nil
	}
	if r == nil {
		return err
	}
	if err == nil {
		err = t.conclude(ctx, r)
	}
	if closed := r.close(err); err == nil {
		err = closed
	}
	return err
}

// panicError is a panic of the program's.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// guarded makes a panic an error, so that the job's verdict says what it was.
func guarded(do func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return do()
}

// conclude does what comes after a program that has ended well.
func (t *task) conclude(ctx context.Context, r *Replica) error {
	if err := r.join(ctx); err != nil {
		return err
	}
	if err := r.lastCheckpoint(ctx); err != nil {
		return err
	}
	if steps, rows := r.Late(); rows > 0 {
		t.job.Logf(slog.LevelInfo, "came too late for %s: %s dropped", count(steps, "step"), count(rows, "row"))
	}
	if r.tuner != nil && r.tuner.chief != nil {
		r.tuner.chief.unfinished()
	}
	sent, received := r.traffic()
	t.job.Logf(slog.LevelDebug, "%s: sent %s, received %s", count(r.Steps(), "step"), size(sent), size(received))
	if !t.job.config.digest || !t.job.IsChief() {
		return nil
	}
	line, err := r.digest(ctx)
	if err == nil {
		_, err = fmt.Fprintln(t.job.out, line)
	}
	return err
}

// serve runs the program as a server, until the last worker's goodbye or until
// its agent says stop. A signal of somebody else's is no end in good order:
// workers may still need it.
func (t *task) serve(ctx context.Context) error {
	err := owner.Serve(ctx, owner.ServerConfig{Peers: t.job.peers(), Door: t.job.door, Cluster: t.job.contract.Cluster,
		Save: t.job.saving(), Restore: t.job.restoring()})
	if errors.Is(context.Cause(ctx), errAgentSays) {
		return nil // it has done all that was asked
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// culprit names the peer that err, or the step that broke, is about.
func (t *task) culprit(err error) string {
	var peer *peers.PeerError
	if !errors.As(err, &peer) {
		r := t.job.replica.Load()
		if r == nil || !errors.As(r.failure(), &peer) {
			return ""
		}
	}
	if peer.Task == t.job.contract.Task {
		return "" // the others say that it is this task
	}
	return peer.Task.String()
}
