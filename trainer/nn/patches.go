package nn

// fillPatches writes the matrix of an image's patches. Column p holds what the
// kernel covers at place p; row (channel, down, across) holds what that element
// of the kernel covers at all places. It does not write elements that lie on
// the pad: they are zero for all images, from the time the matrix was
// allocated.
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

// offset is the place in a channel that element (down, across) of the kernel
// covers at place (i, j). The caller knows that it is not on the pad.
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

// addPatches reverses fillPatches: each element of the image becomes the sum of
// the matrix's elements that cover it, in the order of the matrix.
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
