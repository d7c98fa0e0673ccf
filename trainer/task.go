package trainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/checkpoint/saver"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/device"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/hooks"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
	"golang.org/x/sys/cpu"
)

// task is this process in its role as a worker or a server of the job.
type task struct {
	job     *Job
	control *cluster.Control // connection to plx's agent; nil if plx launch did not start this process
	quit    chan struct{}
	running sync.WaitGroup // waits for the goroutine that runs beat, which sends heartbeats
}

func (t *task) name() string { return t.job.contract.Task.String() }

// open reads the launcher's settings from the environment, greets plx's agent
// and listens for connections from other tasks. It also starts a goroutine
// that calls cancel if the agent requests a stop or the connection to the
// agent breaks.
func (p process) open(cancel context.CancelCauseFunc) (*task, error) {
	contract, launched, err := cluster.FromEnvironment(p.getenv)
	if err != nil {
		return nil, err
	}
	if !launched {
		contract = soloContract
		contract.LogLevel = p.getenv("PLX_LOG_LEVEL")
	}
	t := &task{quit: make(chan struct{})}
	if contract.ControlFD > 0 {
		if t.control, err = contract.Control(); err != nil {
			return nil, err
		}
		if err := t.send(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion}); err != nil {
			return nil, err
		}
	}
	if t.job, err = p.prepare(contract, launched, t.send); err != nil {
		t.send(cluster.ControlMessage{Kind: cluster.Failed, Cause: err.Error()}) // an error is ignored, because the agent learns of the failure from the exit code too
		return nil, err
	}
	if t.control != nil {
		go t.serveAgent(cancel) // returns when close closes the connection to the agent
	}
	t.running.Go(t.beat)
	return t, nil
}

// prepare creates the Job: it opens the GPU and the BLAS library of a worker,
// and the listener for other tasks. tell sends a message to plx's agent.
func (p process) prepare(contract cluster.Contract, launched bool, tell func(cluster.ControlMessage) error) (*Job, error) {
	if err := wire.CheckHost(); err != nil {
		return nil, err
	}
	j, err := newJob(contract, p.config, p.log, p.out, tell)
	if err != nil {
		return nil, err
	}
	if contract.Task.Role == cluster.Worker {
		library, err := blas.Use(p.getenv("PLX_BLAS"), 1)
		if err != nil {
			return nil, err
		}
		g, err := device.Open(p.config.Device, p.getenv("CUDA_VISIBLE_DEVICES"), p.getenv("PLX_GPU_VENDOR"), contract.LocalRank, launched)
		if err != nil {
			return nil, err
		}
		if line := device.Unused(p.config.Device, device.DriverFile); line != "" && !launched {
			j.log.Logf(slog.LevelInfo, "%s", line)
		}
		if err := g.ChooseProducts(p.getenv("PLX_CUBLAS")); err != nil {
			return nil, err
		}
		j.host = newHost(library, g)
	}
	if launched {
		if err := j.network.listen(); err != nil {
			return nil, err
		}
	}
	j.network.openGroup()
	return j, nil
}

// send sends a message to plx's agent. Without a launcher it does nothing.
func (t *task) send(m cluster.ControlMessage) error {
	if t.control == nil {
		return nil
	}
	return t.control.Send(m)
}

// serveAgent executes the requests of plx's agent until the connection to the agent
// ends. Then it calls cancel, which stops the task.
func (t *task) serveAgent(cancel context.CancelCauseFunc) {
	for {
		m, err := t.control.Receive()
		switch {
		case err != nil:
			cancel(errAgentGone)
			return
		case m.Kind == cluster.Stop:
			cancel(errStoppedByAgent)
		case m.Kind == cluster.Checkpoint:
			t.checkpoint(m)
		case m.Kind == cluster.Resume:
			if s := t.job.session.Load(); s != nil {
				s.saving.saver.Resume(m.Request)
			}
		case m.Kind == cluster.Stacks:
			t.control.SendStacks(m.Request) // an error is ignored, because the next Receive returns it too
		default:
			t.job.Logf(slog.LevelDebug, "ignored a message of kind %s from the agent, which this version does not know", m.Kind)
		}
	}
}

