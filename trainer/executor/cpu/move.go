package cpu

import (
	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
)

// repeat writes every element times times, along an axis that has inner
// elements inside it.
func repeat[T float](out, a []T, inner, times int) {
	if inner == 1 {
		for i, x := range a {
			fill(out[i*times:(i+1)*times], x)
		}
		return
	}
	for ; len(a) > 0; a = a[inner:] {
		for range times {
			copy(out, a[:inner])
			out = out[inner:]
		}
	}
}

// slicing copies a slice along an axis out of its input, or into zeros.
type slicing[T float] struct {
	whole, part *cell[T]
	into        bool
	n, inner    int // length of the whole's axis, and elements inside the axis
	start, step int
	length      int
}

func newSlicing[T float](v *compile.Value, whole, part *cell[T]) func() {
	shape := v.Inputs[0].Shape
	k := &slicing[T]{whole: whole, part: part, into: v.Op.Kind == compile.SliceGradient, start: v.Op.Start, step: max(v.Op.Step, 1)}
	if k.into {
		shape = v.Shape
	}
	_, k.n, k.inner = compile.Threefold(shape, v.Op.Axes[0])
	k.length = v.Op.SliceLength(k.n)
	return k.run
}

func (k *slicing[T]) run() {
	whole, part := k.whole.data, k.part.data
	if k.into {
		clear(whole)
	}
	run, each := k.inner, k.length
	if k.step == 1 {
		run, each = k.inner*k.length, 1
	}
	for o := 0; o < len(whole); o += k.n * k.inner {
		for i := range each {
			at := o + (k.start+i*k.step)*k.inner
			if k.into {
				copy(whole[at:at+run], part)
			} else {
				copy(part[:run], whole[at:at+run])
			}
			part = part[run:]
		}
	}
}

// concat lays its inputs side by side along an axis.
type concat[T float] struct {
	out   *cell[T]
	in    []*cell[T]
	runs  []int // by input: elements that lie together
	outer int
}

func newConcat[T float](v *compile.Value, out *cell[T], in []*cell[T]) func() {
	k := &concat[T]{out: out, in: in}
	for _, x := range v.Inputs {
		o, n, inner := compile.Threefold(x.Shape, v.Op.Axes[0])
		k.outer, k.runs = o, append(k.runs, n*inner)
	}
	return k.run
}

func (k *concat[T]) run() {
	out := k.out.data
	for o := range k.outer {
		for i, in := range k.in {
			n := copy(out, in.data[o*k.runs[i]:(o+1)*k.runs[i]])
			out = out[n:]
		}
	}
}

// permuting is a transposition. Shape and strides are the input's, in the order
// of the result's dimensions.
type permuting[T float] struct {
	out, a         *cell[T]
	shape, strides []int
	index          []int
}

// newPermuting drops dimensions of size 1 and joins dimensions that stay
// together.
func newPermuting[T float](shape, axes []int, out, a *cell[T]) func() {
	k := &permuting[T]{out: out, a: a}
	s, last := compile.Strides(shape), -2
	for _, x := range axes {
		switch n := len(k.shape); {
		case shape[x] == 1:
			continue
		case x == last+1 && n > 0:
			k.shape[n-1] *= shape[x]
			k.strides[n-1] = s[x]
		default:
			k.shape, k.strides = append(k.shape, shape[x]), append(k.strides, s[x])
		}
		last = x
	}
	k.index = make([]int, len(k.shape)-2) // a transposition that keeps no order has two dimensions
	return k.run
}

func (k *permuting[T]) run() {
	d := len(k.shape)
	clear(k.index)
	rows, cols := k.shape[d-2], k.shape[d-1]
	out := k.out.data
	for len(out) > 0 {
		at := memory.Offset(k.index, k.strides)
		transpose(out[:rows*cols], k.a.data[at:], rows, cols, k.strides[d-2], k.strides[d-1])
		out = out[rows*cols:]
		memory.Advance(k.index, k.shape)
	}
}

