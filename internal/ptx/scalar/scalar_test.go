package scalar_test

import (
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/ptx/scalar"
)

func find(t *testing.T, name string) scalar.Operation {
	t.Helper()
	op, err := scalar.Find(strings.Split(name, "."), scalar.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// samples are operands: edges of all widths and random ones.
func samples() []uint64 {
	all := []uint64{0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 255}
	for _, b := range []int{8, 16, 32, 64} {
		all = append(all, 1<<(b-1), 1<<(b-1)-1, ^uint64(0)>>(64-b), ^uint64(0)>>(64-b)-1, 1<<(b-1)+1)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		all = append(all, r.Uint64(), r.Uint64()>>r.UintN(64))
	}
	return all
}

// check compares an operation of one to four operands with a function.
func check(t *testing.T, name string, want func(a, b, c, d uint64) uint64) {
	t.Helper()
	op := find(t, name)
	values := samples()
	r := rand.New(rand.NewPCG(3, 4))
	try := func(v [4]uint64) {
		for i := range v {
			if i >= len(op.Args) {
				v[i] = 0
				continue
			}
			v[i] &= op.Args[i].Mask()
		}
		if op.Divide && v[1] == 0 {
			return
		}
		if got := op.F(v[0], v[1], v[2], v[3]); got != want(v[0], v[1], v[2], v[3]) {
			t.Fatalf("%s of %#x: %#x, want %#x", name, v[:len(op.Args)], got, want(v[0], v[1], v[2], v[3]))
		}
	}
	for _, a := range values {
		for _, b := range values {
			try([4]uint64{a, b, values[r.IntN(len(values))], values[r.IntN(len(values))]})
		}
	}
}

func TestIntegers(t *testing.T) {
	type f = func(a, b, c, d uint64) uint64
	for name, want := range map[string]f{
		"add.s32": func(a, b, _, _ uint64) uint64 { return uint64(uint32(a) + uint32(b)) },
		"add.u64": func(a, b, _, _ uint64) uint64 { return a + b },
		"add.s16": func(a, b, _, _ uint64) uint64 { return uint64(uint16(a) + uint16(b)) },
		"sub.s32": func(a, b, _, _ uint64) uint64 { return uint64(uint32(a) - uint32(b)) },
		"sub.u16": func(a, b, _, _ uint64) uint64 { return uint64(uint16(a) - uint16(b)) },
		"add.sat.s32": func(a, b, _, _ uint64) uint64 {
			v := int64(int32(a)) + int64(int32(b))
			return uint64(uint32(min(max(v, math.MinInt32), math.MaxInt32)))
		},
		"mul.lo.s32":   func(a, b, _, _ uint64) uint64 { return uint64(uint32(a) * uint32(b)) },
		"mul.lo.u64":   func(a, b, _, _ uint64) uint64 { return a * b },
		"mul.lo.u16":   func(a, b, _, _ uint64) uint64 { return uint64(uint16(a) * uint16(b)) },
		"mul.hi.u32":   func(a, b, _, _ uint64) uint64 { return a * b >> 32 },
		"mul.hi.s32":   func(a, b, _, _ uint64) uint64 { return uint64(uint32(int64(int32(a)) * int64(int32(b)) >> 32)) },
		"mul.hi.u64":   func(a, b, _, _ uint64) uint64 { h, _ := bits.Mul64(a, b); return h },
		"mul.hi.s64":   highSigned,
		"mul.wide.u16": func(a, b, _, _ uint64) uint64 { return a * b },
		"mul.wide.s16": func(a, b, _, _ uint64) uint64 { return uint64(uint32(int32(int16(a)) * int32(int16(b)))) },
		"mul.wide.u32": func(a, b, _, _ uint64) uint64 { return a * b },
		"mul.wide.s32": func(a, b, _, _ uint64) uint64 { return uint64(int64(int32(a)) * int64(int32(b))) },
		"mad.lo.s32":   func(a, b, c, _ uint64) uint64 { return uint64(uint32(a)*uint32(b) + uint32(c)) },
		"mad.wide.s32": func(a, b, c, _ uint64) uint64 { return uint64(int64(int32(a))*int64(int32(b))) + c },
		"mad.hi.u32":   func(a, b, c, _ uint64) uint64 { return uint64(uint32(a*b>>32) + uint32(c)) },
		"div.s32":      func(a, b, _, _ uint64) uint64 { return uint64(uint32(int32(a) / int32(b))) },
		"div.u32":      func(a, b, _, _ uint64) uint64 { return a / b },
		"div.s64":      func(a, b, _, _ uint64) uint64 { return uint64(int64(a) / int64(b)) },
		"rem.s16":      func(a, b, _, _ uint64) uint64 { return uint64(uint16(int16(a) % int16(b))) },
		"rem.u64":      func(a, b, _, _ uint64) uint64 { return a % b },
		"min.s32":      func(a, b, _, _ uint64) uint64 { return uint64(uint32(min(int32(a), int32(b)))) },
		"max.u16":      func(a, b, _, _ uint64) uint64 { return max(a, b) },
		"max.s64":      func(a, b, _, _ uint64) uint64 { return uint64(max(int64(a), int64(b))) },
		"abs.s32": func(a, _, _, _ uint64) uint64 {
			if int32(a) < 0 {
				return uint64(uint32(-int32(a)))
			}
			return a
		},
		"neg.s16": func(a, _, _, _ uint64) uint64 { return uint64(uint16(-int16(a))) },
		"neg.s64": func(a, _, _, _ uint64) uint64 { return -a },
		"sad.u32": func(a, b, c, _ uint64) uint64 { return uint64(uint32(max(a, b)-min(a, b)) + uint32(c)) },
		"mul24.lo.u32": func(a, b, _, _ uint64) uint64 {
			return uint64(uint32((a & 0xffffff) * (b & 0xffffff)))
		},
	} {
		check(t, name, want)
	}
}

func highSigned(a, b, _, _ uint64) uint64 {
	p := new(big.Int).Mul(big.NewInt(int64(a)), big.NewInt(int64(b)))
	return uint64(p.Rsh(p, 64).Int64())
}

func TestBits(t *testing.T) {
	type f = func(a, b, c, d uint64) uint64
	for name, want := range map[string]f{
		"and.b32":  func(a, b, _, _ uint64) uint64 { return a & b },
		"or.b64":   func(a, b, _, _ uint64) uint64 { return a | b },
		"xor.b16":  func(a, b, _, _ uint64) uint64 { return a ^ b },
		"not.b32":  func(a, _, _, _ uint64) uint64 { return uint64(^uint32(a)) },
		"cnot.b32": func(a, _, _, _ uint64) uint64 { return map[bool]uint64{true: 1}[a == 0] },
		"shl.b32":  func(a, b, _, _ uint64) uint64 { return uint64(uint32(a) << b) },
		"shl.b64":  func(a, b, _, _ uint64) uint64 { return a << b },
		"shr.u32":  func(a, b, _, _ uint64) uint64 { return uint64(uint32(a) >> b) },
		"shr.s32":  func(a, b, _, _ uint64) uint64 { return uint64(uint32(int32(a) >> b)) },
		"shr.s16":  func(a, b, _, _ uint64) uint64 { return uint64(uint16(int16(a) >> b)) },
		"shr.s64":  func(a, b, _, _ uint64) uint64 { return uint64(int64(a) >> b) },
		"popc.b32": func(a, _, _, _ uint64) uint64 { return uint64(bits.OnesCount32(uint32(a))) },
		"popc.b64": func(a, _, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) },
		"clz.b32":  func(a, _, _, _ uint64) uint64 { return uint64(bits.LeadingZeros32(uint32(a))) },
		"clz.b64":  func(a, _, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a)) },
		"brev.b32": func(a, _, _, _ uint64) uint64 { return uint64(bits.Reverse32(uint32(a))) },
		"brev.b64": func(a, _, _, _ uint64) uint64 { return bits.Reverse64(a) },
		"bfind.u32": func(a, _, _, _ uint64) uint64 {
			return uint64(uint32(bits.Len32(uint32(a)) - 1))
		},
		"bfind.shiftamt.s32": func(a, _, _, _ uint64) uint64 {
			v := int32(a)
			if v < 0 {
				v = ^v
			}
			if v == 0 {
				return math.MaxUint32
			}
			return uint64(bits.LeadingZeros32(uint32(v)))
		},
		"bfe.u32": func(a, b, c, _ uint64) uint64 { return slowExtract(a, b, c, 32, false) },
		"bfe.s32": func(a, b, c, _ uint64) uint64 { return slowExtract(a, b, c, 32, true) },
		"bfe.u64": func(a, b, c, _ uint64) uint64 { return slowExtract(a, b, c, 64, false) },
		"bfe.s64": func(a, b, c, _ uint64) uint64 { return slowExtract(a, b, c, 64, true) },
		"bfi.b32": func(a, b, c, d uint64) uint64 { return slowInsert(a, b, c, d, 32) },
		"bfi.b64": func(a, b, c, d uint64) uint64 { return slowInsert(a, b, c, d, 64) },
		"shf.l.wrap.b32": func(a, b, c, _ uint64) uint64 {
			n := c & 31
			return uint64(uint32(b<<n | a>>(32-n)))
		},
		"shf.r.clamp.b32": func(a, b, c, _ uint64) uint64 {
			n := min(c, 32)
			return uint64(uint32(b<<(32-n) | a>>n))
		},
	} {
		check(t, name, want)
	}
	if got := find(t, "prmt.b32").F(0x33221100, 0x77665584, 0xc4f7, 0); got != 0xff840077 {
		t.Errorf("prmt: %#x", got)
	}
}

