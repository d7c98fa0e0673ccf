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

// Exit codes of a trainer program. exitUsage is for wrong flags, and
// exitDevice for a GPU that does not work. exitFailed is for all other
// failures. A program stopped by SIGTERM exits with exitStopped, the code that
// a shell would report.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitDevice  = 69 // EX_UNAVAILABLE of sysexits.h
	exitStopped = 128 + int(syscall.SIGTERM)
)

// init keeps the constant cluster.TrainerMark in every binary that imports this
// package. The launcher recognises trainer programs by it.
func init() { link(cluster.TrainerMark) }

//go:noinline
func link(string) {}

var (
	errStopped        = errors.New("told to stop")
	errStoppedByAgent = fmt.Errorf("%w by the agent", errStopped)
	errAgentGone      = errors.New("the launcher's agent is gone")
)

// Main runs a trainer program in the role that the launcher gave it. A worker
// runs train, and a parameter server serves the workers. A program that plx
// did not launch runs train as the only worker. Main does not return.
//
// Main parses the command line: the flags that the program has defined with
// package flag, and the trainer's flags. --help lists the trainer's flags
// separately. The program must define its flags before it calls Main, and must
// not call flag.Parse.
//
// The context of train ends when the launcher stops the job or the process
// receives SIGTERM or SIGINT. A second signal ends the process at once. If plx
// did not launch the program and --ckpt-dir is set, the program makes a
// checkpoint after SIGTERM and waits for it, at most one minute. In a job, the
// launcher requests this checkpoint. In a step of Slurm, the process ignores
// SIGTERM, because plx's agent saves the job first and then stops the process.
//
// If train returns an error other than ErrDone, the process exits with code 1
// and the job fails.
//
// If the job restarts because a task was lost, or because hosts join or leave,
// the launcher starts new processes for all tasks.
//
// Fields of configs that are set replace the defaults. Flags, and the fields
// that the program passes to [Job.Parallelize], replace the fields of configs.
func Main(train func(ctx context.Context, job *Job) error, configs ...Config) {
	p := process{getenv: os.Getenv, log: os.Stderr, out: os.Stdout, config: config.Default().With(configs...)}
	if err := p.config.ParseCommandLine(taskName(os.Getenv)); err != nil {
		p.complain("start", err)
		os.Exit(exitUsage)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	p.signals = make(chan os.Signal, 1)
	cluster.Notify(p.signals)
	os.Exit(p.run(ctx, cancel, train))
}

// Alone runs train in this process as the only worker of a job, and returns
// the error of train. It ignores the command line. It is for tests, and for
// programs that do other work besides training. If train returns ErrDone,
// Alone returns nil.
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

// signalled is the cause of a cancelled context if a signal ended the
// training.
type signalled struct{ signal os.Signal }

func (s signalled) Error() string { return fmt.Sprintf("%v by %v", errStopped, s.signal) }

// Is makes errors.Is(err, errStopped) true.
func (signalled) Is(target error) bool { return target == errStopped }

// stoppedCode returns the exit code of a task that was stopped: 130 after
// SIGINT, otherwise 143. These are the codes that a shell reports.
func stoppedCode(cause error) int {
	if s, ok := errors.AsType[signalled](cause); ok && s.signal == os.Interrupt {
		return 128 + int(syscall.SIGINT)
	}
	return exitStopped
}

// taskName returns the name of this task, such as "worker:3", or "" if no
// launcher started the process.
func taskName(getenv func(string) string) string {
	if getenv("PLX_ROLE") == "" {
		return ""
	}
	return getenv("PLX_ROLE") + ":" + getenv("PLX_TASK_INDEX")
}

// process holds the environment, the output streams and the configuration of a
// trainer process. Tests replace them.
type process struct {
	getenv   func(string) string
	log, out io.Writer
	config   config.Effective
	signals  chan os.Signal // signals that stop the task; nil means that the process catches no signals
}

// run runs the task and returns the exit code of the process. cancel cancels
// ctx.
func (p process) run(ctx context.Context, cancel context.CancelCauseFunc, train func(context.Context, *Job) error) int {
	t, err := p.open(cancel)
	if err != nil {
		p.complain("start", err)
		return failedCode(err)
	}
	go t.handleSignals(p.signals, cancel) // returns when t.close closes t.quit
	defer t.close()
	return p.outcome(ctx, t, t.run(ctx, train))
}

// outcome reports to plx's agent how the task ended, prints an error to
// stderr, and returns the exit code. err is the task's error.
func (p process) outcome(ctx context.Context, t *task, err error) int {
	cause := context.Cause(ctx)
	switch {
	case err == nil:
		if err := t.send(t.statusMessage(cluster.Finished)); err != nil {
			p.complain(t.name(), fmt.Errorf("tell the agent: %w", err))
			return exitFailed
		}
		return 0
	case errors.Is(cause, errStopped):
		return stoppedCode(cause)
	}
	m := t.statusMessage(cluster.Failed)
	m.Cause, m.Peer = err.Error(), t.culprit(err)
	t.send(m) // an error is ignored, because the agent learns of the failure from the exit code too
	if device.Failed(err) {
		err = &device.Error{Err: err} // device.Error adds a hint for the user to the message
	}
	p.complain(t.name(), err)
	return failedCode(err)
}

// failedCode returns the exit code for a task that failed with err.
func failedCode(err error) int {
	switch {
	case device.Failed(err):
		return exitDevice
	case errors.Is(err, device.ErrNone):
		return exitUsage
	}
	return exitFailed
}

// complain prints an error to stderr, and the error's hint if it has one. For
// a missing file in a job it prints how to send the file to the hosts.
func (p process) complain(subject string, err error) {
	if panicked, ok := errors.AsType[*hooks.PanicError](err); ok {
		p.log.Write(panicked.Stack) // the stack comes first, so that the message is the last line
	}
	fmt.Fprintf(p.log, "plx: %s: %v\n", subject, err) // a write error is ignored, because it could not be reported anywhere
	var helpful interface{ Hint() string }
	if errors.As(err, &helpful) {
		fmt.Fprintf(p.log, "plx: hint: %s\n", helpful.Hint())
	} else if file, ok := errors.AsType[*fs.PathError](err); ok && errors.Is(file, fs.ErrNotExist) && p.getenv("PLX_JOB") != "" {
		fmt.Fprintf(p.log, "plx: hint: %s\n", missingFileHint(file.Path))
	}
}

// missingFileHint tells the user how to send the file at path from the
// launching machine to the hosts.
func missingFileHint(path string) string {
	if filepath.IsAbs(path) {
		return fmt.Sprintf("put %s on every host; or plx launch --copy %s, and read it as %s", path, path, filepath.Base(path))
	}
	return fmt.Sprintf("hosts have no files of the launching machine: plx launch --copy %s, which tasks read as %s; --workdir sends a whole folder", path, filepath.Base(path))
}
