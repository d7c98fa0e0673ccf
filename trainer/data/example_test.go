package data_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"log"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/trainer/data"
)

// write writes an example's file to a temporary folder. It returns the path of
// the file and the folder.
func write(name string, content []byte) (path, folder string) {
	folder, err := os.MkdirTemp("", "data-example-")
	if err != nil {
		log.Fatal(err)
	}
	path = filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		log.Fatal(err)
	}
	return path, folder
}

// Batches of shuffled epochs, read in the background. Step 7 has the same
// samples, whichever steps were read before.
func Example() {
	images, err := data.MakeDigits(1, 0, 100)
	if err != nil {
		log.Fatal(err)
	}
	epochs, err := data.Epochs(images, 4, 1)
	if err != nil {
		log.Fatal(err)
	}
	indices := func(step int) []int { return []int{4 * step, 4*step + 1, 4*step + 2, 4*step + 3} }
	loader := data.NewLoader(context.Background(), epochs, 2, epochs.Len()/4, indices)
	for _, step := range []int{0, 1, 7} {
		batch, err := loader.Batch(step)
		if err != nil {
			log.Fatal(err)
		}
		_, y, err := data.Scale{}.Batch(batch, 28*28, 10)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("step", step, "labels", batch[0].Label, batch[1].Label, batch[2].Label, batch[3].Label, "one-hot", y[:10])
	}
	// Output:
	// step 0 labels 7 9 8 2 one-hot [0 0 0 0 0 0 0 1 0 0]
	// step 1 labels 7 4 4 1 one-hot [0 0 0 0 0 0 0 1 0 0]
	// step 7 labels 5 0 0 7 one-hot [0 0 0 0 0 1 0 0 0 0]
}

// A CSV file with a corrupt row, which is left out and counted.
func ExampleReadCSV() {
	path, folder := write("rows.csv", []byte("height,width,class\n1,2,0\n3,x,1\n5,6,1\n"))
	defer os.RemoveAll(folder)
	skipped := data.NewSkipped(func(err error) { fmt.Println("skipped", filepath.Base(err.Error())) })
	rows, err := data.ReadCSV(skipped, path, true)
	if err != nil {
		log.Fatal(err)
	}
	for i := range rows.Len() {
		row, err := rows.At(i)
		fmt.Println(row, err)
	}
	fmt.Println(skipped.Count(), "corrupt")
	// Output:
	// skipped rows.csv:3: column 1: "x" is no number
	// [1 2 0] <nil>
	// [5 6 1] <nil>
	// 1 corrupt
}

// A matrix that NumPy wrote.
func ExampleReadNPY() {
	header := "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n"
	path, folder := write("rows.npy", append([]byte("\x93NUMPY\x01\x00"+string(rune(len(header)))+"\x00"+header), 1, 2, 3, 4, 5, 6))
	defer os.RemoveAll(folder)
	rows, err := data.ReadNPY(path)
	if err != nil {
		log.Fatal(err)
	}
	row, err := rows.At(1)
	fmt.Println(rows.Len(), "rows, the second is", row, err)
	// Output: 2 rows, the second is [4 5 6] <nil>
}

// Two files of images and labels in MNIST's format.
func ExampleReadMNIST() {
	images, folder := write("images", []byte{0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40})
	defer os.RemoveAll(folder)
	labels := filepath.Join(folder, "labels")
	if err := os.WriteFile(labels, []byte{0, 0, 8, 1, 0, 0, 0, 2, 7, 9}, 0o600); err != nil {
		log.Fatal(err)
	}
	digits, err := data.ReadMNIST(images, labels)
	if err != nil {
		log.Fatal(err)
	}
	second, err := digits.At(1)
	fmt.Println(second.Pixels, second.Label, err)
	// Output: [30 40] 9 <nil>
}

// A file in the format of CIFAR-10's binary version.
func ExampleReadCIFAR10() {
	path, folder := write("data_batch_1.bin", append([]byte{6}, make([]byte, 3072)...))
	defer os.RemoveAll(folder)
	pictures, err := data.ReadCIFAR10(path)
	if err != nil {
		log.Fatal(err)
	}
	first, err := pictures.At(0)
	fmt.Println(pictures.Len(), "picture of", len(first.Pixels), "pixels, class", first.Label, err)
	// Output: 1 picture of 3072 pixels, class 6 <nil>
}

