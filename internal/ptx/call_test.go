package ptx_test

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx"
)

const functions = `.version 6.0
.target sm_70
.address_size 64
.global .align 8 .u64 where = bins+4;
.global .align 4 .u32 bins[3] = {7, 8, 9};
.extern .shared .align 8 .b8 dynamic[];
.func (.param .b32 result) collatz(.param .b32 n)
{
	.reg .pred %p<3>;
	.reg .b32 %r<4>;
	ld.param.u32 %r1, [n];
	mov.u32 %r2, 0;
L:	setp.le.u32 %p1, %r1, 1;
	@%p1 bra M;
	add.s32 %r2, %r2, 1;
	and.b32 %r3, %r1, 1;
	setp.eq.u32 %p2, %r3, 0;
	shr.u32 %r1, %r1, 1;
	@%p2 bra L;
	mad.lo.s32 %r1, %r1, 6, 4; // 3(2h+1)+1 of half h
	bra.uni L;
M:	st.param.b32 [result+0], %r2;
	ret;
}
.func (.param .b32 result) twice(.param .b32 n)
{
	.reg .b32 %r<4>;
	.param .b32 in; .param .b32 out;
	ld.param.u32 %r1, [n];
	st.param.b32 [in+0], %r1;
	call.uni (out), collatz, (in);
	ld.param.b32 %r2, [out+0];
	add.s32 %r2, %r2, %r2;
	st.param.b32 [result+0], %r2;
	ret;
}
.visible .entry lengths(.param .u64 p, .param .align 4 .b8 q[12])
{
	.reg .pred %p<3>;
	.reg .b32 %r<9>;
	.reg .b64 %d<9>;
	ld.param.u64 %d1, [p];
	ld.param.u32 %r5, [q+8];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %d2, %r1, 4;
	add.s64 %d1, %d1, %d2;
	mov.u32 %r4, %r5;
	setp.gt.u32 %p1, %r1, 9;
	{
	.param .b32 a; .param .b32 b;
	st.param.b32 [a+0], %r1;
	@%p1 call.uni (b), twice, (a);
	@%p1 ld.param.b32 %r4, [b+0];
	}
	st.global.u32 [%d1], %r4;
	ret;
}
.visible .entry variables(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %d<9>;
	.shared .align 4 .b8 fixed[40];
	ld.param.u64 %d1, [p];
	ld.global.u64 %d2, [where];
	ld.u32 %r1, [%d2+4];
	st.shared.u32 [fixed+36], %r1;
	mov.u64 %d3, dynamic;
	st.shared.u32 [%d3], 5;
	ld.shared.u32 %r2, [fixed+36];
	ld.shared.u32 %r3, [dynamic];
	add.s32 %r2, %r2, %r3;
	st.global.u32 [%d1], %r2;
	ret;
}
.visible .entry places(.param .u64 p)
{
	.reg .b32 %r<9>;
	.reg .b64 %d<9>;
	ld.param.u64 %d1, [p];
	mov.u32 %r1, %ctaid.z; mov.u32 %r2, %nctaid.y; mov.u32 %r3, %ctaid.y;
	mad.lo.s32 %r1, %r1, %r2, %r3;
	mov.u32 %r2, %ntid.z; mov.u32 %r3, %tid.z;
	mad.lo.s32 %r1, %r1, %r2, %r3;
	mov.u32 %r2, %ntid.y; mov.u32 %r3, %tid.y;
	mad.lo.s32 %r1, %r1, %r2, %r3;
	mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x;
	mad.lo.s32 %r1, %r1, %r2, %r3;
	mul.wide.u32 %d2, %r1, 4;
	add.s64 %d1, %d1, %d2;
	st.global.u32 [%d1], %r1;
	ret;
}
`

func TestCalls(t *testing.T) {
	b := benchOf(t, functions)
	at := b.room(4 * 50)
	b.run("lengths", [3]uint32{1, 1, 1}, [3]uint32{50, 1, 1}, 0, at, 1, 2, 77)
	got, want := make([]uint32, 50), make([]uint32, 50)
	for i := range want {
		want[i] = 77
		if i > 9 {
			want[i] = 0
			for v := i; v > 1; want[i] += 2 {
				if v&1 == 1 {
					v = 3*v + 1
				} else {
					v /= 2
				}
			}
		}
	}
	b.get(at, got)
	same(t, got, want)
}

func TestVariables(t *testing.T) {
	b := benchOf(t, functions)
	at, got := b.room(4), make([]uint32, 1)
	b.run("variables", [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 4, at)
	b.get(at, got)
	same(t, got, []uint32{9 + 5})
	fault(t, b.launch("variables", [3]uint32{1, 1, 1}, [3]uint32{1, 1, 1}, 0, at), ptx.OutOfBounds, "shared memory")
	k, err := b.module.Kernel("variables")
	if err != nil || k.SharedBytes() != 40 || k.ParamBytes() != 8 {
		t.Errorf("%v: %d bytes of shared memory, %d of parameters", err, k.SharedBytes(), k.ParamBytes())
	}
	if _, err := b.module.Kernel("nothing"); err == nil {
		t.Error("a kernel named nothing")
	}
	if _, _, err := b.module.Global(b.memory, "fixed"); err == nil {
		t.Error("a variable of shared memory has an address in global memory")
	}
}

func TestPlaces(t *testing.T) {
	b := benchOf(t, functions)
	const n = 3 * 2 * 5 * 7 * 2
	at, got, want := b.room(4*n), make([]uint32, n), make([]uint32, n)
	b.run("places", [3]uint32{1, 3, 2}, [3]uint32{5, 7, 2}, 0, at)
	for i := range want {
		want[i] = uint32(i)
	}
	b.get(at, got)
	same(t, got, want)
}

func TestRecursionIsRefused(t *testing.T) {
	text := strings.Replace(functions, "call.uni (out), collatz, (in);", "call.uni (out), twice, (in);", 1)
	if _, err := ptx.Parse(text); err == nil || !strings.Contains(err.Error(), "function twice calls itself") {
		t.Error(err)
	}
}
