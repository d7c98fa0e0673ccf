package exchange

import (
	"sync"
	"sync/atomic"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
)

// local is a worker in the same process as the holder: what it brings is added
// where it lies, and values are updated in its memory.
type local struct {
	client  *Client
	server  *server
	purpose string
	index   int                    // in Holders
	serves  atomic.Pointer[served] // nil: it only tells whoever comes that they disagree
	volumes []volume               // by variable, and that of the loss

	answered chan aggregate.Outcome // a step is complete; first the zero Outcome: workers may step
	moved    chan struct{}          // all that moves is where it belongs

	running sync.WaitGroup

	mu    sync.Mutex
	count int // events of the step
	end   aggregate.Outcome
}

func newLocal(c *Client, s *server, purpose string) *local {
	return &local{client: c, server: s, purpose: purpose, answered: make(chan aggregate.Outcome, 1), moved: make(chan struct{}, 1)}
}

// served is what a holder has for the time being.
type served struct {
	shards *aggregate.Shards
	pieces []layout.Piece
}

// idle reports whether it holds nothing for the time being.
func (l *local) idle() bool { return len(l.serves.Load().shards.All()) == 0 }

func (l *local) open()            { l.answered <- aggregate.Outcome{} }
func (l *local) failed(err error) { l.client.fail(err) }

// tell is called by whoever completes something. It never blocks.
func (l *local) tell(e aggregate.Event) {
	if _, asked := e.(aggregate.SquaresWanted); asked {
		report := aggregate.Report(l.serves.Load().shards.All(), 0, nil) // workers hold variables in sync mode only: there is one group
		l.client.takeNorm(l.index, report)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := e.(type) {
	case aggregate.Updated:
		if !l.client.d.Norms() {
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

// begin begins a step.
func (l *local) begin(step uint64, b aggregate.Beginning) error {
	if l.idle() {
		return nil
	}
	if err := l.server.advance(l.client.rank, step); err != nil {
		return err
	}
	return l.server.begin(l.client.rank, step, b)
}

// contribute brings a bucket's sums of a part.
func (l *local) contribute(bucket, part int) {
	c := l.client
	now := l.serves.Load()
	me := now.shards.Contributor(c.rank)
	for i, p := range now.pieces {
		if c.out.Bucket(p.Variable) != bucket {
			continue
		}
		sum := c.out.Cut(p, part)
		if sum.Rows() > 0 {
			l.volumes[p.Variable].rows.Add(uint64(sum.Rows()))
		}
		now.shards.All()[i].Lend(me.Group, me.First+part, sum)
		now.shards.Arrive(me.Group, i, me.First+part, sum.Rows() != 0)
	}
}
