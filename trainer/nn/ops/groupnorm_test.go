package ops

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/operation"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func grouped(groups int) model {
	return oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) { return GroupNorm(x, groups, 1e-3) })
}

func TestGroupNorm(t *testing.T) {
	for _, c := range []struct {
		shape  []int
		groups int
	}{{[]int{2, 4}, 1}, {[]int{3, 4}, 2}, {[]int{1, 6, 2, 2}, 3}, {[]int{2, 3, 1, 2}, 3}, {[]int{2, 4, 3}, 2}} {
		x := numbers(1, c.shape)
		var want []float64
		for size, at := len(x[0])/c.shape[0]/c.groups, 0; at < len(x[0]); at += size {
			group := x[0][at : at+size]
			mean, variance := 0.0, 0.0
			for _, v := range group {
				mean += v / float64(size)
			}
			for _, v := range group {
				variance += (v - mean) * (v - mean) / float64(size)
			}
			for _, v := range group {
				want = append(want, (v-mean)/math.Sqrt(variance+1e-3))
			}
		}
		for _, call := range []operation.Call{training, {}} {
			what := fmt.Sprintf("%v %d train %t", c.shape, c.groups, call.Train)
			near(t, what, checkGradient(t, [][]int{c.shape}, x, 1, call, grouped(c.groups)), want, 1e-12)
		}
	}
}

func TestGroupNormErrors(t *testing.T) {
	x := gorgonia.NewMatrix(gorgonia.NewGraph(), tensor.Float32, gorgonia.WithShape(2, 4), gorgonia.WithName("x"))
	for want, c := range map[string]struct {
		groups  int
		epsilon float64
	}{"that divides the channels": {3, 1e-5}, "of 0 groups": {0, 1e-5}, "epsilon is 0": {2, 0}} {
		if _, err := GroupNorm(x, c.groups, c.epsilon); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
