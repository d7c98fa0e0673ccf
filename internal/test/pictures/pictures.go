// Package pictures writes image files for tests.
package pictures

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/trainer/data"
)

// PNG encodes an artificial image of data.MakePictures as PNG.
func PNG(t *testing.T, x data.Image) []byte {
	t.Helper()
	return encoded(t, x, png.Encode)
}

// JPEG encodes an artificial image of data.MakePictures as JPEG, which changes
// its pixels slightly.
func JPEG(t *testing.T, x data.Image) []byte {
	t.Helper()
	return encoded(t, x, func(w io.Writer, p image.Image) error { return jpeg.Encode(w, p, &jpeg.Options{Quality: 95}) })
}

func encoded(t *testing.T, x data.Image, encode func(io.Writer, image.Image) error) []byte {
	t.Helper()
	const side = 32
	p := image.NewRGBA(image.Rect(0, 0, side, side))
	for i := range side * side {
		p.SetRGBA(i%side, i/side, color.RGBA{x.Pixels[i], x.Pixels[side*side+i], x.Pixels[2*side*side+i], 255})
	}
	var b bytes.Buffer
	if err := encode(&b, p); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Record encodes content as a TFRecord record.
func Record(content []byte) []byte {
	sum := func(b []byte) []byte {
		s := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return binary.LittleEndian.AppendUint32(nil, (s>>15|s<<17)+0xa282ead8)
	}
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(content)))
	return bytes.Join([][]byte{length, sum(length), content, sum(content)}, nil)
}

// message encodes a length-delimited field of a protocol buffer message.
func message(number int, parts ...[]byte) []byte {
	content := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{byte(number<<3 | 2)}, uint64(len(content))), content...)
}

// Example encodes a tf.train.Example that contains an image, encoded as PNG or
// JPEG, and its class.
func Example(encoded []byte, label int) []byte {
	feature := func(name string, list []byte) []byte { return message(1, message(1, []byte(name)), message(2, list)) }
	return message(1,
		feature("image/encoded", message(1, message(1, encoded))),
		feature("image/class/label", message(3, message(1, []byte{byte(label)}))))
}

// photo scales an artificial image to the given size and encodes it as JPEG.
func photo(t *testing.T, x data.Image, width, height int) []byte {
	t.Helper()
	p, err := jpeg.Decode(bytes.NewReader(JPEG(t, x)))
	if err != nil {
		t.Fatal(err)
	}
	to := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range height {
		for k := range width {
			to.Set(k, i, p.At(k*32/width, i*32/height))
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, to, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Write writes images of three classes and several sizes in two forms: as one
// folder with a subfolder for each class, and as two TFRecord files, one of
// them compressed with gzip. The images have the same order in both forms.
func Write(t *testing.T, samples int) (folder, records string) {
	t.Helper()
	made, err := data.MakePictures(1, 0, 10*samples)
	if err != nil {
		t.Fatal(err)
	}
	folder, records = t.TempDir(), t.TempDir()
	var classes [3][][]byte
	for i := 0; len(classes[0])+len(classes[1])+len(classes[2]) < samples; i++ {
		x, err := made.At(i)
		if err != nil {
			t.Fatal(err)
		}
		if x.Label < 3 {
			classes[x.Label] = append(classes[x.Label], photo(t, x, 40+i%7, 50-i%5))
		}
	}
	var files [2]bytes.Buffer
	n := 0
	for class, all := range classes {
		for i, content := range all {
			save(t, filepath.Join(folder, fmt.Sprintf("class %d", class), fmt.Sprintf("%03d.JPEG", i)), content)
			files[n%2].Write(Record(Example(content, class+1)))
			n++
		}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := files[0].WriteTo(w); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	save(t, filepath.Join(records, "train-0.gz"), packed.Bytes())
	save(t, filepath.Join(records, "train-1"), files[1].Bytes())
	return folder, filepath.Join(records, "train-*")
}

func save(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
