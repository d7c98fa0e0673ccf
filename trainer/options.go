package trainer

import (
	"fmt"
	"time"
)

// Option changes how a model is parallelised.
type Option func(*settings)

type settings struct {
	batch       int
	clip        float64
	norm        bool
	ending      Ending
	start, peer time.Duration
}

// GlobalBatch says how many rows all workers together take in a step. It is
// needed, and the number of virtual workers must divide it.
func GlobalBatch(rows int) Option { return func(s *settings) { s.batch = rows } }

// ClipNorm scales the gradient of a step down to the global norm max, the
// root of the sum of all squares over all variables, where it is larger
// (Pascanu et al. 2013).
func ClipNorm(max float64) Option { return func(s *settings) { s.clip = max } }

// MeasureNorm makes every step tell the gradient's global norm.
func MeasureNorm() Option { return func(s *settings) { s.norm = true } }

// Ending says what becomes of the others when one worker's program returns
// from train before theirs.
type Ending int

const (
	// WaitForAll makes the others wait for it: that all take as many steps is
	// the program's promise, and breaking it is an error that names the worker.
	WaitForAll Ending = iota
	// JoinOthers makes it take part in the steps of the others with nothing of
	// its own, until the last one has ended. A mean is then one over those
	// that still have data.
	JoinOthers
	// EndTogether ends all after the first step that it has no data for.
	EndTogether
)

// AtEndOfData sets what a worker does whose data ends before that of others.
func AtEndOfData(e Ending) Option { return func(s *settings) { s.ending = e } }

// StartTimeout bounds how long Parallelize waits for the other tasks, 2
// minutes unless set.
func StartTimeout(d time.Duration) Option { return func(s *settings) { s.start = d } }

// PeerTimeout is how long another task may be silent, without even a
// heartbeat, before it is taken for lost: 30 seconds unless set.
func PeerTimeout(d time.Duration) Option { return func(s *settings) { s.peer = d } }

// read applies options for so many virtual workers. It returns the rows of
// one.
func (s *settings) read(options []Option, leaves int) (rows int, err error) {
	*s = settings{start: 2 * time.Minute, peer: 30 * time.Second}
	for _, o := range options {
		o(s)
	}
	switch {
	case s.batch == 0:
		return 0, fmt.Errorf("the batch size is not known: give trainer.GlobalBatch(rows) to Parallelize")
	case s.batch < 0:
		return 0, fmt.Errorf("global batch of %d rows: want at least 1", s.batch)
	case s.batch%leaves != 0:
		return 0, batchError{s.batch, leaves}
	case !(s.clip >= 0):
		return 0, fmt.Errorf("clip norm %v: want more than 0", s.clip)
	case s.ending < WaitForAll || s.ending > EndTogether:
		return 0, fmt.Errorf("ending %d: want WaitForAll, JoinOthers or EndTogether", s.ending)
	case s.start < time.Millisecond || s.peer < 10*time.Millisecond:
		return 0, fmt.Errorf("start timeout %v, peer timeout %v: want at least 1ms and 10ms", s.start, s.peer)
	}
	return s.batch / leaves, nil
}

// batchError is a batch that cannot be cut in equal shards.
type batchError struct{ batch, leaves int }

func (e batchError) Error() string {
	return fmt.Sprintf("a global batch of %d rows cannot be divided over %d virtual workers", e.batch, e.leaves)
}

// Hint names the nearest batch that works.
func (e batchError) Hint() string {
	return fmt.Sprintf("use a batch of %d rows, or another number of workers or virtual workers",
		(e.batch+e.leaves-1)/e.leaves*e.leaves)
}
