package exchange

import "github.com/plx-run/plx/trainer/cluster"

// Traffic is what a connection has carried so far, in bytes with headers and
// heartbeats.
type Traffic struct {
	Peer           cluster.Task
	Served         bool // the peer came to this worker, as to a holder or to the first of its host
	Sent, Received uint64
}

// Traffic returns the traffic of every connection: first those that this
// worker opened, then those that it serves.
func (c *Client) Traffic() (all []Traffic) {
	for _, l := range c.connected() {
		sent, received := l.conn.Traffic()
		all = append(all, Traffic{l.task, false, sent, received})
	}
	for _, l := range c.locals {
		l.server.mu.Lock()
		for _, p := range l.server.peers {
			if p != nil {
				sent, received := p.conn.Traffic()
				all = append(all, Traffic{p.task, true, sent, received})
			}
		}
		l.server.mu.Unlock()
	}
	return all
}
