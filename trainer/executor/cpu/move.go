package cpu

import (
	"github.com/plx-run/plx/trainer/executor/compile"
	"github.com/plx-run/plx/trainer/executor/memory"
)

// repeat copies each piece of a several times in a row. inner is the number of
// elements of a piece, and times the number of copies.
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

// newSlicing returns the kernel of Slice, which copies a slice of whole to
// part. For SliceGradient, it returns the kernel that copies part into whole
// and sets all other elements of whole to 0.
func newSlicing[T float](v *compile.Value, whole, part *cell[T]) func() {
	shape, into := v.Inputs[0].Shape, v.Op.Kind == compile.SliceGradient
	if into {
		shape = v.Shape
	}
	_, n, inner := compile.Threefold(shape, v.Op.Axes[0])
	step := max(v.Op.Step, 1)
	run, each := inner, v.Op.SliceLength(n)
	if step == 1 {
		run, each = inner*each, 1
	}
	return func() {
		whole, part := whole.data, part.data
		if into {
			clear(whole)
		}
		for from := v.Op.Start * inner; from < len(whole); from += n * inner {
			for i := range each {
				at := from + i*step*inner
				if into {
					copy(whole[at:at+run], part)
				} else {
					copy(part[:run], whole[at:at+run])
				}
				part = part[run:]
			}
		}
	}
}

// newConcat returns the kernel that concatenates its inputs along an axis.
func newConcat[T float](v *compile.Value, out *cell[T], in []*cell[T]) func() {
	outer, runs := 0, make([]int, len(in)) // runs: number of adjacent elements to copy at a time, for each input
	for i, x := range v.Inputs {
		o, n, inner := compile.Threefold(x.Shape, v.Op.Axes[0])
		outer, runs[i] = o, n*inner
	}
	return func() {
		to := out.data
		for o := range outer {
			for i, x := range in {
				to = to[copy(to, x.data[o*runs[i]:(o+1)*runs[i]]):]
			}
		}
	}
}

// newPermuting returns the kernel of a transposition. It drops dimensions of
// size 1 and merges dimensions that stay next to each other.
func newPermuting[T float](from, axes []int, out, a *cell[T]) func() {
	var shape, strides []int // shape and strides of the input, in the order of the result's dimensions
	s, last := compile.Strides(from), -2
	for _, x := range axes {
		switch n := len(shape); {
		case from[x] == 1:
			continue
		case x == last+1 && n > 0:
			shape[n-1] *= from[x]
			strides[n-1] = s[x]
		default:
			shape, strides = append(shape, from[x]), append(strides, s[x])
		}
		last = x
	}
	d := len(shape) - 2 // never negative, because compile turns a transposition that moves nothing into an alias
	index, rows, cols := make([]int, d), shape[d], shape[d+1]
	return func() {
		for to := out.data; len(to) > 0; to = to[rows*cols:] {
			transpose(to[:rows*cols], a.data[memory.Offset(index, strides):], rows, cols, strides[d], strides[d+1])
			memory.Advance(index, shape) // Advance after the last matrix sets index to all zeros again, as the next run needs it
		}
	}
}

// transpose copies a matrix with the given strides into the row-major matrix
// out. It copies in tiles that fit into the processor's cache.
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

// patches computes im2col or its gradient. Im2col copies the window at every
// position of every image into a row, channel by channel. Images have the
// shape (batch, channels, height, width). Columns have the shape (batch,
// height and width of the result, channels*window).
type patches[T float] struct {
	images, columns      *cell[T]
	back                 bool // true for the gradient of im2col, which adds each window in columns to images
	batch, channels      int
	height, width        int // size of an image in pixels
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

// windows copies the windows of one channel whose first line is line top of
// the image. In columns, the windows of two neighboring positions are `far`
// elements apart.
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

// lines copies one line of the image into the matching line of every window.
// For the gradient, it adds these lines of the windows to the line of the
// image. Elements outside the image are 0. far is the distance between two
// windows in columns.
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

// ragged does the work of the method lines for one window. It is for windows
// that extend outside the image or whose elements are not adjacent.
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
