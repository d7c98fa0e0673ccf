package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/trainer/safetensors"
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
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ shape, values string }{"w0": {"[2 2]", "[1 2 3 4]"}, "w1": {"[1 2]", "[5 6]"}} {
		info, _ := file.Tensor(name)
		data := make([]byte, info.Size)
		if err := file.ReadAt(name, data, 0); err != nil {
			t.Fatal(err)
		}
		values := make([]float32, info.Size/4)
		if _, err := binary.Decode(data, binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		if info.Dtype != safetensors.F32 || fmt.Sprint(info.Shape) != want.shape || fmt.Sprint(values) != want.values {
			t.Errorf("%s is %+v with %v, want %v", name, info, values, want)
		}
	}
}

// A file that cannot be written leaves no half of it behind.
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
