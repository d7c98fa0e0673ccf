package ops

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// walks lists image sizes and the windows that slide over them.
var walks = []struct {
	batch, channels, height, width int
	kernelHeight, kernelWidth      int
	stride, pad                    int
}{
	{1, 1, 1, 1, 1, 1, 1, 0},
	{1, 1, 4, 4, 2, 2, 2, 0},
	{2, 3, 5, 7, 3, 3, 1, 1},
	{1, 2, 5, 5, 3, 3, 2, 1},
	{3, 1, 7, 4, 2, 2, 3, 1},
	{2, 2, 3, 3, 3, 3, 1, 0},
	{1, 2, 2, 3, 3, 3, 1, 2},
	{2, 3, 4, 5, 1, 1, 1, 0},
	{1, 2, 5, 6, 1, 1, 2, 0},
	{1, 1, 9, 9, 2, 2, 4, 0},
	{2, 2, 6, 5, 2, 3, 1, 1},
	{1, 2, 6, 7, 4, 1, 2, 2},
	{1, 1, 2, 2, 5, 5, 3, 4},
	{1, 2, 1, 2, 9, 9, 1, 4},
}

// over calls f with the patch of the image at each position, in row-major
// order. A patch holds nil for elements in the padding.
func over(x []float64, height, width, kernelHeight, kernelWidth, stride, pad int, f func(patch []*float64)) (down, across int) {
	for top := -pad; top+kernelHeight <= height+pad; top += stride {
		down++
		across = 0
		for left := -pad; left+kernelWidth <= width+pad; left += stride {
			across++
			var patch []*float64
			for i := top; i < top+kernelHeight; i++ {
				for k := left; k < left+kernelWidth; k++ {
					if i < 0 || i >= height || k < 0 || k >= width {
						patch = append(patch, nil)
						continue
					}
					patch = append(patch, &x[i*width+k])
				}
			}
			f(patch)
		}
	}
	return down, across
}

func TestPools(t *testing.T) {
	for name, c := range map[string]struct {
		build func(x *gorgonia.Node, kernel, stride, pad int) (*gorgonia.Node, error)
		naive func(patch []float64) float64
	}{
		"max": {MaxPool2D, slices.Max[[]float64]},
		"average": {AvgPool2D, func(patch []float64) float64 {
			sum := 0.0
			for _, v := range patch {
				sum += v
			}
			return sum / float64(len(patch))
		}},
	} {
		for _, w := range walks {
			if w.kernelHeight != w.kernelWidth || w.pad >= w.kernelHeight {
				continue
			}
			shape := []int{w.batch, w.channels, w.height, w.width}
			x := numbers(1, shape)
			var want []float64
			var down, across int
			for i := range w.batch * w.channels {
				down, across = over(x[0][i*w.height*w.width:], w.height, w.width, w.kernelHeight, w.kernelWidth, w.stride, w.pad, func(patch []*float64) {
					var real []float64
					for _, p := range patch {
						if p != nil {
							real = append(real, *p)
						}
					}
					want = append(want, c.naive(real))
				})
			}
			m := oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) { return c.build(x, w.kernelHeight, w.stride, w.pad) })
			near(t, fmt.Sprintf("%s %+v", name, w), checkGradient(t, [][]int{shape}, x, 1, training, m), want, 1e-13)
			if got := feed(t, [][]int{shape}, x, m).out.Shape(); !slices.Equal(got, []int{w.batch, w.channels, down, across}) {
				t.Errorf("%+v: shape %v, want %d x %d", w, got, down, across)
			}
		}
	}
}

