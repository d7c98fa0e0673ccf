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
	// Listener accepts the connections of other workers. It may be nil if no
	// other worker connects to this one. That is so if this worker holds no
	// shards, and does not add gradients for other workers of its host.
	Listener    *peers.Listener
	Cluster     cluster.Spec
	Declaration layout.Declaration
	// Values is the worker's memory for each variable, as wire.Bytes returns
	// it, indexed by variable; nil for sparse variables. Connect fills it with
	// the values of the chief, or of the checkpoint Declaration.Checkpoint.
	// The client overwrites a variable in each step: after all virtual workers
	// of this worker have contributed their gradients of it, and before Finish
	// returns.
	Values [][]byte
	// First, indexed by variable, contains initial rows. Only the chief needs
	// it, for sparse variables whose initial rows the caller provides. Connect
	// copies the rows.
	First [][]byte
	// Arrived, if not nil, is called when Values contains the new value of a
	// dense piece. The piece does not change until the next Begin. Other
	// pieces may still be missing. The client calls Arrived from several
	// goroutines, for different pieces at the same time.
	Arrived func(p layout.Piece)
	// Home, if not nil, stores and updates the variables instead of the memory
	// in Values, for example on a GPU. Only a worker that trains alone may set
	// it. Home must finish the update of a variable before the worker
	// contributes the next gradient of it.
	Home  aggregate.DeviceMemory
	Trace *timeline.Recorder
	// Checkpoints saves and restores the shards that this worker holds. The
	// chief must set it if checkpoints are saved.
	Checkpoints transition.Checkpoints
	// Memory returns the free memory of the host in bytes; nil means
	// transition.FreeMemory.
	Memory func() (uint64, error)
}

// Client takes training steps for one worker. If the worker holds shards, or
// adds gradients for its host, the Client also serves other workers.
//
// Only one goroutine may call the methods of the Client and of its fields.
// Exceptions, which any goroutine may call, are Contribute, ContributeRows,
// Gradient, Rows.Pull, Abort, Traffic and Placement.Volumes.
type Client struct {
	Rows      *Rows      // requests rows of sparse variables
	Saves     *Saves     // saves checkpoints
	Placement *Placement // moves sparse variables

	holders  *holders
	progress *progress
	gate     *gate // passes this worker's sums of gradients to the senders of the connections to shard holders
	host     *host // sends the summed gradients of the host, if this worker is the first of its host
	ahead    bool  // true if the worker resumed too far ahead of others to take a step; Resume waits for them and sets it to false

	virtual layout.Range // range of the virtual workers (parts of a batch) that this worker computes
	tree    *layout.Tree
	parts   []int                   // indices of the vertices of the summation tree whose sums this worker sends
	own     []*aggregate.WorkerSums // adds the gradients of this worker's virtual workers; indexed by variable, the last element is for the loss
	out     *aggregate.Outbox       // collects complete sums of gradients until a bucket (group of variables) is full
	absent  []bool                  // indexed by virtual worker of this worker: true if it has no data in this step
	brought []atomic.Bool           // indexed by virtual worker and variable: true if the gradient was contributed in this step
	misuse  atomic.Pointer[error]   // first misuse of the API by the caller in this step; Finish returns it as an error
}

// Connect connects to all shard holders and sends them the declaration. It
// returns after all workers have connected, and config.Values contains the
// first values. It fails if that takes longer than the start time in the
// declaration, plus message.Farewell. In this additional time, holders report
// which workers are missing.
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
		gate:     &gate{closed: d.Sync.WorkersCompete()},
	}
	c.parts = c.tree.Parts(virtual.Lo, virtual.Hi)
	inputs := make([]int, virtual.Len())
	for i := range inputs {
		inputs[i] = virtual.Lo + i
	}
	plan := layout.NewPlan(c.tree, inputs, c.parts)
	for i := range len(d.Variables) + 1 {
		c.own = append(c.own, aggregate.NewWorkerSums(d.Variable(i), plan))
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

// connect opens the connections to the shard holders, sends them the
// declaration and waits until all workers are ready.
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

// Held returns the shards of variables that this worker holds. The shard of
// the loss is not included.
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

// Step returns the number of the current step. Between two steps, it returns
// the number of the next step.
func (c *Client) Step() uint64 { return c.progress.step }

// Abort closes all connections without a goodbye. The shard holders treat the
// worker as lost, and report why to the other workers.
func (c *Client) Abort(why error) {
	c.holders.fail(why)
	c.holders.hangUp() // hangUp returns why, which the caller knows
	c.Close()          // Close returns no error, because Abort sends no goodbye
}

// Close ends this worker's part in the training. It says goodbye to every
// shard holder, unless the client has failed, and closes the connections. A
// holder that does not reply to the goodbye treats the worker as lost.
//
// A worker that holds shards continues to serve the other workers until they
// have said goodbye too, another worker is lost, or the start time of the
// declaration has passed.
func (c *Client) Close() error { return c.holders.close() }

// Traffic returns the bytes on each connection: first the connections that
// this worker opened, then those on which it serves other workers.
func (c *Client) Traffic() []Traffic { return c.holders.traffic() }
