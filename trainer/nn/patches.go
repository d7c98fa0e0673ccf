package nn

// fillPatches writes a matrix of which column p holds what the kernel covers
// of an image at place p, and so row (channel, down, across) what that element
// of the kernel lies on at all places. It does not touch the elements of the
// matrix that lie on the pad: they are the same for all images, and 0 since
// the matrix was made.
func fillPatches[T float](w window, to, image []T) {
	for ; len(image) > 0; image = image[w.plane():] {
		for down := range w.kernelHeight {
			top, bottom := w.within(down, w.outHeight, w.height)
			for across := range w.kernelWidth {
				left, right := w.within(across, w.outWidth, w.width)
				for i := top; i < bottom && left < right; i++ {
					line := to[i*w.outWidth+left : i*w.outWidth+right]
					copyLine(w, line, image[w.offset(down, across, i, left):])
				}
				to = to[w.places():]
			}
		}
	}
}

// offset is where element (down, across) of the kernel lies in a channel when
// it is at the place (i, j), if that is not on the pad.
func (w window) offset(down, across, i, j int) int {
	return (i*w.stride-w.pad+down)*w.width + j*w.stride - w.pad + across
}

func copyLine[T float](w window, to, from []T) {
	if w.stride == 1 {
		copy(to, from)
		return
	}
	for i := range to {
		to[i] = from[i*w.stride]
	}
}

// addPatches is the reverse of fillPatches: each element of the image becomes
// the sum of what lies on it, in the order of the matrix.
func addPatches[T float](w window, image, from []T) {
	clear(image)
	for ; len(image) > 0; image = image[w.plane():] {
		for down := range w.kernelHeight {
			top, bottom := w.within(down, w.outHeight, w.height)
			for across := range w.kernelWidth {
				left, right := w.within(across, w.outWidth, w.width)
				for i := top; i < bottom && left < right; i++ {
					line := from[i*w.outWidth+left : i*w.outWidth+right]
					addLine(w, image[w.offset(down, across, i, left):], line)
				}
				from = from[w.places():]
			}
		}
	}
}

func addLine[T float](w window, to, from []T) {
	if w.stride == 1 {
		to = to[:len(from)]
		for i, v := range from {
			to[i] += v
		}
		return
	}
	for i, v := range from {
		to[i*w.stride] += v
	}
}