// slowExtract is bfe as the PTX ISA has it in pseudocode.
func slowExtract(a, b, c uint64, width int, signed bool) uint64 {
	pos, length, msb := int(b&0xff), int(c&0xff), width-1
	var sign, d uint64
	if signed && length > 0 {
		sign = a >> min(pos+length-1, msb) & 1
	}
	for i := 0; i <= msb; i++ {
		bit := sign
		if i < length && pos+i <= msb {
			bit = a >> (pos + i) & 1
		}
		d |= bit << i
	}
	return d
}

// slowInsert is bfi as the PTX ISA has it in pseudocode.
func slowInsert(a, b, c, d uint64, width int) uint64 {
	pos, length, f := int(c&0xff), int(d&0xff), b
	for i := 0; i < length && pos+i < width; i++ {
		f = f&^(1<<(pos+i)) | a>>i&1<<(pos+i)
	}
	return f
}

func singles() []float32 {
	all := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 1.5, 0.1, -3.75, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32,
		-math.SmallestNonzeroFloat32, 1e-38, 1 << 24, 1<<24 + 2, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	r := rand.New(rand.NewPCG(5, 6))
	for range 150 {
		all = append(all, math.Float32frombits(r.Uint32()), float32(r.NormFloat64()))
	}
	return all
}

