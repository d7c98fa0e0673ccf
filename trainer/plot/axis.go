package plot

import (
	"math"
	"strconv"
)

// axis maps the values low to high to the pixels from to to. If log is set, the
// values are common logarithms.
type axis struct {
	low, high, from, to float64
	log                 bool
}

// shows reports whether a value can be drawn.
func (a axis) shows(v float64) bool { return math.Abs(v) <= 1e300 && (!a.log || v > 0) }

func (a axis) scaled(v float64) float64 {
	if a.log {
		return math.Log10(v)
	}
	return v
}

// at returns the pixel of v.
func (a axis) at(v float64) float64 {
	part := (a.scaled(v) - a.low) / (a.high - a.low)
	return a.from + float64(part*(a.to-a.from))
}

// hold widens the axis so that it contains v.
func (a *axis) hold(v float64) {
	a.low, a.high = min(a.low, a.scaled(v)), max(a.high, a.scaled(v))
}

// finish leaves part of the axis free at both ends. It gives some length to an
// axis without values or with equal values.
func (a *axis) finish(free float64) {
	if a.low > a.high {
		a.low, a.high = 0, 1
	}
	size := max(math.Abs(a.low), math.Abs(a.high))
	if a.high-a.low <= max(float64(size*1e-9), 1e-290) {
		half := float64(size * 0.1)
		if half < 1e-290 || a.log {
			half = 0.5
		}
		a.low, a.high = a.low-half, a.high+half
	}
	pad := float64(free * (a.high - a.low))
	a.low, a.high = a.low-pad, a.high+pad
}

// rounding is the relative distance by which a tick at the very end may seem to
// lie outside.
const rounding = 1e-9

// ticks returns about six values to mark. They are multiples of 1, 2 or 5 times
// a power of ten. On a logarithmic axis they are powers of ten; if there are
// few, also 2 and 5 times those.
func (a axis) ticks() []float64 {
	if a.log && a.high-a.low > 1 {
		return a.decades()
	}
	low, high := a.values()
	step := niceStep((high - low) / 6)
	var ticks []float64
	for i := math.Ceil(low/step - rounding); i <= math.Floor(high/step+rounding); i++ {
		if i == 0 {
			i = 0 // not -0
		}
		ticks = append(ticks, i*step)
	}
	return ticks
}

// values returns the values at the ends of the axis.
func (a axis) values() (low, high float64) {
	if a.log {
		return math.Pow(10, a.low), math.Pow(10, a.high)
	}
	return a.low, a.high
}

func (a axis) decades() []float64 {
	every := max(1, math.Ceil((a.high-a.low)/8))
	factors := []float64{1, 2, 5}
	if a.high-a.low > 3 {
		factors = factors[:1]
	}
	var ticks []float64
	for d := math.Floor(a.low); d <= a.high+rounding; d += every {
		for _, f := range factors {
			if t := f * math.Pow(10, d); a.scaled(t) >= a.low-rounding && a.scaled(t) <= a.high+rounding {
				ticks = append(ticks, t)
			}
		}
	}
	return ticks
}

// niceStep returns the least 1, 2 or 5 times a power of ten that is at least x.
func niceStep(x float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= x {
			return f * power
		}
	}
	return 10 * power
}

// label writes a tick with enough digits to tell it from the next one.
func (a axis) label(tick float64) string {
	low, high := a.values()
	size := max(math.Abs(low), math.Abs(high))
	digits := max(6, math.Ceil(math.Log10(size/(high-low)))+2)
	return strconv.FormatFloat(tick, 'g', int(digits), 64)
}
