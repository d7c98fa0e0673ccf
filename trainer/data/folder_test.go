package data

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// encoded returns a picture in PNG format.
func encoded(t testing.TB, picture image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, picture); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// dots returns a picture of distinct colors that depend on seed.
func dots(width, height, seed int) *image.RGBA {
	p := image.NewRGBA(image.Rect(0, 0, width, height))
	for i := range width * height {
		p.SetRGBA(i%width, i/width, color.RGBA{uint8(seed), uint8(i), uint8(255 - i), 255})
	}
	return p
}

// pixelsOf returns the pixels that reading a picture of dots must give.
func pixelsOf(width, height, seed int) []uint8 {
	n := width * height
	all := make([]uint8, 3*n)
	for i := range n {
		all[i], all[n+i], all[2*n+i] = uint8(seed), uint8(i), uint8(255-i)
	}
	return all
}

// folderOf writes files, given by relative path, to a new folder.
func folderOf(t testing.TB, files map[string][]byte) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOpenFolder(t *testing.T) {
	grey := image.NewGray(image.Rect(0, 0, 4, 2))
	grey.SetGray(1, 0, color.Gray{77})
	var b bytes.Buffer
	if err := jpeg.Encode(&b, grey, &jpeg.Options{Quality: 100}); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{
		"dog/2.PNG": encoded(t, dots(4, 2, 9)), "dog/1.jpeg": b.Bytes(), "cat/x.png": encoded(t, dots(4, 2, 5)),
		".hidden/x": []byte("x"), "cat/.DS_Store": []byte("x"),
	}
	d, err := OpenFolder(nil, folderOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Classes, []string{"cat", "dog"}) || d.Len() != 3 || d.Width != 4 || d.Height != 2 {
		t.Fatalf("%v, %d images of %d x %d", d.Classes, d.Len(), d.Width, d.Height)
	}
	all := some[Image](t, d, 0, 3)
	if !slices.Equal(all[0].Pixels, pixelsOf(4, 2, 5)) || all[0].Label != 0 || !slices.Equal(all[2].Pixels, pixelsOf(4, 2, 9)) || all[2].Label != 1 {
		t.Errorf("%v", all)
	}
	for c := range 3 { // JPEG changes colors slightly
		if x := int(all[1].Pixels[8*c+1]); x < 70 || x > 84 || all[1].Pixels[8*c+6] > 8 {
			t.Errorf("channel %d of a grey picture is %v", c, all[1].Pixels[8*c:8*c+8])
		}
	}
	if _, err := d.At(3); err == nil {
		t.Error("image 3 of 3")
	}
	delete(files, "dog/1.jpeg")
	if other, err := OpenFolder(nil, folderOf(t, files)); err != nil || Describe[Image](other) == Describe[Image](d) || !strings.Contains(d.Describe(), "2 classes (cat, dog)") {
		t.Errorf("%s, %v", d.Describe(), err)
	}
}

// claimed returns a PNG header with a size, without image data.
func claimed(width, height uint32) []byte {
	head := binary.BigEndian.AppendUint32([]byte("IHDR"), width)
	head = append(binary.BigEndian.AppendUint32(head, height), 8, 2, 0, 0, 0)
	b := binary.BigEndian.AppendUint32([]byte("\x89PNG\r\n\x1a\n"), uint32(len(head)-4))
	return binary.BigEndian.AppendUint32(append(b, head...), crc32.ChecksumIEEE(head))
}

