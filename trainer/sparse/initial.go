package sparse

import (
	"fmt"
	"math"

	"github.com/plx-run/plx/trainer/random"
	"github.com/plx-run/plx/trainer/wire"
)

// Kind names a way to draw first values.
type Kind string

// The kinds. An empty name means zeros.
const (
	Zeros   Kind = "zeros"
	Uniform Kind = "uniform" // from [A, B)
	Normal  Kind = "normal"  // mean A, standard deviation B (Box and Muller 1958)
)

// Initial says what a table holds before the first step. Workers send it to the
// shard holders.
type Initial struct {
	Kind Kind    `json:"kind"`
	A    float64 `json:"a,omitempty"`
	B    float64 `json:"b,omitempty"`
	Seed uint64  `json:"seed,omitempty"`
}

// Check reports a number that makes no sense.
func (s Initial) Check() error {
	switch {
	case s.zero():
		return nil
	case s.Kind != Uniform && s.Kind != Normal:
		return fmt.Errorf("first values %q: want zeros, uniform or normal", s.Kind)
	case math.IsNaN(s.A-s.B) || math.IsInf(s.A-s.B, 0):
		return fmt.Errorf("first values %s: %v and %v, want numbers", s.Kind, s.A, s.B)
	case s.Kind == Uniform && s.A > s.B:
		return fmt.Errorf("first values uniform: from %v to %v, want them the other way round", s.A, s.B)
	case s.Kind == Normal && s.B < 0:
		return fmt.Errorf("first values normal: standard deviation %v, want at least 0", s.B)
	}
	return nil
}

func (s Initial) zero() bool { return s.Kind == "" || s.Kind == Zeros }

// drawn fills x with elements of the variable that the stream belongs to,
// beginning with element at. Elements 2i and 2i+1 come from the i-th pair, as
// for dense variables.
func drawn[T wire.Float](s *Initial, stream *random.Stream, at uint64, x []T) {
	if s.zero() {
		clear(x)
		return
	}
	if at%2 == 1 && len(x) > 0 {
		_, b := s.pair(stream, at/2)
		x[0], x, at = T(b), x[1:], at+1
	}
	for ; len(x) > 1; x, at = x[2:], at+2 {
		a, b := s.pair(stream, at/2)
		x[0], x[1] = T(a), T(b)
	}
	if len(x) > 0 {
		a, _ := s.pair(stream, at/2)
		x[0] = T(a)
	}
}

// pair returns the stream's i-th pair in the distribution of s.
func (s *Initial) pair(stream *random.Stream, i uint64) (a, b float64) {
	u, v := stream.Pair(i)
	if s.Kind == Uniform {
		return s.A + float64(u*(s.B-s.A)), s.A + float64(v*(s.B-s.A))
	}
	radius := s.B * math.Sqrt(-2*math.Log(1-u)) // 1-u is never 0
	sin, cos := math.Sincos(2 * math.Pi * v)
	return s.A + float64(radius*cos), s.A + float64(radius*sin)
}
