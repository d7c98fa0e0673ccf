package trainer

import (
	"fmt"
	"time"
)

// Option changes how a model is parallelised.
type Option func(*settings)

type settings struct {
	batch       int
	start, peer time.Duration
}

// GlobalBatch says how many rows all workers together take in a step. It is
// needed, and the number of workers must divide it.
func GlobalBatch(rows int) Option { return func(s *settings) { s.batch = rows } }

// StartTimeout bounds how long Parallelize waits for the other tasks, 2
// minutes unless set.
func StartTimeout(d time.Duration) Option { return func(s *settings) { s.start = d } }

// PeerTimeout is how long another task may be silent, without even a
// heartbeat, before it is taken for lost: 30 seconds unless set.
func PeerTimeout(d time.Duration) Option { return func(s *settings) { s.peer = d } }

// read applies options for so many workers. It returns the rows of one.
func (s *settings) read(options []Option, workers int) (rows int, err error) {
	*s = settings{start: 2 * time.Minute, peer: 30 * time.Second}
	for _, o := range options {
		o(s)
	}
	switch {
	case s.batch == 0:
		return 0, fmt.Errorf("the batch size is not known: give trainer.GlobalBatch(rows) to Parallelize")
	case s.batch < 0:
		return 0, fmt.Errorf("global batch of %d rows: want at least 1", s.batch)
	case s.batch%workers != 0:
		return 0, batchError{s.batch, workers}
	case s.start < time.Millisecond || s.peer < 10*time.Millisecond:
		return 0, fmt.Errorf("start timeout %v, peer timeout %v: want at least 1ms and 10ms", s.start, s.peer)
	}
	return s.batch / workers, nil
}

// batchError is a batch that cannot be cut in equal shards.
type batchError struct{ batch, workers int }

func (e batchError) Error() string {
	return fmt.Sprintf("a global batch of %d rows cannot be divided over %d workers", e.batch, e.workers)
}

// Hint names the nearest batch that works.
func (e batchError) Hint() string {
	return fmt.Sprintf("use a batch of %d rows, or another number of workers",
		(e.batch+e.workers-1)/e.workers*e.workers)
}
