package trainer

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/trainer/config"
)

// Option changes how a model is parallelised.
type Option func(*settings)

type settings struct {
	batch       int           // rows of the global batch; 0 means not set
	clip        float64       // largest global norm of a step's gradient; 0 means no limit
	norm        bool          // report the norm of every step's gradient
	ending      Ending        // what a worker does whose data ends first
	start, peer time.Duration // of StartTimeout and PeerTimeout
}

// GlobalBatch sets how many rows all workers together take in a step. Every
// program must set it, and the number of virtual workers must divide it.
func GlobalBatch(rows int) Option { return func(s *settings) { s.batch = rows } }

// ClipNorm scales the gradient of a step down to the global norm max, the
// root of the sum of all squares over all variables, if it is larger (Pascanu et
// al. 2013).
func ClipNorm(max float64) Option { return func(s *settings) { s.clip = max } }

// MeasureNorm makes every step tell the gradient's global norm.
func MeasureNorm() Option { return func(s *settings) { s.norm = true } }

// Ending is what the other workers do when one worker's program returns from train
// before theirs.
type Ending int

const (
	// WaitForAll makes the others wait for it. The program promises that all
	// workers take equally many steps; if one does not, the error names it.
	WaitForAll Ending = iota
	// JoinOthers makes it take part in the steps of the others, without data,
	// until the last one has ended. A mean is then over those that have data.
	JoinOthers
	// EndTogether ends all workers after the first step that one has no data for.
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

// read applies options for so many virtual workers. It returns how many rows each
// takes.
func (s *settings) read(options []Option, virtual int) (rows int, err error) {
	*s = settings{start: 2 * time.Minute, peer: 30 * time.Second}
	for _, o := range options {
		o(s)
	}
	switch {
	case s.batch == 0:
		return 0, fmt.Errorf("the batch size is not known: give trainer.GlobalBatch(rows) to Parallelize")
	case s.batch < 0:
		return 0, fmt.Errorf("global batch of %d rows: want at least 1", s.batch)
	case s.batch%virtual != 0:
		return 0, config.HintError{
			Text: fmt.Sprintf("a global batch of %d rows cannot be divided over %d virtual workers", s.batch, virtual),
			Help: fmt.Sprintf("use a batch of %d rows, or another number of workers or virtual workers", (s.batch+virtual-1)/virtual*virtual),
		}
	case !(s.clip >= 0):
		return 0, fmt.Errorf("clip norm %v: want more than 0", s.clip)
	case s.ending < WaitForAll || s.ending > EndTogether:
		return 0, fmt.Errorf("ending %d: want WaitForAll, JoinOthers or EndTogether", s.ending)
	case s.start < time.Millisecond || s.peer < 10*time.Millisecond:
		return 0, fmt.Errorf("start timeout %v, peer timeout %v: want at least 1ms and 10ms", s.start, s.peer)
	}
	return s.batch / virtual, nil
}

// Setting is a program's own choice of how it trains. The flag of the same
// name wins over it.
type Setting func(*config.Config)

// Arch chooses which tasks hold variables: ps, allreduce, hybrid or auto. See --arch.
func Arch(name string) Setting { return func(c *config.Config) { c.Arch = name } }

// Sync chooses how far workers may drift apart: sync, async, ssp:K, group:G or
// backup:B. See --sync and docs/synchronisation.md.
func Sync(mode string) Setting { return func(c *config.Config) { c.Sync = mode } }

// VirtualWorkers cuts every batch into v equal parts, whatever the number of
// workers. The weights are then the same bits for any number of workers up to v,
// and a job on hosts whose arithmetic differs is refused.
func VirtualWorkers(v int) Setting { return func(c *config.Config) { c.VirtualWorkers = v } }

// Replicas makes every worker drive r replicas of the model: the same as r
// times as many workers.
func Replicas(r int) Setting { return func(c *config.Config) { c.Replicas = r } }

// Accumulate makes every replica add the gradients of n batches in a step:
// the same as n times as many workers, with the memory of one.
func Accumulate(n int) Setting { return func(c *config.Config) { c.Accumulate = n } }

// Seed sets the number that first values, shuffling and dropout follow from.
func Seed(s uint64) Setting { return func(c *config.Config) { c.Seed = s } }

// FreshProcess does nothing: every generation of a task has a process of its own.
//
// Deprecated: programs need not call it any more.
func FreshProcess() Setting { return func(*config.Config) {} }
