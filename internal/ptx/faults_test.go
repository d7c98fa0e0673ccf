package ptx_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx"
)

// head begins kernel k, which has the address of 64 words in %d0, tid in %r0,
// ctaid in %r1, the address of its own word in %d2 and 4*tid in %d1. Its last
// line is line 18.
const head = `.version 6.0
.target sm_70
.address_size 64
.const .align 4 .u32 three = 3;
.visible .entry k(.param .u64 p)
{
.reg .pred %p<9>;
.reg .b16 %h<9>;
.reg .b32 %r<20>;
.reg .b64 %d<20>;
.shared .align 16 .b8 s[256]; .shared .align 4 .b8 s2[20];
.local .align 8 .b8 l[16];
ld.param.u64 %d0, [p];
mov.u32 %r0, %tid.x;
mov.u32 %r1, %ctaid.x;
mul.wide.u32 %d1, %r0, 4;
add.s64 %d2, %d0, %d1;
setp.eq.u32 %p0, %r0, 5;
`

const onShared = `mov.u64 %d3, s; add.s64 %d4, %d3, %d1; st.shared.u32 [%d4], %r0;` + "\n"

// planted are kernels with one mistake on line 20.
var planted = []struct {
	name string
	body string
	kind ptx.Kind
	what string
}{
	{"before the allocation", "\nld.global.u32 %r2, [%d0+-4];", ptx.OutOfBounds, "no allocation is there"},
	{"behind the allocation", "\nst.global.u32 [%d2+4], %r0;", ptx.OutOfBounds, "ends 0 bytes earlier"},
	{"across the end", "\nld.global.v2.u32 {%r2, %r3}, [%d0+252];", ptx.OutOfBounds, "ends after 256 bytes"},
	{"null", "mov.u64 %d3, 0;\nld.global.u32 %r2, [%d3];", ptx.OutOfBounds, "no allocation is there"},
	{"behind shared memory", "setp.eq.u32 %p1, %r0, 63;\n@%p1 st.shared.u32 [s+256], %r0;", ptx.OutOfBounds, "it has 256 bytes"},
	{"behind local memory", "\nst.local.u32 [l+16], %r0;", ptx.OutOfBounds, "it has 16 bytes"},
	{"behind the parameters", "\nld.param.u32 %r2, [p+8];", ptx.OutOfBounds, "it has 8 bytes"},
	{"generic, behind shared memory", "mov.u64 %d3, s; cvta.shared.u64 %d3, %d3;\nld.u32 %r2, [%d3+256];", ptx.OutOfBounds, "it has 256 bytes"},
	{"a word at an odd address", "\nld.global.u32 %r2, [%d0+2];", ptx.Misaligned, "no multiple of 4"},
	{"a vector at a word", "\nld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%d0+4];", ptx.Misaligned, "no multiple of 16"},
	{"constant memory", "mov.u64 %d3, three;\nst.global.u32 [%d3], %r0;", ptx.ReadOnly, ""},
	{"shared memory that nobody wrote", "\nld.shared.u32 %r2, [s];", ptx.Uninitialised, "never written"},
	{"local memory that nobody wrote", "st.local.u8 [l], 7;\nld.local.u32 %r2, [l];", ptx.Uninitialised, "never written"},
	{"half of a word of shared memory", "@%p0 st.shared.u16 [s], 1;\n@%p0 ld.shared.u32 %r2, [s];", ptx.Uninitialised, "never written"},
	{"a register that nobody wrote", "\nadd.s32 %r2, %r0, %r9;", ptx.Uninitialised, "register"},
	{"a register that lane 5 did not write", "@!%p0 mov.u32 %r3, 1;\nadd.s32 %r2, %r0, %r3;", ptx.Uninitialised, "register"},
	{"a copy of a register that nobody wrote", "mov.u32 %r3, %r9;\nadd.s32 %r2, %r0, %r3;", ptx.Uninitialised, "register"},
	{"a predicate that nobody wrote", "\n@%p5 add.s32 %r2, %r0, 1;", ptx.Uninitialised, "predicate"},
	{"write and write in shared memory", "\nst.shared.u32 [s], %r0;", ptx.SharedRace, "wrote"},
	{"behind one of two variables", "mov.u64 %d3, s; setp.eq.u32 %p1, %r0, 63; @%p1 st.shared.u32 [s2], 1;\n@%p1 st.shared.u32 [s+256], %r0;", ptx.OutOfBounds, "behind the end of a variable"},
	{"a read behind one of two variables", "mov.u64 %d3, s; setp.eq.u32 %p1, %r0, 63; @%p1 st.shared.u32 [s2], 1;\n@%p1 ld.shared.u32 %r2, [s+256];", ptx.OutOfBounds, "behind the end of a variable"},
	{"before shared memory", onShared + "ld.shared.u32 %r2, [%d4+-4];", ptx.OutOfBounds, ""},
	{"write and read in shared memory", "mov.u64 %d3, s; add.s64 %d4, %d3, %d1; st.shared.u32 [%d4], %r0; xor.b32 %r2, %r0, 1; mul.wide.u32 %d5, %r2, 4; add.s64 %d5, %d3, %d5;\nld.shared.u32 %r3, [%d5];", ptx.SharedRace, "thread [1 0 0] wrote"},
	{"read and write in shared memory", "mov.u64 %d3, s; add.s64 %d4, %d3, %d1; st.shared.u32 [%d4], %r0; bar.sync 0; ld.shared.u32 %r3, [s+20]; setp.eq.u32 %p1, %r0, 40;\n@%p1 st.shared.u32 [s+20], 1;", ptx.SharedRace, "and others read"},
	{"write and write in global memory", "\nst.global.u32 [%d0], %r0;", ptx.GlobalRace, "wrote"},
	{"write of two blocks", "\n st.global.u32 [%d2], %r1;", ptx.GlobalRace, "another block wrote"},
	{"write of what another block read", "ld.global.u32 %r2, [%d2]; setp.eq.u32 %p1, %r1, 1;\n@%p1 st.global.u32 [%d2], %r1;", ptx.GlobalRace, "another block read"},
	{"read of what another block added", "red.global.add.u32 [%d0], 1; setp.eq.u32 %p1, %r1, 1; and.pred %p1, %p1, %p0;\n@%p1 ld.global.u32 %r2, [%d0];", ptx.GlobalRace, "wrote"},
	{"add to what another thread wrote", "@%p0 st.global.u32 [%d0], 1;\nred.global.add.u32 [%d0], 1;", ptx.GlobalRace, "wrote"},
	{"bytes of one thread, a word of another", "@%p0 st.global.u8 [%d0+3], 1;\n@!%p0 ld.global.u32 %r2, [%d0];", ptx.GlobalRace, "wrote"},
	{"a barrier for one lane", "\n@%p0 bar.sync 0;", ptx.DivergentBarrier, "other threads"},
	{"lanes that leave before a barrier", "@%p0 exit;\nbar.sync 0;", ptx.DivergentBarrier, "has left"},
	{"a warp that leaves before a barrier", "setp.gt.u32 %p1, %r0, 31; @%p1 exit;\nbar.sync 0;", ptx.DivergentBarrier, "has left"},
	{"two barriers", "@%p0 bra L;\nbar.sync 0; bra M; L: bar.sync 0; M:", ptx.DivergentBarrier, "other threads"},
	{"a shuffle without lane 5", "@%p0 exit;\nshfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;", ptx.InactiveLane, "0x20"},
	{"a shuffle that lane 5 goes around", "@%p0 bra L;\nshfl.sync.bfly.b32 %r2, %r0, 1, 31, -1; L:", ptx.InactiveLane, ""},
	{"a shuffle from outside of the mask", "setp.lt.u32 %p1, %r0, 4;\n@%p1 shfl.sync.down.b32 %r2, %r0, 1, 31, 15;", ptx.InactiveLane, "lane 3 reads from lane 4"},
	{"a vote that others wait for at a barrier", "@!%p0 bra L;\nvote.sync.any.pred %p1, %p0, -1; L: bar.sync 0;", ptx.InactiveLane, ""},
	{"a mask without oneself", "\nvote.sync.any.pred %p1, %p0, 15;", ptx.InactiveLane, "not in its own mask"},
	{"a division", "sub.s32 %r2, %r0, 5;\ndiv.s32 %r3, %r0, %r2;", ptx.DivideByZero, ""},
	{"a trap", "\n@%p0 trap;", ptx.Trapped, ""},
}

