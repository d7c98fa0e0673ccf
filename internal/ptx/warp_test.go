package ptx_test

import "testing"

// lanes runs instructions that leave a result in %r9 for each of 32 lanes, and
// returns the results.
func lanes(t *testing.T, body string) []uint32 {
	t.Helper()
	b := benchOf(t, head+body+"\nst.global.u32 [%d2], %r9;\nret;\n}\n")
	at := b.put(make([]uint32, 64))
	b.run("k", [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0, at)
	got := make([]uint32, 32)
	b.get(at, got)
	return got
}

// Instructions of a warp, against a function of the lane.
func TestWarps(t *testing.T) {
	value := func(lane int) uint32 { return uint32(lane*lane*7) & 15 }
	const prepare = "mul.lo.s32 %r2, %r0, %r0; mul.lo.s32 %r2, %r2, 7; and.b32 %r2, %r2, 15;\n"
	where := func(holds func(lane int) bool) (mask uint32) {
		for i := range 32 {
			if holds(i) {
				mask |= 1 << i
			}
		}
		return mask
	}
	odd := where(func(i int) bool { return i&1 == 1 })
	for _, test := range []struct {
		body string
		want func(lane int) uint32
	}{
		{"shfl.sync.up.b32 %r9, %r2, 3, 0, -1;", func(i int) uint32 { return value(i - 3*min(i/3, 1)) }},
		{"shfl.sync.down.b32 %r9, %r2, 5, 31, -1;", func(i int) uint32 {
			if i+5 > 31 {
				return value(i)
			}
			return value(i + 5)
		}},
		{"shfl.sync.bfly.b32 %r9, %r2, 9, 31, -1;", func(i int) uint32 { return value(i ^ 9) }},
		{"shfl.sync.idx.b32 %r9, %r2, %r2, 31, -1;", func(i int) uint32 { return value(int(value(i))) }},
		// Segments of eight lanes: 0x1800 is the mask of the segment's number.
		{"shfl.sync.idx.b32 %r9, %r2, 2, 0x181f, -1;", func(i int) uint32 { return value(i&^7 + 2) }},
		{"shfl.sync.down.b32 %r9|%p1, %r2, 3, 0x181f, -1; selp.b32 %r9, %r9, 99, %p1;", func(i int) uint32 {
			if i&7 > 4 {
				return 99
			}
			return value(i + 3)
		}},
		{"activemask.b32 %r9;", func(int) uint32 { return 1<<32 - 1 }},
		{"and.b32 %r3, %r0, 1; setp.eq.u32 %p1, %r3, 1; mov.u32 %r9, 0; @%p1 activemask.b32 %r9;", func(i int) uint32 { return odd * uint32(i&1) }},
		{"setp.gt.u32 %p1, %r2, 8; vote.sync.ballot.b32 %r9, %p1, -1;", func(int) uint32 {
			return where(func(i int) bool { return value(i) > 8 })
		}},
		{"setp.gt.u32 %p1, %r2, 8; vote.sync.any.pred %p2, !%p1, -1; selp.b32 %r9, 1, 2, %p2;", func(int) uint32 { return 1 }},
		{"setp.gt.u32 %p1, %r2, 8; vote.sync.all.pred %p2, %p1, -1; selp.b32 %r9, 1, 2, %p2;", func(int) uint32 { return 2 }},
		{"setp.gt.u32 %p1, %r2, 99; vote.sync.uni.pred %p2, %p1, -1; selp.b32 %r9, 1, 2, %p2;", func(int) uint32 { return 1 }},
		{"match.any.sync.b32 %r9, %r2, -1;", func(i int) uint32 {
			return where(func(j int) bool { return value(j) == value(i) })
		}},
		{"mov.u32 %r3, %laneid; mov.u32 %r4, %lanemask_lt; popc.b32 %r4, %r4; add.s32 %r9, %r3, %r4;", func(i int) uint32 { return uint32(2 * i) }},
		{"mov.u32 %r3, %lanemask_ge; mov.u32 %r4, %lanemask_le; and.b32 %r9, %r3, %r4;", func(i int) uint32 { return 1 << i }},
		{"mov.b64 %d5, {%r2, %r0}; mov.b64 {%r3, %r9}, %d5;", func(i int) uint32 { return uint32(i) }},
		{"add.s64 %d5, %d0, 128; atom.global.add.u32 %r3, [%d5], 2; ld.volatile.global.u32 %r4, [%d5]; add.s32 %r9, %r3, %r4;", func(i int) uint32 { return uint32(2*i + 64) }},
		{"add.s64 %d5, %d0, 128; atom.global.cas.b32 %r9, [%d5], %r0, %r0;", func(int) uint32 { return 0 }},
		{"add.s64 %d5, %d0, 128; atom.global.max.u32 %r9, [%d5], %r2;", func(i int) (most uint32) {
			for j := range i {
				most = max(most, value(j))
			}
			return most
		}},
		{"add.s64 %d5, %d0, 128; atom.global.inc.u32 %r9, [%d5], 5;", func(i int) uint32 { return uint32(i % 6) }},
		{"add.s64 %d5, %d0, 128; atom.global.exch.b32 %r9, [%d5], %r0;", func(i int) uint32 { return uint32(max(i-1, 0)) }},
		{"st.local.u32 [l+4], %r0; mov.u64 %d5, l; ld.local.u8 %h1, [%d5+4]; cvt.u32.u16 %r9, %h1;", func(i int) uint32 { return uint32(i) }},
		{"neg.s32 %r3, %r0; st.local.u8 [l], %r3; ld.local.s8 %h1, [l]; cvt.s32.s16 %r9, %h1;", func(i int) uint32 { return -uint32(i) }},
		{"mov.u32 %r9, 0; L: add.s32 %r9, %r9, 3; add.s32 %r3, %r9, 0; setp.lt.u32 %p1, %r3, %r0; @%p1 bra L;", func(i int) uint32 {
			return uint32(max((i+2)/3, 1) * 3)
		}},
	} {
		got := lanes(t, prepare+test.body)
		for i := range got {
			if got[i] != test.want(i) {
				t.Errorf("%s lane %d has %#x, want %#x", test.body, i, got[i], test.want(i))
				break
			}
		}
	}
}
