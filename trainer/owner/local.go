package owner

import "sync"

// local is a worker in the same process as the owner: what it brings is added
// where it lies, and values are updated in its memory.
type local struct {
	client  *Client
	server  *server
	purpose string
	engine  *engine // nil: it only tells whoever comes that they disagree
	index   int     // in Owners
	pieces  []Piece // its own

	answered chan outcome // a step is complete; first the zero outcome: workers may step

	running sync.WaitGroup

	mu    sync.Mutex
	count int // events of the step
	end   outcome
}

func (l *local) open()            { l.answered <- outcome{} }
func (l *local) failed(err error) { l.client.fail(err) }

// tell is called by whoever completes something. It never blocks.
func (l *local) tell(e event) {
	if e.ask {
		report := l.engine.report(nil, 0) // workers own variables in sync mode only: there is one group
		l.client.takeNorm(l.index, report)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.slot < 0 || !l.client.d.norms() {
		l.end = e.end
	}
	if l.count++; l.count == l.engine.events() {
		l.count = 0
		l.answered <- l.end
	}
}

// begin begins a step.
func (l *local) begin(step uint64, b beginning) error {
	if err := l.server.advance(l.client.rank, step); err != nil {
		return err
	}
	return l.engine.begin(l.client.rank, step, b)
}

// contribute brings a bucket's sums of a part.
func (l *local) contribute(bucket, part int) {
	c := l.client
	me := c.roster.contributor(c.rank)
	for i, p := range l.pieces {
		if c.out.of[p.Variable] != bucket {
			continue
		}
		sum := c.out.cutPiece(c.d, p, part)
		present := c.d.variable(p.Variable).Sparse == nil || countRows(sum) > 0
		l.engine.slots[i].lend(me.group, me.first+part, sum)
		l.engine.arrive(l.engine.groups[me.group], i, me.first+part, present)
	}
}
