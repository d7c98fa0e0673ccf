// Package saver decides, in the chief (worker 0), when the job makes a
// checkpoint. If the job is about to move to other hosts, it also pauses
// training after the checkpoint.
//
//	s := saver.New(saver.Config{...})
//	... after every step: err := s.After(ctx, step)
//	s.RequestSave(request), s.Resume(number)       // from any goroutine
//	err := s.Conclude(ctx, step)           // after the last step
//	s.Wait()
//
// A checkpoint is due after Config.Steps steps, after Config.Period, on a
// [Request], and at the end of training. Only one checkpoint is written at a
// time. If another becomes due meanwhile, the saver makes it afterwards, with
// all steps made until then.
//
// # What it refuses
//
// The package writes no files. The shard holders (the tasks that store the
// variables) take snapshots, and package store writes and replicates them.
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

// Config has the settings of a [Saver] and the functions that it calls.
type Config struct {
	Steps   int           // number of steps between two checkpoints; 0 means that the number of steps triggers no checkpoint
	Period  time.Duration // time between two checkpoints; 0 means that time triggers no checkpoint
	Saved   int           // step of the checkpoint that training resumed from; -1 means that training began from scratch
	InStep  bool          // true if training is synchronous: all workers take the same step at the same time
	Workers int           // number of workers of the job

	Store    *store.Store
	Exchange *client.Saves
	// Describe returns the tasks that take part in a checkpoint, and those
	// fields of its manifest that are known before the save. The parameter cut
	// has the number of steps of each worker group; nil means that all workers
	// are at the same step.
	Describe func(cut []uint64) store.Expected
	// Waiting is called when the saver begins to wait, for example for the end
	// of a save. The function what returns a text that says what it waits for.
	// The saver calls stop when the wait ends.
	Waiting func(what func() string) (stop func())
	// Late is called if a checkpoint is due after the given step while an
	// earlier one is still being written. writing is the step of that earlier
	// checkpoint. The due checkpoint is made afterwards.
	Late func(step, writing int)
}

// Saver decides when the job makes a checkpoint. A nil Saver never makes one.
type Saver struct {
	config    Config
	due       bool           // true if a checkpoint must be made as soon as the previous one is written
	last      time.Time      // when the last checkpoint was begun; before the first checkpoint, when New was called
	at        int            // step of the last checkpoint that was made or resumed from; -1 means that there was none
	saved     int            // number of completed checkpoints that the method note has counted
	passed    int            // index (step/Config.Steps) of the last due checkpoint for which Config.Late was called; 0 if there was none
	done      []int          // steps of the completed checkpoints that Completed has not returned yet
	notifying sync.WaitGroup // running goroutines that wait for a save and then call Request.Tell

	mu      sync.Mutex
	pending []Request // requests for which no checkpoint has been begun yet
	paused  *pause    // the chief's pause after a checkpoint, which lasts now or is about to begin; nil if there is none
	left    bool      // true if the chief (worker 0) has made its last step; other workers may still train
	over    *result   // outcome of the final checkpoint; nil until it has been made
}

// result is the outcome of a checkpoint.
type result struct {
	step int   // number of training steps in the checkpoint
	err  error // why the checkpoint failed; nil if it was written
}

// New returns a saver.
func New(c Config) *Saver { return &Saver{config: c, last: time.Now(), at: c.Saved} }

// RequestSave requests a checkpoint, which [Saver.After] makes after the current step.
// Any goroutine may call RequestSave.
func (s *Saver) RequestSave(r Request) {
	s.mu.Lock()
	over, err := s.over, s.refuses(r)
	if over == nil && err == nil {
		s.pending = append(s.pending, r)
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
	return len(s.pending) > 0
}

// urgent reports whether a pending request has Exact set: it wants a
// checkpoint with exactly the steps made so far.
func (s *Saver) urgent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.pending, func(r Request) bool { return r.Exact })
}

