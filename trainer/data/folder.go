package data

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/draw"
	_ "image/jpeg" // the two formats that
	_ "image/png"  // image.Decode knows here
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxImage bounds the pixels of an image.
const maxImage = 1 << 26

// errOtherSize is the cause of an error about an image that is not as large as the
// others. It is no corrupt image: the user must choose a size.
var errOtherSize = errors.New("all images must have one size")

// Folder is a dataset of PNG and JPEG files. An image is decoded when it is asked
// for.
type Folder struct {
	Height, Width int
	Classes       []string // the names of the folders, sorted; a label is an index

	files []imageFile
	sum   uint32 // of the names, sizes and classes of all files
}

type imageFile struct {
	path  string
	label int
}

// OpenFolder opens a folder with a folder for each class, which holds the images
// of that class: cats/1.png, dogs/7.jpg. It looks at the beginning of every file,
// so that an image of another size than the first, or one that is too large, is
// refused before any is decoded. Names that begin with a dot are left out.
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

// eachClass calls add with each class of a folder and its files, without names that
// begin with a dot.
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

// hasImages refuses a class without images.
func hasImages(n int, root, class string) error {
	if n > 0 {
		return nil
	}
	return hintedError{fmt.Errorf("%s: the folder of a class has no image", filepath.Join(root, class)), "put PNG or JPEG images into it, or remove it"}
}

// addFile adds an image of the class that is added.
func (d *Folder) addFile(s *Skipped, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close() // opened for reading: nothing to lose
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

// Describe names the classes.
func (d *Folder) Describe() string {
	return fmt.Sprintf("%d images of %d x %d pixels in %d classes (%.200s), checksum %08x of names and sizes", len(d.files), d.Width, d.Height,
		len(d.Classes), strings.Join(d.Classes, ", "), d.sum)
}

// At reads image i.
func (d *Folder) At(i int) (Image, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Image{}, err
	}
	p, err := d.files[i].read(d.Height, d.Width)
	return p.Image, err
}

// read decodes the image, of a size, or of any if that is 0.
func (f imageFile) read(height, width int) (Picture, error) {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return Picture{}, err
	}
	p, err := decodePicture(b, f.path, height, width)
	p.Label = f.label
	return p, err
}

// Pictures is a dataset of PNG and JPEG files of any sizes. A picture is decoded when
// it is asked for.
type Pictures struct {
	Classes []string // the names of the folders, sorted; a label is an index

	files []imageFile
	sum   uint32 // of the names, sizes and classes of all files
}

// OpenPictures opens a folder as OpenFolder does, and opens none of its files: a file
// that is no picture is an error of At, which [SkipCorrupt] skips. [Crop] brings
// pictures to one size.
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

// Describe names the first classes.
func (d *Pictures) Describe() string {
	return fmt.Sprintf("%d pictures in %d classes (%.200s), checksum %08x of names and sizes", len(d.files),
		len(d.Classes), strings.Join(d.Classes, ", "), d.sum)
}

// At reads picture i.
func (d *Pictures) At(i int) (Picture, error) {
	if err := checkIndex(i, d.Len()); err != nil {
		return Picture{}, err
	}
	return d.files[i].read(0, 0)
}

// DecodeImage decodes a PNG or JPEG image of a size into three channels: red, green
// and blue. What is transparent becomes black.
func DecodeImage(encoded []byte, height, width int) ([]uint8, error) {
	if height < 1 || width < 1 {
		return nil, fmt.Errorf("decode an image of %d x %d pixels: want at least 1", width, height)
	}
	p, err := decodePicture(encoded, "", height, width)
	return p.Pixels, err
}

// decodePicture decodes a file of a size, or of any if that is 0. Without a name its
// errors do not name it.
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

// checkImage reads an image's size, and refuses another than height x width, if
// these are not 0.
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

// imageError says how far into an image the decoder came.
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

// counting counts the bytes that a decoder has read. A decoder of JPEG reads up to
// 4 KiB ahead.
type counting struct {
	from   *bufio.Reader
	offset int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.offset += int64(n)
	return n, err
}

// Peek lets package image recognise the format.
func (c *counting) Peek(n int) ([]byte, error) { return c.from.Peek(n) }
