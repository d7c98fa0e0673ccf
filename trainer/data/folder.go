package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	// The blank imports register PNG and JPEG, the only formats that
	// image.Decode recognizes in this package.
	_ "image/jpeg"
	_ "image/png"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxImage is the largest number of pixels that an image may have to be
// decoded.
const maxImage = 1 << 26

// errOtherSize is the cause of the error for an image whose size differs from
// the others. Skipped does not skip such an image, because it is not corrupt:
// the user must resize it.
var errOtherSize = errors.New("all images must have one size")

// Folder is a dataset of PNG and JPEG files that all have the same size. Each
// call of At reads and decodes one file.
type Folder struct {
	Height, Width int
	Classes       []string // the names of the class folders, sorted; Image.Label is an index into Classes

	files []imageFile
	sum   uint32 // CRC-32C of the names, file sizes and classes of all images
}

type imageFile struct {
	path  string
	label int
}

// OpenFolder opens a directory that has a subdirectory for each class with the
// images of that class: cats/1.png, dogs/7.jpg. OpenFolder reads the header of
// every image. It returns an error if an image is too large or if its size
// differs from the first image's. Names that begin with a dot are ignored.
func OpenFolder(s *Skipped, root string) (*Folder, error) {
	d := &Folder{}
	err := eachClass(root, func(class string, files []os.DirEntry) error {
		before := len(d.files)
		for _, entry := range files {
			if err := d.addFile(s, filepath.Join(root, class, entry.Name())); err != nil {
				return err
			}
			d.sum = crc32.Update(d.sum, castagnoli, []byte(class+"/"+entry.Name()+"\n"))
		}
		d.Classes = append(d.Classes, class)
		return hasImages(len(d.files)-before, root, class)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// eachClass calls add for each class directory in root, with the entries in
// that directory. It ignores names that begin with a dot.
func eachClass(root string, add func(class string, files []os.DirEntry) error) error {
	hidden := func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") }
	classes, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	classes = slices.DeleteFunc(classes, hidden)
	if len(classes) == 0 {
		return hintedError{fmt.Errorf("%s: there is no class: the folder is empty", root), "make a folder for each class in it"}
	}
	for _, class := range classes {
		files, err := os.ReadDir(filepath.Join(root, class.Name()))
		if err != nil {
			return hintedError{err, "the folder of images has a folder for each class, and nothing else"}
		}
		if err := add(class.Name(), slices.DeleteFunc(files, hidden)); err != nil {
			return err
		}
	}
	return nil
}

// hasImages returns an error if n, the number of images of a class, is 0.
func hasImages(n int, root, class string) error {
	if n > 0 {
		return nil
	}
	return hintedError{fmt.Errorf("%s: the folder of a class has no image", filepath.Join(root, class)), "put PNG or JPEG images into it, or remove it"}
}

// addFile adds the image file at path to the class that OpenFolder is reading.
// That class gets the index len(d.Classes), because OpenFolder appends its
// name afterwards.
func (d *Folder) addFile(s *Skipped, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // the error is ignored: no data can be lost in a file opened for reading
	info, err := file.Stat()
	if err != nil {
		return err
	}
	height, width := d.Height, d.Width
	if len(d.files) == 0 {
		height, width = 0, 0
	}
	size, err := checkImage(file, path, height, width)
	if err != nil && s.skips(err) {
		return nil
	}
	if err != nil {
		return err
	}
	d.Height, d.Width = size.Y, size.X
	d.files = append(d.files, imageFile{path, len(d.Classes)})
	d.sum = crc32.Update(d.sum, castagnoli, fmt.Appendf(nil, "%d ", info.Size()))
	return nil
}

// Len is the number of images.
func (d *Folder) Len() int { return len(d.files) }

// Describe returns the number of images and classes, the first class names and
// a checksum.
func (d *Folder) Describe() string {
	return fmt.Sprintf("%d images of %d x %d pixels in %d classes (%.200s), checksum %08x of names and sizes", len(d.files), d.Width, d.Height,
		len(d.Classes), strings.Join(d.Classes, ", "), d.sum)
}

// At reads and decodes image i.
func (d *Folder) At(i int) (Image, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Image{}, err
	}
	p, err := d.files[i].read(d.Height, d.Width)
	return p.Image, err
}

// read reads and decodes the image file. It returns an error unless the image
// has the given size; a height of 0 accepts any size.
func (f imageFile) read(height, width int) (Picture, error) {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return Picture{}, err
	}
	p, err := decodePicture(b, f.path, height, width)
	p.Label = f.label
	return p, err
}

// Pictures is a dataset of PNG and JPEG files of any size. Each call of At
// reads and decodes one file.
type Pictures struct {
	Classes []string // the names of the class folders, sorted; Picture.Label is an index into Classes

	files []imageFile
	sum   uint32 // CRC-32C of the names, file sizes and classes of all pictures
}

// OpenPictures opens a directory with a subdirectory for each class, like
// OpenFolder, but opens no image file. If a file is not an image, At returns
// an error, and [SkipCorrupt] can skip it. [Crop] makes pictures the same
// size.
func OpenPictures(root string) (*Pictures, error) {
	d := &Pictures{}
	err := eachClass(root, func(class string, files []os.DirEntry) error {
		for _, entry := range files {
			info, err := entry.Info()
			if err != nil {
				return err
			}
			d.files = append(d.files, imageFile{filepath.Join(root, class, entry.Name()), len(d.Classes)})
			d.sum = crc32.Update(d.sum, castagnoli, fmt.Appendf(nil, "%d %s/%s\n", info.Size(), class, entry.Name()))
		}
		d.Classes = append(d.Classes, class)
		return hasImages(len(files), root, class)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Len is the number of pictures.
func (d *Pictures) Len() int { return len(d.files) }

// Describe returns the number of pictures and classes, the first class names
// and a checksum.
func (d *Pictures) Describe() string {
	return fmt.Sprintf("%d pictures in %d classes (%.200s), checksum %08x of names and sizes", len(d.files),
		len(d.Classes), strings.Join(d.Classes, ", "), d.sum)
}

// At reads and decodes picture i.
func (d *Pictures) At(i int) (Picture, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Picture{}, err
	}
	return d.files[i].read(0, 0)
}

// DecodeImage decodes a PNG or JPEG image into three channels: red, green and
// blue. It returns an error if the image is not of the given size. Transparent
// pixels become black.
func DecodeImage(encoded []byte, height, width int) ([]uint8, error) {
	if height < 1 || width < 1 {
		return nil, fmt.Errorf("decode an image of %d x %d pixels: want at least 1", width, height)
	}
	p, err := decodePicture(encoded, "", height, width)
	return p.Pixels, err
}

// decodePicture decodes an image file. It returns an error unless the image
// has the given size; a height of 0 accepts any size. If name is empty, errors
// do not name the file.
func decodePicture(b []byte, name string, height, width int) (Picture, error) {
	size, err := checkImage(bytes.NewReader(b), name, height, width)
	if err != nil {
		return Picture{}, err
	}
	r := &counting{from: bufio.NewReader(bytes.NewReader(b))}
	decoded, _, err := image.Decode(r)
	if err != nil {
		return Picture{}, imageError(name, r.offset, err)
	}
	rgba := image.NewRGBA(image.Rectangle{Max: size})
	draw.Draw(rgba, rgba.Bounds(), decoded, decoded.Bounds().Min, draw.Src)
	area := size.X * size.Y
	pixels := make([]uint8, 3*area)
	for i := range area {
		pixels[i], pixels[area+i], pixels[2*area+i] = rgba.Pix[4*i], rgba.Pix[4*i+1], rgba.Pix[4*i+2]
	}
	return Picture{Image: Image{Pixels: pixels}, Height: size.Y, Width: size.X}, nil
}

// checkImage reads the size of an image from its header. If height is not 0,
// an image of another size than height x width is an error.
func checkImage(from io.Reader, name string, height, width int) (image.Point, error) {
	r := &counting{from: bufio.NewReader(from)}
	c, _, err := image.DecodeConfig(r)
	switch {
	case err != nil:
		return image.Point{}, imageError(name, r.offset, err)
	case c.Width < 1 || c.Height < 1:
		return image.Point{}, imageError(name, 0, fmt.Errorf("an image of %d x %d pixels", c.Width, c.Height))
	case height > 0 && (c.Width != width || c.Height != height):
		return image.Point{}, hintedError{imageError(name, 0, fmt.Errorf("an image of %d x %d pixels, want %d x %d: %w", c.Width, c.Height, width, height, errOtherSize)),
			"bring all images to one size first"}
	case c.Width > maxImage/c.Height:
		return image.Point{}, imageError(name, 0, fmt.Errorf("an image of %d x %d pixels, at most %d are decoded", c.Width, c.Height, maxImage))
	}
	return image.Point{X: c.Width, Y: c.Height}, nil
}

// imageError returns an error that names the image file and the byte offset at
// which decoding failed. It replaces some errors of the decoders by plainer
// ones.
func imageError(name string, offset int64, err error) error {
	switch {
	case errors.Is(err, image.ErrFormat):
		err = errors.New("neither a PNG nor a JPEG image")
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		err = errors.New("truncated: the image breaks off")
	}
	var system *os.PathError
	if errors.As(err, &system) {
		return err
	}
	if name == "" {
		return fmt.Errorf("image, byte %d: %w", offset, err)
	}
	return &formatError{file: name, offset: offset, cause: err}
}

// counting is a reader that counts the bytes an image decoder has read. The
// JPEG decoder reads up to 4 KiB ahead, so the count may be too high by that
// much.
type counting struct {
	from   *bufio.Reader
	offset int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.offset += int64(n)
	return n, err
}

// Peek lets image.Decode detect the format without consuming bytes.
func (c *counting) Peek(n int) ([]byte, error) { return c.from.Peek(n) }