// After makes a checkpoint if one is due. The chief (worker 0) calls it after
// each step, with the number of steps made. If a request has Hold set, After
// blocks the chief until [Saver.Resume].
func (s *Saver) After(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	c := &s.config
	s.due = s.due || s.wanted() || c.Steps > 0 && step/c.Steps > max(s.at, 0)/c.Steps ||
		c.Period > 0 && time.Since(s.last) >= c.Period
	if s.due && s.urgent() {
		c.Store.Wait(ctx) // The error is ignored, because the store logs a failed save itself.
	}
	if s.due && !c.Store.Busy() {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	} else if c.Steps > 0 && step/c.Steps > max(s.at, 0, s.passed*c.Steps)/c.Steps {
		s.passed = step / c.Steps
		c.Late(step, s.at)
	}
	return s.waitPaused(ctx, step)
}

// save begins a checkpoint: every shard holder (a task that stores variables)
// copies its current values. If the workers are not synchronous, the copies
// are taken at a consistent cut: after the same steps on all shard holders.
func (s *Saver) save(ctx context.Context, step int) error {
	s.note()
	s.due, s.last, s.at = false, time.Now(), step
	s.mu.Lock()
	asked := s.pending
	s.pending = nil
	paused := s.hold(asked, step)
	s.mu.Unlock()
	kind := client.Passing
	if paused != nil {
		kind = client.Holding
	}
	cut, err := s.config.Exchange.Cut(ctx, kind)
	if err != nil {
		return err
	}
	expected := s.config.Describe(cut)
	if paused != nil {
		expected.Leaving = paused.leaving
		paused.carried = len(expected.Carriers) > 0
	}
	if err := s.config.Store.Expect(expected); err != nil {
		return err
	}
	if err := s.config.Exchange.Save(); err != nil {
		return err
	}
	if len(asked) > 0 {
		step := int(expected.Manifest.Step)
		s.notifying.Go(func() { s.notify(asked, paused, step, s.config.Store.Wait(context.Background())) }) // The goroutine ends when the save has ended, or when the store is closed.
	}
	return nil
}

// note counts the last checkpoint as completed if the store has finished
// writing it since the last call of note.
func (s *Saver) note() {
	if s.config.Store.Busy() {
		return
	}
	if n := s.config.Store.Summary().Saved; n > s.saved {
		s.saved, s.done = n, append(s.done, s.at)
	}
}

// Completed returns the steps of the checkpoints that were completed since the
// last call of Completed. Only the goroutine that calls After may call it.
func (s *Saver) Completed() []int {
	if s == nil {
		return nil
	}
	s.note()
	steps := s.done
	s.done = nil
	return steps
}

// Wait waits until every [Request] has received its outcome through
// Request.Tell. Close the store, which writes the checkpoints, before that.
func (s *Saver) Wait() {
	if s != nil {
		s.notifying.Wait()
	}
}

// Request asks for a checkpoint, and optionally for a pause of training after
// it.
type Request struct {
	Number  int            // number of the request; a later request has a higher one
	Exact   bool           // true if the checkpoint must contain exactly the steps made so far, even if the chief must first wait for an earlier save
	Hold    bool           // true if the chief (worker 0) must make no step after the checkpoint until Resume is called
	Workers int            // number of workers that will resume from the checkpoint; only used with Hold
	Leaving []cluster.Task // tasks that will be gone when the job resumes; only used with Hold
	// Tell receives the checkpoint's step, or an error if no checkpoint was
	// written. held is how long the chief (worker 0) was paused until the
	// checkpoint was written; it is 0 if no request had Hold set. Tell may be
	// called by any goroutine.
	Tell func(step int, held time.Duration, err error)
}

// pause is an interruption of training, after a checkpoint, during which the
// chief (worker 0) makes no step. It ends with [Saver.Resume].
type pause struct {
	number  int            // Number of the request that asked for the pause
	leaving []cluster.Task // tasks that will be gone when the job resumes; nil means none
	step    int            // number of training steps in the checkpoint
	carried bool           // true if the checkpoint includes recurrent state: workers save it only after the next step, so the chief makes that step before it pauses
	since   time.Time      // when the checkpoint began
	over    chan struct{}  // closed when the chief may continue training
}

// hold starts the pause and returns it if a request in asked has Hold set.
// Otherwise it returns nil. The caller holds s.mu.
func (s *Saver) hold(asked []Request, step int) *pause {
	i := slices.IndexFunc(asked, func(r Request) bool { return r.Hold })
	if i < 0 {
		return nil
	}
	s.paused = &pause{number: asked[i].Number, leaving: asked[i].Leaving, step: step, since: time.Now(), over: make(chan struct{})}
	return s.paused
}

