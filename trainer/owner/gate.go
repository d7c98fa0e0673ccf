package owner

import "sync"

// gate holds back what is to be sent: in backup mode until the worker's
// gradients are accepted, on the first worker of a host until all of the
// host have begun the step.
type gate struct {
	mu     sync.Mutex
	closed bool
	held   []job
}

// post gives the links something to send, or holds it.
func (c *Client) post(j job) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.gate.closed {
		c.gate.held = append(c.gate.held, j)
		return
	}
	c.pass(j)
}

// open sends what was held, behind first.
func (c *Client) open(first ...job) {
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	for _, j := range append(first, c.gate.held...) {
		c.pass(j)
	}
	c.gate.closed, c.gate.held = false, c.gate.held[:0]
}

// shut holds what comes from now on. Whatever was held is dropped.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.held = true, g.held[:0]
}

// pass never blocks: a link has room for all that a step brings.
func (c *Client) pass(j job) {
	links := c.links
	if c.up != nil {
		links = []*link{c.up}
	}
	for _, l := range links {
		if l != nil && (j.begin != nil || j.bucket == flush || l.has[j.bucket]) {
			l.jobs <- j
		}
	}
}
