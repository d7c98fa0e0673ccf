package driver

import (
	"context"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/jobstate"
)

// timers are those that the machine has set. They belong to the loop.
type timers struct {
	all   map[jobstate.Timer]*timer
	rings chan *timer     // timers that end
	done  context.Context // ends with the job: nobody takes rings any more
	armed *sync.WaitGroup // timers that are set
}

// timer is one that is set. Another one of the same name takes its place, even
// while it rings.
type timer struct {
	name jobstate.Timer
	*time.Timer
}

func newTimers(done context.Context) timers {
	return timers{all: map[jobstate.Timer]*timer{}, rings: make(chan *timer), done: done, armed: &sync.WaitGroup{}}
}

func (ts timers) set(s jobstate.SetTimer) {
	ts.stop(s.Timer)
	ts.armed.Add(1)
	t := &timer{name: s.Timer}
	ts.all[s.Timer] = t
	t.Timer = time.AfterFunc(s.After, func() {
		defer ts.armed.Done()
		select {
		case ts.rings <- t:
		case <-ts.done.Done():
		}
	})
}

// isSet reports whether t was not set again since it rang.
func (ts timers) isSet(t *timer) bool { return ts.all[t.name] == t }

func (ts timers) stop(name jobstate.Timer) {
	if old := ts.all[name]; old != nil && old.Stop() {
		ts.armed.Done()
	}
	delete(ts.all, name)
}

func (ts timers) stopAll() {
	for name := range ts.all {
		ts.stop(name)
	}
}

// wait waits for timers that ring.
func (ts timers) wait() { ts.armed.Wait() }
