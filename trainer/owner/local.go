package owner

import (
	"sync"
	"sync/atomic"
)

// local is a worker in the same process as the owner: what it brings is added
// where it lies, and values are updated in its memory.
type local struct {
	client  *Client
	server  *server
	purpose string
	index   int                    // in Owners
	serves  atomic.Pointer[served] // nil: it only tells whoever comes that they disagree
	volumes []volume               // by variable, and the tally's

	answered chan outcome  // a step is complete; first the zero outcome: workers may step
	moved    chan struct{} // all that moves is where it belongs

	running sync.WaitGroup

	mu    sync.Mutex
	count int // events of the step
	end   outcome
}

func newLocal(c *Client, s *server, purpose string) *local {
	return &local{client: c, server: s, purpose: purpose, answered: make(chan outcome, 1), moved: make(chan struct{}, 1)}
}

// served is what an owner has for the time being.
type served struct {
	engine *engine
	pieces []Piece
}

// idle reports whether it owns nothing for the time being.
func (l *local) idle() bool { return len(l.serves.Load().engine.slots) == 0 }

func (l *local) open()            { l.answered <- outcome{} }
func (l *local) failed(err error) { l.client.fail(err) }

// tell is called by whoever completes something. It never blocks.
func (l *local) tell(e event) {
	if e.ask {
		report := l.serves.Load().engine.report(nil, 0) // workers own variables in sync mode only: there is one group
		l.client.takeNorm(l.index, report)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.slot < 0 || !l.client.d.norms() {
		l.end = e.end
	}
	if l.count++; l.count == l.serves.Load().engine.events() {
		l.count = 0
		l.answered <- l.end
	}
}

// begin begins a step.
func (l *local) begin(step uint64, b beginning) error {
	if l.idle() {
		return nil
	}
	if err := l.server.advance(l.client.rank, step); err != nil {
		return err
	}
	return l.serves.Load().engine.begin(l.client.rank, step, b)
}

// contribute brings a bucket's sums of a part.
func (l *local) contribute(bucket, part int) {
	c := l.client
	now := l.serves.Load()
	me := now.engine.roster.contributor(c.rank)
	for i, p := range now.pieces {
		if c.out.of[p.Variable] != bucket {
			continue
		}
		sum := c.out.cutPiece(c.d, p, part)
		present := c.d.variable(p.Variable).Sparse == nil || countRows(sum) > 0
		if c.d.variable(p.Variable).Sparse != nil {
			l.volumes[p.Variable].rows.Add(uint64(countRows(sum)))
		}
		now.engine.slots[i].lend(me.group, me.first+part, sum)
		now.engine.arrive(now.engine.groups[me.group], i, me.first+part, present)
	}
}