// A kernel may have different sizes and strides in the two directions.
func TestPoolsOfOblongWindows(t *testing.T) {
	for _, c := range []struct {
		height, width int
		down, across  Walk
	}{
		{5, 7, Walk{3, 1, 1}, Walk{2, 2, 0}},
		{1, 9, Walk{1, 1, 0}, Walk{4, 3, 2}},
		{6, 4, Walk{2, 2, 0}, Walk{3, 1, 2}},
		{4, 4, Walk{2, 1, 0}, Walk{2, 1, 1}},
	} {
		shape := []int{2, 3, c.height, c.width}
		x := numbers(1, shape)
		var most, sums, sizes []float64
		for i := range 6 {
			image := x[0][i*c.height*c.width:]
			for top := -c.down.Pad; top+c.down.Kernel <= c.height+c.down.Pad; top += c.down.Stride {
				for left := -c.across.Pad; left+c.across.Kernel <= c.width+c.across.Pad; left += c.across.Stride {
					largest, sum, size := math.Inf(-1), 0.0, 0.0
					for row := max(top, 0); row < min(top+c.down.Kernel, c.height); row++ {
						for column := max(left, 0); column < min(left+c.across.Kernel, c.width); column++ {
							v := image[row*c.width+column]
							largest, sum, size = max(largest, v), sum+v, size+1
						}
					}
					most, sums, sizes = append(most, largest), append(sums, sum), append(sizes, size)
				}
			}
		}
		for i := range sums {
			sums[i] /= sizes[i]
		}
		for name, pool := range map[string]struct {
			build func(x *gorgonia.Node, down, across Walk) (*gorgonia.Node, error)
			want  []float64
		}{"max": {MaxPool, most}, "average": {AvgPool, sums}} {
			m := oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) { return pool.build(x, c.down, c.across) })
			near(t, fmt.Sprintf("%s %+v", name, c), checkGradient(t, [][]int{shape}, x, 1, training, m), pool.want, 1e-13)
		}
	}
}

// If several elements are the maximum, the first in row-major order must get
// the gradient, even if it is in several windows.
func TestMaxPoolTies(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		x    []float64
		want []int // index of the element that gets the gradient of each of the four 2 x 2 windows
	}{
		{[]float64{1, 1, 1, 1, 1, 1, 1, 1, 1}, []int{0, 1, 3, 4}},
		{[]float64{0, 0, 0, 0, 2, 0, 0, 0, 0}, []int{4, 4, 4, 4}},
		{[]float64{0, 3, 0, 3, 1, 3, 0, 3, 0}, []int{1, 1, 3, 5}},
		{[]float64{nan, nan, 5, 1, nan, 7, 1, 1, 1}, []int{0, 1, 4, 4}},
		{[]float64{1, 2, 3, nan, 5, 6, 7, 8, 9}, []int{3, 5, 3, 8}},
		{[]float64{-1, -2, -3, math.Inf(-1), -5, -6, -7, -8, -9}, []int{0, 1, 4, 4}},
	} {
		f := feed(t, [][]int{{1, 1, 3, 3}}, [][]float64{c.x}, oneInput(func(x *gorgonia.Node) (*gorgonia.Node, error) { return MaxPool2D(x, 2, 1, 0) }))
		gradient, err := gorgonia.Grad(f.loss, f.in[0])
		must(t, err)
		f.want(gradient[0])
		f.run(t, training)
		want := make([]float64, 9)
		for i, at := range c.want {
			want[at] += math.Sin(float64(3*i+1)) + 0.3
			if y := f.get(f.out)[i]; y != c.x[at] && !math.IsNaN(c.x[at]) {
				t.Errorf("%v: window %d has the value %v", c.x, i, y)
			}
		}
		near(t, fmt.Sprint(c.x), f.get(gradient[0]), want, 1e-15)
	}
}

func TestConv2D(t *testing.T) {
	for _, w := range walks {
		for _, filters := range []int{1, 3} {
			shapes := [][]int{{w.batch, w.channels, w.height, w.width}, {filters, w.channels, w.kernelHeight, w.kernelWidth}}
			values := numbers(2, shapes...)
			size := w.kernelHeight * w.kernelWidth
			var want []float64
			for i := range w.batch {
				for f := range filters {
					var sums []float64
					for c := range w.channels {
						at := 0
						over(values[0][(i*w.channels+c)*w.height*w.width:], w.height, w.width, w.kernelHeight, w.kernelWidth, w.stride, w.pad, func(patch []*float64) {
							if c == 0 {
								sums = append(sums, 0)
							}
							for k, p := range patch {
								if p != nil {
									sums[at] += *p * values[1][(f*w.channels+c)*size+k]
								}
							}
							at++
						})
					}
					want = append(want, sums...)
				}
			}
			got := checkGradient(t, shapes, values, 2, training, twoInputs(func(x, f *gorgonia.Node) (*gorgonia.Node, error) {
				return Conv2D(x, f, w.stride, w.pad)
			}))
			near(t, fmt.Sprintf("%+v", w), got, want, 1e-12)
		}
	}
}

