package driver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

func TestSilentAgentIsLostAfterLease(t *testing.T) {
	for name, fault := range map[string]func(*agent){
		"reads and does not answer": func(a *agent) { a.mute = true },
		"does not read":             func(a *agent) { a.deaf = true },
	} {
		for _, again := range []string{"cannot be dialled", "can be dialled"} {
			t.Run(name+", "+again, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, b := two(t)
					j := start(t, a, b)
					time.Sleep(time.Minute)
					b.set(func() { fault(b); b.unreached = again == "cannot be dialled" })
					if again == "can be dialled" && b.deaf {
						b.set(func() { b.deaf, b.mute = false, true }) // the pipe is unbuffered, so the agent must read again to send its greeting
					}
					j.wait(exit.CodePlx, "host h2: not heard for 30s")
					j.within(time.Minute+lease-3*time.Second, time.Minute+lease+10*time.Second)
					j.errorNames("h2")
					if stops, _ := a.heard(isStop); len(stops) != 1 {
						t.Errorf("h1 was told to stop %d times", len(stops))
					}
				})
			})
		}
	}
}

// A connection that is never read delays neither other hosts nor the stop of
// the job.
func TestBlockedConnectionDoesNotBlockOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := start(t, a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.deaf, b.unreached = true, true })
		time.Sleep(5 * time.Second) // until a Renew message blocks on b's connection
		asked := time.Now()
		j.stops <- jobstate.StopAsked{Reason: "stopped by Ctrl-C", Code: 130, Grace: grace}
		synctest.Wait()
		if _, times := a.heard(isStop); len(times) != 1 || !times[0].Equal(asked) {
			t.Errorf("h1 was told at %v, asked at %v", times, asked)
		}
		j.wait(130, "stopped by Ctrl-C")
		j.errorNames("h2")
	})
}

func TestNoAgent(t *testing.T) {
	t.Run("from the start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t)
			b.noAgent = true
			j := start(t, a, b)
			j.wait(exit.CodePlx, "host h2: connect: no agent")
			j.within(0, time.Second)
			if b.dials != 1 {
				t.Errorf("dialled %d times", b.dials)
			}
		})
	})
	t.Run("it could not start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t)
			b.stillborn = errors.New("no space left on device")
			j := start(t, a, b)
			j.wait(exit.CodePlx, "host h2: connect: no agent of the job is left on the host; when it was started: no space left on device")
		})
	})
	t.Run("later", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, b := two(t)
			j := start(t, a, b)
			time.Sleep(time.Minute)
			b.set(func() { b.noAgent = true })
			b.cut()
			j.wait(exit.CodePlx, "host h2: connect: no agent")
			j.within(time.Minute, time.Minute+5*time.Second)
		})
	})
}

func TestAgentWithoutReplyIsLost(t *testing.T) {
	for name, fault := range map[string]func(*agent){
		"unreached": func(a *agent) { a.unreached = true },
		"flaps":     func(a *agent) { a.flaps = true },
		"mute":      func(a *agent) { a.mute = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				fault(b)
				j := start(t, a, b)
				j.wait(exit.CodePlx, "host h2: not heard for 30s")
				j.within(20*time.Second, 45*time.Second)
			})
		})
	}
}

// An agent that accepts connections and closes them at once is lost after a
// lease.
func TestFlappingAgentIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := two(t)
		j := start(t, a, b)
		time.Sleep(time.Minute)
		b.set(func() { b.flaps = true })
		b.cut()
		j.wait(exit.CodePlx, "host h2: not heard for 30s: the agent closed it")
		j.within(time.Minute+lease-3*time.Second, time.Minute+lease+5*time.Second)
		if len(j.verdict.Notices) > 100 {
			t.Errorf("%d notices", len(j.verdict.Notices))
		}
	})
}

// queued is a Dialer that must wait long in Turn, and then dials slowly.
type queued struct {
	dialer
	after time.Duration
}

func (q queued) Turn(ctx context.Context) (func(), error) {
	select {
	case <-time.After(q.after):
		return func() {}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

const slowly = 10 * time.Second

func (q queued) Dial(ctx context.Context) (*protocol.Conn, error) {
	select {
	case <-time.After(slowly):
		return q.dialer.Dial(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An agent whose start waits for other agents is not considered lost
// meanwhile.
func TestAgentThatWaitsForItsStartIsNotLost(t *testing.T) {
	for name, c := range map[string]struct{ turn, stop, took time.Duration }{
		"started":             {3 * time.Minute, 0, 3*time.Minute + slowly},
		"the job ends before": {3 * time.Minute, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := two(t)
				plan := protocol.Plan{Job: "j", Grace: grace, Settle: time.Second, StartTimeout: 5 * time.Minute}
				j := startWith(t, plan, func(j *job, a *agent) driver.Dialer {
					if a == b {
						return queued{dialer{a, j}, c.turn}
					}
					return dialer{a, j}
				}, a, b)
				if c.stop > 0 {
					time.Sleep(c.stop)
					j.stops <- jobstate.StopAsked{Reason: "enough", Grace: grace}
					j.wait(exit.CodePlx, "enough")
				} else {
					finish(c.turn+slowly+time.Second, a, b)
					j.wait(0, "done")
				}
				j.noError()
				j.within(c.took, c.took+5*time.Second)
			})
		})
	}
}
