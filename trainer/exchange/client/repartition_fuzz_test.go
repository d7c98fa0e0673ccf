package client

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
	"github.com/plx-run/plx/trainer/wire"
)

// FuzzRemap makes a worker request arbitrary placements, and ask whether
// memory suffices for them.
func FuzzRemap(f *testing.F) {
	f.Add([]byte(`{"epoch":1,"step":0,"pieces":[{"variable":0,"owner":1,"count":41}]}`))
	f.Add([]byte(`{"epoch":1,"step":0,"pieces":[{"variable":0,"owner":1,"count":20},{"offset":20,"count":21}]}`))
	f.Add([]byte(`{"epoch":4294967295,"step":18446744073709551615,"pieces":[{"offset":-9223372036854775808,"count":9223372036854775807}]}`))
	f.Add([]byte(`{"pieces":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		d := movableTables(1, 1, optimizer.Momentum)
		d.Variables = d.Variables[5:6]
		j := newJob(t, d, policy.Servers, 2)
		members := j.connect(t)
		var r transition.MoveRequest
		if json.Unmarshal(body, &r) == nil {
			if pieces, err := json.Marshal(r.Pieces); err == nil {
				for _, l := range members[0].holders.links {
					l.replies.asked.Store(true)
					l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Room}, Payload: pieces}) // may be refused
				}
			}
		}
		for _, l := range members[0].holders.links {
			l.session.Send(wire.Frame{Header: wire.Header{Kind: wire.Remap}, Payload: body}) // may be refused
		}
		members[0].Abort(context.Canceled)
		for _, ended := range j.ended {
			within(t, ended)
		}
	})
}

// FuzzMover makes a shard holder send arbitrary rows to another.
func FuzzMover(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 1, 3, 9, 9, 1, 0, 0, 0, 1, 20, 0, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 20, 0, 0})
	f.Add([]byte{0, 0, 0, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		j, members, asked := moves(t)
		conn := moverConn(t, j, server0(1))
		kinds := []wire.Kind{wire.Move, wire.Moved, wire.Error, wire.Value}
		for len(b) >= 4 {
			n := min(int(b[3]), len(b)-4)
			conn.Send(wire.Frame{ // an error is allowed: the peer may hang up before it has read everything
				Header:  wire.Header{Kind: kinds[b[0]%4], Epoch: 2 + uint32(b[0]>>6), Offset: uint64(b[1]), Step: uint64(b[2])},
				Payload: b[4 : 4+n],
			})
			b = b[4+n:]
		}
		conn.Close()
		for _, m := range members {
			m.Abort(context.Canceled)
		}
		within(t, asked)
		within(t, j.ended[0])
	})
}