// Different steps in the two directions, dilated filters and groups, each
// alone and combined.
func TestConv(t *testing.T) {
	for _, c := range []struct {
		image, kernel           [2]int // height and width
		down, across            Window
		channels, count, groups int // count is the number of filters
	}{
		{[2]int{5, 7}, [2]int{1, 7}, Window{Stride: 1}, Window{Stride: 1, Pad: 3}, 2, 3, 1},
		{[2]int{6, 5}, [2]int{3, 2}, Window{Stride: 2, Pad: 1}, Window{Stride: 1}, 1, 2, 1},
		{[2]int{1, 1}, [2]int{1, 1}, Window{Stride: 1}, Window{Stride: 2, Pad: 1}, 1, 1, 1},
		{[2]int{7, 8}, [2]int{3, 3}, Window{Stride: 1, Pad: 2, Dilation: 2}, Window{Stride: 1, Pad: 2, Dilation: 2}, 2, 2, 1},
		{[2]int{7, 6}, [2]int{2, 3}, Window{Stride: 3, Pad: 1, Dilation: 3}, Window{Stride: 1, Dilation: 2}, 1, 2, 1},
		{[2]int{4, 4}, [2]int{1, 1}, Window{Stride: 1, Dilation: 3}, Window{Stride: 1}, 4, 2, 2},
		{[2]int{5, 5}, [2]int{3, 3}, Window{Stride: 1, Pad: 1}, Window{Stride: 1, Pad: 1}, 3, 3, 3},
		{[2]int{5, 4}, [2]int{2, 2}, Window{Stride: 2, Pad: 1}, Window{Stride: 1, Dilation: 2}, 4, 6, 2},
	} {
		groupIn, groupOut := c.channels/c.groups, c.count/c.groups
		shapes := [][]int{{2, c.channels, c.image[0], c.image[1]}, {c.count, groupIn, c.kernel[0], c.kernel[1]}}
		values := numbers(2, shapes...)
		x := func(image, channel, i, k int) float64 {
			if i < 0 || i >= c.image[0] || k < 0 || k >= c.image[1] {
				return 0
			}
			return values[0][((image*c.channels+channel)*c.image[0]+i)*c.image[1]+k]
		}
		wide := [2]int{max(1, c.down.Dilation), max(1, c.across.Dilation)}
		var want []float64
		for image := range 2 {
			for f := range c.count {
				for top := -c.down.Pad; top+(c.kernel[0]-1)*wide[0] < c.image[0]+c.down.Pad; top += c.down.Stride {
					for left := -c.across.Pad; left+(c.kernel[1]-1)*wide[1] < c.image[1]+c.across.Pad; left += c.across.Stride {
						sum := 0.0
						for channel := range groupIn {
							for i := range c.kernel[0] {
								for k := range c.kernel[1] {
									weight := values[1][((f*groupIn+channel)*c.kernel[0]+i)*c.kernel[1]+k]
									sum += weight * x(image, f/groupOut*groupIn+channel, top+i*wide[0], left+k*wide[1])
								}
							}
						}
						want = append(want, sum)
					}
				}
			}
		}
		got := checkGradient(t, shapes, values, 2, training, twoInputs(func(x, f *gorgonia.Node) (*gorgonia.Node, error) {
			return Conv(x, f, c.down, c.across, c.groups)
		}))
		near(t, fmt.Sprintf("%+v", c), got, want, 1e-12)
	}
}

func TestGlobalAvgPool(t *testing.T) {
	shape := []int{2, 3, 4, 5}
	x := numbers(1, shape)
	var want []float64
	for channel := range slices.Chunk(x[0], 20) {
		sum := 0.0
		for _, v := range channel {
			sum += v
		}
		want = append(want, sum/20)
	}
	near(t, "means", checkGradient(t, [][]int{shape}, x, 1, training, oneInput(GlobalAvgPool)), want, 1e-13)
}

