package main

import (
	"strings"
	"testing"

	"github.com/plx-run/plx/examples/internal/imagenet"
)

// For 1000 classes, the network of each depth has as many parameters as
// published.
func TestParameters(t *testing.T) {
	for depth, want := range map[int]int{18: 11_689_512, 34: 21_797_672, 50: 25_557_032, 101: 44_549_160, 152: 60_192_808} {
		if testing.Short() && depth > 18 {
			continue
		}
		n := network{depth}
		if got, err := (imagenet.Example{Size: 64, Logits: n.logits}).Parameters(1000); got != want || err != nil {
			t.Errorf("resnet-%d has %d parameters, want %d: %v", depth, got, want, err)
		}
	}
}

func TestDepths(t *testing.T) {
	if name, err := (&network{50}).name(); name != "resnet-50" || err != nil {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := (&network{20}).name(); err == nil || !strings.Contains(err.Error(), "--depth is 20: want 18, 34, 50, 101 or 152") {
		t.Errorf("%v", err)
	}
}
