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

// signature is what all workers must agree on.
type signature struct {
	op    operation // operation of the collective; zero in a message of data
	of    dtype     // type of the elements
	root  uint32    // zero in a collective without a root
	count uint64    // number of elements, the same on all workers, or the limit of AllGatherBytes
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

// message is what a frame of kind [wire.Collective] says. An announcement
// names the exchange that its sender begins and brings the first data; the rest
// follows in frames of at most chunkSize bytes. In the header:
//
//	epoch     operation, type << 8; zero: data
//	variable  root
//	step      number of the exchange, from 1
//	offset    count
type message struct {
	signature        // of the exchange that is announced; zero if the frame brings only data
	number    uint64 // number of the exchange
}

// chunkSize is how many bytes of data a frame has at most. Reports of errors
// go between two frames.
const chunkSize = 256 << 10

// early is how many bytes of data an announcement has at most.
const early = 64 << 10

func (m message) header() wire.Header {
	return wire.Header{
		Kind: wire.Collective, Epoch: uint32(m.op) | uint32(m.of)<<8,
		Variable: m.root, Step: m.number, Offset: m.count,
	}
}

// decode checks what can be checked without knowing the exchange.
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
