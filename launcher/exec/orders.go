package exec

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// interrupts holds what the user has requested by signals such as SIGINT.
type interrupts struct {
	stop, kill chan struct{}   // stop is closed by the first signal, kill by the second
	bounded    context.Context // canceled if the agents do not report the end of all commands in time after a signal
	ended      chan struct{}   // closed by the method close, to end the goroutine
	goroutine  sync.WaitGroup
	status     atomic.Int32 // exit status of plx, 128 + signal number; 0 before the first signal
}

// ending is how long an agent may take to kill a command and to report the
// end.
const ending = 15 * time.Second

// watch starts a goroutine that handles the user's signals. The returned
// context is canceled by the first signal.
func watch(ctx context.Context, sig <-chan os.Signal, grace time.Duration, printer *console.Printer) (context.Context, *interrupts) {
	bounded, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	i := &interrupts{stop: make(chan struct{}), kill: make(chan struct{}), bounded: bounded, ended: make(chan struct{})}
	i.goroutine.Go(func() {
		defer cancel(nil)
		defer giveUp(nil)
		var deadline <-chan time.Time
		for n := 0; ; {
			select {
			case <-i.ended:
				return
			case <-deadline:
				giveUp(errors.New("the agent did not report the end of the command; it ends when its lease runs out"))
			case got := <-sig:
				if n++; n == 1 {
					code := 130
					if n, ok := got.(syscall.Signal); ok {
						code = 128 + int(n)
					}
					i.status.Store(int32(code))
					cancel(exit.WithCode(errors.New("interrupted"), code))
					close(i.stop)
					printer.Printf("interrupted: ending the command on all hosts within %s; interrupt again to kill it", grace)
					deadline = time.After(grace + ending)
				} else if n == 2 {
					close(i.kill)
					deadline = time.After(ending)
				}
			}
		}
	})
	return ctx, i
}

func (i *interrupts) close() {
	close(i.ended)
	i.goroutine.Wait()
}

// beatEvery is the time between two messages that renew a host's lease,
// without which the host kills the command.
const beatEvery = time.Second

// orders returns a channel of messages for a host's agent: a renewal of the
// lease each second, and the user's requests to end or kill the command. The
// caller must call done at the end.
func (r *run) orders() (orders <-chan byte, done func()) {
	all, ended := make(chan byte), make(chan struct{})
	var g sync.WaitGroup
	g.Go(func() {
		tick := time.NewTicker(beatEvery)
		defer tick.Stop()
		stop, kill := r.interrupts.stop, r.interrupts.kill
		for {
			order := byte(protocol.ExecBeat)
			select {
			case <-ended:
				return
			case <-stop:
				order, stop = protocol.ExecStop, nil
			case <-kill:
				order, kill = protocol.ExecKill, nil
			case <-tick.C:
			}
			select {
			case all <- order:
			case <-ended:
				return
			}
		}
	})
	return all, func() {
		close(ended)
		g.Wait()
	}
}
