package exchange

import (
	"encoding/binary"
	"math"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

// takeNorm takes the report of a holder; after the last one it tells all
// holders how to scale.
func (c *Client) takeNorm(owner int, report []byte) {
	now := c.shards.Load()
	norm, complete, err := now.norm.Take(owner, report)
	if err != nil {
		c.fail(&peers.PeerError{Task: c.d.Holders[owner], Addr: c.config.Cluster.Addr(c.d.Holders[owner]), Err: err})
		return
	}
	if !complete {
		return
	}
	factor := c.d.ClipFactor(norm)
	body := binary.LittleEndian.AppendUint64(nil, math.Float64bits(norm))
	body = binary.LittleEndian.AppendUint64(body, math.Float64bits(factor))
	for i, l := range c.links {
		if l == nil || !now.owns[i] {
			continue
		}
		l.volumes[c.d.LossIndex()].sent.Add(uint64(wire.HeaderSize + len(body)))
		if err := l.conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Scale}, Payload: body}); err != nil {
			l.running.Go(func() { l.sendFailed(err) })
		}
	}
	if c.local != nil && !c.local.idle() {
		if err := c.local.serves.Load().shards.Scale(c.rank, norm, factor); err != nil {
			c.fail(err)
		}
	}
}