// The result of an image must be bit-identical in any batch.
func TestConv2DDoesNotDependOnTheBatch(t *testing.T) {
	shapes := [][]int{{3, 2, 5, 5}, {4, 2, 3, 3}}
	values := numbers(3, shapes...)
	conv := twoInputs(func(x, f *gorgonia.Node) (*gorgonia.Node, error) { return Conv2D(x, f, 1, 1) })
	all := feed(t, shapes, values, conv)
	all.run(t, training)
	one := feed(t, [][]int{{1, 2, 5, 5}, shapes[1]}, [][]float64{values[0][100:], values[1]}, conv)
	one.run(t, training)
	if got := one.get(one.out); !slices.Equal(got, all.get(all.out)[200:]) {
		t.Error("the third image of a batch has another result than alone")
	}
}

func TestWindowErrors(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, s ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(s), gorgonia.WithShape(s...), gorgonia.WithName(name))
	}
	x, f, flat := node("x", 2, 3, 4, 5), node("f", 6, 3, 3, 3), node("flat", 2, 3)
	for _, c := range []struct {
		build func() (*gorgonia.Node, error)
		want  string
	}{
		{func() (*gorgonia.Node, error) { return MaxPool2D(flat, 2, 2, 0) }, `max pool: x is "flat" (2, 3), want (batch, channels, height, width)`},
		{func() (*gorgonia.Node, error) { return MaxPool2D(x, 5, 1, 0) }, "which with a pad of 0 is smaller than the kernel, 5 x 5"},
		{func() (*gorgonia.Node, error) { return MaxPool2D(x, 2, 0, 0) }, "stride 0"},
		{func() (*gorgonia.Node, error) { return AvgPool2D(x, 2, 1, 2) }, "average pool: a pad of 2 needs a kernel larger than 2"},
		{func() (*gorgonia.Node, error) { return AvgPool2D(x, 0, 1, 0) }, "kernel 0 x 0"},
		{func() (*gorgonia.Node, error) { return Conv2D(x, node("g", 6, 2, 3, 3), 1, 1) }, `convolution: x is "x" (2, 3, 4, 5) and the filters are "g" (6, 2, 3, 3)`},
		{func() (*gorgonia.Node, error) { return Conv2D(x, flat, 1, 1) }, "(count, channels, height, width)"},
		{func() (*gorgonia.Node, error) { return Conv2D(x, f, 1, -1) }, "pad -1"},
		{func() (*gorgonia.Node, error) { return Conv2D(x, nil, 1, 1) }, "nil"},
		{func() (*gorgonia.Node, error) { return Conv(x, f, Window{Stride: 1}, Window{}, 1) }, "stride 0"},
		{func() (*gorgonia.Node, error) {
			return Conv(x, f, Window{Stride: 1, Dilation: 2}, Window{Stride: 1}, 1)
		}, "smaller than the kernel, 5 x 3"},
		{func() (*gorgonia.Node, error) {
			return Conv(x, f, Window{Stride: 1}, Window{Stride: 1, Dilation: 3}, 1)
		}, "smaller than the kernel, 3 x 7"},
		{func() (*gorgonia.Node, error) {
			return Conv(x, f, Window{Stride: 1, Dilation: -1}, Window{Stride: 1}, 1)
		}, "dilation -1"},
		{func() (*gorgonia.Node, error) { return Conv(x, f, Window{Stride: 1}, Window{Stride: 1}, 3) }, "in 3 groups"},
		{func() (*gorgonia.Node, error) { return Conv(x, f, Window{Stride: 1}, Window{Stride: 1}, 0) }, "in 0 groups"},
		{func() (*gorgonia.Node, error) { return GlobalAvgPool(flat) }, `global average pool: x is "flat" (2, 3)`},
		{func() (*gorgonia.Node, error) { return GlobalAvgPool(nil) }, "nil"},
		{func() (*gorgonia.Node, error) { return MaxPool2D(nil, 1, 1, 0) }, "nil"},
	} {
		if _, err := c.build(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
