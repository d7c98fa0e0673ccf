package optimizer

import (
	"math"

	"github.com/plx-run/plx/trainer/wire"
)

func sgd[T wire.Float](rate T, x, g []T) {
	for i, d := range g {
		x[i] -= T(rate * d)
	}
}

func momentum[T wire.Float](rate, mu T, nesterov bool, x, g, m []T) {
	m = m[:len(x)]
	for i, d := range g {
		m[i] = T(mu*m[i]) + d
		by := m[i]
		if nesterov {
			by = d + T(mu*m[i])
		}
		x[i] -= T(rate * by)
	}
}

func adagrad[T wire.Float](rate, epsilon T, x, g, a []T) {
	a = a[:len(x)]
	for i, d := range g {
		a[i] += T(d * d)
		x[i] -= T(rate*d) / (root(a[i]) + epsilon)
	}
}

func (s *State[T]) adam(step uint64, rate float64, x, g []T) {
	b1, b2 := s.settings.Beta1, s.settings.Beta2
	beta1, beta2, rest1, rest2 := T(b1), T(b2), T(1-b1), T(1-b2)
	scale := T(rate / (1 - power(b1, step+1)))
	spread := T(1 / math.Sqrt(1-power(b2, step+1)))
	epsilon := T(s.settings.Epsilon)
	m, v := s.first[:len(x)], s.second[:len(x)]
	for i, d := range g {
		m[i] = T(beta1*m[i]) + T(rest1*d)
		v[i] = T(beta2*v[i]) + T(T(rest2*d)*d)
		x[i] -= T(scale*m[i]) / (T(root(v[i])*spread) + epsilon)
	}
}

// root is correctly rounded in both types: the float64 root of a float32,
// rounded to float32, is the float32 root.
func root[T wire.Float](x T) T { return T(math.Sqrt(float64(x))) }

// power multiplies only: the same bits on every machine, which math.Pow does
// not promise.
func power(x float64, n uint64) float64 {
	result := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= x
		}
		x *= x
	}
	return result
}
