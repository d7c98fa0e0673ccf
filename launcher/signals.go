package launcher

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
)

// signals turns what the user sends into an end: of ctx while nothing runs,
// of the job once it does.
type signals struct {
	stops chan coordinator.StopAsked
	voice *voice
	done  chan struct{}
	wg    sync.WaitGroup

	mu         sync.Mutex
	conducting bool
	ended      bool // the job: there is nothing to save, and nothing to end
}

// patience is what a job gets that a signal ends.
type patience struct {
	grace time.Duration
	save  time.Duration // to save before, at SIGTERM; 0: it is not asked to
}

func (c Config) ending() patience {
	if c.Detach { // it is only being started
		return patience{grace: c.Grace}
	}
	return patience{grace: c.Grace, save: c.SaveTime}
}

// watch returns a context that ends at the first signal before conduct is
// called. Its cause is the interruption, with its exit status.
func watch(ctx context.Context, sig <-chan os.Signal, p patience, v *voice) (context.Context, *signals) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &signals{stops: make(chan coordinator.StopAsked, 8), voice: v, done: make(chan struct{})}
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
	code, name := 130, "Ctrl-C"
	if number, ok := got.(syscall.Signal); ok && number != syscall.SIGINT {
		code, name = 128+int(number), "signal "+number.String()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.conducting {
		cancel(&coded{fmt.Errorf("interrupted by %s", name), code})
		return
	}
	stop := coordinator.StopAsked{Reason: "stopped by " + name, Code: code, Grace: p.grace}
	switch {
	case s.ended:
	case n > 1:
		stop.Grace = 0
	case got == syscall.SIGTERM && p.save > 0:
		stop.SaveTime = p.save
		s.voice.say("%s: the job is saved first, for at most %s, then the tasks have %s to end; a second one kills them at once", name, p.save, p.grace)
	case p.grace > 0:
		s.voice.say("%s: the tasks have %s to end, a second one kills them at once", name, p.grace)
	}
	s.ask(stop)
}

// codePipe is the exit status of a program that SIGPIPE ended.
const codePipe = 128 + int(syscall.SIGPIPE)

// noReader ends a job whose output nobody reads any more, as in
// "plx launch ... | head".
func (s *signals) noReader(grace time.Duration) {
	s.ask(coordinator.StopAsked{Reason: "stopped because its output is no longer read", Code: codePipe, Grace: grace})
}

func (s *signals) ask(stop coordinator.StopAsked) {
	select {
	case s.stops <- stop:
	default: // it has been asked often enough
	}
}

// conduct says that a conductor listens from now on.
func (s *signals) conduct() <-chan coordinator.StopAsked {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conducting = true
	return s.stops
}

// end says that the job has ended, and plx goes on.
func (s *signals) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *signals) close() {
	close(s.done)
	s.wg.Wait()
}
