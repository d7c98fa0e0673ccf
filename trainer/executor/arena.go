package executor

import (
	"cmp"
	"slices"
	"unsafe"
)

// alignment of every value in the arena, in bytes: a cache line.
const alignment = 64

// lifetimes finds for every root the last instruction that uses it.
func lifetimes(order []*vertex) {
	for _, v := range order {
		v.root.last = max(v.root.last, v.position)
		for _, in := range v.inputs {
			in.root.last = max(in.root.last, v.position)
		}
	}
}

// joinInPlace lets elementwise operations write over an input that nothing
// needs any more.
func joinInPlace(order []*vertex) {
	for _, v := range order {
		if v.gradient >= 0 || v.pinned || !inPlace(v) {
			continue
		}
		for _, in := range v.inputs {
			r := in.settle()
			if r.computed() && !r.pinned && r.gradient < 0 && r.last == v.position &&
				in.length() == v.length() && r.length() == v.length() {
				v.root, r.last = r, v.last
				break
			}
		}
	}
	for _, v := range order {
		v.settle()
		for _, in := range v.inputs {
			in.settle()
		}
	}
}

// settle makes v point to the root of its roots and returns that.
func (v *vertex) settle() *vertex {
	if v.root != v {
		v.root = v.root.settle()
	}
	return v.root
}

// inPlace tells whether v's kernel reads every element before it writes it,
// and never again.
func inPlace(v *vertex) bool {
	switch v.op.kind {
	case kindUnary, kindMinBetween, kindMaxBetween, kindCopy, kindTanhDiff:
		return true
	case kindBinary:
		return v.op.strides[0] == nil
	}
	return false
}

// place gives every computed root its place in one arena and returns the
// arena's size. Values whose lifetimes meet do not overlap. The largest are
// placed first, each as low as it can be.
func place(order []*vertex) int {
	var roots, placed []*vertex
	for _, v := range order {
		if v.root == v && v.gradient < 0 {
			roots = append(roots, v)
		}
	}
	slices.SortStableFunc(roots, func(a, b *vertex) int { return cmp.Compare(b.length(), a.length()) })
	total := 0
	for _, v := range roots {
		v.planned, v.offset = true, 0
		for _, p := range placed { // by offset
			if p.position > v.last || v.position > p.last {
				continue
			}
			if v.offset+padded(v) <= p.offset {
				break
			}
			v.offset = max(v.offset, p.offset+padded(p))
		}
		at, _ := slices.BinarySearchFunc(placed, v, func(a, b *vertex) int { return cmp.Compare(a.offset, b.offset) })
		placed = slices.Insert(placed, at, v)
		total = max(total, v.offset+padded(v))
	}
	return total
}

// padded is the length that v takes in the arena.
func padded(v *vertex) int {
	return (max(v.length(), 1) + alignment - 1) / alignment * alignment
}

// aligned allocates n bytes that begin at a multiple of alignment.
func aligned(n int) []byte {
	words := make([]uint64, (n+alignment)/8+1)
	b := bytesOf(words)
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % alignment)
	return b[skip : skip+n : skip+n]
}

// takeFrom gives v its memory in the arena.
func (v *vertex) takeFrom(arena []byte) {
	v.bytes = arena[v.offset : v.offset+v.length() : v.offset+v.length()]
}