func TestOpenFolderErrors(t *testing.T) {
	small, large := encoded(t, dots(4, 4, 1)), encoded(t, dots(8, 4, 1))
	for name, c := range map[string]struct {
		files      map[string][]byte
		want, hint string
	}{
		"empty":       {nil, ": there is no class: the folder is empty", "a folder for each class"},
		"hidden":      {map[string][]byte{".cat/1.png": small}, ": there is no class", ""},
		"no image":    {map[string][]byte{"cat/1.png": small, "dog/.keep": nil}, "dog: the folder of a class has no image", "remove it"},
		"file":        {map[string][]byte{"1.png": small}, "1.png", "a folder for each class, and nothing else"},
		"mixed sizes": {map[string][]byte{"cat/1.png": small, "dog/1.png": large}, "dog/1.png: byte 0: an image of 8 x 4 pixels, want 4 x 4", "one size"},
		"too large":   {map[string][]byte{"cat/1.png": claimed(60000, 60000)}, "cat/1.png: byte 0: an image of 60000 x 60000 pixels, at most 67108864 are decoded", ""},
		"text":        {map[string][]byte{"cat/1.png": small, "cat/2.png": []byte("hello")}, "cat/2.png: byte 0: neither a PNG nor a JPEG image", ""},
		"no bytes":    {map[string][]byte{"cat/1.png": nil}, "cat/1.png: byte 0: neither a PNG", ""},
		"header cut":  {map[string][]byte{"cat/1.png": small[:20]}, "cat/1.png: byte 20: truncated: the image breaks off", ""},
		"no pixels":   {map[string][]byte{"cat/1.png": claimed(0, 7)}, "cat/1.png: byte ", ""},
	} {
		root := folderOf(t, c.files)
		_, err := OpenFolder(nil, root)
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), c.want) ||
			c.hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), c.hint)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := OpenFolder(nil, filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// If a PNG header has a huge size, no reader may allocate memory for it.
func TestLargePicturesAreNotDecoded(t *testing.T) {
	huge := claimed(60000, 60000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := DecodeImage(huge, 60000, 60000)
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "at most 67108864 are decoded") {
		t.Errorf("%v", err)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 1<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// A picture that is damaged after its header must be detected when it is
// decoded, with the position of the decoder in the error. A file whose image
// size has changed since OpenFolder must be rejected. A missing file does not
// count as a corrupt picture.
func TestCorruptPictures(t *testing.T) {
	whole := encoded(t, dots(16, 16, 3))
	var noise bytes.Buffer
	if err := jpeg.Encode(&noise, dots(16, 16, 3), nil); err != nil {
		t.Fatal(err)
	}
	root := folderOf(t, map[string][]byte{
		"a/0.png": whole, "a/1.png": whole[:len(whole)-20], "a/2.png": spoiled(whole, len(whole)-30), "a/3.jpg": noise.Bytes()[:noise.Len()-40], "a/4.png": whole,
	})
	d, err := OpenFolder(nil, root)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range map[int]string{1: "1.png: byte ", 2: "2.png: byte ", 3: "3.jpg: byte "} {
		if _, err := d.At(i); err == nil || !strings.HasPrefix(err.Error(), filepath.Join(root, "a", want)) || strings.Contains(err.Error(), "byte 0") {
			t.Errorf("picture %d: %v", i, err)
		}
	}
	s := NewSkipped(func(error) {})
	for i, x := range some(t, SkipCorrupt[Image](d, s), 0, 5) {
		if !slices.Equal(x.Pixels, pixelsOf(16, 16, 3)) {
			t.Errorf("picture %d is another one", i)
		}
	}
	if s.Count() != 3 {
		t.Errorf("%d skipped", s.Count())
	}
	if err := os.WriteFile(filepath.Join(root, "a/0.png"), encoded(t, dots(8, 8, 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SkipCorrupt[Image](d, s).At(0); !errors.Is(err, errOtherSize) {
		t.Errorf("another size: %v", err)
	}
	if err := os.Remove(filepath.Join(root, "a/0.png")); err != nil {
		t.Fatal(err)
	}
	if _, err := SkipCorrupt[Image](d, s).At(0); !errors.Is(err, os.ErrNotExist) || s.Count() != 3 {
		t.Errorf("a file that is gone: %v", err)
	}
	s = NewSkipped(func(error) {})
	root = folderOf(t, map[string][]byte{"a/0.png": []byte("text"), "a/1.png": whole, "b/0.png": whole})
	if d, err := OpenFolder(s, root); err != nil || d.Len() != 2 || s.Count() != 1 || d.files[0].label != 0 || d.files[1].label != 1 {
		t.Errorf("a file that is no picture: %+v, %v", d, err)
	}
}

// A decoded picture must have the requested size.
func FuzzImage(f *testing.F) {
	f.Add(encoded(f, dots(4, 3, 7)))
	f.Add(claimed(4, 3))
	var b bytes.Buffer
	if err := jpeg.Encode(&b, dots(4, 3, 7), nil); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		decoded, err := decodePicture(content, "fuzzed", 3, 4)
		pixels := decoded.Pixels
		if checkNamed(t, err); (err == nil) != (len(pixels) == 3*3*4) {
			t.Fatalf("%d pixels, %v", len(pixels), err)
		}
	})
}
