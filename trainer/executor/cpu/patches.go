package cpu

import "github.com/plx-run/plx/trainer/executor/compile"

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

func newPatches[T float](v *compile.Value, images, columns *cell[T]) kernel {
	i, c, w := v.Inputs[0].Shape, v.Shape, v.Op.Window
	k := &patches[T]{images: images, columns: columns, back: v.Op.Kind == compile.Col2Im}
	if k.back {
		i, c = c, i
	}
	k.batch, k.channels, k.height, k.width = i[0], i[1], i[2], i[3]
	k.outHeight, k.outWidth = c[1], c[2]
	k.kernelH, k.kernelW, k.padH, k.padW = w[0], w[1], w[2], w[3]
	k.strideH, k.strideW, k.dilationH, k.dilationW = w[4], w[5], w[6], w[7]
	return k
}

func (k *patches[T]) run() error {
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
	return nil
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
