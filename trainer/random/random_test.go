package random

import "testing"

// The reference values that the authors of Philox publish.
func TestPhiloxKnownAnswers(t *testing.T) {
	for _, c := range []struct {
		key           [2]uint32
		counter, want [4]uint32
	}{
		{want: [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[2]uint32{^uint32(0), ^uint32(0)}, [4]uint32{^uint32(0), ^uint32(0), ^uint32(0), ^uint32(0)},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.key, c.counter); got != c.want {
			t.Errorf("key %x counter %x: got %x, want %x", c.key, c.counter, got, c.want)
		}
	}
}

// A list of numbers always gives the same stream; different lists give
// different streams.
func TestDerivedStreamsDiffer(t *testing.T) {
	s := New(1, "dropout")
	seen := map[[4]uint32]string{}
	for name, d := range map[string]Stream{
		"itself": s, "0": s.Derive(0), "1": s.Derive(1), "0 0": s.Derive(0, 0), "0 1": s.Derive(0, 1),
		"1 0": s.Derive(1, 0), "256": s.Derive(256), "other name": New(1, "w"), "other seed": New(2, "dropout"),
	} {
		x := d.Bits(7)
		if other, ok := seen[x]; ok {
			t.Errorf("%s and %s give the same numbers", name, other)
		}
		seen[x] = name
	}
	if s.Derive(3, 4).Bits(5) != s.Derive(3).Derive(4).Bits(5) {
		t.Error("deriving twice is not deriving from both")
	}
}

// All 64 bits of the index affect the result.
func TestAllBitsOfTheIndexCount(t *testing.T) {
	s, seen := New(1, "index"), map[[4]uint32]uint64{}
	for bit := range 64 {
		i := uint64(1) << bit
		if other, ok := seen[s.Bits(i)]; ok || s.Bits(i) == s.Bits(0) {
			t.Errorf("index %#x gives the words of %#x", i, other)
		}
		seen[s.Bits(i)] = i
	}
}

func TestPairsAreUniform(t *testing.T) {
	s, n, sum, squares := New(3, "u"), 20000, 0.0, 0.0
	for i := range n {
		a, b := s.Pair(uint64(i))
		for _, x := range []float64{a, b} {
			if x < 0 || x >= 1 {
				t.Fatalf("%v is not in [0, 1)", x)
			}
			sum += x
			squares += x * x
		}
	}
	mean, square := sum/float64(2*n), squares/float64(2*n)
	if mean < 0.49 || mean > 0.51 || square < 0.323 || square > 0.343 {
		t.Errorf("mean %v, mean of squares %v: want 0.5 and 0.333", mean, square)
	}
}
