package device

import (
	"encoding/binary"
	"math/bits"
)

// A Region is memory that one address range reaches: an allocation, the shared
// memory of a block, the local memory of a lane, or the parameters of a kernel.
type Region struct {
	Base     uint64
	Size     uint64 // bytes
	Data     []byte
	Written  []uint64 // a bit for each byte
	ReadOnly bool     // for kernels
	gaps     []uint64 // a bit for each byte that belongs to nobody; nil for none
	shadow   *Shadow  // nil before the first access that is traced
}

// NewRegion returns a region that nobody wrote to.
func NewRegion(base uint64, size int) *Region {
	return &Region{Base: base, Size: uint64(size), Data: make([]byte, size), Written: make([]uint64, (size+63)/64)}
}

// Mark notes that n bytes at an offset are written.
func (r *Region) Mark(offset, n uint64) {
	for end := offset + n; offset < end; {
		count := min(64-offset%64, end-offset)
		r.Written[offset/64] |= spread(count) << (offset % 64)
		offset += count
	}
}

// marked reports whether n bytes at an offset are written, and otherwise the
// offset of one that is not.
func (r *Region) marked(offset, n uint64) (uint64, bool) {
	for end := offset + n; offset < end; {
		count := min(64-offset%64, end-offset)
		if missing := spread(count) &^ (r.Written[offset/64] >> (offset % 64)); missing != 0 {
			return offset + uint64(bits.TrailingZeros64(missing)), false
		}
		offset += count
	}
	return 0, true
}

// Forbid makes the bytes from one offset to another belong to nobody.
func (r *Region) Forbid(from, to uint64) {
	if r.gaps == nil {
		r.gaps = make([]uint64, len(r.Written))
	}
	for ; from < to; from++ {
		r.gaps[from/64] |= 1 << (from % 64)
	}
}

// HasGaps reports whether bytes of the region belong to nobody.
func (r *Region) HasGaps() bool { return r.gaps != nil }

// Forbidden reports whether one of some bytes belongs to nobody. The bytes are
// at an offset that is a multiple of their number.
func (r *Region) Forbidden(offset, size uint64) bool {
	return r.gaps != nil && r.gaps[offset/64]>>(offset%64)&spread(size) != 0
}

func (r *Region) isWritten(offset uint64) bool { return r.Written[offset/64]>>(offset%64)&1 != 0 }

func (r *Region) setWritten(offset uint64, is bool) {
	r.Written[offset/64] &^= 1 << (offset % 64)
	if is {
		r.Written[offset/64] |= 1 << (offset % 64)
	}
}

// Clear forgets what was written.
func (r *Region) Clear() { clear(r.Written) }

// spread has the lowest n bits, up to 64.
func spread(n uint64) uint64 { return ^uint64(0) >> (64 - n) }

// Get returns an element of 1, 2, 4 or 8 bytes.
func (r *Region) Get(offset, width uint64) uint64 {
	switch width {
	case 1:
		return uint64(r.Data[offset])
	case 2:
		return uint64(binary.LittleEndian.Uint16(r.Data[offset:]))
	case 4:
		return uint64(binary.LittleEndian.Uint32(r.Data[offset:]))
	}
	return binary.LittleEndian.Uint64(r.Data[offset:])
}

// Put writes an element of 1, 2, 4 or 8 bytes. It does not mark them.
func (r *Region) Put(offset, width, v uint64) {
	switch width {
	case 1:
		r.Data[offset] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(r.Data[offset:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(r.Data[offset:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(r.Data[offset:], v)
	}
}

// Protect says whether kernels may only read.
func (r *Region) Protect(readOnly bool) { r.ReadOnly = readOnly }

// Trace is Trace of the region's shadow.
func (r *Region) Trace(offset, size uint64, m Mode, c Clock, w Who) (Conflict, bool) {
	if r.shadow == nil {
		r.shadow = NewShadow(r.Size)
	}
	return r.shadow.Trace(offset, size, m, c, w)
}
