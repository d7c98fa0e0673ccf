package cpu

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// sum returns a value of two elements that adds a and b.
func sum(dtype tensor.Dtype, a, b *compile.Value) *compile.Value {
	return root(&compile.Value{Node: gorgonia.NewVector(gorgonia.NewGraph(), dtype, gorgonia.WithShape(2), gorgonia.WithName("sum")),
		Op: compile.Op{Kind: compile.Binary, Code: "+"}, Inputs: []*compile.Value{a, b}, Dtype: dtype, Shape: tensor.Shape{2}, Place: compile.Place{Area: compile.InArena}})
}

// input returns input i of a program, a value of two elements.
func input(dtype tensor.Dtype, i int) *compile.Value {
	return root(&compile.Value{Node: gorgonia.NewVector(gorgonia.NewGraph(), dtype, gorgonia.WithShape(2), gorgonia.WithName("in")),
		Op: compile.Op{Kind: compile.Input}, Dtype: dtype, Shape: tensor.Shape{2}, Place: compile.Place{Area: compile.InInputs, Index: i}})
}

func root(v *compile.Value) *compile.Value {
	v.Root = v
	return v
}

// New refuses a program with a value that no kernel can compute. The error
// names the value.
func TestNewRefusesValueWithoutKernel(t *testing.T) {
	a, b := input(tensor.Int64, 0), input(tensor.Int64, 1)
	v := sum(tensor.Int64, a, b)
	for name, p := range map[string]*compile.Program{
		"constant":    {Inputs: []*compile.Value{a, b}, Constants: []*compile.Value{v}, ArenaBytes: 64},
		"instruction": {Inputs: []*compile.Value{a, b}, Instructions: []compile.Instruction{{Value: v}}, ArenaBytes: 64},
	} {
		if _, err := New(p, nil, nil); err == nil || !strings.Contains(err.Error(), `"sum"`) || !strings.Contains(err.Error(), "there is no kernel for int64") {
			t.Errorf("%s: %v, want that there is no kernel for int64", name, err)
		}
	}
}

// Package gpu can call the kernel of a single value, with memory of its own.
func TestKernelComputesOneValue(t *testing.T) {
	a, b := input(tensor.Float64, 0), input(tensor.Float64, 1)
	v := sum(tensor.Float64, a, b)
	at := map[*compile.Value][]byte{}
	for i, x := range []*compile.Value{a, b, v} {
		at[x] = memory.Aligned(x.Length())
		copy(memory.View[float64](at[x]), []float64{float64(i + 1), float64(10 * i)})
	}
	run, err := Kernel(v, nil, at)
	if err == nil {
		err = run()
	}
	if got := memory.View[float64](at[v]); err != nil || !slices.Equal(got, []float64{3, 10}) {
		t.Errorf("%v, %v, want 1+2 and 0+10", got, err)
	}
	at[b] = at[b][:8]
	if _, err := Kernel(v, nil, at); err == nil || !strings.Contains(err.Error(), "got 8 bytes of memory for the value, want 16") {
		t.Errorf("with too little memory: %v", err)
	}
}