// statusMessage returns a message to plx's agent of the given kind, with the current
// step, the loss and the step of the last checkpoint.
func (t *task) statusMessage(kind cluster.ControlKind) cluster.ControlMessage {
	m := cluster.ControlMessage{Kind: kind, Step: t.job.progress.steps.Load()} // read before session: Parallelize sets session before it counts steps, so session is set if steps is not zero
	if s := t.job.session.Load(); s != nil {
		m.From = int64(s.from)
		if store := s.saving.network.store; store != nil {
			m.Saved = int64(store.Summary().Step)
		}
	}
	if loss := t.job.progress.loss.Load(); loss != nil {
		m.Loss = strconv.FormatFloat(*loss, 'g', -1, 64) // as a string, because JSON has no NaN
	}
	return m
}

// handleSignals stops the training at the first signal. Then it restores the default
// behaviour, so that a second signal ends the process.
func (t *task) handleSignals(signals chan os.Signal, cancel context.CancelCauseFunc) {
	select {
	case s := <-signals:
		signal.Stop(signals)
		alone := t.control == nil && t.job.NumWorkers() == 1 && t.job.servers() == 0
		if s == syscall.SIGTERM && alone {
			t.saveBeforeStop(saveTimeout)
		}
		cancel(signalled{s})
	case <-t.quit:
	}
}

// saveTimeout is how long a program that plx did not launch waits for its
// checkpoint after SIGTERM. plx launch waits for the same time.
const saveTimeout = time.Minute

// saveBeforeStop makes a checkpoint before the training stops. It waits until
// the checkpoint is written, but no longer than atMost. Without --ckpt-dir it
// does nothing.
func (t *task) saveBeforeStop(atMost time.Duration) {
	s, log := t.job.session.Load(), t.job.log
	if s == nil || s.saving.saver == nil {
		return
	}
	log.Logf(slog.LevelInfo, "told to stop: a checkpoint is made first, for at most %v; a second signal ends the program at once", atMost)
	told := make(chan struct{})
	s.saving.saver.RequestSave(saver.Request{Tell: func(step int, _ time.Duration, err error) {
		if err != nil {
			log.Logf(slog.LevelWarn, "not saved: %v", err)
		} else {
			log.Logf(slog.LevelInfo, "saved at step %d", step)
		}
		close(told)
	}})
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-told:
	case <-timer.C:
		log.Logf(slog.LevelWarn, "not saved within %v: no step has ended, or the disk is slow", atMost)
	case <-t.quit:
	}
}

// heartbeat is the interval at which a task sends heartbeats to plx's agent.
const heartbeat = 2 * time.Second

func (t *task) beat() {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	first := t.job.progress.begun
	for {
		select {
		case <-first:
			first = nil
			t.send(t.statusMessage(cluster.Heartbeat)) // an error is ignored, because serveAgent notices a broken connection
		case <-ticker.C:
			t.send(t.statusMessage(cluster.Heartbeat)) // an error is ignored, because serveAgent notices a broken connection
		case <-t.quit:
			return
		}
	}
}

// close ends the goroutines and closes the connections that open started.
func (t *task) close() {
	close(t.quit)
	t.running.Wait()
	t.job.network.close()
	if s := t.job.session.Load(); s != nil {
		s.saving.saver.Wait() // Wait does not block for long, because the checkpoint store is closed
	}
	if t.control != nil {
		t.control.Close()
	}
}

// run opens the checkpoint store and runs the task as a server or as a worker.
func (t *task) run(ctx context.Context, train func(context.Context, *Job) error) error {
	err := t.job.network.openStore(ctx, t.job.config.CheckpointDir, t.job.config.CheckpointKeep)
	switch {
	case err != nil:
		return err
	case t.job.contract.Task.Role == cluster.PS:
		err = t.serve(ctx)
	default:
		err = t.work(ctx, train)
	}
	if err == nil {
		t.job.network.leaveStore(ctx)
	}
	return err
}

// work calls train, the program's function, and then ends the training session
// that train has begun.
func (t *task) work(ctx context.Context, train func(context.Context, *Job) error) error {
	training, cancel := context.WithCancel(ctx)
	err := hooks.Guarded(func() error { return train(training, t.job) })
	cancel() // ends a step that a goroutine of the program may still be taking
	s := t.job.session.Load()
	if errors.Is(err, ErrDone) {
		err = nil
	}
	if s == nil {
		if err == nil {
			t.reportUnused()
		}
		return err
	}
	if err == nil {
		err = s.conclude(ctx)
	}
	return cmp.Or(err, s.close(err))
}

