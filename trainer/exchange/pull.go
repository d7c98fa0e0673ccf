package exchange

import (
	"fmt"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/sparse"
	"github.com/plx-run/plx/trainer/wire"
)

// maxPulled bounds the bytes of whole rows that one frame asks for.
const maxPulled = 4 << 20

// rangeRows is how many whole rows one frame asks for, where the piece has as
// many.
func rangeRows(rowBytes int) int { return max(1, maxPulled/rowBytes) }

// pulled is memory for what a peer pulls.
type pulled struct {
	raw   []byte
	index []int64
	rows  []float64 // bytes of rows, aligned for any number
}

func (m *pulled) bytes(n int) []byte {
	if cap(m.rows) < (n+7)/8 {
		m.rows = make([]float64, (n+7)/8)
	}
	return wire.Bytes(m.rows[:(n+7)/8])[:n]
}

// pull answers a request for rows: of a list, or, where the frame holds none,
// of as many rows from row Step on as rangeRows allows.
func (p *peer) pull(h wire.Header) error {
	e := p.server.shards
	i, err := find(e, h, wire.Pull)
	if err != nil {
		return err
	}
	t := e.All()[i]
	if t.RowBytes() == 0 {
		return fmt.Errorf("pulls rows of variable %d, which is dense", h.Variable)
	}
	var rows []byte
	if h.Length == 0 {
		rows, err = p.pullRange(t, h)
	} else {
		rows, err = p.pullList(t, h)
	}
	if err != nil {
		return fmt.Errorf("pulls rows of variable %d: %w", h.Variable, err)
	}
	return p.conn.Send(wire.Frame{
		Header:  wire.Header{Kind: wire.Rows, Variable: h.Variable, Offset: h.Offset, Part: h.Part},
		Payload: rows,
	})
}

func (p *peer) pullRange(t *aggregate.Shard, h wire.Header) ([]byte, error) {
	lo, hi := t.Bounds()
	if h.Step < uint64(lo) || h.Step >= uint64(hi) {
		return nil, fmt.Errorf("rows from row %d of [%d, %d)", h.Step, lo, hi)
	}
	rows := p.pulled.bytes(min(rangeRows(t.RowBytes()), int(hi)-int(h.Step)) * t.RowBytes())
	return rows, t.CopyRows(int64(h.Step), rows)
}

func (p *peer) pullList(t *aggregate.Shard, h wire.Header) ([]byte, error) {
	lo, hi := t.Bounds()
	if most := aggregate.MaxRows(int(hi-lo), 0); h.Length > most {
		return nil, fmt.Errorf("a list of %d bytes, want at most %d", h.Length, most)
	}
	m := &p.pulled
	m.raw = sized(m.raw, int(h.Length))
	if err := p.conn.Payload(m.raw); err != nil {
		return nil, err
	}
	index, rest, err := sparse.DecodeIndex(m.raw, lo, hi, m.index)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%d bytes after the list", len(rest))
	}
	m.index = index
	rows := m.bytes(len(index) * t.RowBytes())
	return rows, t.Read(index, rows)
}
