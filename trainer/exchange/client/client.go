package client

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/timeline"
)

// Config describes a worker, the other tasks, and the memory for its variables.
type Config struct {
	Peers peers.Config
	// Listener accepts the connections of other workers. It may be nil if this
	// worker holds no shards for others and does not aggregate for its host.
	Listener    *peers.Listener
	Cluster     cluster.Spec
	Declaration layout.Declaration
	// Values is the worker's memory by variable, as wire.Bytes returns it; nil
	// for sparse variables. The client writes it during Connect, with the
	// values of the chief or of Declaration.Checkpoint. In a step the client
	// writes a variable after all own virtual workers have contributed to it,
	// until Finish returns.
	Values [][]byte
	// First has, on the chief, the first values of sparse variables whose rows begin
	// as given, by variable. Connect copies them.
	First [][]byte
	// Arrived is called when a step has written the new value of a dense piece
	// to Values, while other pieces may still be to come; nil: it is not called.
	// Until the next Begin nothing changes the piece. Any goroutine calls
	// Arrived, for different pieces at the same time.
	Arrived func(p layout.Piece)
	// Home has the values of a worker that trains alone, and updates them; nil:
	// they are in Values. It must have updated a variable before the worker
	// contributes to it.
	Home  aggregate.Home
	Trace *timeline.Recorder
	// Checkpoints saves and restores the shards of a worker that holds some. A
	// chief that saves must set it.
	Checkpoints transition.Checkpoints
	// Memory returns the free memory of the host in bytes; nil means
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Client is a worker's side of the training. If the worker holds shards, or
// aggregates for its host, the Client also serves other workers.
//
// One goroutine calls its methods and those of its parts. Any goroutine may
// call Contribute, ContributeRows, Gradient, Rows.Pull, Abort, Traffic and
// Volumes.
type Client struct {
	Rows      *Rows      // requests rows of sparse variables
	Saves     *Saves     // saves checkpoints
	Placement *Placement // moves sparse variables

	holders  *holders
	progress *progress
	gate     *gate // sends this worker's sums to the holders and the first worker of the host
	host     *host // sends the sums of the host if this worker is its first
	ahead    bool  // the worker is further ahead than its mode allows; Resume clears it

	virtual layout.Range // own virtual workers
	tree    *layout.Tree
	parts   []int                 // vertices of the tree whose sums this worker sends
	own     []*aggregate.Own      // by variable, then the loss: sums of own virtual workers
	out     *aggregate.Outbox     // sums to send
	absent  []bool                // by own virtual worker: it has no data in this step
	brought []atomic.Bool         // by own virtual worker and variable: the gradient was contributed
	misuse  atomic.Pointer[error] // first mistake of the caller, which Finish returns
}

// Connect connects to every holder and sends the declaration. It returns after
// all workers have declared and config.Values has the first values. It takes at
// most the start time of the declaration, plus a moment in which the holders
// report missing workers.
func Connect(ctx context.Context, config Config) (*Client, error) {
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

func newClient(config Config) (*Client, error) {
	d := &config.Declaration
	if err := d.Check(); err != nil {
		return nil, err
	}
	self := config.Peers.Self
	if self.Role != cluster.Worker || self.Index >= len(d.Workers) || len(d.Workers) != config.Peers.Workers {
		return nil, fmt.Errorf("%s declares %d workers, the job has %d", self, len(d.Workers), config.Peers.Workers)
	}
	memory, err := newMemory(&config)
	if err != nil {
		return nil, err
	}
	virtual := d.Workers[self.Index]
	c := &Client{
		virtual: virtual, tree: layout.NewTree(d.VirtualWorkers), ahead: d.StartsAhead(self.Index),
		progress: &progress{step: d.FirstStep(self.Index)},
		absent:   make([]bool, virtual.Len()),
		brought:  make([]atomic.Bool, virtual.Len()*(len(d.Variables)+1)),
		gate:     &gate{closed: d.Sync.Competes()},
	}
	c.parts = c.tree.Parts(virtual.Lo, virtual.Hi)
	inputs := make([]int, virtual.Len())
	for i := range inputs {
		inputs[i] = virtual.Lo + i
	}
	plan := layout.NewPlan(c.tree, inputs, c.parts)
	for i := range len(d.Variables) + 1 {
		c.own = append(c.own, aggregate.NewOwn(d.Variable(i), plan))
	}
	c.holders = newHolders(&config, memory)
	c.Rows = &Rows{holders: c.holders, progress: c.progress}
	c.host = &host{gate: &gate{closed: true}, progress: c.progress, rows: c.Rows}
	if err := c.holders.serve(localsum.New(d, self.Index, c.host)); err != nil {
		return nil, err
	}
	c.Saves = &Saves{holders: c.holders, progress: c.progress}
	c.Placement = &Placement{holders: c.holders, progress: c.progress, rows: c.Rows}
	c.out = aggregate.NewOutbox(d, c.parts, func(variable int) bool { return !c.holders.aggregates(variable) })
	return c, nil
}

// connect opens the connections, declares and waits until all workers are
// ready.
func (c *Client) connect(ctx context.Context) error {
	limit := c.holders.d.Start()
	ctx, cancel := context.WithTimeoutCause(ctx, limit+message.Farewell, fmt.Errorf("not ready within %v", limit))
	defer cancel()
	if err := c.holders.connect(ctx, c.out, c.progress.step); err != nil {
		return err
	}
	c.holders.lead(c.gate, c.host.gate)
	return c.holders.begin(ctx)
}

// Held returns the shards of variables that this worker holds.
func (c *Client) Held() (all []*aggregate.Shard) {
	if c.holders.local == nil {
		return nil
	}
	for _, s := range c.holders.local.serves.Load().shards.All() {
		if s.Variable != c.holders.d.LossIndex() {
			all = append(all, s)
		}
	}
	return all
}

// Step returns the number of the current step or, between two steps, of the
// next one.
func (c *Client) Step() uint64 { return c.progress.step }

// Abort hangs up without a goodbye. The holders treat the worker as lost, and
// the other workers learn why.
func (c *Client) Abort(why error) {
	c.holders.fail(why)
	c.holders.hangUp() // returns why
	c.Close()          // cannot fail without a goodbye
}

// Close says goodbye to every holder, unless the client has failed, and hangs
// up. A holder that did not answer the goodbye will treat the worker as lost. A
// worker that holds shards then serves the other workers until they have said
// goodbye too. Close returns earlier if another worker is lost, or after the
// start time of the declaration.
func (c *Client) Close() error { return c.holders.close() }

// Traffic returns the traffic of every connection: first those that this
// worker opened, then those that it serves.
func (c *Client) Traffic() []Traffic { return c.holders.traffic() }
