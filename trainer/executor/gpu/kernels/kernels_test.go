package kernels

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

// sample is the operation that one call of a constructor returned.
type sample struct {
	what string
	Operation
	error
}

func sampled(what string, o Operation, err error) sample { return sample{what, o, err} }

// samples calls every constructor with every code and every type.
func samples() (all []sample) {
	add := func(what string, o Operation, err error) { all = append(all, sampled(what, o, err)) }
	for _, t := range []Type{Float32, Float64} {
		for code := range unary {
			o, err := Unary(t, code, 1000)
			add(code, o, err)
		}
		for code := range binary2 {
			o, err := Binary(t, code, 1000, 1000, 1)
			add(code, o, err)
			if code == "min" || code == "max" || strings.HasSuffix(code, "gradient") {
				continue
			}
			o, err = Spread(t, code, []int{3, 4}, []int{4, 1}, []int{1, 0})
			add(code, o, err)
		}
		for what, call := range constructors(t) {
			o, err := call()
			add(what, o, err)
		}
		for _, rule := range []optimizer.Rule{optimizer.SGD, optimizer.Momentum, optimizer.Adagrad, optimizer.Adam, optimizer.Average} {
			o, err := Update(t, optimizer.Settings{Rule: rule}, 100)
			add(string(rule), o, err)
		}
		for i := range 4 {
			o, err := Product(t, Matrices{Count: 1, M: 3, N: 4, K: 5000, TransA: i%2 == 1, TransB: i/2 == 1, Bias: true})
			add("product", o, err)
			o, err = Product(t, Matrices{Count: 200, M: 100, N: 100, K: 10, TransA: i%2 == 1, TransB: i/2 == 1})
			add("large product", o, err)
		}
	}
	return all
}

// constructors returns one call of each constructor that takes no code.
func constructors(t Type) map[string]func() (Operation, error) {
	window := Window{Batch: 3, Channels: 2, Height: 6, Width: 5, KernelHeight: 3, KernelWidth: 2, Stride: 2, Pad: 1}
	channels := Channels{Batch: 3, Channels: 4, Space: 5}
	return map[string]func() (Operation, error){
		"copy":                  func() (Operation, error) { return Copy(t, 5) },
		"bias":                  func() (Operation, error) { return AddBias(t, 2, 3, 4) },
		"fill":                  func() (Operation, error) { return Fill(t, 1.5, 5) },
		"at":                    func() (Operation, error) { return At(t, 3) },
		"repeat":                func() (Operation, error) { return Repeat(t, 2, 3, 4) },
		"transpose":             func() (Operation, error) { return Transpose(t, []int{3, 4}, []int{1, 0}) },
		"permute":               func() (Operation, error) { return Transpose(t, []int{3, 4, 5}, []int{2, 1, 0}) },
		"slice":                 func() (Operation, error) { return Slice(t, []int{3, 4}, 1, 1, 4, 2) },
		"slice gradient":        func() (Operation, error) { return SliceGradient(t, []int{3, 4}, 1, 1, 4, 2) },
		"concat":                func() (Operation, error) { return Concat(t, 2, 3, 4, 5) },
		"sum":                   func() (Operation, error) { return Sum(t, []int{3, 4}, []int{0}) },
		"long sum":              func() (Operation, error) { return Sum(t, []int{30, 400}, nil) },
		"long scale gradient":   func() (Operation, error) { return ScaleGradient(t, Channels{30, 2, 900}, 1e-5) },
		"max":                   func() (Operation, error) { return Max(t, []int{3, 4}, nil) },
		"dot":                   func() (Operation, error) { return Dot(t, 7) },
		"squares":               func() (Operation, error) { return SumsOfSquares(t, 5000, 1024) },
		"softmax":               func() (Operation, error) { return Softmax(t, 2, 3, 4, true) },
		"softmax gradient":      func() (Operation, error) { return SoftmaxGradient(t, 2, 3, 4, false) },
		"rows":                  func() (Operation, error) { return RowSoftmax(t, 2, 3, true) },
		"rows gradient":         func() (Operation, error) { return RowSoftmaxGradient(t, 2, 3, false) },
		"entropy":               func() (Operation, error) { return CrossEntropy(t, 5, 4, Weights, 5) },
		"entropy gradient":      func() (Operation, error) { return CrossEntropyGradient(t, 5, 4, Int64Classes, 5) },
		"accuracy":              func() (Operation, error) { return Accuracy(t, 5, 4, Float32Classes) },
		"matvec":                func() (Operation, error) { return MatVec(t, 5, 4, true) },
		"outer":                 func() (Operation, error) { return Outer(t, 5, 4) },
		"convolve":              func() (Operation, error) { return Convolve(t, window, 4) },
		"image gradient":        func() (Operation, error) { return ConvolveImageGradient(t, window, 4) },
		"filter gradient":       func() (Operation, error) { return ConvolveFilterGradient(t, window, 4) },
		"max pool":              func() (Operation, error) { return MaxPool(t, window) },
		"avg pool":              func() (Operation, error) { return AvgPool(t, window) },
		"max pool gradient":     func() (Operation, error) { return MaxPoolGradient(t, window) },
		"avg pool gradient":     func() (Operation, error) { return AvgPoolGradient(t, window) },
		"channel sums":          func() (Operation, error) { return ChannelSums(t, channels) },
		"channel means":         func() (Operation, error) { return ChannelMeans(t, channels) },
		"channel variances":     func() (Operation, error) { return ChannelVariances(t, channels) },
		"normalise":             func() (Operation, error) { return Normalise(t, channels, 1e-5) },
		"scale gradient":        func() (Operation, error) { return ScaleGradient(t, channels, 1e-5) },
		"gradient of normalise": func() (Operation, error) { return NormGradient(t, channels, 1e-5, true) },
		"finite":                func() (Operation, error) { return Finite(t), nil },
		"clip":                  func() (Operation, error) { return Clip(500, 3, 1) },
		"dropout":               func() (Operation, error) { return Dropout(t, 0.5, 100) },
	}
}