// reportUnused warns of flags that had no effect because the program never
// called Job.Parallelize.
func (t *task) reportUnused() {
	c := &t.job.config
	var unused []string
	for _, f := range []struct {
		flag string
		set  bool
	}{
		{"--digest", c.Digest}, {"--ckpt-dir", c.CheckpointDir != ""}, {"--summary-dir", c.SummaryDir != ""}, {"--export-graph", c.ExportGraph != ""},
		{"--profile-steps", c.ProfileSteps != ""}, {"--stop-at-step", c.StopAtStep > 0},
	} {
		if f.set {
			unused = append(unused, f.flag)
		}
	}
	if len(unused) > 0 && t.job.IsChief() {
		t.job.Logf(slog.LevelWarn, "these flags have no effect: the program has ended without Job.Parallelize, which they are for: %s", strings.Join(unused, ", "))
	}
}

// serve runs a parameter server until the last worker has said goodbye, or
// until plx's agent requests a stop. A signal from elsewhere is an error,
// because workers may still need the server.
func (t *task) serve(ctx context.Context) error {
	err := server.Serve(ctx, server.Config{Peers: t.job.network.peers(), Listener: t.job.network.listener, Cluster: t.job.contract.Cluster,
		Checkpoints: t.job.network.checkpoints()})
	if errors.Is(context.Cause(ctx), errStoppedByAgent) {
		return nil // return no error, because the agent requested the stop
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// culprit returns the name of the task that caused err or the session's
// failure, such as "worker:3". It returns "" if that task is unknown or is
// this task.
func (t *task) culprit(err error) string {
	peer, found := errors.AsType[*peers.PeerError](err)
	if s := t.job.session.Load(); !found && s != nil {
		peer, found = errors.AsType[*peers.PeerError](s.failure())
	}
	if !found || peer.Task == t.job.contract.Task {
		return "" // if this task itself is at fault, the other tasks report it
	}
	return peer.Task.String()
}

// numerics describes what determines the bits of results on this host. These
// are the BLAS library with its kernel for the processor, Go's architecture,
// and whether the processor has FMA, which Go's math functions use.
func numerics(l blas.Library) string {
	return fmt.Sprintf("%s %s [%s], %s, fused math %t",
		l.Name, l.Version, l.Config, runtime.GOARCH, cpu.X86.HasFMA && cpu.X86.HasAVX)
}

// checkpoint handles a request of plx's agent for a checkpoint. The checkpoint
// is made between two steps. checkpoint reports to the agent when it was
// written completely, or why there is none.
func (t *task) checkpoint(asked cluster.ControlMessage) {
	s := t.job.session.Load()
	tell := func(step int, held time.Duration, err error) {
		m := cluster.ControlMessage{Kind: cluster.Checkpoint, Step: int64(step), Request: asked.Request}
		if err != nil {
			m.Cause = err.Error()
		} else if asked.Hold {
			m.Hold, m.Held = true, held
		}
		t.send(m) // an error is ignored, because serveAgent notices a broken connection
	}
	q, err := t.request(asked)
	switch {
	case t.job.config.CheckpointDir == "":
		err = errors.New("there is no --ckpt-dir")
	case s == nil:
		err = errors.New("training has not begun")
	case s.saving.saver == nil:
		err = fmt.Errorf("%s makes no checkpoints, the chief does", t.job.contract.Task)
	}
	if err != nil {
		tell(0, 0, err)
		return
	}
	q.Tell = tell
	s.saving.saver.RequestSave(q)
}

// request converts the agent's message m to a request to the saver, which
// makes checkpoints. If the agent asks for a pause of the training, to change
// the number of workers, request returns an error if the job cannot run with
// the new number.
func (t *task) request(m cluster.ControlMessage) (saver.Request, error) {
	q := saver.Request{Hold: m.Hold, Number: m.Request, Workers: m.Workers}
	if !m.Hold {
		return q, nil
	}
	for _, name := range strings.Fields(m.Leaving) {
		task, err := cluster.ParseTask(name)
		if err != nil {
			return q, err
		}
		q.Leaving = append(q.Leaving, task)
	}
	return q, t.job.tolerates(m.Workers)
}
