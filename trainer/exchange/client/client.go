package client

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/message"
	"github.com/plx-run/plx/trainer/exchange/relay"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/timeline"
)

// Config says who a worker is, whom it works with, and where its variables are.
type Config struct {
	Peers peers.Config
	// Listener is where others reach this worker. It may be nil if no worker
	// holds shards and no host adds up its gradients.
	Listener    *peers.Listener
	Cluster     cluster.Spec
	Declaration layout.Declaration
	// Values is the worker's memory by variable, as wire.Bytes gives it; nil
	// for sparse ones. The client writes it during Connect, and from the time
	// when all own virtual workers contributed to a variable until Finish
	// returns. At Connect all workers start from the chief's values, or from
	// those of Declaration.Checkpoint.
	Values [][]byte
	// Device holds the values of dense variables instead of Values; nil: it does
	// not. Servers must then hold the shards.
	Device Device
	Trace  *timeline.Recorder
	// Checkpoints is where a worker that holds shards saves them and restores
	// them from. A chief that saves must have one.
	Checkpoints transition.Checkpoints
	// Memory returns the bytes that the host has free; nil:
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Device is where values are that are not in the memory of the host, such as
// that of a GPU. They come and go piece by piece. Any goroutine may call its
// methods, for different pieces at the same time.
type Device interface {
	// Read returns the value of a piece, in memory that is good until the next
	// Read of that piece.
	Read(p layout.Piece) []byte
	// Write takes the new value of a piece; value is good until it returns.
	Write(p layout.Piece, value []byte)
}

// Client is a worker's side of the training. If the worker holds shards, or
// adds up the gradients of its host, it also serves others.
//
// One goroutine calls its methods and those of its parts, apart from Contribute,
// ContributeRows, Gradient, Rows.Pull, Abort, Traffic and Volumes, which any
// goroutine may call.
type Client struct {
	Rows      *Rows      // of sparse variables
	Saves     *Saves     // of checkpoints
	Placement *Placement // of sparse variables

	holders  *holders
	progress *progress
	gate     *gate // to the holders, and to the first worker of the host
	host     *host // what the first worker of a host sends for all
	apart    *apart
	ahead    bool // further than is allowed, until Resume

	virtual layout.Range // own virtual workers
	tree    *layout.Tree
	parts   []int            // of the tree that own virtual workers make
	own     []*aggregate.Own // by variable, and that of the loss
	out     *aggregate.Outbox
	absent  []bool        // by own virtual worker, in this step
	brought []atomic.Bool // by own virtual worker and variable
	misuse  atomic.Pointer[error]
}

// Connect reaches every holder and declares what is trained. It returns after
// all workers have done so and the first values are in config.Values. It takes
// at most the declaration's start time, and a little for the holders to report
// who is missing.
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
	if err := c.holders.serve(relay.New(d, self.Index, c.host)); err != nil {
		return nil, err
	}
	c.Saves = &Saves{holders: c.holders, progress: c.progress}
	c.Placement = &Placement{holders: c.holders, progress: c.progress, rows: c.Rows}
	c.out = aggregate.NewOutbox(d, c.parts, func(variable int) bool {
		return d.Variable(variable).HasGradientOf(self.Index) && !c.holders.relays(variable)
	})
	c.apart, err = newApart(c)
	return c, err
}

// connect opens the connections, declares and waits until all is ready.
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

// Step is the number of the step that is next or under way.
func (c *Client) Step() uint64 { return c.progress.step + c.apart.alone() }

// Abort hangs up without a goodbye: the holders take the worker for lost and
// the other workers hear why.
func (c *Client) Abort(why error) {
	c.holders.fail(why)
	c.holders.hangUp() // the reason is known
	c.Close()          // without a goodbye there is nothing to fail
}

// Close says goodbye to every holder, unless the client has failed, and hangs
// up. A holder that did not answer the goodbye will take the worker for lost.
// A worker that holds shards first serves the others until they have said
// goodbye too: at most for the declaration's start time, or until one of them
// is lost.
func (c *Client) Close() error { return c.holders.close() }

// Traffic returns the traffic of every connection: first those that this
// worker opened, then those that it serves.
func (c *Client) Traffic() []Traffic { return c.holders.traffic() }
