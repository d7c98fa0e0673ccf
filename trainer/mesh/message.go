package mesh

import (
	"fmt"

	"github.com/plx-run/plx/trainer/cluster"
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
	op    operation
	of    dtype
	root  uint32 // 0 where there is none
	count uint64 // elements of the slice that is as long on every worker, or the limit
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

// part says what a frame of kind [wire.Collective] is.
type part uint8

const (
	announce part = iota + 1 // I call this; little data comes with it
	data                     // a chunk
	grant                    // you may send me this much to be added
	parts
)

// message is a frame's header as this package uses it:
//
//	epoch     operation, type << 8, part << 16
//	variable  root
//	step      sequence number of the collective, from 1
//	offset    announce: elements that all agree on; data: first element of what
//	          this peer sends in this collective; grant: one past the last
type message struct {
	signature // without its count, where part is not announce
	part      part
	sequence  uint64
	offset    uint64
}

func (m message) header() wire.Header {
	at := m.offset
	if m.part == announce {
		at = m.count
	}
	return wire.Header{
		Kind:     wire.Collective,
		Epoch:    uint32(m.op) | uint32(m.of)<<8 | uint32(m.part)<<16,
		Variable: m.root, Step: m.sequence, Offset: at,
	}
}

// decode checks what can be checked without knowing what is going on.
func decode(h wire.Header) (message, error) {
	m := message{
		signature: signature{op: operation(h.Epoch), of: dtype(h.Epoch >> 8), root: h.Variable},
		part:      part(h.Epoch >> 16), sequence: h.Step, offset: h.Offset,
	}
	if h.Kind != wire.Collective {
		return message{}, fmt.Errorf("unexpected %s frame", h.Kind)
	}
	if m.op == 0 || m.op >= operations || m.of >= dtypes || m.part == 0 || m.part >= parts || h.Epoch>>24 != 0 || h.Part != 0 || h.Step == 0 {
		return message{}, fmt.Errorf("unknown collective %#x with number %d", h.Epoch, h.Step)
	}
	most := uint64(chunkSize)
	switch m.part {
	case announce:
		m.count, m.offset = h.Offset, 0
		most = maxEager
	case grant:
		most = 0
	}
	if h.Length > most || h.Length%uint64(m.of.size()) != 0 && m.part == data {
		return message{}, fmt.Errorf("collective %d: frame with %d bytes of %s", h.Step, h.Length, m.of)
	}
	return m, nil
}

// mismatch says that two workers did not call the same.
func mismatch(sequence uint64, here int, mine signature, there cluster.Task, theirs signature) error {
	return fmt.Errorf("collective %d is %s there and %s on worker:%d: every worker must call the same collectives, in the same order, with matching arguments",
		sequence, theirs, mine, here)
}
