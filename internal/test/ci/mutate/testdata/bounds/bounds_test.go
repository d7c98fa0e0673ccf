package bounds

import "testing"

func TestIn(t *testing.T) {
	// This test misses the case that x equals hi.
	if !In(1, 1, 3) || In(0, 1, 3) || In(4, 1, 3) {
		t.Error("wrong")
	}
}

func TestCount(t *testing.T) {
	if Count(3) != 3 {
		t.Error("wrong")
	}
}
