package kernels

import "fmt"

// Patches says how Gorgonia's im2col moves a window over images (batch, channels,
// height, width). Fields of two numbers are for rows and columns.
type Patches struct {
	Batch, Channels, Height, Width int
	Kernel, Pad, Stride, Dilation  [2]int
}

// places returns the numbers of places of the window, down and across.
func (p Patches) places() (height, width int) {
	count := func(size, i int) int { return (size+2*p.Pad[i]-(p.Dilation[i]*(p.Kernel[i]-1)+1))/p.Stride[i] + 1 }
	return count(p.Height, 0), count(p.Width, 1)
}

// Im2Col makes a row of the elements under the window at each place. The operands
// are out (batch, places down, places across, channels*window) and the images.
func Im2Col(t Type, p Patches) (Operation, error) { return p.move(t, "im2col_", false) }

// Col2Im is the gradient of Im2Col: it adds to each element of the images what
// the rows have for it. The operands are out, of the images' shape, and the rows.
func Col2Im(t Type, p Patches) (Operation, error) { return p.move(t, "col2im_", true) }

func (p Patches) move(t Type, kernel string, back bool) (Operation, error) {
	for i := range 2 {
		if p.Kernel[i] < 1 || p.Pad[i] < 0 || p.Stride[i] < 1 || p.Dilation[i] < 1 {
			return Operation{}, fmt.Errorf("im2col on a GPU: there is no kernel for %+v", p)
		}
	}
	height, width := p.places()
	images := elements(p.Batch, p.Channels, p.Height, p.Width)
	rows := elements(p.Batch, height, width, p.Channels, p.Kernel[0], p.Kernel[1])
	n := rows
	if back {
		n = images
	}
	return over("patches", kernel+t.suffix(), []string{"out", "a"}, n, n, p.Channels, p.Height, p.Width, height, width,
		p.Kernel[0], p.Kernel[1], p.Pad[0], p.Pad[1], p.Stride[0], p.Stride[1], p.Dilation[0], p.Dilation[1]), check("im2col", images, rows)
}
