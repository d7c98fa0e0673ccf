package memory

import (
	"slices"
	"testing"
	"unsafe"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A value of every supported type uses the memory that was passed to Wrap.
func TestWrapAndRawShareMemory(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Int, tensor.Int64, tensor.Int32, tensor.Byte, tensor.Bool} {
		for _, shape := range []tensor.Shape{{}, {3}, {2, 3}} {
			b := Aligned(Elements(shape) * int(dt.Size()))
			v, err := Wrap(dt, shape, len(shape) == 0, b)
			if err != nil {
				t.Errorf("%v %v: %v", dt, shape, err)
				continue
			}
			raw, plain := Raw(v)
			if !plain || len(raw) != len(b) || &raw[0] != &b[0] || v.Dtype() != dt {
				t.Errorf("%v %v: %d bytes elsewhere, want %d", dt, shape, len(raw), len(b))
			}
		}
	}
	if _, err := Wrap(tensor.String, tensor.Shape{2}, false, nil); err == nil {
		t.Error("strings are wrapped")
	}
	if _, err := Wrap(tensor.Float32, tensor.Shape{}, false, Aligned(4)); err == nil {
		t.Error("a tensor without dimensions is wrapped")
	}
}

// Copy follows the strides of its source: it copies a transposed matrix column
// by column.
func TestCopyFollowsStrides(t *testing.T) {
	m := tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	if err := m.T(); err != nil {
		t.Fatal(err)
	}
	if _, plain := Raw(m); plain {
		t.Error("a transposed matrix is row-major")
	}
	b := Aligned(6 * 4)
	if err := Copy(b, m); err != nil || !slices.Equal(View[float32](b), []float32{1, 4, 2, 5, 3, 6}) {
		t.Errorf("%v, %v", View[float32](b), err)
	}
	for _, v := range []gorgonia.Value{m, gorgonia.NewF32(1)} {
		if err := Copy(make([]byte, 8), v); err == nil {
			t.Errorf("%v is copied into 8 bytes", v.Shape())
		}
	}
}

func TestAlignedMemoryIsAligned(t *testing.T) {
	for n := range 200 {
		b := Aligned(n)
		if len(b) != n || cap(b) != n {
			t.Errorf("%d bytes, capacity %d, want %d", len(b), cap(b), n)
		}
		if n > 0 && uintptr(unsafe.Pointer(&b[0]))%Alignment != 0 {
			t.Errorf("%d bytes are not aligned", n)
		}
	}
}
