package torchtwin

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plx-run/plx/trainer"
	"github.com/plx-run/plx/trainer/safetensors"
	"gorgonia.org/tensor"
)

// content collects the tensors that a training writes to its file. Their names
// are first/VARIABLE (initial values), feed/STEP/INPUT, gradient/VARIABLE
// (first step), loss (all steps) and last/VARIABLE (final values).
type content struct {
	mu  sync.Mutex // needed because gradients are added while another goroutine computes the next feed
	all []safetensors.Tensor
}

// dense adds a tensor.
func (c *content) dense(name string, v *tensor.Dense) { c.add(name, v.Shape(), v.Data()) }

// floats adds a tensor of float64.
func (c *content) floats(name string, shape []int, x []float64) { c.add(name, shape, x) }

// gradient adds a gradient. The gradient of an embedding table is stored in
// the shape of the table, with zeros in unused rows.
func (c *content) gradient(g trainer.Gradient, shape tensor.Shape) error {
	if g.Rows == nil {
		c.add("gradient/"+g.Variable, g.Shape, g.Values)
		return nil
	}
	switch x := g.Values.(type) {
	case []float32:
		c.add("gradient/"+g.Variable, shape, scattered(x, g.Rows, shape))
	case []float64:
		c.add("gradient/"+g.Variable, shape, scattered(x, g.Rows, shape))
	default:
		return fmt.Errorf("the gradient is a %T", x)
	}
	return nil
}

func scattered[T float32 | float64](x []T, rows []int64, shape tensor.Shape) []T {
	all, width := make([]T, shape.TotalSize()), shape[1]
	for i, row := range rows {
		copy(all[int(row)*width:], x[i*width:(i+1)*width])
	}
	return all
}

func (c *content) add(name string, shape []int, data any) {
	dtype := safetensors.F64
	switch data.(type) {
	case []float32:
		dtype = safetensors.F32
	case []int64:
		dtype = safetensors.I64
	}
	b, err := binary.Append(nil, binary.LittleEndian, data)
	if err != nil {
		panic(err) // cannot happen with slices of numbers, so it is a bug in this package
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, safetensors.Tensor{Name: name, Dtype: dtype, Shape: slices.Clone(shape), Data: b})
}

// write writes all tensors and the settings to a file.
func (c *content) write(path string, settings map[string]any) error {
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	var names []string
	for _, x := range c.all {
		if !strings.HasPrefix(x.Name, "feed/") && !strings.HasPrefix(x.Name, "first/") {
			names = append(names, x.Name)
		}
	}
	compared, err := json.Marshal(names)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err = safetensors.Write(f, map[string]string{"settings": string(text), "compared": string(compared)}, c.all); err != nil {
		f.Close() // an error has occurred already, and only the first error is returned
		return err
	}
	return f.Close()
}

// tensors maps the names of a file's tensors to their elements.
type tensors map[string][]float64

// read reads those tensors of a file that Compare compares. It leaves out
// feeds and initial values.
func read(t *testing.T, path string) tensors {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // opened for reading: an error of Close does not matter
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Open(f, info.Size())
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	var names []string
	if err := json.Unmarshal([]byte(file.Metadata()["compared"]), &names); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	all := tensors{}
	for _, name := range names {
		all[name] = elements(t, file, name)
	}
	all["first loss"] = all["loss"][:1]
	return all
}

func elements(t *testing.T, file *safetensors.File, name string) []float64 {
	t.Helper()
	info, _ := file.Tensor(name) // the caller has taken the name from the file, so the tensor exists
	b := make([]byte, info.Size)
	if err := file.ReadAt(name, b, 0); err != nil {
		t.Fatal(err)
	}
	x := make([]float64, info.Size/int64(map[safetensors.Dtype]int{safetensors.F32: 4, safetensors.F64: 8}[info.Dtype]))
	for i := range x {
		if info.Dtype == safetensors.F32 {
			x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
		} else {
			x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	return x
}

// withoutGradients returns x without the gradients.
func (x tensors) withoutGradients() tensors {
	rest := maps.Clone(x)
	maps.DeleteFunc(rest, func(name string, _ []float64) bool { return strings.HasPrefix(name, "gradient/") })
	return rest
}

// differences returns, for each tensor, how much x differs from want. x and
// want must have the same tensors.
func (x tensors) differences(t *testing.T, want tensors) map[string]float64 {
	t.Helper()
	if got, names := slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, names) {
		t.Fatalf("plx has %v\nPyTorch has %v", got, names)
	}
	all := map[string]float64{}
	for name, elements := range x {
		compare := difference
		if name == "loss" {
			compare = largestOfEach
		}
		by, err := compare(elements, want[name])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = by
	}
	return all
}

// difference returns the largest absolute difference between corresponding
// elements of x and want, divided by the largest absolute element of want.
func difference(x, want []float64) (float64, error) {
	if len(x) != len(want) {
		return 0, fmt.Errorf("plx has %d elements, PyTorch %d", len(x), len(want))
	}
	by, largest := 0.0, 0.0
	for i, w := range want {
		d := math.Abs(x[i] - w)
		if math.IsNaN(d) || math.IsInf(d, 0) {
			return 0, fmt.Errorf("element %d is %v, in PyTorch %v", i, x[i], w)
		}
		by, largest = max(by, d), max(largest, math.Abs(w))
	}
	if largest == 0 {
		return 0, errors.New("is zero everywhere, so it compares nothing")
	}
	return by / largest, nil
}

// largestOfEach divides the difference of each pair of elements by the element
// of want, and returns the largest quotient.
func largestOfEach(x, want []float64) (largest float64, err error) {
	for i := range min(len(x), len(want)) {
		by, err := difference(x[i:i+1], want[i:i+1])
		if err != nil {
			return 0, err
		}
		largest = max(largest, by)
	}
	if len(x) != len(want) {
		return 0, fmt.Errorf("plx has %d elements, PyTorch %d", len(x), len(want))
	}
	return largest, nil
}

// worst returns a summary for a message: the largest difference of each type
// of tensor, such as gradients.
func worst(differences map[string]float64) string {
	kinds := map[string]float64{}
	for name, by := range differences {
		kind, _, _ := strings.Cut(name, "/")
		kinds[kind] = max(kinds[kind], by)
	}
	var words []string
	for _, kind := range []string{"first loss", "gradient", "loss", "last"} {
		if by, ok := kinds[kind]; ok {
			words = append(words, fmt.Sprintf("%s %.1e", kind, by))
		}
	}
	return strings.Join(words, " | ")
}
