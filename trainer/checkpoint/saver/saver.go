// Package saver is the chief's part in checkpoints: it decides when one is made,
// and holds training after it if the job is about to move to other hosts.
//
//	s := saver.New(saver.Config{...})
//	... after every step: err := s.After(ctx, step)
//	s.Ask(request), s.Resume(number)       // from any goroutine
//	err := s.Conclude(ctx, step)           // after the last step
//	s.Wait()
//
// A checkpoint is due every so many steps, every so many seconds, when somebody
// asks for it, and at the end. One is made at a time: one that is due while another is
// written is made after that, with the steps that were taken meanwhile.
//
// # What it refuses
//
// It writes nothing: shard holders copy what they have, and the checkpoint store
// (package store) writes and replicates it.
package saver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/client"
)

// Config is what a saver needs.
type Config struct {
	Steps   int           // number of steps from one checkpoint to the next; 0 means not by steps
	Period  time.Duration // time from one checkpoint to the next; 0 means not by time
	Saved   int           // step of the checkpoint that training resumed from; -1 means that it began anew
	InStep  bool          // all workers take the same steps together
	Workers int           // number of workers of the job

	Store    *store.Store
	Exchange *client.Saves
	// Describe returns the tasks that take part in a checkpoint, and its manifest
	// as far as it is known. cut is the number of steps of each group; nil means
	// that all workers are in the same step.
	Describe func(cut []uint64) store.Expected
	// Waiting is called when the saver begins to wait. what describes the event
	// that the saver waits for. The saver calls stop when the wait ends.
	Waiting func(what func() string) (stop func())
	// Late is called when a checkpoint is due by steps and the one of step writing is still
	// being written. The saver makes the next checkpoint after that.
	Late func(step, writing int)
}

// Saver decides when a checkpoint is made. A nil Saver makes none.
type Saver struct {
	config  Config
	due     bool           // a checkpoint is to be made as soon as none is being written
	last    time.Time      // when the last checkpoint began; before the first, when New was called
	at      int            // number of steps in the last checkpoint, or in the one resumed from; -1 means none
	saved   int            // number of checkpoints that were completed
	passed  int            // multiple of Steps that was last found late; 0 means none
	done    []int          // steps of those that Completed has not returned
	telling sync.WaitGroup // goroutines that answer requests

	mu      sync.Mutex
	asked   []Request // requests that no checkpoint was begun for yet
	resting *rest     // the chief's pause, present or about to begin; nil means none
	left    bool      // the chief takes no further step; other workers may
	over    *result   // outcome of the checkpoint at the end of training; nil before it was made
}

// result is what became of a checkpoint.
type result struct {
	step int   // number of steps before the checkpoint
	err  error // why the checkpoint failed; nil means that it was written
}

// New returns a saver.
func New(c Config) *Saver { return &Saver{config: c, last: time.Now(), at: c.Saved} }

// Ask has a checkpoint made at the next step boundary. Any goroutine may call it.
func (s *Saver) Ask(r Request) {
	s.mu.Lock()
	over, err := s.over, s.refuses(r)
	if over == nil && err == nil {
		s.asked = append(s.asked, r)
	}
	s.mu.Unlock()
	switch {
	case err != nil:
		r.Tell(0, 0, err)
	case over != nil:
		r.Tell(over.step, 0, over.err)
	}
}

func (s *Saver) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked) > 0
}

// urgent reports whether somebody wants a checkpoint of this very step.
func (s *Saver) urgent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.asked, func(r Request) bool { return r.Exact })
}

// After makes a checkpoint if one is due after so many steps, and holds the chief
// if a request wants that.
func (s *Saver) After(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	c := &s.config
	s.due = s.due || s.wanted() || c.Steps > 0 && step/c.Steps > max(s.at, 0)/c.Steps ||
		c.Period > 0 && time.Since(s.last) >= c.Period
	if s.due && s.urgent() {
		c.Store.Wait(ctx) // a failed save is reported by itself
	}
	if s.due && !c.Store.Busy() {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	} else if c.Steps > 0 && step/c.Steps > max(s.at, 0, s.passed*c.Steps)/c.Steps {
		s.passed = step / c.Steps
		c.Late(step, s.at)
	}
	return s.rest(ctx, step)
}

// save has every shard holder save what it has now or, if workers are not in
// step, at a cut.
func (s *Saver) save(ctx context.Context, step int) error {
	s.note()
	s.due, s.last, s.at = false, time.Now(), step
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	resting := s.hold(asked, step)
	s.mu.Unlock()
	kind := client.Passing
	if resting != nil {
		kind = client.Holding
	}
	cut, err := s.config.Exchange.Cut(ctx, kind)
	if err != nil {
		return err
	}
	expected := s.config.Describe(cut)
	if resting != nil {
		expected.Leaving = resting.leaving
		resting.carried = len(expected.Carriers) > 0
	}
	if err := s.config.Store.Expect(expected); err != nil {
		return err
	}
	if err := s.config.Exchange.Save(); err != nil {
		return err
	}
	if len(asked) > 0 {
		step := int(expected.Manifest.Step)
		s.telling.Go(func() { s.tell(asked, resting, step, s.config.Store.Wait(context.Background())) }) // closing the store ends it
	}
	return nil
}

// note notes a checkpoint that was completed since the last call.
func (s *Saver) note() {
	if s.config.Store.Busy() {
		return
	}
	if n := s.config.Store.Summary().Saved; n > s.saved {
		s.saved, s.done = n, append(s.done, s.at)
	}
}

