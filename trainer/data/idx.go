package data

import (
	"encoding/binary"
	"fmt"
)

// idxTypes are the element types of IDX, by their code.
var idxTypes = map[byte]string{0x08: "u1", 0x09: "i1", 0x0b: "i2", 0x0c: "i4", 0x0d: "f4", 0x0e: "f8"}

// ReadIDX reads a file in the IDX format of the MNIST data, packed with gzip or
// not. The file holds two zero bytes, the element type, the number of
// dimensions, the length of each as a big-endian uint32, and the elements,
// big-endian.
func ReadIDX(path string) (*Array, error) { return readFile(path, decodeIDX) }

func decodeIDX(s *source) (*Array, error) {
	head, err := s.take(4, "IDX header")
	if err != nil {
		return nil, err
	}
	name, known := idxTypes[head[2]]
	if head[0] != 0 || head[1] != 0 || !known {
		s.back(s.offset)
		return nil, s.hinted("MNIST's files are named like train-images-idx3-ubyte.gz",
			"not an IDX file: it begins with % x, want 00 00, an element type (08, 09, 0b, 0c, 0d, 0e) and the number of dimensions", head)
	}
	lengths, err := s.take(4*int64(head[3]), "lengths of the dimensions")
	if err != nil {
		return nil, err
	}
	shape := make([]int, head[3])
	for i := range shape {
		shape[i] = int(binary.BigEndian.Uint32(lengths[4*i:]))
	}
	return elementTypes[name].takeArray(s, shape, binary.BigEndian)
}

// ReadMNIST reads a file of images and the file of their labels: 10 classes of
// grey images with one channel. It takes MNIST, Fashion-MNIST and other data of
// this form.
func ReadMNIST(images, labels string) (*Images, error) {
	pixels, err := readBytes(images, 3, "images")
	if err != nil {
		return nil, err
	}
	classes, err := readBytes(labels, 1, "labels")
	if err != nil {
		return nil, err
	}
	if n, m := pixels.Shape[0], classes.Shape[0]; n != m {
		return nil, fmt.Errorf("%s holds %d images, %s holds %d labels: they do not belong together", images, n, labels, m)
	}
	d := &Images{
		Channels: 1, Height: pixels.Shape[1], Width: pixels.Shape[2], Classes: 10,
		Pixels: pixels.Values.([]uint8), Labels: classes.Values.([]uint8),
	}
	for i, label := range d.Labels {
		if int(label) >= d.Classes {
			return nil, &formatError{file: labels, offset: 8 + int64(i), cause: fmt.Errorf("label %d, want 0 to %d", label, d.Classes-1)}
		}
	}
	return d, nil
}

// readBytes reads an IDX file that must hold bytes with a number of dimensions.
func readBytes(path string, dimensions int, what string) (*Array, error) {
	a, err := ReadIDX(path)
	if err != nil {
		return nil, err
	}
	if _, err := ValuesOf[uint8](a); err != nil || len(a.Shape) != dimensions {
		return nil, hintedError{&formatError{
			file: path, offset: 2, hint: "the first file holds the images, the second the labels",
			cause: fmt.Errorf("%T of shape %v, %s are bytes with %d dimensions", a.Values, a.Shape, what, dimensions),
		}}
	}
	return a, nil
}
