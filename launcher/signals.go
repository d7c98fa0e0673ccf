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

// signals turns the user's signals into an end: of the context before listen is called, of
// the job after.
type signals struct {
	stops   chan jobstate.StopAsked // what signals ask of the job
	printer *console.Printer
	done    chan struct{} // closed by close; ends the goroutine
	wg      sync.WaitGroup

	mu        sync.Mutex
	listening bool   // listen was called: signals end the job, not the context
	ended     bool   // the job has ended: signals ask for no checkpoint and print nothing
	promise   saving // what is printed of the checkpoint before the end
}

// saving is what is known of a job that is asked for a checkpoint before its end.
type saving int

const (
	sureSaving  saving = iota // it keeps checkpoints
	maybeSaving               // it uses plx's trainer, and may keep checkpoints
	noSaving                  // it does not link plx's trainer, which alone saves when it is asked
)

// saving returns what is known of the job's checkpoints before it runs.
func (l *launch) saving() saving {
	switch {
	case !l.program.Trainer:
		return noSaving
	case !saves(l.cfg.Args):
		return maybeSaving
	}
	return sureSaving
}

// patience is the time that a job has after a signal.
type patience struct {
	grace time.Duration // from telling a task to end to killing it; 0: it is killed at once
	save  time.Duration // bounds the checkpoint before the end after SIGTERM; 0: none is made
}

// watch returns a context that ends at the first signal before listen is called. Its
// cause has the exit status.
func watch(ctx context.Context, sig <-chan os.Signal, p patience, v *console.Printer) (context.Context, *signals) {
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

func (s *signals) take(got os.Signal, n int, p patience, cancel context.CancelCauseFunc) {
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
		stop.SaveTime = p.save // a script may start a program of the trainer all the same
		s.printer.Printf("%s: %s; a second signal kills them at once", name, s.announceSave(p))
	case p.grace > 0:
		s.printer.Printf("%s: the tasks have %s to end, a second signal kills them at once", name, p.grace)
	}
	s.ask(stop)
}

// announceSave says what happens after a signal that asks for a checkpoint first.
func (s *signals) announceSave(p patience) string {
	switch s.promise {
	case noSaving:
		return fmt.Sprintf("the tasks have %s to end", p.grace)
	case maybeSaving:
		return fmt.Sprintf("the job is saved first, for at most %s, if it keeps checkpoints, then the tasks have %s to end", p.save, p.grace)
	}
	return fmt.Sprintf("the job is saved first, for at most %s, then the tasks have %s to end", p.save, p.grace)
}

// codePipe is the exit status of a program that SIGPIPE ended.
const codePipe = 128 + int(syscall.SIGPIPE)

func (s *signals) ask(stop jobstate.StopAsked) {
	select {
	case s.stops <- stop:
	default: // enough stops are waiting
	}
}

// expect notes what is known of the job's checkpoints.
func (s *signals) expect(promise saving) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.promise = promise
}

// listen returns the stops that the user asks for from now on.
func (s *signals) listen() <-chan jobstate.StopAsked {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = true
	return s.stops
}

// end notes that the job has ended while this process goes on.
func (s *signals) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *signals) close() {
	close(s.done)
	s.wg.Wait()
}