// Completed returns the number of steps in each checkpoint that was completely written
// since the last call. The goroutine of After calls it.
func (s *Saver) Completed() []int {
	if s == nil {
		return nil
	}
	s.note()
	steps := s.done
	s.done = nil
	return steps
}

// Wait waits until everybody who asked was told. The store must be closed.
func (s *Saver) Wait() {
	if s != nil {
		s.telling.Wait()
	}
}

// Request is somebody's wish for a checkpoint.
type Request struct {
	Number  int            // number of the request; a later request has a higher one
	Exact   bool           // the checkpoint is of the steps so far, also if an earlier one must be waited for
	Hold    bool           // the chief takes no step after the checkpoint until Resume
	Workers int            // with Hold: number of workers that will resume from the checkpoint
	Leaving []cluster.Task // with Hold: tasks that will have left when the job resumes
	// Tell gets the checkpoint's step and, with Hold, for how long the chief was
	// held until the checkpoint was written. If none was written, err says why.
	// Any goroutine may call Tell.
	Tell func(step int, held time.Duration, err error)
}

// rest is the chief's pause after a checkpoint.
type rest struct {
	number  int            // Number of the request that wants the pause
	leaving []cluster.Task // tasks that will have left when the job resumes; nil: none
	step    int            // number of steps before the checkpoint
	carried bool           // workers save carried state with the next step, so the chief takes that step before it pauses
	since   time.Time      // when the checkpoint began
	over    chan struct{}  // closed when the chief may go on
}

// hold begins a rest if one of the requests wants it. It needs s.mu.
func (s *Saver) hold(asked []Request, step int) *rest {
	i := slices.IndexFunc(asked, func(r Request) bool { return r.Hold })
	if i < 0 {
		return nil
	}
	s.resting = &rest{number: asked[i].Number, leaving: asked[i].Leaving, step: step, since: time.Now(), over: make(chan struct{})}
	return s.resting
}

// tell answers requests. Without a checkpoint nobody is held.
func (s *Saver) tell(asked []Request, resting *rest, step int, err error) {
	held := time.Duration(0)
	if resting != nil {
		held = time.Since(resting.since)
	}
	if err != nil && resting != nil {
		s.Resume(resting.number)
	}
	for _, r := range asked {
		r.Tell(step, held, err)
	}
}

// Resume ends a rest that a request up to this one asked for, also one that has
// not begun. A later request may have come before this call. Any goroutine may
// call it.
func (s *Saver) Resume(number int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.asked {
		r.Hold = r.Hold && r.Number > number
		s.asked[i] = r
	}
	if s.resting != nil && s.resting.number <= number {
		close(s.resting.over)
		s.resting = nil
	}
}

// rest holds the chief, and with it, in step, all workers. State that workers
// carry is saved with the outcome of the next step. The chief takes that step
// before it rests, and the workers recompute it after the restart.
func (s *Saver) rest(ctx context.Context, step int) error {
	s.mu.Lock()
	resting := s.resting
	s.mu.Unlock()
	if resting == nil || resting.carried && resting.step == step {
		return nil
	}
	defer s.config.Waiting(func() string { return fmt.Sprintf("the job to go on with other hosts after step %d", resting.step) })()
	select {
	case <-resting.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Conclude makes the last checkpoint of a training that has ended well, after so
// many steps, and waits until all of it is written. The store has reported one
// that fails. If workers are not in step, the checkpoint has the last step of
// each.
func (s *Saver) Conclude(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	store := s.config.Store
	store.Wait(ctx) // a failed save is reported by itself
	if !s.config.InStep {
		if err := s.outlast(ctx, step); err != nil {
			return err
		}
		store.Wait(ctx) // a failed save is reported by itself
	}
	if s.at != step || !s.config.InStep || s.urgent() {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	}
	last := result{step, store.Wait(ctx)}
	s.mu.Lock()
	asked := s.asked
	s.asked, s.over = nil, &last // who asks from now on gets the last checkpoint too
	s.mu.Unlock()
	s.tell(asked, nil, last.step, last.err)
	s.telling.Wait()
	return nil
}

// outlast waits until all other workers have left, in modes in which none waits
// for another. Meanwhile it saves what is due and what somebody asks for, as
// between two steps.
func (s *Saver) outlast(ctx context.Context, step int) error {
	s.end()
	defer s.config.Waiting(func() string { return "the other workers' last steps" })()
	for {
		alone, err := s.config.Exchange.Conclude(ctx, time.Second)
		if alone || err != nil {
			return err
		}
		s.due = s.due || s.overdue()
		if err := s.After(ctx, step); err != nil {
			return err
		}
	}
}

// end notes that the chief takes no further step, and refuses the requests that
// need one.
func (s *Saver) end() {
	s.mu.Lock()
	s.left = true
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, r := range asked {
		s.Ask(r)
	}
}

// refuses returns why nothing can be saved for a request. Another number of
// workers would begin with the chief's step, so nobody would take the steps that
// others have still to take. It needs s.mu.
func (s *Saver) refuses(r Request) error {
	if !s.left || !r.Hold || r.Workers == s.config.Workers {
		return nil
	}
	return fmt.Errorf("%s has made its last step, and others have not: only as many workers as now, %d, can go on, not %d",
		cluster.Chief, s.config.Workers, r.Workers)
}

// meanwhile is the time between two checkpoints after the chief's last step if
// they are counted in steps, of which the chief takes none any more.
const meanwhile = time.Minute

// overdue reports whether it is time for the next of these.
func (s *Saver) overdue() bool { return s.config.Steps > 0 && time.Since(s.last) >= meanwhile }