func TestPlantedFaults(t *testing.T) {
	for _, test := range planted {
		t.Run(test.name, func(t *testing.T) {
			b := benchOf(t, head+test.body+"\nret;\n}\n")
			err := b.launch("k", [3]uint32{2, 1, 1}, [3]uint32{64, 1, 1}, 0, b.put(make([]uint32, 64)))
			var fault *ptx.Fault
			if !errors.As(err, &fault) || fault.Kind != test.kind || fault.Line != 20 || !strings.Contains(fault.What, test.what) {
				t.Fatalf("got %v, want %v on line 20 with %q", err, test.kind, test.what)
			}
		})
	}
}

// correct are kernels that look like mistakes.
var correct = []struct{ name, body string }{
	{"neighbours behind a barrier", onShared + "bar.sync 0; xor.b32 %r2, %r0, 63; mul.wide.u32 %d5, %r2, 4; add.s64 %d5, %d3, %d5; ld.shared.u32 %r3, [%d5]; bar.sync 0; st.shared.u32 [%d5], %r3;"},
	{"a word that all read, and one writes behind a barrier", onShared + "bar.sync 0; ld.shared.u32 %r2, [s+8]; bar.sync 0; @%p0 st.shared.u32 [s+8], 1;"},
	{"lanes that meet", onShared + "bar.sync 0; setp.lt.u32 %p1, %r0, 16; and.b32 %r5, %r0, 32; setp.eq.u32 %p2, %r5, 32; @%p2 bra L; @%p1 ld.shared.u32 %r2, [%d4+64]; bar.warp.sync -1; st.shared.u32 [%d4], 1; L:"},
	{"additions of all threads", "red.global.add.u32 [%d0], 1;"},
	{"bytes of one word", "add.s64 %d3, %d0, 128; cvt.u64.u32 %d4, %r0; add.s64 %d4, %d0, %d4; setp.eq.u32 %p1, %r1, 0; @%p1 st.global.u8 [%d4], %r0;"},
	{"a barrier that diverged lanes reach together", "@%p0 bra L; add.s32 %r2, %r0, 1; L: bar.sync 0;"},
	{"a shuffle for which lanes wait", "@%p0 bra M; L: shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1; bra N; M: add.s32 %r3, %r0, 1; bra L; N:"},
	{"a shuffle among four lanes", "setp.lt.u32 %p1, %r0, 4; @%p1 shfl.sync.bfly.b32 %r2, %r0, 1, 31, 15;"},
	{"a copy of a register that nobody wrote", "mov.u32 %r2, %r9; mov.b64 %d5, %d6;"},
	{"a read of one block, and another word of the other", "setp.eq.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r2, [%d0]; @!%p1 setp.eq.u32 %p2, %r0, 1; @%p1 setp.ne.u32 %p2, %r0, %r0; @%p2 st.global.u32 [%d2], 1;"},
	{"a division without lane 5", "sub.s32 %r2, %r0, 5; @!%p0 div.s32 %r3, %r0, %r2;"},
	{"own shared memory through a generic address", "mov.u64 %d3, s; cvta.shared.u64 %d3, %d3; add.s64 %d3, %d3, %d1; st.u32 [%d3], %r0; ld.u32 %r2, [%d3];"},
	{"own local memory through a generic address", "mov.u64 %d3, l; cvta.local.u64 %d3, %d3; st.u32 [%d3], %r0; ld.u32 %r2, [%d3]; ld.local.u32 %r3, [l];"},
	{"volatile accesses of all threads", "st.volatile.global.u32 [%d0], 1; ld.volatile.global.u32 %r2, [%d0];"},
}

