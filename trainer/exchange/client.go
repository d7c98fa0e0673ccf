package exchange

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/timeline"
	"github.com/plx-run/plx/trainer/wire"
)

// ClientConfig says who a worker is, whom it works with, and where its
// variables lie.
type ClientConfig struct {
	Peers peers.Config
	// Door is where others reach this worker; it may be nil where no worker
	// owns anything and no host adds up its gradients.
	Door        *peers.Listener
	Cluster     cluster.Spec
	Declaration layout.Declaration
	// Values is the worker's memory by variable, as wire.Bytes gives it; nil
	// for sparse ones. The client writes it during Connect and from the time
	// when a variable was contributed by all own virtual workers until Finish returns.
	// At Connect the chief's values are what everybody starts from, or those
	// of Declaration.Checkpoint.
	Values [][]byte
	// Device holds the values of dense variables instead of Values; nil: it does
	// not. Servers must then hold the shards.
	Device Device
	Trace  *timeline.Recorder
	// Checkpoints is that of ServerConfig, for a worker that holds shards. A
	// chief that saves has one in any case.
	Checkpoints transition.Checkpoints
}

// Device is where values live that are not in the memory of the host, such as
// that of a GPU. They come and go piece by piece. Different pieces may come
// side by side.
type Device interface {
	// Read returns the value of a piece, in memory that is good until the next
	// Read of that piece.
	Read(p layout.Piece) []byte
	// Write takes the new value of a piece; value is good until it returns.
	Write(p layout.Piece, value []byte)
}

// Client is a worker's side of the training, and where it owns variables the
// holder's as well. One goroutine calls Resume, Begin, Want, Await, Finish,
// Cut, Save and Join; other methods may be called by any.
type Client struct {
	config ClientConfig
	d      *layout.Declaration
	rank   int
	leaves layout.Range
	tree   *layout.Tree
	own    []*aggregate.Own // by variable, and that of the loss
	parts  []int            // of own virtual workers
	out    *aggregate.Outbox
	values [][]byte // by variable, and that of the loss
	links  []*link  // by holder; nil: this worker is it
	up     *link    // to the first worker of the host, nil: this worker sends itself
	locals []*local // what this worker serves the others as
	local  *local   // as a holder, nil: it is none
	relay  *relay   // as the first worker of its host, nil: there is nobody else
	apart  *apart   // nil: every step is exchanged
	shards atomic.Pointer[shardMap]
	pulls  pulls
	asking *asking  // what Want asked for and nobody awaited
	asked  uint64   // the step of the last Want, plus one
	saved  uint64   // the step before which there was a save, plus one
	saves  uint64   // how many there were
	cut    []uint64 // that was agreed on and is to be saved
	holds  bool     // it is one that holds the others

	first    uint64 // step
	step     uint64
	ahead    bool   // further than is allowed, until Resume
	within   bool   // a step was begun
	absent   []bool // by own virtual worker, in this step
	gate     gate
	verdicts chan ruling
	brought  []atomic.Bool // by own virtual worker and variable
	misuse   atomic.Pointer[error]

	mu     sync.Mutex
	err    error
	failed chan struct{}
	ended  bool // the connections end in good order
}

// Outcome is what became of a step.
type Outcome struct {
	Step           uint64    // that was made, from 0
	VirtualWorkers int       // that took part, of all workers that were added up
	Loss           float64   // over those leaves
	Metrics        []float64 // likewise; valid until the next step
	Norm           float64   // of the gradients before clipping, where asked for
	// Saved says, where workers are in step, that the chief saved right before
	// the step.
	Saved bool
	// In backup mode: Late says that enough others were faster, so that the
	// gradients of Dropped leaves do not count. Over says that too few
	// workers are left for a further step, and that this one was not made.
	Late    bool
	Dropped int
	Over    bool
}

// Resume waits where a checkpoint has this worker further ahead of another than
// is allowed, as it waited when that was made, and gets the values of that
// moment. It comes before the first step.
func (c *Client) Resume(ctx context.Context) error {
	if !c.ahead {
		return nil
	}
	c.ahead = false
	c.fetch(c.step)
	_, err := c.wait(ctx)
	return err
}

// Connect reaches every holder, declares, and returns once all workers have
// done so and the first values are in config.Values. All of it takes at
// most the declaration's start time, and a little for the holders to say who
// is missing.
func Connect(ctx context.Context, config ClientConfig) (*Client, error) {
	c, err := newClient(config)
	if err != nil {
		return nil, err
	}
	if err := c.connect(ctx); err != nil {
		c.Abort(err)
		return nil, err
	}
	return c, nil
}

