package syntax_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx/syntax"
)

const text = `// comment
.version 6.0
.target sm_70, texmode_independent
.address_size 64
.file 1 "a.cu"
.extern .func printf(.param .b64 a);
.visible .global .align 8 .u64 pointer = generic(table)+4;
.const .align 4 .f32 table[2][2] = {{0f3F800000, -1.5}, {0d4000000000000000, 1}}; /* two
lines */
.extern .shared .align 16 .b8 dynamic[];
.weak .func (.param .b32 result) twice(.param .b32 x)
{
	.reg .b32 %r<3>;
	ld.param.u32 %r1, [x];
	{
	.reg .b32 %r1;
	.loc 1 2 3
	mov.u32 %r1, -7;
	}
	st.param.b32 [result+0], %r1;
	ret;
}
.visible .entry kernel(.param .u64 p, .param .align 8 .b8 q[24])
.maxntid 128, 2, 1
.minnctapersm 2
{
	.reg .pred %p<4>;
	.pragma "nounroll";
$L_1:
	@!%p1 bra.uni $L_1;
	shfl.sync.down.b32 %r1|%p2, %r3, 0x10, 31, -1;
	st.global.v2.f32 [%rd1+-8], {%f1, 0f00000000};
	call.uni (retval0), twice, (param0);
	setp.eq.and.s32 %p1, %r1, 012, !%p2;
}
`

func TestParse(t *testing.T) {
	m, err := syntax.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != "6.0" || m.Target != "sm_70" || m.AddressSize != 64 || len(m.Variables) != 3 || len(m.Functions) != 3 {
		t.Fatalf("%+v", m)
	}
	pointer, table := m.Variables[0], m.Variables[1]
	if got := fmt.Sprint(pointer.Init); got != "[{4 table}]" {
		t.Error(got)
	}
	if got := fmt.Sprintf("%x %d", table.Init, table.Size); got != "[{3f800000 } {bfc00000 } {40000000 } {1 }] 16" {
		t.Error(got)
	}
	if d := m.Variables[2]; d.Size != 0 || !d.Extern || d.Align != 16 {
		t.Errorf("%+v", d)
	}
	twice, kernel := m.Functions[1], m.Functions[2]
	if m.Functions[0].Defined || !twice.Defined || twice.Entry || len(twice.Returns) != 1 || len(twice.Registers) != 4 {
		t.Errorf("%+v", twice)
	}
	if inner, outer := twice.Body[1].Operands[0].Name, twice.Body[2].Operands[1].Name; inner != "%r1@1" || outer != "%r1" {
		t.Errorf("names in and behind braces: %s, %s", inner, outer)
	}
	if !kernel.Entry || kernel.MaxThreads != [3]uint32{128, 2, 1} || kernel.Params[1].Size != 24 || kernel.Params[1].Align != 8 {
		t.Errorf("%+v", kernel)
	}
	var lines []string
	for _, st := range kernel.Body {
		lines = append(lines, fmt.Sprintf("%d %s%s %v %v", st.Line, st.Label, st.Guard, st.Negate, st.Operands))
	}
	want := `29 $L_1 false []
30 %p1 true [{0 false $L_1 0 0 []}]
31  false [{7 false  0 0 [{0 false %r1 0 0 []} {0 false %p2 0 0 []}]} {0 false %r3 0 0 []} {1 false  16 0 []} {1 false  31 0 []} {1 false  18446744073709551615 0 []}]
32  false [{4 false %rd1 0 -8 []} {5 false  0 0 [{0 false %f1 0 0 []} {2 false  0 0 []}]}]
33  false [{6 false  0 0 [{0 false retval0 0 0 []}]} {0 false twice 0 0 []} {6 false  0 0 [{0 false param0 0 0 []}]}]
34  false [{0 false %p1 0 0 []} {0 false %r1 0 0 []} {1 false  10 0 []} {0 true %p2 0 0 []}]`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMistakes(t *testing.T) {
	const head = ".version 6.0\n.target sm_70\n"
	const open = head + ".entry k()\n{\n"
	for _, test := range []struct{ text, what string }{
		{"", "line 1: no .version"},
		{head + ".address_size 32", "64 bits"},
		{head + ".section foo {}", "line 3: unknown directive"},
		{head + ".global .f8 x;", "unknown type"},
		{head + ".global .align 3 .f32 x;", "power of two"},
		{head + ".global .b8 x[1000000000];", "256 MiB"},
		{head + ".global .b8 x[60000][60000];", "256 MiB"},
		{head + ".global .b8 x[2] = {1, 2, 3};", "more values"},
		{head + ".global .b8 x[2] = {1, 2;", "expected a value"},
		{head + "/* never", "does not end"},
		{head + ".file \"never", ""},
		{open + "add.s32 %r1, ;\n}", "line 5: expected a name"},
		{open + "add.s32 %r1 %r2;\n}", "line 5: expected"},
		{open + "ret", "line 5: expected"},
		{open + "ret;", "line 5: expected"},
		{open + "@%p1 1.5;\n}", "unknown instruction"},
		{open + ".reg .b32 %r<100000>;\n}", "65536 registers"},
		{open + strings.Repeat("{", 100), "too deeply"},
		{open + "mov.u32 %r1, {{%r2}};\n}", "expected a name"},
		{open + "ld.u32 %r1, [%r2+0f00000000];\n}", "an integer"},
		{open + "ld.u32 %r1, [0f00000000];\n}", "an integer"},
		{open + "\x00", "unexpected character"},
	} {
		if _, err := syntax.Parse(test.text); err == nil && test.what != "" || err != nil && !strings.Contains(err.Error(), test.what) {
			t.Errorf("%q: %v, want %q", test.text, err, test.what)
		}
	}
}

// FuzzParse finds texts with which Parse panics or takes much more memory than
// the text has.
func FuzzParse(f *testing.F) {
	f.Add(text)
	files, err := filepath.Glob("../testdata/*.ptx")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		kernel, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(kernel))
	}
	f.Fuzz(func(t *testing.T, text string) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := syntax.Parse(text)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20+uint64(len(text))*1000 {
			t.Fatalf("%d bytes for a text of %d", took, len(text))
		}
		if err == nil && m.Version == "" {
			t.Fatal("a module without version")
		}
	})
}