func TestCorrectKernelsAreNotAccused(t *testing.T) {
	for _, test := range correct {
		t.Run(test.name, func(t *testing.T) {
			b := benchOf(t, head+test.body+"\nret;\n}\n")
			at := b.put(make([]uint32, 64))
			for range 2 { // what one launch wrote is not in the way of the next
				b.run("k", [3]uint32{2, 1, 1}, [3]uint32{64, 1, 1}, 0, at)
			}
		})
	}
}

func TestUseAfterFree(t *testing.T) {
	b := benchOf(t, head+"\nld.global.u32 %r2, [%d0];\nret;\n}\n")
	at := b.put(make([]uint32, 64))
	b.run("k", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, at) // the kernel has reached it before
	if err := b.memory.Free(at); err != nil {
		t.Fatal(err)
	}
	b.put(make([]uint32, 64)) // another allocation is not there
	fault(t, b.launch("k", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, at), ptx.UseAfterFree, "was freed")
	fault(t, b.memory.Free(at), ptx.UseAfterFree, "was freed")
	fault(t, b.memory.Write(at, []byte{1}), ptx.UseAfterFree, "was freed")
}

func TestGlobalMemoryThatNobodyWrote(t *testing.T) {
	b := benchOf(t, head+"@%p0 st.global.u32 [%d2], 3;\n\nret;\n}\n")
	at := b.room(256)
	b.run("k", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, at)
	p := make([]byte, 8)
	if err := b.memory.Read(at+20, p[:4]); err != nil || p[0] != 3 {
		t.Fatalf("%v, %v", p, err)
	}
	fault(t, b.memory.Read(at+20, p), ptx.Uninitialised, "byte 4 was never written")
	b = benchOf(t, head+"ld.global.u32 %r2, [%d2];\nret;\n}\n")
	fault(t, b.launch("k", [3]uint32{1, 1, 1}, [3]uint32{64, 1, 1}, 0, b.room(256)), ptx.Uninitialised, "never written")
}

