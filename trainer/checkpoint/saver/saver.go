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
// asks for it, and at the end. One is made at a time.
//
// # What it refuses
//
// It writes nothing: shard holders copy what they have, and the checkpoint store
// (package store) writes and replicates it.
package saver

import (
	"context"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint/store"
	"github.com/plx-run/plx/trainer/exchange"
)

// Store is the checkpoint store of this task.
type Store interface {
	// Busy reports whether a checkpoint is being made.
	Busy() bool
	// Expect begins one.
	Expect(e store.Expected) error
	// Wait waits until none is being made. The error is why the last one failed.
	Wait(ctx context.Context) error
}

// Exchange reaches the shard holders, see [exchange.Client].
type Exchange interface {
	Cut(ctx context.Context, kind exchange.CutKind) ([]uint64, error)
	Save() error
	Conclude(ctx context.Context, most time.Duration) (alone bool, err error)
}

// Config is what a saver needs.
type Config struct {
	Steps   int           // from one checkpoint to the next; 0: not by steps
	Period  time.Duration // from one checkpoint to the next; 0: not by time
	Saved   int           // step of the checkpoint that training resumed from; -1: none
	InStep  bool          // all workers take the same steps together
	Workers int           // of the job

	Store    Store
	Exchange Exchange
	// Describe returns who takes part in a checkpoint and what it is of. cut is
	// the number of steps of each group, nil if all workers are in the same step.
	Describe func(cut []uint64) store.Expected
	// Waiting is called when the saver begins to wait. It reports what for, and
	// stop when it ends.
	Waiting func(what func() string) (stop func())
}

// Saver decides when a checkpoint is made. A nil Saver makes none.
type Saver struct {
	config  Config
	due     bool      // one is to be made as soon as none is under way
	last    time.Time // when the last one began
	at      int       // steps of the last one, or of the one that training resumed from; -1: none
	telling sync.WaitGroup

	mu      sync.Mutex
	asked   []Request // who wants one made, and to be told
	resting *rest     // the chief is held, or is about to be; nil: it is not
	done    bool      // the chief takes no further step, others may
	over    *result   // of the last checkpoint; nil: it is yet to be made
}

// result is what became of a checkpoint.
type result struct {
	step int
	err  error
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

// After makes a checkpoint if one is due after so many steps, and holds the chief
// if a request wants that.
func (s *Saver) After(ctx context.Context, step int) error {
	if s == nil {
		return nil
	}
	c := &s.config
	s.due = s.due || s.wanted() || c.Steps > 0 && step/c.Steps > max(s.at, 0)/c.Steps ||
		c.Period > 0 && time.Since(s.last) >= c.Period
	if s.due && !c.Store.Busy() {
		if err := s.save(ctx, step); err != nil {
			return err
		}
	}
	return s.rest(ctx, step)
}

// save has every shard holder save what it has now or, if workers are not in
// step, at a cut.
func (s *Saver) save(ctx context.Context, step int) error {
	s.due, s.last, s.at = false, time.Now(), step
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	resting := s.hold(asked, step)
	s.mu.Unlock()
	kind := exchange.Passing
	if resting != nil {
		kind = exchange.Holding
	}
	cut, err := s.config.Exchange.Cut(ctx, kind)
	if err != nil {
		return err
	}
	expected := s.config.Describe(cut)
	if resting != nil {
		expected.Leaving = resting.leaving
		resting.carry(len(expected.Carriers) > 0)
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

// Wait waits until everybody who asked was told. The store must be closed.
func (s *Saver) Wait() {
	if s != nil {
		s.telling.Wait()
	}
}
