package main

import (
	"testing"

	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// Each depth has as many parameters as its publication says, for 1000 classes.
func TestParameters(t *testing.T) {
	for depth, want := range map[int]int{18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808} {
		if testing.Short() && depth > 18 {
			continue
		}
		m, err := nn.Build(1, network{depth: depth, side: 64, classes: 1000}.build)(gorgonia.NewGraph(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, v := range m.Variables {
			got += v.Shape().TotalSize()
		}
		if got != want {
			t.Errorf("resnet-%d has %d parameters, want %d", depth, got, want)
		}
	}
}
