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
	PairSize    = 16 // payload of a scale frame, and of a reply about room
)

// Payload reads the payload of a frame. A connection implements it.
type Payload interface {
	Payload(into []byte) error
}

// BeginningSize is the size of the payload of a contributor's step frame.
func BeginningSize(c *layout.Contributor) int { return 8 + 4*len(c.Parts) }

// EncodeBeginning returns the payload of a step frame. It reuses the memory of
// into.
func EncodeBeginning(into []byte, b aggregate.Beginning) []byte {
	into = appendFloat(into[:0], b.Rate)
	for _, n := range b.Present {
		into = binary.LittleEndian.AppendUint32(into, uint32(n))
	}
	return into
}

// DecodeBeginning decodes BeginningSize bytes. It reuses the memory of present.
func DecodeBeginning(from []byte, present []int) aggregate.Beginning {
	b := aggregate.Beginning{Rate: float(from), Present: present[:0]}
	for from = from[8:]; len(from) > 0; from = from[4:] {
		b.Present = append(b.Present, int(binary.LittleEndian.Uint32(from)))
	}
	return b
}

// EncodeOutcome returns the payload of a done frame. It reuses the memory of
// into.
func EncodeOutcome(into []byte, o aggregate.Outcome) []byte {
	into = binary.LittleEndian.AppendUint64(into[:0], uint64(o.VirtualWorkers))
	into = appendFloat(into, o.Norm)
	into = binary.LittleEndian.AppendUint64(into, o.Updates)
	if o.Saved {
		return append(into, 1)
	}
	return append(into, 0)
}

// DecodeOutcome decodes OutcomeSize bytes.
func DecodeOutcome(from []byte) (aggregate.Outcome, error) {
	if from[24] > 1 {
		return aggregate.Outcome{}, fmt.Errorf("the end of a step says %d where 0 or 1 is due", from[24])
	}
	return aggregate.Outcome{
		VirtualWorkers: int(binary.LittleEndian.Uint64(from)),
		Norm:           float(from[8:]),
		Updates:        binary.LittleEndian.Uint64(from[16:]),
		Saved:          from[24] == 1,
	}, nil
}

// EncodeScale returns the payload of a scale frame: the norm of the gradients,
// and the factor by which holders multiply every gradient.
func EncodeScale(norm, factor float64) []byte { return appendFloat(appendFloat(nil, norm), factor) }

// DecodeScale decodes PairSize bytes.
func DecodeScale(from []byte) (norm, factor float64) { return float(from), float(from[8:]) }

// EncodeRoom returns the payload of a reply about room: bytes of memory needed
// and free.
func EncodeRoom(need, free uint64) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, need), free)
}

// DecodeRoom decodes PairSize bytes.
func DecodeRoom(from []byte) (need, free uint64) {
	return binary.LittleEndian.Uint64(from), binary.LittleEndian.Uint64(from[8:])
}

// EncodeCut returns the payload for a cut: the number of steps of each group.
// The payload of a nil cut is empty.
func EncodeCut(cut []uint64) (b []byte) {
	for _, steps := range cut {
		b = binary.LittleEndian.AppendUint64(b, steps)
	}
	return b
}

// ReadCut reads the cut that follows header h: the number of steps of each
// group. groups is the number of groups.
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

// Sends is the event that makes a server send a frame to a worker. It is not a
// counted event of a step.
type Sends wire.Frame

// Counted implements aggregate.Event.
func (Sends) Counted() bool { return false }
