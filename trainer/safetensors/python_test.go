package safetensors

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
)

// content is what testdata/reader.py, an independent reader, prints about a
// file.
type content struct {
	Aligned  bool              `json:"aligned"`
	Metadata map[string]string `json:"metadata"`
	Tensors  []described       `json:"tensors"`
}

type described struct {
	Name   string    `json:"name"`
	Dtype  Dtype     `json:"dtype"`
	Shape  []int     `json:"shape"`
	Values []float64 `json:"values"` // integers are at most 1<<53, because JSON rounds larger ones
}

// python runs testdata/reader.py, an independent implementation of the format.
// It needs only Python 3. Without Python the test is skipped, but in CI it
// fails.
func python(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	interpreter, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs python3: %v", err)
		}
		t.Skipf("needs python3: %v", err)
	}
	cmd := exec.Command(interpreter, append([]string{filepath.Join("testdata", "reader.py")}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("reader.py %v: %v: %s", args, err, &complaint)
	}
	return out
}

// known returns the content of an example file, once as reader.py prints it
// and once as tensors to write.
func known() (content, []Tensor) {
	said := content{true, map[string]string{"step": "40", "ключ": "\"ü\"\n\\"}, []described{
		{"w1[0:2]", F32, []int{2, 3}, []float64{0.5, -1.25, 3, 4, 5, 1 << 100}},
		{"slot", F64, []int{2, 1}, []float64{math.Pi, -1e300}},
		{"words[0:500]/rows", I64, []int{3}, []float64{-1, 2, 1 << 53}},
		{"none", F32, []int{0, 7}, []float64{}},
		{"updates", U64, []int{}, []float64{1 << 53}},
		{"<&>\u2028☃", U8, []int{1, 1, 4}, []float64{0, 127, 128, 255}},
	}}
	var tensors []Tensor
	for _, d := range said.Tensors {
		data := []byte{}
		for _, v := range d.Values {
			data = appendNumber(data, d.Dtype, v)
		}
		tensors = append(tensors, Tensor{d.Name, d.Dtype, d.Shape, data})
	}
	return said, tensors
}

// appendNumber appends the bytes of the number v in the type dtype.
func appendNumber(b []byte, dtype Dtype, v float64) []byte {
	var bits uint64
	size := 8
	switch dtype {
	case F32:
		bits, size = uint64(math.Float32bits(float32(v))), 4
	case F64:
		bits = math.Float64bits(v)
	case I64:
		bits = uint64(int64(v))
	case U64:
		bits = uint64(v)
	case U8:
		bits, size = uint64(v), 1
	}
	for range size {
		b = append(b, byte(bits))
		bits >>= 8
	}
	return b
}

func TestPythonReadsFilesOfWrite(t *testing.T) {
	want, tensors := known()
	path := filepath.Join(t.TempDir(), "ours.safetensors")
	if err := os.WriteFile(path, encode(t, want.Metadata, tensors), 0o600); err != nil {
		t.Fatal(err)
	}
	var got content
	if err := json.Unmarshal(python(t, nil, "read", path), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Python reads %+v\nwritten was  %+v", got, want)
	}
}

func TestOpenReadsFilesOfPython(t *testing.T) {
	said, tensors := known()
	stdin, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "python.safetensors")
	python(t, stdin, "write", path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	metadata, got := decode(t, f)
	checkSame(t, said.Metadata, metadata, tensors, got)
}
