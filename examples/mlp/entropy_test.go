package main

import (
	"math"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Logits whose exponentials overflow or vanish in float32, and rows whose
// largest logit comes twice. The gradient is (softmax - label) / rows.
func TestCrossEntropy(t *testing.T) {
	for name, logits := range map[string][]float32{
		"small":                    {0.1, -0.2, 0.3, 1, 2, -1},
		"first row large":          {500, 1, 2, 0.5, 0.25, 0},
		"first of second large":    {0, 1, 2, 500, 3, 4},
		"all large":                {1e4, 1e4 - 1, 0, -1e4, -1e4 + 2, -1e4 + 1},
		"largest comes twice":      {3, 3, 1, -2, -2, -2},
		"label's chance vanishes":  {0, 0, 200, 300, 0, 0},
		"everything equal to zero": {0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) { checkCrossEntropy(t, logits, []int{1, 2}, 3) })
	}
}

func checkCrossEntropy(t *testing.T, logits []float32, labels []int, classes int) {
	t.Helper()
	rows := len(labels)
	hot := make([]float32, len(logits))
	for i, l := range labels {
		hot[i*classes+l] = 1
	}
	g := gorgonia.NewGraph()
	x := matrix(g, "x", rows, classes, gorgonia.WithValue(tensor.New(tensor.WithShape(rows, classes), tensor.WithBacking(logits))))
	y := matrix(g, "y", rows, classes, gorgonia.WithValue(tensor.New(tensor.WithShape(rows, classes), tensor.WithBacking(hot))))
	loss, err := crossEntropy(x, y)
	if err != nil {
		t.Fatal(err)
	}
	d, err := gorgonia.Grad(loss, x)
	if err != nil {
		t.Fatal(err)
	}
	var lossValue, gradient gorgonia.Value
	gorgonia.Read(loss, &lossValue)
	gorgonia.Read(d[0], &gradient)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	want, wantGradient := 0.0, make([]float64, len(logits))
	for r, label := range labels {
		row := wide(logits[r*classes : (r+1)*classes])
		logSum := logSumExp(row)
		want += (logSum - row[label]) / float64(rows)
		for j, v := range row {
			wantGradient[r*classes+j] = (math.Exp(v-logSum) - float64(hot[r*classes+j])) / float64(rows)
		}
	}
	if got := float64(lossValue.Data().(float32)); !(math.Abs(got-want) <= 1e-6*(1+want)) {
		t.Errorf("loss is %v, want %v", got, want)
	}
	for i, got := range wide(gradient.Data().([]float32)) {
		if !(math.Abs(got-wantGradient[i]) <= 1e-6) {
			t.Errorf("gradient %d is %v, want %v", i, got, wantGradient[i])
		}
	}
}

func logSumExp(row []float64) float64 {
	largest, sum := math.Inf(-1), 0.0
	for _, v := range row {
		largest = max(largest, v)
	}
	for _, v := range row {
		sum += math.Exp(v - largest)
	}
	return largest + math.Log(sum)
}