func single(v float32) uint64 {
	if v != v {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(v))
}

func TestSingles(t *testing.T) {
	values := singles()
	for name, want := range map[string]func(a, b float32) float32{
		"add.f32":    func(a, b float32) float32 { return a + b },
		"add.rn.f32": func(a, b float32) float32 { return a + b },
		"sub.f32":    func(a, b float32) float32 { return a - b },
		"mul.rn.f32": func(a, b float32) float32 { return a * b },
		"div.rn.f32": func(a, b float32) float32 { return a / b },
		"min.f32": func(a, b float32) float32 {
			if a != a {
				return b
			}
			if b != b {
				return a
			}
			return min(a, b)
		},
		"max.f32": func(a, b float32) float32 {
			if a != a {
				return b
			}
			if b != b {
				return a
			}
			return max(a, b)
		},
	} {
		op := find(t, name)
		for _, a := range values {
			for _, b := range values {
				if got := op.F(single(a), single(b), 0, 0); got != single(want(a, b)) {
					t.Fatalf("%s(%v, %v) is %#x, want %#x", name, a, b, got, single(want(a, b)))
				}
			}
		}
	}
	for name, want := range map[string]func(a float32) float32{
		"rcp.rn.f32":      func(a float32) float32 { return 1 / a },
		"sqrt.rn.f32":     slowRoot,
		"cvt.rni.f32.f32": func(a float32) float32 { return float32(math.RoundToEven(float64(a))) },
		"cvt.rmi.f32.f32": func(a float32) float32 { return float32(math.Floor(float64(a))) },
		"cvt.rpi.f32.f32": func(a float32) float32 { return float32(math.Ceil(float64(a))) },
		"cvt.rzi.f32.f32": func(a float32) float32 { return float32(math.Trunc(float64(a))) },
		"cvt.sat.f32.f32": func(a float32) float32 {
			if !(a > 0) {
				return 0
			}
			return min(a, 1)
		},
	} {
		op := find(t, name)
		for _, a := range values {
			if got := op.F(single(a), 0, 0, 0); got != single(want(a)) {
				t.Fatalf("%s(%v) is %#x, want %#x", name, a, got, single(want(a)))
			}
		}
	}
}