func newClient(config ClientConfig) (*Client, error) {
	d := &config.Declaration
	if err := d.Check(); err != nil {
		return nil, err
	}
	self := config.Peers.Self
	if self.Role != cluster.Worker || self.Index >= len(d.Workers) || len(d.Workers) != config.Peers.Workers {
		return nil, fmt.Errorf("%s declares %d workers, the job has %d", self, len(d.Workers), config.Peers.Workers)
	}
	c := &Client{config: config, d: d, rank: self.Index, leaves: d.Workers[self.Index], tree: layout.NewTree(d.VirtualWorkers), failed: make(chan struct{}), verdicts: make(chan ruling, 2), first: d.FirstStep(self.Index), step: d.FirstStep(self.Index), ahead: d.StartsAhead(self.Index)}
	c.parts = c.tree.Parts(c.leaves.Lo, c.leaves.Hi)
	c.absent = make([]bool, c.leaves.Len())
	c.brought = make([]atomic.Bool, c.leaves.Len()*(len(d.Variables)+1))
	inputs := make([]int, c.leaves.Len())
	for i := range inputs {
		inputs[i] = c.leaves.Lo + i
	}
	p := layout.NewPlan(c.tree, inputs, c.parts)
	for i := range len(d.Variables) + 1 {
		v := d.Variable(i)
		c.own = append(c.own, aggregate.NewOwn(v, p))
		if i == d.LossIndex() {
			if config.Device != nil {
				config.Values = make([][]byte, len(d.Variables))
			}
			config.Values = append(slices.Clone(config.Values), wire.Bytes(make([]float64, 1+d.Metrics)))
		}
		if v.Sparse == nil && (config.Device == nil || i == d.LossIndex()) && (i >= len(config.Values) || len(config.Values[i]) != v.NumElements()*v.Dtype.Size()) {
			return nil, fmt.Errorf("variable %q: no memory of %d bytes for its values", v.Name, v.NumElements()*v.Dtype.Size())
		}
	}
	c.values = config.Values
	c.shards.Store(newShardMap(0, d))
	c.links = make([]*link, len(d.Holders))
	err := c.serve()
	if err != nil {
		return nil, err
	}
	c.out = aggregate.NewOutbox(d, c.parts, func(variable int) bool {
		return d.Variable(variable).HasGradientOf(c.rank) && (c.relay == nil || !c.relay.takes(variable))
	})
	c.gate.closed = d.Sync.Competes()
	c.apart, err = newApart(c)
	return c, err
}

// Gradient is where the gradient of a dense variable for a virtual worker of this
// worker is to be written between Begin and Contribute.
func (c *Client) Gradient(leaf, variable int) []byte {
	return c.own[variable].Memory(leaf - c.leaves.Lo)
}

// Step is the number of the step that is next or under way.
func (c *Client) Step() uint64 { return c.step + c.apart.alone() }

// fail ends the client's work, once, with err.
func (c *Client) fail(err error) {
	c.mu.Lock()
	first := c.err == nil && !c.ended
	if first {
		c.err = err
		close(c.failed)
	}
	c.mu.Unlock()
	for _, l := range c.locals {
		if first {
			l.server.end(err)
		}
	}
}

func (c *Client) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.ended {
		return errEnded
	}
	return c.err
}

// working hangs up where the client has failed, and returns why it has.
func (c *Client) working() error {
	if c.reason() == nil {
		return nil
	}
	return c.hangUp()
}

// hangUp tells the holders why this worker is out, so that they pass the cause
// on and not its consequence, and closes the links. It returns the reason, in
// bounded time.
func (c *Client) hangUp() error {
	reason := c.reason()
	var leaving sync.WaitGroup
	for _, l := range c.connected() {
		leaving.Go(func() { l.leave(reason) })
	}
	leaving.Wait()
	return reason
}

// Abort hangs up without a goodbye: the holders take the worker for lost and
// the other workers hear why.
func (c *Client) Abort(why error) {
	c.fail(why)
	c.hangUp() // the reason is known
	c.Close()  // without a goodbye there is nothing to fail
}

// Close says goodbye to every holder, unless the client has failed, and hangs
// up. A holder that did not answer the goodbye will take the worker for lost.
// A worker that is a holder first serves the others until they have said
// goodbye too: at most for the declaration's start time, or until one of them
// is lost.
func (c *Client) Close() error {
	c.mu.Lock()
	wasEnded, healthy := c.ended, c.err == nil
	c.ended = true
	c.mu.Unlock()
	if wasEnded {
		return nil
	}
	var closing sync.WaitGroup
	links := c.connected()
	errs := make([]error, len(links)+len(c.locals))
	for i, l := range links {
		closing.Go(func() { errs[i] = l.close(healthy) })
	}
	closing.Wait()
	if healthy {
		close(c.failed) // whoever still waits for something waits in vain
	}
	for i, l := range c.locals {
		closing.Go(func() { errs[len(links)+i] = l.close(healthy) })
	}
	closing.Wait()
	return errors.Join(errs...)
}

// close ends this worker's part as a server of others.
func (l *local) close(healthy bool) error {
	s, limit := l.server, l.client.d.Start()
	if !healthy || l.serves.Load() == nil {
		s.end(nil)
		l.running.Wait()
		return nil
	}
	if err := s.leave(l.client.rank); err != nil {
		s.end(err)
	}
	s.left()
	late := time.AfterFunc(limit, func() {
		s.end(fmt.Errorf("other workers did not say goodbye within %v", limit))
	})
	defer late.Stop()
	l.running.Wait()
	return s.err
}
