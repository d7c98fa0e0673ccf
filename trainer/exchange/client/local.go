package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/exchange/localsum"
	"github.com/plx-run/plx/trainer/exchange/server"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
)

// local is a server in the worker's own process. The worker passes sums of
// gradients to the server without copying, and the server updates the values
// in the worker's memory.
type local struct {
	holders *holders
	index   int // index in Declaration.Holders, the list of tasks that hold variables; -1 if this worker holds none
	server  *server.Server
	serves  atomic.Pointer[served] // parts of variables that the server holds now; nil if it holds none and only refuses workers that connect by mistake
	volumes []volume               // counters of the rows and bytes transferred, indexed by variable; the last element is for the loss

	answered chan aggregate.Outcome // receives the outcome of each step; before the first step, a zero outcome means that steps may begin
	moved    chan struct{}          // receives a token after variables have moved to other tasks
	running  sync.WaitGroup

	mu    sync.Mutex
	count int // number of events that the shards have sent in this step
	end   aggregate.Outcome
}

// served lists the shards (parts of variables) that a server currently holds.
type served struct {
	shards *aggregate.Shards
	pieces []layout.Piece // by index in shards: which rows of which variable the shard holds
}

// newLocal creates the server for the parts of variables that this worker
// holds. If r is not nil, the server instead adds the gradients of the host's
// workers.
func newLocal(h *holders, r *localsum.Aggregator) (*local, error) {
	l := &local{holders: h, index: h.d.HolderIndex(h.config.Peers.Self), answered: make(chan aggregate.Outcome, 1), moved: make(chan struct{}, 1)}
	l.volumes = make([]volume, len(h.d.Variables)+1)
	c := h.config
	s, err := server.NewLocal(
		server.Config{Peers: c.Peers, Listener: c.Listener, Cluster: c.Cluster, Checkpoints: c.Checkpoints, Memory: c.Memory},
		server.Local{Worker: l, Declaration: h.d, Values: h.memory.of, Aggregator: r})
	if err != nil {
		return nil, err
	}
	l.server = s
	l.take(s.Shards())
	return l, l.fill()
}

// fill sets the initial rows of sparse variables on this worker, if this
// worker is the chief and the caller provided them.
func (l *local) fill() error {
	if !l.holders.config.initial() || l.index < 0 || l.serves.Load() == nil {
		return nil
	}
	for _, s := range l.serves.Load().shards.All() {
		if _, filled := s.Filled(); !filled || s.RowBytes() == 0 {
			continue
		}
		if err := s.Fill(l.holders.memory.initial(s.Piece)); err != nil {
			return err
		}
	}
	return nil
}

// take makes shards the current shards. It ignores nil.
func (l *local) take(shards *aggregate.Shards) {
	if shards == nil {
		return
	}
	now := &served{shards: shards}
	for _, s := range shards.All() {
		now.pieces = append(now.pieces, s.Piece)
	}
	l.serves.Store(now)
}

// start begins to serve the other workers. The server runs until close is
// called or the training fails.
func (l *local) start() {
	l.running.Go(func() { l.server.Run(context.Background()) }) // Run's error is ignored, because Fail also receives it
	context.AfterFunc(l.holders.ctx, func() {
		if err := context.Cause(l.holders.ctx); !errors.Is(err, transition.ErrEnded) {
			l.server.End(err)
		}
	})
}

// idle reports whether the server currently holds no part of any variable.
func (l *local) idle() bool { return len(l.serves.Load().shards.All()) == 0 }

// Fail implements server.Worker: it ends the training with err.
func (l *local) Fail(err error) { l.holders.fail(err) }

// Tell implements server.Worker: it handles an event of the server. It runs on
// the goroutine that caused the event.
func (l *local) Tell(e aggregate.Event) {
	switch e := e.(type) {
	case server.Opened:
		l.answered <- aggregate.Outcome{}
		return
	case server.Moved:
		l.take(e.Shards)
		l.moved <- struct{}{}
		return
	case aggregate.SquaresWanted: // group 0 is the only group: workers hold variables only in mode sync, in which all workers form one group
		l.holders.takeNorm(l.index, aggregate.Report(l.serves.Load().shards.All(), 0, nil))
		return
	case aggregate.Updated:
		l.holders.memory.came(l.serves.Load().pieces[e.Shard])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := e.(type) {
	case aggregate.Updated:
		if !l.holders.d.Norms() {
			l.end = e.End
		}
	case aggregate.Closed:
		l.end = e.End
	}
	if l.count++; l.count == l.serves.Load().shards.Events() {
		l.count = 0
		l.answered <- l.end
	}
}

// begin begins a step of this worker on its own server.
func (l *local) begin(step uint64, b aggregate.Beginning) error {
	if l.idle() {
		return nil
	}
	return l.server.Begin(step, b)
}

// contribute passes the sums of gradients of a bucket (a group of variables)
// to the server. part is the index of the subtree of the summation tree over
// which the gradients were summed.
func (l *local) contribute(out *aggregate.Outbox, bucket, part int) {
	now := l.serves.Load()
	me := now.shards.Contributor(l.holders.rank)
	for i, p := range now.pieces {
		if out.Bucket(p.Variable) != bucket {
			continue
		}
		sum := out.Cut(p, part)
		if sum.Rows() > 0 {
			l.volumes[p.Variable].rows.Add(uint64(sum.Rows()))
		}
		now.shards.All()[i].Lend(me.Group, me.First+part, sum)
		now.shards.Arrive(me.Group, i, me.First+part, sum.Rows() != 0)
	}
}

// shard returns the shard that stores piece p (some rows of a variable) on
// this worker.
func (l *local) shard(p layout.Piece) *aggregate.Shard { return l.serves.Load().shards.At(p) }

// close ends the server. If why is nil, close says goodbye on behalf of this
// worker, and waits until all other workers have left.
func (l *local) close(why error) error {
	if why != nil || l.serves.Load() == nil {
		l.server.End(why)
		l.running.Wait()
		return nil
	}
	l.server.Leave()
	limit := l.holders.d.Start()
	late := time.AfterFunc(limit, func() {
		l.server.End(fmt.Errorf("other workers did not say goodbye within %v", limit))
	})
	defer late.Stop()
	l.running.Wait()
	return l.server.Err()
}