// transpose reads a matrix with any strides, in tiles that fit into the cache.
func transpose[T float](out, a []T, rows, cols, strideRow, strideCol int) {
	const tile = 16
	if strideCol == 1 {
		for r := range rows {
			copy(out[r*cols:(r+1)*cols], a[r*strideRow:])
		}
		return
	}
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < cols; c0 += tile {
			for r := r0; r < min(r0+tile, rows); r++ {
				row := out[r*cols : (r+1)*cols]
				for c := c0; c < min(c0+tile, cols); c++ {
					row[c] = a[r*strideRow+c*strideCol]
				}
			}
		}
	}
}

// patches is im2col and its gradient. Im2col makes a row of the window at every
// place of every image, channel by channel. Images have shape (batch, channels,
// height, width). Rows have shape (batch, height and width of the result,
// channels*window).
type patches[T float] struct {
	images, columns      *cell[T]
	back                 bool // the gradient: add columns to images
	batch, channels      int
	height, width        int // of an image
	outHeight, outWidth  int
	kernelH, kernelW     int
	padH, padW           int
	strideH, strideW     int
	dilationH, dilationW int
}

func newPatches[T float](v *compile.Value, images, columns *cell[T]) func() {
	i, c, w := v.Inputs[0].Shape, v.Shape, v.Op.Window
	k := &patches[T]{images: images, columns: columns, back: v.Op.Kind == compile.Col2Im}
	if k.back {
		i, c = c, i
	}
	k.batch, k.channels, k.height, k.width = i[0], i[1], i[2], i[3]
	k.outHeight, k.outWidth = c[1], c[2]
	k.kernelH, k.kernelW, k.padH, k.padW = w[0], w[1], w[2], w[3]
	k.strideH, k.strideW, k.dilationH, k.dilationW = w[4], w[5], w[6], w[7]
	return k.run
}

func (k *patches[T]) run() {
	columns, plane := k.columns.data, k.height*k.width
	if k.back {
		clear(k.images.data)
	}
	size := k.kernelH * k.kernelW
	for b := range k.batch {
		image := k.images.data[b*k.channels*plane : (b+1)*k.channels*plane]
		for y := range k.outHeight {
			for c := range k.channels {
				k.windows(image[c*plane:(c+1)*plane], columns[c*size:], y*k.strideH-k.padH)
			}
			columns = columns[k.outWidth*k.channels*size:]
		}
	}
}

// windows copies all windows of one channel whose top is at top. In columns,
// the windows lie one row apart.
func (k *patches[T]) windows(plane, columns []T, top int) {
	far := k.channels * k.kernelH * k.kernelW
	for i := range k.kernelH {
		y := top + i*k.dilationH
		switch {
		case y >= 0 && y < k.height:
			k.lines(plane[y*k.width:(y+1)*k.width], columns, far)
		case !k.back:
			for x := range k.outWidth {
				clear(columns[x*far : x*far+k.kernelW])
			}
		}
		columns = columns[min(k.kernelW, len(columns)):]
	}
}

// lines copies one line of every window from one line of the channel, or adds
// it to that line. Elements outside the image are zero.
func (k *patches[T]) lines(line, columns []T, far int) {
	for x := range k.outWidth {
		left := x*k.strideW - k.padW
		row := columns[x*far : x*far+k.kernelW]
		switch {
		case left < 0 || left+k.kernelW > len(line) || k.dilationW != 1:
			k.ragged(line, row, left)
		case k.back:
			into := line[left : left+len(row)]
			for j := range row {
				into[j] += row[j]
			}
		default:
			from := line[left : left+len(row)]
			for j := range row {
				row[j] = from[j]
			}
		}
	}
}

// ragged is lines for a window that leaves the image or has gaps.
func (k *patches[T]) ragged(line, row []T, left int) {
	x := left
	for j := range row {
		inside := uint(x) < uint(len(line))
		switch {
		case inside && k.back:
			line[x] += row[j]
		case inside:
			row[j] = line[x]
		case !k.back:
			row[j] = 0
		}
		x += k.dilationW
	}
}
