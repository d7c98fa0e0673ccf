package launcher

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// signals handles the user's signals. Before listen is called, a signal
// cancels the context of the launch; after that, it asks the job to stop.
type signals struct {
	stops   chan jobstate.StopAsked // requests to stop the job, made from signals
	printer *console.Printer
	done    chan struct{} // closed by the method close to end the goroutine
	wg      sync.WaitGroup

	mu        sync.Mutex
	listening bool   // true after listen was called: a signal stops the job instead of canceling the context
	ended     bool   // true when the job has ended: signals print nothing and ask for no checkpoint
	promise   saving // how likely the job saves a checkpoint; selects the message that a signal prints
}

// saving says how likely a job saves a checkpoint before it ends.
type saving int

const (
	sureSaving  saving = iota // the job is expected to save a checkpoint, because it keeps checkpoints
	maybeSaving               // the job uses plx's trainer and may keep checkpoints
	noSaving                  // the job does not link plx's trainer, so plx cannot ask it for a checkpoint
)

// saving predicts, before the job runs, whether it can save a checkpoint
// before it ends.
func (l *launch) saving() saving {
	switch {
	case !l.program.Trainer:
		return noSaving
	case !saves(l.cfg.Args):
		return maybeSaving
	}
	return sureSaving
}

// stopLimits holds the time limits that apply after a signal.
type stopLimits struct {
	grace time.Duration // time between asking the tasks to end and killing them; 0 kills at once
	save  time.Duration // time limit of the checkpoint that SIGTERM asks for; 0 asks for none
}

// watch returns a context that the first signal cancels if it arrives before
// listen is called. The context's cause then carries plx's exit status.
func watch(ctx context.Context, sig <-chan os.Signal, p stopLimits, v *console.Printer) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{stops: make(chan jobstate.StopAsked, 8), printer: v, done: make(chan struct{})}
	s.wg.Go(func() {
		defer cancel(nil)
		for n := 0; ; {
			select {
			case <-s.done:
				return
			case got := <-sig:
				n++
				s.take(got, n, p, cancel)
			}
		}
	})
	return ctx, s
}

func (s *signals) take(got os.Signal, n int, p stopLimits, cancel context.CancelCauseFunc) {
	code, name := 130, protocol.CtrlC
	if number, ok := got.(syscall.Signal); ok && number != syscall.SIGINT {
		code, name = 128+int(number), "signal "+number.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.listening {
		cancel(exit.WithCode(fmt.Errorf("interrupted by %s", name), code))
		return
	}
	stop := jobstate.StopAsked{Reason: protocol.StoppedBy + name, Code: code, Grace: p.grace}
	switch {
	case s.ended:
	case n > 1:
		stop.Grace = 0
	case got == syscall.SIGTERM && p.save > 0:
		stop.SaveTime = p.save // Ask even if plx expects no checkpoint (noSaving): the job's script may start a program that links plx's trainer.
		s.printer.Printf("%s: %s; a second signal kills them at once", name, s.announceSave(p))
	case p.grace > 0:
		s.printer.Printf("%s: the tasks have %s to end, a second signal kills them at once", name, p.grace)
	}
	s.ask(stop)
}

// announceSave returns the message for a signal that asks the job for a
// checkpoint before it ends.
func (s *signals) announceSave(p stopLimits) string {
	switch s.promise {
	case noSaving:
		return fmt.Sprintf("the tasks have %s to end", p.grace)
	case maybeSaving:
		return fmt.Sprintf("the job is saved first, for at most %s, if it keeps checkpoints, then the tasks have %s to end", p.save, p.grace)
	}
	return fmt.Sprintf("the job is saved first, for at most %s, then the tasks have %s to end", p.save, p.grace)
}

// codePipe is the shell's exit status of a program that SIGPIPE has killed.
const codePipe = 128 + int(syscall.SIGPIPE)

func (s *signals) ask(stop jobstate.StopAsked) {
	select {
	case s.stops <- stop:
	default: // The channel is full: enough stop requests are pending.
	}
}

// expect sets whether the job can be expected to save a checkpoint, for the
// message that a signal prints.
func (s *signals) expect(promise saving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promise = promise
}

// listen returns the channel of stop requests. From now on, signals stop the
// job instead of canceling the context.
func (s *signals) listen() <-chan jobstate.StopAsked {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = true
	return s.stops
}

// end records that the job has ended, although this process still has work to
// do, such as fetching files.
func (s *signals) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *signals) close() {
	close(s.done)
	s.wg.Wait()
}
