package exchange

import (
	"slices"
	"sync"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// union asks, on the first worker of a host, for the rows that the workers of
// the host want for a step: each row once, when all have said what they want
// or have begun the step without.
type union struct {
	relay *relay

	mu    sync.Mutex
	step  uint64 // that is being collected
	said  []bool // by worker of the host
	count int    // of said
	gone  []bool // likewise: wants nothing any more
	over  bool   // this worker itself has left: nobody can ask
	wants []hostWant
	asked []*gathered // of the holders, and not answered
}

func newUnion(r *relay) *union {
	n := len(r.workers.Contributors)
	return &union{relay: r, step: r.client.d.First, said: make([]bool, n), gone: make([]bool, n)}
}

// hostWant is what one worker of the host wants.
type hostWant struct {
	rank   int
	items  []item // of whole variables
	asking *asking
	into   []Wanted // of this worker itself, with asking
}

// want takes what a worker of the host wants for a step, once per step.
func (u *union) want(step uint64, w hostWant) {
	u.mu.Lock()
	if u.over || step < u.step {
		u.mu.Unlock()
		u.refer(step, w)
		return
	}
	u.wants = append(u.wants, w)
	ready := u.say(w.rank)
	u.mu.Unlock()
	u.ask(ready)
}

// begin notes that a worker begins a step: it wants nothing more for it.
func (u *union) begin(rank int, step uint64) {
	u.mu.Lock()
	var ready *gathered
	if step == u.step && !u.said[rank-u.relay.first()] {
		ready = u.say(rank)
	}
	u.mu.Unlock()
	u.ask(ready)
}

// leave notes that a worker of the host wants nothing any more. When it is
// this one, the others are to ask for themselves.
func (u *union) leave(rank int) {
	if rank == u.relay.client.rank {
		u.end()
		return
	}
	u.mu.Lock()
	i := rank - u.relay.first()
	u.gone[i] = true
	u.wants = slices.DeleteFunc(u.wants, func(w hostWant) bool { return w.rank == rank })
	var ready *gathered
	if !u.said[i] {
		ready = u.say(rank)
	}
	u.mu.Unlock()
	u.ask(ready)
}

// end refers whoever waits to the holders.
func (u *union) end() {
	u.mu.Lock()
	waiting := append(u.asked, &gathered{u.step, u.wants})
	u.over, u.wants, u.asked = true, nil, nil
	u.mu.Unlock()
	for _, g := range waiting {
		for _, w := range g.wants {
			u.refer(g.step, w)
		}
	}
}

// direct as the part of a final frame says that the worker is to ask itself.
const direct = 1

func (u *union) refer(step uint64, w hostWant) {
	if w.asking != nil {
		w.asking.direct = true
		w.asking.answered()
		return
	}
	u.relay.server.members.Tell(w.rank, sends{Header: wire.Header{Kind: wire.Final, Step: step, Part: direct}})
}

// skip refers everybody to the holders for a step that is not asked for yet:
// this worker is about to let variables move before it, and the holders would
// not hear it meanwhile.
func (u *union) skip(step uint64) {
	u.mu.Lock()
	var waiting []hostWant
	if step == u.step {
		waiting = u.wants
		u.next()
	}
	u.mu.Unlock()
	for _, w := range waiting {
		u.refer(step, w)
	}
}

// gathered is what a whole host wants for a step.
type gathered struct {
	step  uint64
	wants []hostWant
}

// say counts a worker that has had its say, and returns what is wanted when
// it was the last one. It needs u.mu.
func (u *union) say(rank int) (ready *gathered) {
	u.said[rank-u.relay.first()] = true
	if u.count++; u.count < len(u.said) {
		return nil
	}
	ready = &gathered{u.step, u.wants}
	if len(u.wants) > 0 {
		u.asked = append(u.asked, ready)
	}
	u.next()
	return ready
}

// next begins to collect for the step behind. It needs u.mu.
func (u *union) next() {
	u.step, u.wants, u.count = u.step+1, nil, 0
	for i, gone := range u.gone {
		if u.said[i] = gone; gone {
			u.count++
		}
	}
}

// ask asks the holders for all that is gathered.
func (u *union) ask(g *gathered) {
	if g == nil || len(g.wants) == 0 {
		return
	}
	c := u.relay.client
	lists := make([][][]int64, len(c.d.Variables))
	for _, w := range g.wants {
		for _, i := range w.items {
			lists[i.Variable] = append(lists[i.Variable], i.index)
		}
	}
	var wanted []Wanted
	for variable, of := range lists {
		if len(of) > 0 {
			index := sparse.Union(of...)
			wanted = append(wanted, Wanted{variable, index, make([]byte, len(index)*c.d.Variables[variable].UnitBytes())})
		}
	}
	a := &asking{step: g.step, done: make(chan struct{})}
	a.then = func() { u.answer(g, wanted) }
	a.left.Store(1)
	c.askOwners(a, wanted)
	a.answered()
}

// answer gives every worker its share of what came.
func (u *union) answer(g *gathered, came []Wanted) {
	c := u.relay.client
	u.mu.Lock()
	i := slices.Index(u.asked, g)
	if i >= 0 {
		u.asked = slices.Delete(u.asked, i, i+1)
	}
	u.mu.Unlock()
	if i < 0 {
		return // this worker has left, the others were told
	}
	for _, w := range g.wants {
		if w.asking != nil {
			for i, item := range w.items {
				pick(came, item, w.into[i].Into, c.d)
			}
			w.asking.answered()
			continue
		}
		var a answer
		f := a.frame(wire.Final, g.step, u.owed(w.items, came))
		u.relay.server.members.Tell(w.rank, sends(f))
	}
}

// owed returns a worker's share of what came.
func (u *union) owed(items []item, came []Wanted) (all []owed) {
	for _, i := range items {
		if len(i.index) > 0 {
			all = append(all, owed{item: i, table: picked{u.relay.client.d, i, came}})
		}
	}
	return all
}

// picked is a table that has what came.
type picked struct {
	d *layout.Declaration
	item
	came []Wanted
}

func (p picked) RowBytes() int { return p.d.Variables[p.Variable].UnitBytes() }

func (p picked) Read(index []int64, into []byte) error {
	pick(p.came, item{Place: p.Place, index: index}, into, p.d)
	return nil
}

// pick copies rows out of those that came, among which they are.
func pick(came []Wanted, i item, into []byte, d *layout.Declaration) {
	for _, w := range came {
		if w.Variable != i.Variable {
			continue
		}
		size, at := d.Variables[w.Variable].UnitBytes(), 0
		for n, row := range i.index {
			for w.Index[at] != row {
				at++
			}
			copy(into[n*size:(n+1)*size], w.Into[at*size:])
		}
	}
}