// entry is the declaration of a kernel in a PTX file.
type entry struct {
	module  string
	params  string // "u64 u64 u32"
	threads string // largest number of threads per block
}

var (
	entries = regexp.MustCompile(`(?s)\.entry (\w+)\((.*?)\)\n\.maxntid (\d+), 1, 1`)
	params  = regexp.MustCompile(`\.param \.(\w+) `)
)

func declared(t *testing.T) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	for _, m := range Modules() {
		for _, found := range entries.FindAllStringSubmatch(m.PTX, -1) {
			var types []string
			for _, p := range params.FindAllStringSubmatch(found[2], -1) {
				types = append(types, p[1])
			}
			all[found[1]] = entry{m.Name, strings.Join(types, " "), found[3]}
		}
	}
	if len(all) == 0 {
		t.Fatal("the modules declare no kernel")
	}
	return all
}

// The parameters of every launch match the declaration of its kernel in the
// PTX file, and some operation launches every kernel.
func TestLaunchesFitTheirKernels(t *testing.T) {
	all, used := declared(t), map[string]bool{}
	for _, s := range samples() {
		if s.error != nil {
			t.Errorf("%s: %v", s.what, s.error)
			continue
		}
		if len(s.Launches) == 0 {
			t.Errorf("%s has no launch", s.what)
		}
		for _, l := range s.Launches {
			used[l.Kernel] = true
			checkLaunch(t, s, l, all[l.Kernel])
		}
	}
	for name := range all {
		if !used[name] {
			t.Errorf("no operation launches %s", name)
		}
	}
}

func checkLaunch(t *testing.T, s sample, l Launch, e entry) {
	t.Helper()
	if e.module != l.Module {
		t.Errorf("%s: kernel %s is in module %q, the launch names %q", s.what, l.Kernel, e.module, l.Module)
		return
	}
	size, pointers := 0, 0
	for _, p := range strings.Fields(e.params) {
		n := map[string]int{"u64": 8, "f64": 8, "u32": 4, "f32": 4}[p]
		if n == 0 {
			t.Fatalf("%s: a parameter of type %s", l.Kernel, p)
		}
		size = divide(size, n)*n + n
	}
	for _, p := range strings.Fields(e.params)[:len(l.Operands)] {
		if p == "u64" {
			pointers++
		}
	}
	if got := len(l.Params(make([]uint64, len(s.Operands)+1)...)); got != size || pointers != len(l.Operands) {
		t.Errorf("%s: %d bytes of parameters with %d pointers, the kernel takes %s", l.Kernel, got, len(l.Operands), e.params)
	}
	if threads := l.Block[0] * l.Block[1] * l.Block[2]; threads == 0 || e.threads != "256" || threads > 256 {
		t.Errorf("%s: blocks of %d threads, the kernel takes at most %s", l.Kernel, threads, e.threads)
	}
}

// The PTX files contain no approximate instruction, no instruction that
// flushes subnormal numbers to zero, and no atomic addition, as the package
// documentation promises.
func TestPTXHasNoApproximateInstructions(t *testing.T) {
	for _, m := range Modules() {
		for _, word := range []string{".approx", ".ftz", "atom.", "\tred.", "ex2", "lg2", "rsqrt"} {
			if strings.Contains(m.PTX, word) {
				t.Errorf("%s.ptx has an instruction with %q", m.Name, word)
			}
		}
		if !strings.Contains(m.PTX, fmt.Sprintf(".version 6.0\n.target sm_%d\n", LeastCapability)) {
			t.Errorf("%s.ptx is not PTX 6.0 for sm_%d", m.Name, LeastCapability)
		}
	}
}

func TestConstructorsCheckSizes(t *testing.T) {
	if o, err := Unary(Float32, "exp", 0); err != nil || len(o.Launches) != 0 {
		t.Errorf("an empty operand: %d launches, %v", len(o.Launches), err)
	}
	for _, n := range []int{-1, 1 << 31} {
		if _, err := Unary(Float32, "exp", n); err == nil {
			t.Errorf("%d elements were accepted", n)
		}
	}
	if _, err := AddBias(Float32, 1<<20, 1<<20, 1<<20); err == nil {
		t.Error("2^60 elements were accepted")
	}
	if _, err := Unary(Float32, "sinh", 1); err == nil {
		t.Error("sinh was accepted")
	}
}

func TestHashIsStable(t *testing.T) {
	if a, b := Hash(), Hash(); a != b || len(a) != 64 {
		t.Errorf("hashes %s and %s", a, b)
	}
}
