package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/plx-run/plx/trainer/blas"
	"github.com/plx-run/plx/trainer/cluster"
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
//
// When the job is begun anew because another task was lost, or hosts join or
// leave, the process stays, unless FreshProcess says otherwise: that context
// ends, and train is called again with the job as it then is. What the program
// keeps in package variables is still there, so that data need not be read
// again; what a result depends on must follow from the job alone.
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

// process is what runs a task, or one after the other those of several
// generations, with what it has of the world.
type process struct {
	getenv   func(string) string
	log, out io.Writer
	config   config

	library *blas.Library // nil until it is installed
	stayed  bool          // for another generation than its first
}

// run does what Main does and returns the exit code. cancel ends ctx.
func (p *process) run(ctx context.Context, cancel context.CancelCauseFunc, train func(context.Context, *Job) error) int {
	post, err := p.report(cancel)
	if err != nil {
		p.complain("start", err)
		return exitFailed
	}
	defer post.close()
	for {
		code, waits := p.generation(ctx, post, train)
		if !waits {
			return code
		}
		debug.FreeOSMemory() // others may need it, and the next generation here
		next, err := post.await(ctx)
		switch {
		case errors.Is(err, errStopped):
			return stoppedCode(err)
		case err == nil:
			p.stayed, err = true, p.become(next)
		}
		if err != nil {
			p.complain("start", post.failed(err))
			return exitFailed
		}
	}
}

// generation is the process's life as one task, until nothing of it runs. waits
// says that the process can be the next generation's.
func (p *process) generation(ctx context.Context, post *post, train func(context.Context, *Job) error) (code int, waits bool) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	t, err := p.open(post, end)
	if err != nil {
		p.complain("start", err)
		return exitFailed, false
	}
	err = t.run(ctx, train)
	code, waits = p.outcome(ctx, t, err)
	if err := t.close(); err != nil && waits {
		p.complain(t.name(), fmt.Errorf("wait for the next generation: %w", err))
		waits = false
	}
	return code, waits
}

// outcome tells what has become of a task.
func (p *process) outcome(ctx context.Context, t *task, err error) (code int, waits bool) {
	cause := context.Cause(ctx)
	var own *panicError
	panicked := errors.As(err, &own)
	switch {
	case err == nil:
		if err := t.say(t.lastWord(cluster.Finished)); err != nil {
			p.complain(t.name(), fmt.Errorf("tell the agent: %w", err))
			return exitFailed, false
		}
		return 0, false
	case errors.Is(cause, errStopped):
		t.say(t.lastWord(cluster.Heartbeat)) // its exit follows
		return stoppedCode(cause), false
	case (errors.Is(cause, errRegroup) || t.foretold(err)) && !panicked:
		t.say(t.lastWord(cluster.Heartbeat)) // obey notices a dead channel
		return exitFailed, true
	}
	peer := t.culprit(err)
	waits = peer != "" && !panicked && t.survives()
	m := t.lastWord(cluster.Failed)
	m.Cause, m.Peer, m.Keeps = err.Error(), peer, waits
	t.say(m)
	p.complain(t.name(), err)
	if p.stayed && peer == "" && m.Step <= m.From {
		p.hint("the process has stayed, and train was called again in it: a program that cannot bear that says trainer.FreshProcess(), or is launched with --fresh-process")
	}
	return exitFailed, waits
}

// complain writes an error and, where the user can do something, a hint.
func (p *process) complain(subject string, err error) {
	var panicked *panicError
	if errors.As(err, &panicked) {
		p.log.Write(panicked.stack) // before the message, which is to be the last word
	}
	fmt.Fprintf(p.log, "plx: %s: %v\n", subject, err) // nobody is left to be told of a broken stderr
	var helpful interface{ Hint() string }
	if errors.As(err, &helpful) {
		p.hint(helpful.Hint())
	}
}

func (p *process) hint(text string) { fmt.Fprintf(p.log, "plx: hint: %s\n", text) }
