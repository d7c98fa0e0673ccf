package exchange

import "sync"

// gate holds back what is to be sent: in backup mode until the worker's
// gradients are accepted, of a host's sums until all of the host have begun
// the step.
type gate struct {
	mu     sync.Mutex
	links  []*link // where it leads; set once they are there
	closed bool
	held   []job
}

// post gives the links something to send, or holds it.
func (g *gate) post(j job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.held = append(g.held, j)
		return
	}
	g.pass(j)
}

// open sends what was held, behind first.
func (g *gate) open(first ...job) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range append(first, g.held...) {
		g.pass(j)
	}
	g.closed, g.held = false, g.held[:0]
}

// shut holds what comes from now on. Whatever was held is dropped.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.held = true, g.held[:0]
}

// pass never blocks: a link has room for all that a step brings.
func (g *gate) pass(j job) {
	for _, l := range g.links {
		if l.takes(j) {
			l.jobs <- j
		}
	}
}

// lead tells the gates where they lead, once all links are there: what is
// added per host goes through the first worker of the host, or from there on
// to the holders; everything else goes to them directly.
func (c *Client) lead() {
	var own, host []*link
	for i, l := range c.links {
		switch {
		case l == nil:
		case !c.d.Aggregates(c.d.Holders[i]) || c.relay == nil && c.up == nil:
			own = append(own, l)
		case c.relay != nil:
			host = append(host, l)
		}
	}
	if c.up != nil {
		own = append(own, c.up)
	}
	c.gate.lead(own)
	if c.relay != nil {
		c.relay.gate.lead(host)
	}
}

func (g *gate) lead(to []*link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.links = to
}
