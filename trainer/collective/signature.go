package collective

import (
	"context"
	"fmt"

	"github.com/plx-run/plx/trainer/wire"
)

type operation uint8

const (
	barrier operation = iota + 1
	broadcast
	scatter
	gather
	allGather
	reduceScatter
	allReduce
	allGatherBytes
	operations
)

var operationNames = [operations]string{
	barrier: "Barrier", broadcast: "Broadcast", scatter: "Scatter", gather: "Gather", allGather: "AllGather",
	reduceScatter: "ReduceScatter", allReduce: "AllReduce", allGatherBytes: "AllGatherBytes",
}

// signature describes one call of a collective. It must be the same on all
// workers.
type signature struct {
	op    operation // operation of the collective; 0 in a message that carries only data
	of    dtype     // type of the elements
	root  uint32    // rank of the root worker; 0 in a collective without a root
	count uint64    // number of elements, the same on all workers; in AllGatherBytes the maximum number of bytes
}

func (s signature) String() string {
	switch name := operationNames[s.op]; s.op {
	case barrier:
		return name
	case allGatherBytes:
		return fmt.Sprintf("%s of at most %d bytes", name, s.count)
	case broadcast, scatter, gather:
		return fmt.Sprintf("%s of %d %s with root %d", name, s.count, s.of, s.root)
	default:
		return fmt.Sprintf("%s of %d %s", name, s.count, s.of)
	}
}

func (s signature) ended(ctx context.Context) error {
	return fmt.Errorf("%s: %w", s, context.Cause(ctx))
}

// message is the content of a frame of kind [wire.Collective]. An announcement
// is the first frame of an exchange (one round of messages among the workers):
// it names the exchange and carries the first data. Further data follows in
// frames of at most chunkSize bytes. The header fields contain:
//
//	epoch     operation, type << 8; 0 if the frame carries only data
//	variable  root
//	step      number of the exchange, from 1
//	offset    count
type message struct {
	signature        // collective that is announced; zero if the frame carries only data
	number    uint64 // number of the exchange, counted from 1
}

// chunkSize is the maximum number of bytes of data in one frame. Chunks are
// short, because an error report can only be sent between two frames.
const chunkSize = 256 << 10

// early is the maximum number of bytes of data in an announcement, the first
// message that a worker sends each other worker in an exchange (one round of
// messages of a collective).
const early = 64 << 10

func (m message) header() wire.Header {
	return wire.Header{
		Kind: wire.Collective, Epoch: uint32(m.op) | uint32(m.of)<<8,
		Variable: m.root, Step: m.number, Offset: m.count,
	}
}

// decode decodes a frame header. It makes the checks that do not need the
// current exchange.
func decode(h wire.Header) (message, error) {
	m := message{signature{operation(h.Epoch), dtype(h.Epoch >> 8), h.Variable, h.Offset}, h.Step}
	data := m.signature == signature{}
	switch {
	case h.Kind != wire.Collective:
		return message{}, fmt.Errorf("unexpected %s frame", h.Kind)
	case m.op == 0 && !data || m.op >= operations || m.of >= dtypes || h.Epoch>>16 != 0 || h.Part != 0 || h.Step == 0:
		return message{}, fmt.Errorf("unknown collective %#x with number %d", h.Epoch, h.Step)
	case data && (h.Length == 0 || h.Length > chunkSize) || !data && h.Length > early:
		return message{}, fmt.Errorf("%s frame with %d bytes", h.Kind, h.Length)
	}
	return m, nil
}
