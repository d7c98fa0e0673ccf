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
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sort"
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
	names   map[string]bool // names of tensors that are in use
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
	if k.Offset > 0 || k.Count < v.Units() {
		name = fmt.Sprintf("%s[%d:%d]", v.Name, k.Offset, k.Offset+k.Count)
	} else {
		shape = v.Shape
	}
	rows := -1
	if v.Sparse != nil {
		rows = len(k.Rows)
		shape = append([]int{rows}, v.Width())
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
	Shape []int  // the first dimension counts rows of the global batch
	Data  []byte // the elements in order, little-endian
}

// State is all that a worker carries.
type State struct {
	Step   uint64             // number of steps after which the state was carried into the next one
	Lo, Hi int                // the worker feeds rows [Lo, Hi) of the global batch
	Values map[string]Carried // by name
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

// portionSize is about how many bytes of values are read and put at once.
const portionSize = 4 << 20

// ReadPart puts the elements, or rows, [lo, hi) of a part of a variable: what
// file holds of them. variable is the index of v in the declaration.
func ReadPart(ctx context.Context, file *safetensors.File, part checkpoint.Part, v layout.Variable, variable, lo, hi int, into transition.Restoring) error {
	e := extract{file: file, part: part, unit: v.Dtype.Size(), portion: portionSize}
	if part.Rows >= 0 {
		e.unit *= v.Width()
	}
	if err := e.check(); err != nil {
		return err
	}
	return e.put(ctx, variable, lo, hi, into)
}

// extract reads portions of a part.
type extract struct {
	file    *safetensors.File
	part    checkpoint.Part
	unit    int // bytes of an element of a dense variable, or of a row of a sparse one
	portion int // bytes of values to read at once, at least one unit
}

// check compares the file with what the manifest says about it.
func (e extract) check() error {
	stored := e.part.Count
	if e.part.Rows >= 0 {
		stored = e.part.Rows
		if err := e.sized(rowsOf(e.part.Tensor), 8*int64(stored)); err != nil {
			return err
		}
	}
	want := int64(stored) * int64(e.unit)
	if err := e.sized(e.part.Tensor, want); err != nil {
		return err
	}
	for i := range e.part.Slots {
		if err := e.sized(slotOf(e.part.Tensor, i), want); err != nil {
			return err
		}
	}
	return nil
}

func (e extract) sized(tensor string, want int64) error {
	if info, ok := e.file.Tensor(tensor); !ok || info.Size != want {
		return fmt.Errorf("it has %d bytes of tensor %q, the manifest says %d", info.Size, tensor, want)
	}
	return nil
}

// put puts the units [lo, hi) of the part, portion by portion.
func (e extract) put(ctx context.Context, variable, lo, hi int, into transition.Restoring) error {
	next := 0
	for at := lo; at < hi; at = next {
		var k aggregate.Kept
		var err error
		if e.part.Rows >= 0 {
			k, next, err = e.rows(at, hi)
		} else {
			k, next, err = e.elements(at, hi)
		}
		if err != nil {
			return err
		}
		k.Variable, k.Offset, k.Count, k.Updates = variable, at, next-at, e.part.Updates
		if err := into.Put(k); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// elements reads a portion of a dense part from element at on, and returns where
// the next portion begins.
func (e extract) elements(at, hi int) (aggregate.Kept, int, error) {
	n := min(hi-at, max(1, e.portion/e.unit))
	k, err := e.values(at-e.part.Offset, n)
	return k, at + n, err
}

// rows reads a portion of a sparse part: those rows of [at, hi) that are
// stored. It returns where the next portion begins.
func (e extract) rows(at, hi int) (k aggregate.Kept, next int, err error) {
	first, err := e.search(at)
	if err != nil {
		return k, 0, err
	}
	n := min(e.part.Rows-first, max(1, e.portion/e.unit))
	index := make([]byte, 8*n)
	if err := e.file.ReadAt(rowsOf(e.part.Tensor), index, 8*int64(first)); err != nil {
		return k, 0, err
	}
	rows, next := make([]int64, 0, n), hi
	for i := range n {
		row := int64(binary.LittleEndian.Uint64(index[8*i:]))
		if row >= int64(hi) {
			break
		}
		rows = append(rows, row)
	}
	if len(rows) == n && first+n < e.part.Rows { // others may follow
		if next = int(rows[n-1]) + 1; next <= at {
			return k, 0, fmt.Errorf("rows that are not in order: %d follows %d", next-1, at)
		}
	}
	k, err = e.values(first, len(rows))
	k.Rows = rows
	return k, next, err
}

// search returns how many stored rows have a lower number than row.
func (e extract) search(row int) (int, error) {
	var failed error
	i := sort.Search(e.part.Rows, func(i int) bool {
		var b [8]byte
		if failed == nil {
			failed = e.file.ReadAt(rowsOf(e.part.Tensor), b[:], 8*int64(i))
		}
		return int64(binary.LittleEndian.Uint64(b[:])) >= int64(row)
	})
	return i, failed
}

// values reads n stored units from the first on, with the optimiser's slots.
func (e extract) values(first, n int) (k aggregate.Kept, err error) {
	k.Values, err = e.bytes(e.part.Tensor, first, n)
	for i := range e.part.Slots {
		if err != nil {
			return k, err
		}
		var slot []byte
		slot, err = e.bytes(slotOf(e.part.Tensor, i), first, n)
		k.Slots = append(k.Slots, slot)
	}
	return k, err
}

func (e extract) bytes(tensor string, first, n int) ([]byte, error) {
	b := make([]byte, n*e.unit)
	return b, e.file.ReadAt(tensor, b, int64(first)*int64(e.unit))
}