func TestLaunchLimits(t *testing.T) {
	b := benchOf(t, strings.Replace(head, "k(.param .u64 p)", "k(.param .u64 p)\n.maxntid 128, 1, 1", 1)+"ret;\n}\n")
	at := b.put(make([]uint32, 64))
	for _, test := range []struct {
		grid, block [3]uint32
		shared      uint32
		params      []any
		what        string
	}{
		{[3]uint32{1, 1, 1}, [3]uint32{1025, 1, 1}, 0, []any{at}, "more threads than 1024"},
		{[3]uint32{1, 1, 1}, [3]uint32{64, 64, 64}, 0, []any{at}, "more threads than 1024"},
		{[3]uint32{1, 1, 1}, [3]uint32{160, 1, 1}, 0, []any{at}, "compiled for at most 128"},
		{[3]uint32{0, 1, 1}, [3]uint32{1, 1, 1}, 0, []any{at}, "is zero"},
		{[3]uint32{1, 65536, 1}, [3]uint32{1, 1, 1}, 0, []any{at}, "more blocks"},
		{[3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 97 << 10, []any{at}, "bytes of shared memory"},
		{[3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, []any{at, 1}, "12 bytes of parameters, the kernel has 8"},
	} {
		fault(t, b.launch("k", test.grid, test.block, test.shared, test.params...), ptx.LaunchLimits, test.what)
	}
}

func TestStepLimit(t *testing.T) {
	module, err := ptx.Options{StepLimit: 1 << 20}.Parse(head + "L: @%p0 bra L;\nret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, ptx.NewMemory(1 << 20), module}
	fault(t, b.launch("k", [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0, b.put(make([]uint32, 64))), ptx.StepLimit, "1048576")
}

// Without the search for races a racing kernel runs.
func TestRacesAreOptional(t *testing.T) {
	module, err := ptx.Options{}.Parse(head + "st.global.u32 [%d0], %r0;\nret;\n}\n")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, ptx.NewMemory(1 << 20), module}
	b.run("k", [3]uint32{1, 1, 1}, [3]uint32{32, 1, 1}, 0, b.put(make([]uint32, 64)))
}

func fault(t *testing.T, err error, kind ptx.Kind, what string) {
	t.Helper()
	var f *ptx.Fault
	if !errors.As(err, &f) || f.Kind != kind || !strings.Contains(f.What, what) {
		t.Fatalf("got %v, want %v with %q", err, kind, what)
	}
}

// refused are kernels that Parse refuses, each with a mistake on line 19.
var refused = []struct{ body, what string }{
	{"ex2.approx.f32 %f0, %f1;", "depend on the device"},
	{"add.ftz.f32 %r2, %r3, %r4;", "flushes"},
	{"frobnicate.s32 %r2, %r3;", "unknown instruction frobnicate.s32"},
	{"add.s32 %r2, %r3, %nothing;", "not declared"},
	{"add.s32 %r2, %r3, %d0;", "does not hold"},
	{"add.s32 %r2, %r3;", "unknown instruction"},
	{"bar.sync 0, 64;", "a part of a block"},
	{"bra nowhere;", "no label"},
	{"st.param.u32 [p], %r0;", "parameter of the kernel"},
	{"call.uni far;", "not defined here"},
	{"ld.global.v4.f64 {%d0,%d1,%d2,%d3}, [%d4];", "at most 16 bytes"},
	{"tex.2d.v4.f32.f32 {%r2,%r3,%r4,%r5}, [%d0, {%r6,%r7}];", ""},
}

func TestRefusals(t *testing.T) {
	for _, test := range refused {
		_, err := ptx.Parse(head + test.body + "\nret;\n}\n")
		if err == nil || !strings.Contains(err.Error(), "line 19: ") || !strings.Contains(err.Error(), test.what) {
			t.Errorf("%s: %v, want line 19 and %q", test.body, err, test.what)
		}
	}
}
