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
}

// watch returns a context that ends at the first signal before conduct is
// called. Its cause is the interruption, with its exit status.
func watch(ctx context.Context, sig <-chan os.Signal, grace time.Duration, v *voice) (context.Context, *signals) {
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
				s.take(got, n, grace, cancel)
			}
		}
	})
	return ctx, s
}

func (s *signals) take(got os.Signal, n int, grace time.Duration, cancel context.CancelCauseFunc) {
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
	if n > 1 {
		grace = 0
	} else if grace > 0 {
		s.voice.say("%s: the tasks have %s to end, a second one kills them at once", name, grace)
	}
	s.ask(coordinator.StopAsked{Reason: "stopped by " + name, Code: code, Grace: grace})
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

func (s *signals) close() {
	close(s.done)
	s.wg.Wait()
}
