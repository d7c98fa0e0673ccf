package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// task is a process that knows its role in one generation.
type task struct {
	job     *Job
	post    *post
	end     context.CancelCauseFunc // ends its context
	quit    chan struct{}
	running chan struct{} // closed when beat has ended

	progress owner.Progress // of a server
}

func (t *task) name() string { return t.job.contract.Task.String() }

// say sends a control message, where there is a launcher.
func (t *task) say(m cluster.ControlMessage) error { return t.post.say(m) }

// open reads the contract and opens the door to the other tasks. end ends the
// context of the task.
func (p *process) open(post *post, end context.CancelCauseFunc) (*task, error) {
	contract, launched, err := cluster.FromEnvironment(p.getenv)
	if err != nil {
		return nil, post.failed(err)
	}
	if !launched {
		contract = soloContract
		contract.LogLevel = p.getenv("PLX_LOG_LEVEL")
	}
	t := &task{post: post, end: end, quit: make(chan struct{}), running: make(chan struct{})}
	if t.job, err = p.prepare(contract, launched); err != nil {
		return nil, post.failed(err)
	}
	t.job.tell = t.say
	post.enter(t)
	go t.beat()
	return t, nil
}

// prepare makes what a task needs before its role begins.
func (p *process) prepare(contract cluster.Contract, launched bool) (*Job, error) {
	if err := wire.CheckHost(); err != nil {
		return nil, err
	}
	j, err := newJob(contract, p.config, p.log, p.out)
	if err != nil {
		return nil, err
	}
	if contract.Task.Role == cluster.Worker {
		if err := p.install(); err != nil {
			return nil, err
		}
		j.library, j.numerics = p.library.String(), numerics(*p.library)
	}
	if launched {
		if err := j.listen(); err != nil {
			return nil, err
		}
	}
	j.openMesh()
	return j, nil
}

// install chooses what computes, once: nothing may compute meanwhile.
func (p *process) install() error {
	if p.library != nil {
		return nil
	}
	library, err := blas.Use(p.getenv("PLX_BLAS"), 1)
	if err != nil {
		return err
	}
	p.library = &library
	return nil
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
			t.say(t.word(cluster.Heartbeat))
		case <-ticker.C:
			t.say(t.word(cluster.Heartbeat)) // obey notices a dead channel
		case <-t.quit:
			return
		}
	}
}

// close ends what open began. An error means that something of it may still
// run.
func (t *task) close() error {
	t.post.enter(nil)
	t.job.over.Store(true)
	close(t.quit)
	<-t.running
	err := t.job.close()
	if r := t.job.replica.Load(); r != nil && r.saver != nil {
		r.saver.telling.Wait() // the depot is closed: soon
	}
	return err
}

// run does what the task's role asks for.
func (t *task) run(ctx context.Context, train func(context.Context, *Job) error) error {
	err := t.job.openDepot(ctx)
	switch {
	case err != nil:
		return err
	case t.job.contract.Task.Role == cluster.PS:
		err = t.serve(ctx)
	default:
		err = t.work(ctx, train)
	}
	if err == nil {
		t.job.leaveDepot(ctx)
	}
	return err
}

// work runs the program as a worker.
func (t *task) work(ctx context.Context, train func(context.Context, *Job) error) error {
	training, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, func() { t.giveUp(context.Cause(ctx)) })()
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

// giveUp begins to leave mesh and depots while the step is still being given up: where
// a host is gone each waits for it a while, and the next generation for all of them.
func (t *task) giveUp(why error) {
	if !errors.Is(why, errRegroup) {
		return
	}
	t.job.mesh.Abort(why)
	if t.job.depot != nil {
		t.job.depot.Dismiss()
	}
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
		Save: t.job.saving(), Restore: t.job.restoring(), Progress: &t.progress})
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

// foretold reports whether a peer was asked before this task to give the
// generation up: its own agent is about to say so.
func (t *task) foretold(err error) bool {
	return t.culprit(err) != "" && strings.HasSuffix(err.Error(), errRegroup.Error()) && t.post.control != nil
}

// survives reports whether the process, after it has lost a peer, is of use to
// the next generation: not where the job may do without this task, which then
// ends.
func (t *task) survives() bool {
	sync, err := t.job.mode()
	return err == nil && !sync.BearsLoss() && !t.job.config.fresh && t.post.control != nil
}
