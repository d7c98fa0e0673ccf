package examples_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/data"
)

// Every synchronisation mode learns to recognise artificial digits.
// Synchronous training by four workers computes the same bits as one process.
func TestMNISTLearns(t *testing.T) {
	path := program(t, "mnist")
	for _, mode := range []string{"async", "group:2"} {
		t.Run(mode, func(t *testing.T) {
			learns(t, run(t, path, 2, 4, "--steps=201", "--samples=2000", "--sync="+mode), 0.6, 0.5)
		})
	}
	t.Run("sync", func(t *testing.T) {
		arguments := []string{"--steps=101", "--samples=1000", "--batch-size=32", "--virtual-workers=4", "--digest"}
		out := run(t, path, 2, 4, append(arguments, "--sync=sync")...)
		learns(t, out, 0.6, 0.6)
		if want := alone(t, path, arguments...); out != want {
			t.Errorf("4 workers print\n%salone it is\n%s", out, want)
		}
	})
}

// From IDX files, with or without gzip, mnist learns the same as from the
// images in memory.
func TestMNISTReadsFiles(t *testing.T) {
	path, folder := program(t, "mnist"), t.TempDir()
	images, labels := idx(t, 300)
	files := map[string][]byte{"images.gz": packed(t, images), "images": images, "labels.gz": packed(t, labels), "labels": labels}
	for name, content := range files {
		save(t, filepath.Join(folder, name), content)
	}
	want := alone(t, path, "--steps=51", "--batch-size=30", "--samples=300")
	learns(t, want, 0.6, 0.6)
	for _, end := range []string{"", ".gz"} {
		got := alone(t, path, "--steps=51", "--batch-size=30", "--images", filepath.Join(folder, "images"+end), "--labels", filepath.Join(folder, "labels"+end))
		if got != want {
			t.Errorf("from files%s\n%swithout\n%s", end, got, want)
		}
	}
	_, stderr, err := refused(t, path, "--images", filepath.Join(folder, "labels"), "--labels", filepath.Join(folder, "images"))
	if err == nil || !strings.Contains(stderr, "labels") {
		t.Errorf("images for labels: %v\n%s", err, stderr)
	}
}

// The loss falls within a few dozen steps. Three workers, with dropout, batch
// norm, Adam and clipping, compute the same bits as one process.
func TestCIFARLearnsTheSameBits(t *testing.T) {
	path := program(t, "cifar")
	arguments := []string{"--virtual-workers=4", "--batch-size=32", "--steps=11", "--digest"}
	want := alone(t, path, arguments...)
	if got := run(t, path, 1, 3, arguments...); got != want {
		t.Errorf("3 workers print\n%salone it is\n%s", got, want)
	}
}

// The augmentation of a picture depends neither on the number of workers nor
// on whether the run was stopped and resumed.
func TestCIFARAugmentsTheSameBits(t *testing.T) {
	path := program(t, "cifar")
	arguments := []string{"--virtual-workers=4", "--batch-size=16", "--samples=60", "--steps=8", "--digest"}
	plain := alone(t, path, arguments...)
	arguments = append(arguments, "--augment")
	want := alone(t, path, arguments...)
	if digest(t, want) == digest(t, plain) {
		t.Error("augmented pictures give the digest of plain ones")
	}
	for _, workers := range []int{2, 4} {
		if got := run(t, path, 1, workers, arguments...); got != want {
			t.Errorf("%d workers print\n%salone it is\n%s", workers, got, want)
		}
	}
	checkpoints := append(arguments, "--ckpt-dir="+t.TempDir(), "--ckpt-every-steps=2")
	alone(t, path, append(checkpoints, "--stop-at-step=5")...)
	if got := digest(t, alone(t, path, checkpoints...)); got != digest(t, want) {
		t.Errorf("resumed after step 5 it is %s, in one run %s", got, digest(t, want))
	}
}

func TestCIFARLearnsFromFiles(t *testing.T) {
	path, folder := program(t, "cifar"), t.TempDir()
	made, err := data.MakePictures(0, 0, 200)
	if err != nil {
		t.Fatal(err)
	}
	var records []byte
	for i := range made.Len() {
		image := must(made.At(i))
		records = append(append(records, byte(image.Label)), image.Pixels...)
	}
	const half = 100 * (1 + 3*32*32)
	first, second := filepath.Join(folder, "data_batch_1.bin"), filepath.Join(folder, "data_batch_2.bin")
	save(t, first, records[:half])
	save(t, second, records[half:])
	learns(t, alone(t, path, "--steps=31", "--files", first+","+second), 0.8, 0.4)
	out := alone(t, path, "--steps=8", "--digest", "--files", first+","+second) // more than an epoch
	if want := alone(t, path, "--steps=8", "--digest", "--samples=200"); out != want {
		t.Errorf("from files\n%swithout\n%s", out, want)
	}
	save(t, second, records[half:len(records)-1])
	if _, stderr, err := refused(t, path, "--files", first+","+second); err == nil || !strings.Contains(stderr, "data_batch_2.bin") {
		t.Errorf("a file cut short: %v\n%s", err, stderr)
	}
}

// idx returns artificial digits in MNIST's file format: a magic number, the
// sizes and the bytes.
func idx(t *testing.T, samples int) (images, labels []byte) {
	t.Helper()
	made, err := data.MakeDigits(0, 0, samples)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint32{0x803, uint32(samples), 28, 28} {
		images = binary.BigEndian.AppendUint32(images, n)
	}
	for _, n := range []uint32{0x801, uint32(samples)} {
		labels = binary.BigEndian.AppendUint32(labels, n)
	}
	for i := range samples {
		image := must(made.At(i))
		images, labels = append(images, image.Pixels...), append(labels, byte(image.Label))
	}
	return images, labels
}

func must(image data.Image, err error) data.Image {
	if err != nil {
		panic(err)
	}
	return image
}

func packed(t *testing.T, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func save(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
