package message

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// Sizes of payloads, in bytes.
const (
	OutcomeSize = 25
	PairSize    = 16 // size of two 8-byte numbers, in a Scale frame and in the reply to a Room frame
)

// Payload reads the payload of the current frame from a connection.
type Payload interface {
	Payload(into []byte) error
}

// BeginningSize returns the size in bytes of the payload of a Step frame, with
// which contributor c (a worker that sends gradients) begins a step.
func BeginningSize(c *layout.Contributor) int { return 8 + 4*len(c.Parts) }

// EncodeBeginning returns the payload of a Step frame, with which a worker
// begins a step. It reuses the memory of into.
func EncodeBeginning(into []byte, b aggregate.Beginning) []byte {
	into = appendFloat(into[:0], b.Rate)
	for _, n := range b.Present {
		into = binary.LittleEndian.AppendUint32(into, uint32(n))
	}
	return into
}

// DecodeBeginning decodes the payload of a Step frame. from must have
// BeginningSize bytes. It reuses the memory of present.
func DecodeBeginning(from []byte, present []int) aggregate.Beginning {
	b := aggregate.Beginning{Rate: float(from), Present: present[:0]}
	for from = from[8:]; len(from) > 0; from = from[4:] {
		b.Present = append(b.Present, int(binary.LittleEndian.Uint32(from)))
	}
	return b
}

// EncodeOutcome returns the payload of a Done frame, with which a server ends
// a step. It reuses the memory of into.
func EncodeOutcome(into []byte, o aggregate.Outcome) []byte {
	into = binary.LittleEndian.AppendUint64(into[:0], uint64(o.VirtualWorkers))
	into = appendFloat(into, o.Norm)
	into = binary.LittleEndian.AppendUint64(into, o.Updates)
	if o.Saved {
		return append(into, 1)
	}
	return append(into, 0)
}

// DecodeOutcome decodes the payload of a Done frame, which must have
// OutcomeSize bytes.
func DecodeOutcome(from []byte) (aggregate.Outcome, error) {
	if from[24] > 1 {
		return aggregate.Outcome{}, fmt.Errorf("done frame with %d as the save flag, want 0 or 1", from[24])
	}
	return aggregate.Outcome{
		VirtualWorkers: int(binary.LittleEndian.Uint64(from)),
		Norm:           float(from[8:]),
		Updates:        binary.LittleEndian.Uint64(from[16:]),
		Saved:          from[24] == 1,
	}, nil
}

// EncodeScale returns the payload of a Scale frame: the norm of the gradients,
// and the factor for clipping. The tasks that store the variables multiply
// every gradient by this factor.
func EncodeScale(norm, factor float64) []byte { return appendFloat(appendFloat(nil, norm), factor) }

// DecodeScale decodes the payload of a Scale frame, which must have PairSize
// bytes.
func DecodeScale(from []byte) (norm, factor float64) { return float(from), float(from[8:]) }

// EncodeRoom returns the payload of the reply to a Room frame. need is the
// additional memory in bytes that this host needs for a planned move of
// variables; free is its free memory in bytes.
func EncodeRoom(need, free uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, need), free)
}

// DecodeRoom decodes the reply to a Room frame, which must have PairSize
// bytes.
func DecodeRoom(from []byte) (need, free uint64) {
	return binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
}

// EncodeCut returns the payload that describes a consistent cut: for each
// group of workers, the number of steps that belong to the cut. It is empty
// for a nil cut.
func EncodeCut(cut []uint64) (b []byte) {
	for _, steps := range cut {
		b = binary.LittleEndian.AppendUint64(b, steps)
	}
	return b
}

// ReadCut reads the payload of a frame with header h that describes a
// consistent cut: the number of steps of each group of workers. It returns an
// error unless the payload has exactly one number for each group. The
// parameter groups is the number of groups.
func ReadCut(h wire.Header, groups int, from Payload) ([]uint64, error) {
	if h.Length != uint64(8*groups) {
		return nil, fmt.Errorf("%s frame of %d bytes, want %d for %d groups", h.Kind, h.Length, 8*groups, groups)
	}
	b := make([]byte, 8*groups)
	if err := from.Payload(b); err != nil {
		return nil, err
	}
	cut := make([]uint64, groups)
	for i := range cut {
		if cut[i] = binary.LittleEndian.Uint64(b[8*i:]); cut[i] > layout.MaxFirst {
			return nil, fmt.Errorf("%s frame with %d steps of a group", h.Kind, cut[i])
		}
	}
	return cut, nil
}

func appendFloat(into []byte, x float64) []byte {
	return binary.LittleEndian.AppendUint64(into, math.Float64bits(x))
}

func float(from []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(from)) }

// Sends is an event that makes a server send this frame to a worker. A worker
// does not get such an event in every step.
type Sends wire.Frame

// Counted implements aggregate.Event. It returns false: a worker does not get
// a Sends event in every step.
func (Sends) Counted() bool { return false }