// A folder of images. The name of each subfolder is a class.
func ExampleOpenFolder() {
	red := image.NewRGBA(image.Rect(0, 0, 1, 1))
	red.Set(0, 0, color.RGBA{R: 200, A: 255})
	var b bytes.Buffer
	if err := png.Encode(&b, red); err != nil {
		log.Fatal(err)
	}
	_, folder := write("red/1.png", b.Bytes())
	defer os.RemoveAll(folder)
	pictures, err := data.OpenFolder(nil, folder)
	if err != nil {
		log.Fatal(err)
	}
	first, err := pictures.At(0)
	fmt.Println(pictures.Classes[first.Label], first.Pixels, err)
	// Output: red [200 0 0] <nil>
}

// A TFRecord file with one record.
func ExampleOpenRecords() {
	content, err := hex.DecodeString("0500000000000000eab2043e68656c6c6fbb1f1c19")
	if err != nil {
		log.Fatal(err)
	}
	path, folder := write("one.tfrecord", content)
	defer os.RemoveAll(folder)
	records, err := data.OpenRecords(nil, path)
	if err != nil {
		log.Fatal(err)
	}
	first, err := records.At(0)
	fmt.Printf("%d record: %s %v\n", records.Len(), first.Data, err)
	// Output: 1 record: hello <nil>
}

// A tf.train.Example with one feature, "a", that holds the numbers 3 and 270.
func ExampleParseExample() {
	message, err := hex.DecodeString("0a0e0a0c0a016112071a050803088e02")
	if err != nil {
		log.Fatal(err)
	}
	e, err := data.ParseExample(message)
	fmt.Println(e["a"].Ints, err)
	_, err = data.ParseExample(message[:10])
	fmt.Println(err)
	// Output:
	// [3 270] <nil>
	// tf.train.Example: byte 1: truncated: field 1 has 14 bytes, the message 8
}

// A text and its translation, line by line.
func ExampleOpenParallel() {
	english, folder := write("train.en", []byte("one\ntwo\n"))
	defer os.RemoveAll(folder)
	german := filepath.Join(folder, "train.de")
	if err := os.WriteFile(german, []byte("eins\nzwei\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	pairs, err := data.OpenParallel(english, german)
	if err != nil {
		log.Fatal(err)
	}
	second, err := pairs.At(1)
	fmt.Println(second.Source, "is", second.Target, err)
	// Output: two is zwei <nil>
}

// A text stored as the numbers of its words.
func ExampleReadCorpus() {
	text, folder := write("text", []byte("the cat sat\nthe dog\n"))
	defer os.RemoveAll(folder)
	list := filepath.Join(folder, "words")
	if err := os.WriteFile(list, []byte("the\ncat\nsat\n"), 0o600); err != nil {
		log.Fatal(err)
	}
	words, err := data.ReadWords(list, 5, "<S>", "<UNK>")
	if err != nil {
		log.Fatal(err)
	}
	corpus, err := data.ReadCorpus(words, "<S>", text)
	if err != nil {
		log.Fatal(err)
	}
	next := corpus.Row(0, 1, 0)
	fmt.Println(next(), next(), next(), next(), next(), next(), next())
	// Output: 2 3 4 0 2 1 0
}

// inMemory is a Dataset that the program implements itself.
type inMemory [][]byte

func (d inMemory) Len() int                 { return len(d) }
func (d inMemory) At(i int) ([]byte, error) { return d[i], nil }

// Two datasets whose samples are taken in turn and decoded on access.
func ExampleInterleave() {
	one, two := inMemory{{1, 0}, {2, 0}}, inMemory{{0, 1}, {0, 2}}
	numbers := data.Map(data.Interleave[[]byte](one, two), func(b []byte) (uint16, error) { return binary.LittleEndian.Uint16(b), nil })
	for i := range numbers.Len() {
		fmt.Println(numbers.At(i))
	}
	// Output:
	// 1 <nil>
	// 256 <nil>
	// 2 <nil>
	// 512 <nil>
}
