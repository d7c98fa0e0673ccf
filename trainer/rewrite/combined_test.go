package rewrite

import (
	"fmt"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// combined returns tests of Gorgonia's functions that consist of several
// operations, or that change only types and shapes.
func combined(few, many int) []twin {
	entropy := func(x, y float64) float64 {
		p := x * x / (1 + x*x) // from 0 to 1
		return -(y*math.Log(p) + (1-y)*math.Log1p(-p))
	}
	shape, row := []int{few, many}, []int{1, many}
	repeated := func(v []array, f func(x, y float64) float64) array {
		return of(shape, func(i []int) float64 { return f(v[0].repeated(i), v[1].repeated(i)) })
	}
	return []twin{
		{"Log1p:entropy", [][]int{shape, shape}, func(v nodes) (*gorgonia.Node, error) { // as docs/models.md says
			one := gorgonia.NewConstant(1.0)
			square, y := gorgonia.Must(gorgonia.Square(v[0])), v[1]
			p := gorgonia.Must(gorgonia.HadamardDiv(square, gorgonia.Must(gorgonia.Add(one, square))))
			is := gorgonia.Must(gorgonia.HadamardProd(y, gorgonia.Must(gorgonia.Log(p))))
			not := gorgonia.Must(gorgonia.HadamardProd(gorgonia.Must(gorgonia.Sub(one, y)), gorgonia.Must(gorgonia.Log1p(gorgonia.Must(gorgonia.Neg(p))))))
			return gorgonia.Neg(gorgonia.Must(gorgonia.Add(is, not)))
		},
			func(v []array) array {
				return of(shape, func(i []int) float64 { return entropy(v[0].at(i...), v[1].at(i...)) })
			}, false, false},
		{"Auto", [][]int{shape, row}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Auto(gorgonia.BroadcastSub, v[0], v[1]) },
			func(v []array) array { return repeated(v, func(x, y float64) float64 { return x - y }) }, false, false},
		{"Auto:left", [][]int{row, shape}, func(v nodes) (*gorgonia.Node, error) { return gorgonia.Auto(gorgonia.BroadcastSub, v[0], v[1]) },
			func(v []array) array { return repeated(v, func(x, y float64) float64 { return x - y }) }, false, false},
		{"Broadcast", [][]int{{few, 1}, row}, func(v nodes) (*gorgonia.Node, error) {
			a, b, err := gorgonia.Broadcast(v[0], v[1], gorgonia.NewBroadcastPattern([]byte{1}, []byte{0}))
			if err != nil {
				return nil, err
			}
			return gorgonia.Sub(a, b)
		}, func(v []array) array { return repeated(v, func(x, y float64) float64 { return x - y }) }, false, false},
		{"SizeOf", [][]int{shape}, func(v nodes) (*gorgonia.Node, error) {
			n, err := gorgonia.SizeOf(1, v[0])
			if err != nil {
				return nil, err
			}
			return gorgonia.HadamardDiv(v[0], n)
		}, func(v []array) array {
			return of(shape, func(i []int) float64 { return v[0].at(i...) / float64(many) })
		}, false, false},
		{"ConvType", [][]int{shape}, func(v nodes) (*gorgonia.Node, error) {
			return then(v[0], func(x *gorgonia.Node) (*gorgonia.Node, error) {
				return gorgonia.ConvType(x, tensor.Float64, tensor.Int)
			},
				func(x *gorgonia.Node) (*gorgonia.Node, error) {
					return gorgonia.ConvType(x, tensor.Int, tensor.Float64)
				})
		}, func(v []array) array { return of(shape, func(i []int) float64 { return float64(int(v[0].at(i...))) }) }, false, true},
	}
}

// walk is the movement of a window along one axis of an image.
type walk struct{ kernel, pad, stride, dilation int }

func (w walk) places(n int) int { return (n+2*w.pad-w.dilation*(w.kernel-1)-1)/w.stride + 1 }

// under returns one element of an image of shape (batch, channels, height,
// width): the element below position k of a window at a place. It returns 0 in
// the padding.
func (a array) under(image, channel int, down, across walk, place, k [2]int) float64 {
	i, j := place[0]*down.stride-down.pad+k[0]*down.dilation, place[1]*across.stride-across.pad+k[1]*across.dilation
	if i < 0 || j < 0 || i >= a.shape[2] || j >= a.shape[3] {
		return 0
	}
	return a.at(image, channel, i, j)
}

// windows returns tests of convolutions and of the operations that they
// consist of.
func windows(few, many int) (all []twin) {
	for i, c := range []struct{ down, across walk }{
		{walk{3, 1, 1, 1}, walk{3, 1, 1, 1}}, {walk{2, 0, 1, 1}, walk{3, 0, 2, 1}}, {walk{1, 0, 1, 1}, walk{2, 1, 2, 2}}, {walk{2, 1, 2, 2}, walk{2, 1, 1, 1}},
	} {
		d, a, x := c.down, c.across, []int{few, 2, 4, many / 8}
		pair := func(f func(walk) int) tensor.Shape { return tensor.Shape{f(d), f(a)} }
		kernel, pad := pair(func(w walk) int { return w.kernel }), pair(func(w walk) int { return w.pad })
		stride, dilation := pair(func(w walk) int { return w.stride }), pair(func(w walk) int { return w.dilation })
		high, wide := d.places(x[2]), a.places(x[3])
		all = append(all, twin{fmt.Sprint("Im2Col:", i), [][]int{x},
			func(v nodes) (*gorgonia.Node, error) { return gorgonia.Im2Col(v[0], kernel, pad, stride, dilation) },
			func(v []array) array {
				return of([]int{few, high, wide, 2 * d.kernel * a.kernel}, func(i []int) float64 {
					k := i[3] % (d.kernel * a.kernel)
					return v[0].under(i[0], i[3]/(d.kernel*a.kernel), d, a, [2]int{i[1], i[2]}, [2]int{k / a.kernel, k % a.kernel})
				})
			}, false, false},
			twin{fmt.Sprint("Conv2d:", i), [][]int{x, {3, 2, d.kernel, a.kernel}},
				func(v nodes) (*gorgonia.Node, error) {
					return gorgonia.Conv2d(v[0], v[1], kernel, pad, stride, dilation)
				},
				func(v []array) array { return convolved(v, d, a, high, wide) }, false, false})
	}
	across := walk{3, 1, 2, 2}
	x := []int{few, 2, 1, many / 8}
	return append(all, twin{"Conv1d", [][]int{x, {3, 2, 1, 3}},
		func(v nodes) (*gorgonia.Node, error) { return gorgonia.Conv1d(v[0], v[1], 3, 1, 2, 2) },
		func(v []array) array { return convolved(v, walk{1, 0, 1, 1}, across, 1, across.places(x[3])) }, false, false})
}

// convolved returns the images v[0], convolved with the filters v[1] by plain
// loops.
func convolved(v []array, down, across walk, high, wide int) array {
	filters := v[1].shape
	return of([]int{v[0].shape[0], filters[0], high, wide}, func(i []int) (sum float64) {
		of(filters[1:], func(k []int) float64 {
			sum += v[0].under(i[0], k[0], down, across, [2]int{i[2], i[3]}, [2]int{k[1], k[2]}) * v[1].at(i[1], k[0], k[1], k[2])
			return 0
		})
		return sum
	})
}