// notify passes the outcome of a checkpoint to the requests that asked for it.
// If the checkpoint failed, it also ends the chief's pause.
func (s *Saver) notify(asked []Request, paused *pause, step int, err error) {
	held := time.Duration(0)
	if paused != nil {
		held = time.Since(paused.since)
	}
	if err != nil && paused != nil {
		s.Resume(paused.number)
	}
	for _, r := range asked {
		r.Tell(step, held, err)
	}
}

// Resume ends the pause of training that the request with this number, or an
// earlier request, asked for. If that pause has not begun yet, Resume cancels
// it. Resume does not affect requests with a higher number. Any goroutine may
// call Resume.
func (s *Saver) Resume(number int) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range s.pending {
		r.Hold = r.Hold && r.Number > number
		s.pending[i] = r
	}
	if s.paused != nil && s.paused.number <= number {
		close(s.paused.over)
		s.paused = nil
	}
}

// waitPaused blocks the chief (worker 0) during its pause. In synchronous
// training this stops all workers. Workers save recurrent state only after the
// next step. If they must save it, the chief first makes that step. After the
// restart, that step is computed again.
func (s *Saver) waitPaused(ctx context.Context, step int) error {
	s.mu.Lock()
	paused := s.paused
	s.mu.Unlock()
	if paused == nil || paused.carried && paused.step == step {
		return nil
	}
	defer s.config.Waiting(func() string { return fmt.Sprintf("the job to go on with other hosts after step %d", paused.step) })()
	select {
	case <-paused.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Conclude makes the final checkpoint after a successful training, and waits
// until it is written. step is the number of training steps. Conclude does not
// return the error of a failed save, because the store logs it. If workers are
// not synchronous, Conclude first waits for the other workers, so that the
// checkpoint contains the last step of each.
func (s *Saver) Conclude(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	store := s.config.Store
	store.Wait(ctx) // The error is ignored, because the store logs a failed save itself.
	if !s.config.InStep {
		if err := s.waitForWorkers(ctx, step); err != nil {
			return err
		}
		store.Wait(ctx) // The error is ignored, because the store logs a failed save itself.
	}
	if s.at != step || !s.config.InStep || s.urgent() {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	}
	last := result{step, store.Wait(ctx)}
	s.mu.Lock()
	asked := s.pending
	s.pending, s.over = nil, &last // RequestSave passes this result to all later requests.
	s.mu.Unlock()
	s.notify(asked, nil, last.step, last.err)
	s.notifying.Wait()
	return nil
}

// waitForWorkers waits until all other workers have finished, in modes in which
// workers do not wait for each other. Meanwhile it makes checkpoints that are
// due or requested.
func (s *Saver) waitForWorkers(ctx context.Context, step int) error {
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

// end records that the chief (worker 0) has made its last step, and refuses
// pending requests that would need another step.
func (s *Saver) end() {
	s.mu.Lock()
	s.left = true
	asked := s.pending
	s.pending = nil
	s.mu.Unlock()
	for _, r := range asked {
		s.RequestSave(r)
	}
}

// refuses returns why a request cannot be served, or nil if it can. After the
// chief (worker 0) has made its last step, a job cannot resume with another
// number of workers. All workers would resume after that step, so the steps
// that other workers still have to make would be lost. The caller holds s.mu.
func (s *Saver) refuses(r Request) error {
	if !s.left || !r.Hold || r.Workers == s.config.Workers {
		return nil
	}
	return fmt.Errorf("%s has made its last step, but other workers have not: the job can resume only with %d workers, as now, not with %d",
		cluster.Chief, s.config.Workers, r.Workers)
}

// finalPeriod is the time between two checkpoints after the chief (worker 0)
// has made its last step, while other workers still train. It applies if
// Config.Steps is set: the chief makes no more steps, so their number cannot
// trigger checkpoints.
const finalPeriod = time.Minute

// overdue reports whether checkpoints after a number of steps are configured
// and the last checkpoint is at least a minute old.
func (s *Saver) overdue() bool { return s.config.Steps > 0 && time.Since(s.last) >= finalPeriod }