// slowRoot takes the root with 200 bits.
func slowRoot(a float32) float32 {
	if !(a > 0) || math.IsInf(float64(a), 0) {
		return float32(math.Sqrt(float64(a)))
	}
	v, _ := new(big.Float).Sqrt(new(big.Float).SetPrec(200).SetFloat64(float64(a))).Float32()
	return v
}

func TestFMA(t *testing.T) {
	op := find(t, "fma.rn.f32")
	r := rand.New(rand.NewPCG(7, 8))
	values := singles()
	pick := func() float32 {
		v := values[r.IntN(len(values))]
		if r.IntN(3) == 0 { // near the product of others, so that the sum cancels
			v = values[r.IntN(len(values))] * values[r.IntN(len(values))]
		}
		return v
	}
	for range 300_000 {
		a, b, c := pick(), pick(), pick()
		if r.IntN(2) == 0 {
			c = math.Float32frombits(math.Float32bits(-a*b) + r.Uint32N(5) - 2)
		}
		want := slowFMA(a, b, c)
		if got := op.F(single(a), single(b), single(c), 0); got != single(want) {
			t.Fatalf("fma(%v, %v, %v) is %#x, want %#x", a, b, c, got, single(want))
		}
	}
	// A sum that lies between two float32 but for its last bits: rounding twice fails here.
	a, b := math.Float32frombits(0x3f800001), math.Float32frombits(0x3f800001)
	c := math.Float32frombits(0x33000000)
	if got := op.F(single(a), single(b), single(c), 0); got != single(slowFMA(a, b, c)) {
		t.Fatalf("%#x", got)
	}
}

// slowFMA computes with as many bits as the exact result has.
func slowFMA(a, b, c float32) float32 {
	x := float64(a) * float64(b)
	if x != x || c != c || math.IsInf(x, 0) || math.IsInf(float64(c), 0) || x == 0 || c == 0 {
		return float32(x + float64(c))
	}
	sum := new(big.Float).SetPrec(700).SetFloat64(x)
	sum.Add(sum, new(big.Float).SetFloat64(float64(c)))
	if sum.Sign() == 0 {
		return 0
	}
	v, _ := sum.Float32()
	return v
}

func TestDoubles(t *testing.T) {
	var values []float64
	for i, v := range singles() {
		values = append(values, float64(v), float64(v)*math.Pi*math.Ldexp(1, i%600-300))
	}
	bitsOf := func(v float64) uint64 {
		if v != v {
			return 0xfff8000000000000
		}
		return math.Float64bits(v)
	}
	for name, want := range map[string]func(a, b float64) float64{
		"add.rn.f64":  func(a, b float64) float64 { return a + b },
		"sub.f64":     func(a, b float64) float64 { return a - b },
		"mul.f64":     func(a, b float64) float64 { return a * b },
		"div.rn.f64":  func(a, b float64) float64 { return a / b },
		"fma.rn.f64":  func(a, b float64) float64 { return math.FMA(a, b, 0.1) },
		"sqrt.rn.f64": func(a, _ float64) float64 { return math.Sqrt(a) },
		"rcp.rn.f64":  func(a, _ float64) float64 { return 1 / a },
	} {
		op := find(t, name)
		for _, a := range values {
			for _, b := range values[:60] {
				if got := op.F(bitsOf(a), bitsOf(b), bitsOf(0.1), 0); got != bitsOf(want(a, b)) {
					t.Fatalf("%s(%v, %v) is %#x, want %#x", name, a, b, got, bitsOf(want(a, b)))
				}
			}
		}
	}
}

