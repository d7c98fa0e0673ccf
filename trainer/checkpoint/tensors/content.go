// Package tensors knows how the state of a training lies in the files of a
// checkpoint: which tensors a shard holder or a worker writes, and how a range
// of a variable is read back.
//
// A variable that one task has whole is a tensor of its name. A part of a
// variable is a tensor "name[from:to]", in elements, or in rows if the variable
// is sparse. Beside a tensor X lie "X/rows", the numbers of the stored rows, if
// it is sparse, and "X/slot.0" and so on, what the optimiser keeps.
//
// The package does no input or output of its own: it gets open files.
package tensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/safetensors"
)

// FileName is the name of a task's file: of its pieces of variables or, with
// state, of what it carries from step to step.
func FileName(t cluster.Task, state bool) string {
	name := string(t.Role) + "-" + strconv.Itoa(t.Index)
	if state {
		name += ".state"
	}
	return name + ".safetensors"
}

// Content is what a file holds, and what the manifest says about it.
type Content struct {
	Tensors []safetensors.Tensor
	Parts   []checkpoint.Part
	Carried []checkpoint.Carried
	names   map[string]bool // that are taken
}

func newContent() Content { return Content{names: map[string]bool{"__metadata__": true}} }

// dtypes are the types of elements, by the name that programs and manifests
// use.
var dtypes = map[string]safetensors.Dtype{
	"float32": safetensors.F32, "float64": safetensors.F64,
	"int64": safetensors.I64, "uint64": safetensors.U64, "uint8": safetensors.U8,
}

// OfPieces lists the tensors of a shard holder's pieces. They share the
// snapshot's memory.
func OfPieces(s transition.Snapshot) (Content, error) {
	c := newContent()
	for _, k := range s.Pieces {
		if k.Variable < 0 || k.Variable >= len(s.Declaration.Variables) {
			return c, fmt.Errorf("a piece of variable %d, there are %d", k.Variable, len(s.Declaration.Variables))
		}
		c.add(s.Declaration.Variables[k.Variable], k, FileName(s.Holder, false))
	}
	return c, nil
}

// rowsOf and slotOf name what lies beside a tensor.
func rowsOf(tensor string) string        { return tensor + "/rows" }
func slotOf(tensor string, i int) string { return tensor + "/slot." + strconv.Itoa(i) }

// add lists the tensors of one piece.
func (c *Content) add(v layout.Variable, k aggregate.Kept, file string) {
	name, shape := v.Name, []int{k.Count}
	if k.Offset > 0 || k.Count < wholeOf(v) {
		name = fmt.Sprintf("%s[%d:%d]", v.Name, k.Offset, k.Offset+k.Count)
	} else {
		shape = v.Shape
	}
	rows := -1
	if v.Sparse != nil {
		rows = len(k.Rows)
		shape = append([]int{rows}, width(v))
	}
	name = c.free(name, len(k.Slots))
	dtype := dtypes[string(v.Dtype)]
	c.tensor(name, dtype, shape, k.Values)
	if v.Sparse != nil {
		c.tensor(rowsOf(name), safetensors.I64, []int{rows}, indexBytes(k.Rows))
	}
	for i, slot := range k.Slots {
		c.tensor(slotOf(name, i), dtype, shape, slot)
	}
	c.Parts = append(c.Parts, checkpoint.Part{Variable: v.Name, File: file, Tensor: name,
		Offset: k.Offset, Count: k.Count, Rows: rows, Updates: k.Updates, Slots: len(k.Slots)})
}

// wholeOf is the number of elements of a dense variable, of rows of a sparse
// one.
func wholeOf(v layout.Variable) int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return product(v.Shape)
}

// width is the number of elements of a row.
func width(v layout.Variable) int { return product(v.Shape[1:]) }

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// free makes a name that collides with no other tensor of the file, and whose
// rows and slots collide with none: variables may have any name.
func (c *Content) free(name string, slots int) string {
	taken := func(name string) bool {
		for i := range slots {
			if c.names[slotOf(name, i)] {
				return true
			}
		}
		return c.names[name] || c.names[rowsOf(name)]
	}
	for taken(name) {
		name += "~"
	}
	return name
}

func (c *Content) tensor(name string, dtype safetensors.Dtype, shape []int, data []byte) {
	c.names[name] = true
	c.Tensors = append(c.Tensors, safetensors.Tensor{Name: name, Dtype: dtype, Shape: shape, Data: data})
}

func indexBytes(rows []int64) []byte {
	b := make([]byte, 0, 8*len(rows))
	for _, row := range rows {
		b = binary.LittleEndian.AppendUint64(b, uint64(row))
	}
	return b
}

// Size is the number of bytes of all tensors.
func (c Content) Size() (n int64) {
	for _, t := range c.Tensors {
		n += int64(len(t.Data))
	}
	return n
}

// Carried is what a worker carries from step to step under one name.
type Carried struct {
	Dtype string // float32, float64, int64, uint64 or uint8
	Shape []int  // the first dimension counts rows of the batch
	Data  []byte // the elements in order, little-endian
}

// State is all that a worker carries.
type State struct {
	Step   uint64 // number of steps after which it was carried
	Lo, Hi int    // rows [Lo, Hi) of the global batch
	Values map[string]Carried
}

// OfState lists the tensors of a worker's state, for a file.
func OfState(s State, file string) Content {
	c := newContent()
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		v := s.Values[key]
		name := c.free(key, 0)
		c.tensor(name, dtypes[v.Dtype], v.Shape, v.Data)
		c.Carried = append(c.Carried, checkpoint.Carried{Name: key, File: file, Tensor: name,
			Dtype: v.Dtype, Shape: v.Shape, Lo: s.Lo, Hi: s.Hi})
	}
	return c
}

// ReadCarried reads the rows [from, to) of the global batch, which are among
// those of s.
func ReadCarried(file *safetensors.File, s checkpoint.Carried, from, to int) ([]byte, error) {
	info, ok := file.Tensor(s.Tensor)
	if !ok || info.Dtype != dtypes[s.Dtype] || !slices.Equal(info.Shape, s.Shape) {
		return nil, fmt.Errorf("tensor %q of %s is not what the manifest says", s.Tensor, s.File)
	}
	row := info.Size / int64(s.Hi-s.Lo)
	b := make([]byte, row*int64(to-from))
	return b, file.ReadAt(s.Tensor, b, row*int64(from-s.Lo))
}
