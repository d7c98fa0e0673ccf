package exchange

import "sync/atomic"

// Volume is what this worker has exchanged with a holder for a variable since
// the training began.
type Volume struct {
	Variable int // the loss, behind the declared ones, stands for all that belongs to none
	Holder   int // in Holders, -1: the first worker of the host
	Rows     uint64
	Pulled   uint64
	// Sent and Received are bytes, lists of rows and a share of each frame's
	// header included. They are 0 where this worker is the holder.
	Sent, Received uint64
}

// volume is a Volume that is being counted.
type volume struct{ rows, pulled, sent, received atomic.Uint64 }

// shared returns the i-th of n equal shares of what a frame has beside what
// belongs to one variable.
func shared(rest, i, n int) uint64 { return uint64(rest*(i+1)/n - rest*i/n) }

// Volumes returns what was exchanged, by variable and holder, without what
// belongs to no training: first values and signs of life. Rows counts rows
// that were pushed, Pulled those that came.
func (c *Client) Volumes() (all []Volume) {
	for variable := range len(c.d.Variables) + 1 {
		add := func(owner int, v *volume) {
			x := Volume{variable, owner, v.rows.Load(), v.pulled.Load(), v.sent.Load(), v.received.Load()}
			if x != (Volume{Variable: variable, Holder: owner}) {
				all = append(all, x)
			}
		}
		if c.up != nil {
			add(c.up.index, &c.up.volumes[variable])
		}
		for i, l := range c.links {
			switch {
			case l != nil:
				add(i, &l.volumes[variable])
			case c.local != nil:
				add(i, &c.local.volumes[variable])
			}
		}
	}
	return all
}