// The modes of rounding, against a correctly rounding library.
func TestConversions(t *testing.T) {
	modes := map[string]big.RoundingMode{"rn": big.ToNearestEven, "rz": big.ToZero, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf}
	for name, mode := range modes {
		for _, from := range []string{"s32", "u32", "s64", "u64"} {
			for _, to := range []string{"f32", "f64"} {
				op := find(t, "cvt."+name+"."+to+"."+from)
				for _, a := range samples() {
					a &= op.Args[0].Mask()
					exact := new(big.Float).SetPrec(64).SetUint64(a)
					if from == "s32" {
						exact.SetInt64(int64(int32(a)))
					} else if from == "s64" {
						exact.SetInt64(int64(a))
					}
					if got, want := op.F(a, 0, 0, 0), rounded(exact, to, mode); got != want {
						t.Fatalf("cvt.%s.%s.%s of %#x is %#x, want %#x", name, to, from, a, got, want)
					}
				}
			}
		}
		op := find(t, "cvt."+name+".f32.f64")
		for _, a := range singles() {
			v := float64(a) * 1.000000017
			if v != v || math.Abs(v) > math.MaxFloat32 || math.Abs(v) < 0x1p-126 {
				continue
			}
			if got, want := op.F(math.Float64bits(v), 0, 0, 0), rounded(new(big.Float).SetFloat64(v), "f32", mode); got != want {
				t.Fatalf("cvt.%s.f32.f64 of %v is %#x, want %#x", name, v, got, want)
			}
		}
	}
}

func rounded(v *big.Float, to string, mode big.RoundingMode) uint64 {
	if to == "f64" {
		f, _ := new(big.Float).SetPrec(53).SetMode(mode).Set(v).Float64()
		return math.Float64bits(f)
	}
	f, _ := new(big.Float).SetPrec(24).SetMode(mode).Set(v).Float32()
	return uint64(math.Float32bits(f))
}

func TestConversionTable(t *testing.T) {
	f32 := func(v float32) uint64 { return uint64(math.Float32bits(v)) }
	for _, test := range []struct {
		name    string
		a, want uint64
	}{
		{"cvt.rzi.s32.f32", f32(-1.9), 0xffffffff},
		{"cvt.rni.s32.f32", f32(2.5), 2},
		{"cvt.rni.s32.f32", f32(3.5), 4},
		{"cvt.rmi.s32.f32", f32(-1.1), 0xfffffffe},
		{"cvt.rpi.s32.f32", f32(1.1), 2},
		{"cvt.rzi.s32.f32", f32(1e20), 0x7fffffff},
		{"cvt.rzi.s32.f32", f32(-1e20), 0x80000000},
		{"cvt.rzi.u32.f32", f32(-5), 0},
		{"cvt.rzi.u32.f32", f32(float32(math.NaN())), 0},
		{"cvt.rzi.u8.f32", f32(300), 255},
		{"cvt.rzi.s64.f64", math.Float64bits(-1 << 63), 1 << 63},
		{"cvt.rzi.u64.f64", math.Float64bits(1 << 63), 1 << 63},
		{"cvt.rzi.u64.f64", math.Float64bits(1e30), math.MaxUint64},
		{"cvt.s64.s32", 0xffffffff, math.MaxUint64},
		{"cvt.u64.u32", 0xffffffff, 0xffffffff},
		{"cvt.u16.u32", 0x12345678, 0x5678},
		{"cvt.s32.s8", 0x1ff, 0xffffffff},
		{"cvt.u32.u8", 0x1ff, 0xff},
		{"cvt.sat.u8.s32", 0xffffffff, 0},
		{"cvt.sat.s8.s32", 200, 127},
		{"cvt.sat.s32.u64", math.MaxUint64, 0x7fffffff},
		{"cvt.f64.f32", f32(0.1), math.Float64bits(float64(float32(0.1)))},
		{"cvt.rn.f16.f32", f32(1), 0x3c00},
		{"cvt.rn.f16.f32", f32(65504), 0x7bff},
		{"cvt.rn.f16.f32", f32(65520), 0x7c00},
		{"cvt.rn.f16.f32", f32(0x1p-24), 1},
		{"cvt.rn.f16.f32", f32(0x1.8p-25), 1},
		{"cvt.rn.f16.f32", f32(0x1p-25), 0},
		{"cvt.rn.f16.f32", f32(-0x1.ffcp-15), 0x8400},
		{"cvt.rn.f16.f32", f32(-0x1.ff9p-15), 0x83ff},
		{"cvt.rn.f16.f32", f32(1.00048828125), 0x3c00},
		{"cvt.rn.f16.f32", 0x3f801001, 0x3c01},
		{"cvt.f32.f16", 0xc000, f32(-2)},
		{"cvt.f32.f16", 0x0001, f32(0x1p-24)},
		{"cvt.f32.f16", 0xfc00, f32(float32(math.Inf(-1)))},
		{"cvt.rz.f32.f64", math.Float64bits(1e300), f32(math.MaxFloat32)},
		{"cvt.rp.f32.f64", math.Float64bits(1e-300), 1},
		{"cvt.rm.f32.f64", math.Float64bits(-1e-300), 0x80000001},
		{"cvt.rz.f32.f64", math.Float64bits(0x1.fffffffffp-140), 1023},
		{"abs.f32", f32(-2), f32(2)},
		{"neg.f64", math.Float64bits(0), 1 << 63},
	} {
		if got := find(t, test.name).F(test.a, 0, 0, 0); got != test.want {
			t.Errorf("%s of %#x is %#x, want %#x", test.name, test.a, got, test.want)
		}
	}
}

