package client

import (
	"sync/atomic"

	"github.com/plx-run/plx/trainer/cluster"
)

// Volume is what this worker has exchanged with a holder for a variable since
// the training began.
type Volume struct {
	Variable int // one past the declared ones stands for all that belongs to no variable
	Holder   int // in Holders, -1: the first worker of the host
	Rows     uint64
	Pulled   uint64
	// Sent and Received are bytes, lists of rows and a share of each frame's
	// header included. They are 0 if this worker is the holder.
	Sent, Received uint64
}

// volume is a Volume that is being counted.
type volume struct{ rows, pulled, sent, received atomic.Uint64 }

// Volumes returns what was exchanged, by variable and holder, without what
// belongs to no training: first values and heartbeats. Rows counts rows that
// were pushed, Pulled those that came.
func (p *Placement) Volumes() (all []Volume) {
	h := p.holders
	for variable := range len(h.d.Variables) + 1 {
		add := func(holder int, v *volume) {
			x := Volume{variable, holder, v.rows.Load(), v.pulled.Load(), v.sent.Load(), v.received.Load()}
			if x != (Volume{Variable: variable, Holder: holder}) {
				all = append(all, x)
			}
		}
		if h.up != nil {
			add(h.up.index, &h.up.volumes[variable])
		}
		for i, l := range h.links {
			switch {
			case l != nil:
				add(i, &l.volumes[variable])
			case h.local != nil:
				add(i, &h.local.volumes[variable])
			}
		}
	}
	return all
}

// Traffic is what a connection has carried so far, in bytes with headers and
// heartbeats.
type Traffic struct {
	Peer           cluster.Task
	Served         bool // the peer came to this worker, as to a holder or to the first of its host
	Sent, Received uint64
}

func (h *holders) traffic() (all []Traffic) {
	for _, l := range h.connected() {
		sent, received := l.session.Traffic()
		all = append(all, Traffic{l.session.Task, false, sent, received})
	}
	for _, l := range h.locals {
		for _, w := range l.server.Workers() {
			if w.Addr != "" {
				all = append(all, Traffic{w.Task, true, w.Sent, w.Received})
			}
		}
	}
	return all
}
