package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gorgonia.org/tensor"
)

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	err := save(path, map[string]*tensor.Dense{
		"w1": tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{5, 6})),
		"w0": tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})),
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	line, body, _ := bytes.Cut(file, []byte("\n"))
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		t.Fatal(err)
	}
	if want := (header{[]variable{{"w0", []int{2, 2}}, {"w1", []int{1, 2}}}}); !reflect.DeepEqual(h, want) {
		t.Errorf("header is %+v, want %+v", h, want)
	}
	got := make([]float32, 6)
	if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, got); err != nil {
		t.Fatal(err)
	}
	if want := []float32{1, 2, 3, 4, 5, 6}; len(body) != 24 || !reflect.DeepEqual(got, want) {
		t.Errorf("values are %v in %d bytes, want %v", got, len(body), want)
	}
}

// If save cannot write the file, it leaves no partial file behind.
func TestSaveFails(t *testing.T) {
	folder := t.TempDir()
	one := tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))
	if err := save(filepath.Join(folder, "weights"), map[string]*tensor.Dense{"w": one}); err == nil {
		t.Error("float64 was saved as float32")
	}
	if err := save(filepath.Join(folder, "none", "weights"), nil); err == nil {
		t.Error("saved into a folder that does not exist")
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
