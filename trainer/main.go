package trainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/config"
	"github.com/plx-run/plx/trainer/device"
	"github.com/plx-run/plx/trainer/hooks"
)

// Exit codes of a trainer program: 0, a failure of any kind, a mistake in the
// flags, a GPU that the worker was given and cannot use, or no longer, and what a
// shell gives a program that SIGTERM ended, for one that was told to stop.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDevice  = 69 // EX_UNAVAILABLE of sysexits.h
	exitStopped = 128 + int(syscall.SIGTERM)
)

// init leaves cluster.Mark in every program that imports this package.
func init() { link(cluster.Mark) }

//go:noinline
func link(string) {}

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
// SIGINT or by the launcher; a second signal ends the process at once. SIGTERM to a
// program that runs alone and keeps checkpoints has one made first, for at most a
// minute; the launcher does so for a job. In a step of Slurm, SIGTERM is left to plx's
// agent, which saves the job first. When train returns an error other than ErrDone the process exits with 1 and the
// job fails.
//
// When the job restarts, because a task was lost or because hosts join or leave,
// the launcher starts the program again: every generation of a job has processes
// of its own.
//
// Fields of configs that are set take the place of defaults. Flags win over them, and
// so do the fields that the program gives to [Job.Parallelize].
func Main(train func(ctx context.Context, job *Job) error, configs ...Config) {
	p := process{getenv: os.Getenv, log: os.Stderr, out: os.Stdout, config: config.Default().With(configs...)}
	if err := p.config.ParseCommandLine(ownName(os.Getenv)); err != nil {
		p.complain("start", err)
		os.Exit(exitUsage)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p.signals = make(chan os.Signal, 1)
	cluster.Notify(p.signals)
	os.Exit(p.run(ctx, cancel, train))
}

// Alone runs train as a program that runs by itself does, in this process and without the
// command line, and returns its error: for tests, and for programs that do more than train.
// It returns nil if train ends with ErrDone.
func Alone(ctx context.Context, train func(ctx context.Context, job *Job) error, configs ...Config) error {
	p := process{getenv: func(string) string { return "" }, log: os.Stderr, out: os.Stdout, config: config.Default().With(configs...)}
	if err := p.config.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t, err := p.open(cancel)
	if err != nil {
		return err
	}
	defer t.close()
	return t.run(ctx, train)
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal os.Signal }

func (s signalled) Error() string { return fmt.Sprintf("%v by %v", errStopped, s.signal) }

// Is makes it an errStopped.
func (signalled) Is(target error) bool { return target == errStopped }

// stoppedCode is the exit code of a task that cause has stopped.
func stoppedCode(cause error) int {
	if s, ok := errors.AsType[signalled](cause); ok && s.signal == os.Interrupt {
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

// process is what a task has of the world: its environment, its output streams
// and the program's configuration.
type process struct {
	getenv   func(string) string
	log, out io.Writer
	config   config.Effective
	signals  chan os.Signal // signals to end; nil means that none are caught
}

// run does what Main does and returns the exit code. cancel ends ctx.
func (p process) run(ctx context.Context, cancel context.CancelCauseFunc, train func(context.Context, *Job) error) int {
	t, err := p.open(cancel)
	if err != nil {
		p.complain("start", err)
		return failedCode(err)
	}
	go t.heed(p.signals, cancel) // ends when close closes t.quit
	defer t.close()
	return p.outcome(ctx, t, t.run(ctx, train))
}

// outcome tells the agent, and on a failure the user, how a task ended, and
// returns the exit code.
func (p process) outcome(ctx context.Context, t *task, err error) int {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		if err := t.say(t.word(cluster.Finished)); err != nil {
			p.complain(t.name(), fmt.Errorf("tell the agent: %w", err))
			return exitFailed
		}
		return 0
	case errors.Is(cause, errStopped):
		return stoppedCode(cause)
	}
	m := t.word(cluster.Failed)
	m.Cause, m.Peer = err.Error(), t.culprit(err)
	t.say(m) // the exit status says it too
	if device.Failed(err) {
		err = &device.Error{Err: err} // has a hint
	}
	p.complain(t.name(), err)
	return failedCode(err)
}

// failedCode is the exit code of a task that failed.
func failedCode(err error) int {
	switch {
	case device.Failed(err):
		return exitDevice
	case errors.Is(err, device.ErrNone):
		return exitUsage
	}
	return exitFailed
}

// complain writes an error and, if the error has one, a hint.
func (p process) complain(subject string, err error) {
	if panicked, ok := errors.AsType[*hooks.PanicError](err); ok {
		p.log.Write(panicked.Stack) // before the message, which is to be the last word
	}
	fmt.Fprintf(p.log, "plx: %s: %v\n", subject, err) // nobody is left to be told of a broken stderr
	var helpful interface{ Hint() string }
	if errors.As(err, &helpful) {
		fmt.Fprintf(p.log, "plx: hint: %s\n", helpful.Hint())
	} else if file, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(file, fs.ErrNotExist) && p.getenv("PLX_JOB") != "" {
		fmt.Fprintf(p.log, "plx: hint: %s\n", missingFileHint(file.Path))
	}
}

// missingFileHint says how a file of the launching machine gets to the hosts.
func missingFileHint(path string) string {
	if filepath.IsAbs(path) {
		return fmt.Sprintf("put %s on every host; or plx launch --copy %s, and read it as %s", path, path, filepath.Base(path))
	}
	return fmt.Sprintf("hosts have no files of the launching machine: plx launch --copy %s, which tasks read as %s; --workdir sends a whole folder", path, filepath.Base(path))
}
