package client

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/wire"
)

// memory is where the worker has the values of dense variables.
type memory struct {
	d      *layout.Declaration
	values [][]byte // by variable, and that of the loss
	device Device   // has the values of all but the loss; nil: there is none
}

func newMemory(config *Config) (*memory, error) {
	d := &config.Declaration
	m := &memory{d: d, values: config.Values, device: config.Device}
	if m.device != nil {
		m.values = make([][]byte, len(d.Variables))
	}
	m.values = append(slices.Clone(m.values), wire.Bytes(make([]float64, 1+d.Metrics)))
	for i := range len(d.Variables) + 1 {
		v := d.Variable(i)
		want := v.NumElements() * v.Dtype.Size()
		if v.Sparse == nil && !m.onDevice(i) && (i >= len(m.values) || len(m.values[i]) != want) {
			return nil, fmt.Errorf("variable %q: no memory of %d bytes for its values", v.Name, want)
		}
	}
	return m, nil
}

// onDevice reports whether the device has the values of a dense variable.
func (m *memory) onDevice(variable int) bool { return m.device != nil && variable != m.d.LossIndex() }

// of is the memory of a dense piece; nil if the piece is sparse.
func (m *memory) of(p layout.Piece) []byte {
	v := m.d.Variable(p.Variable)
	switch {
	case v.Sparse != nil:
		return nil
	case m.onDevice(p.Variable):
		return m.device.Read(p)
	}
	size := v.Dtype.Size()
	return m.values[p.Variable][p.Offset*size : (p.Offset+p.Count)*size]
}

// loss returns the loss of the step, and the metrics.
func (m *memory) loss() []float64 { return wire.Floats[float64](m.values[m.d.LossIndex()]) }