func TestComparisons(t *testing.T) {
	nan := math.Float64bits(math.NaN())
	one, two := math.Float64bits(1), math.Float64bits(2)
	for _, test := range []struct {
		name string
		a, b uint64
		want bool
	}{
		{"setp.lt.s32", 0xffffffff, 0, true}, {"setp.lt.u32", 0xffffffff, 0, false}, {"setp.ge.s64", 1 << 63, 0, false},
		{"setp.lo.u32", 1, 2, true}, {"setp.hs.u16", 2, 2, true}, {"setp.ls.u64", 3, 2, false}, {"setp.hi.u32", 3, 2, true},
		{"setp.ne.b32", 1, 2, true}, {"setp.le.s16", 0x8000, 0x7fff, true},
		{"setp.lt.f64", one, two, true}, {"setp.gt.f64", one, two, false}, {"setp.le.f64", one, one, true},
		{"setp.lt.f64", nan, one, false}, {"setp.ltu.f64", nan, one, true}, {"setp.geu.f64", one, two, false},
		{"setp.ne.f64", nan, nan, false}, {"setp.neu.f64", nan, nan, true}, {"setp.eq.f64", nan, nan, false}, {"setp.equ.f64", nan, one, true},
		{"setp.num.f64", one, two, true}, {"setp.num.f64", one, nan, false}, {"setp.nan.f64", one, nan, true}, {"setp.nan.f64", one, one, false},
		{"setp.eq.f32", 0, 1 << 31, true}, {"setp.gtu.f32", 0x3f800000, 0, true}, {"setp.leu.f32", 0x3f800000, 0, false},
	} {
		f, _, _, err := scalar.Compare(strings.Split(test.name, "."), scalar.Settings{})
		if err != nil {
			t.Fatal(err)
		}
		if f(test.a, test.b) != test.want {
			t.Errorf("%s of %#x and %#x is not %v", test.name, test.a, test.b, test.want)
		}
	}
	for _, name := range []string{"setp.lo.s32", "setp.lo.f32", "setp.lt", "setp.f32", "setp.ltu.s32", "setp.lt.le.s32"} {
		if _, _, _, err := scalar.Compare(strings.Split(name, "."), scalar.Settings{}); err == nil {
			t.Errorf("%s is known", name)
		}
	}
}

func TestFlush(t *testing.T) {
	if _, err := scalar.Find([]string{"mul", "ftz", "f32"}, scalar.Settings{}); err == nil || !strings.Contains(err.Error(), "flushes") {
		t.Errorf("%v", err)
	}
	op, err := scalar.Find([]string{"mul", "ftz", "f32"}, scalar.Settings{Flush: true})
	if err != nil {
		t.Fatal(err)
	}
	tiny, one := uint64(1), uint64(0x3f800000)
	if got := op.F(tiny|1<<31, one, 0, 0); got != 1<<31 {
		t.Errorf("the operand is not flushed: %#x", got)
	}
	if got := op.F(0x00800000, 0x3f000000, 0, 0); got != 0 {
		t.Errorf("the result is not flushed: %#x", got)
	}
}

func TestUnknownInstructions(t *testing.T) {
	for _, name := range []string{"", "add", "add.b32", "add.u8", "mul.s32", "mul.wide.u64", "div.f32", "sqrt.f32", "fma.f32", "add.rz.f32", "neg.u32",
		"shl.s32", "bfe.b32", "popc.u32", "cvt.f32.f64", "cvt.rn.f64.f32", "cvt.s32.f32", "cvt.f32.s32", "cvt.b32.u32", "cvt.rn.rz.f32.f64", "slct.u32", "add.s32.foo", "shf.l.b32"} {
		if _, err := scalar.Find(strings.Split(name, "."), scalar.Settings{}); err == nil {
			t.Errorf("%q is known", name)
		}
	}
}
