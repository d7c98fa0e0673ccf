// Package tensors defines how the state of a training is laid out in the files
// of a checkpoint: which tensors a shard holder (a task that stores variables)
// or a worker writes, and how to read a range of a variable.
//
// A variable that one task holds entirely is a tensor with the variable's
// name. A part of a variable is a tensor "name[from:to]", counted in elements,
// or in rows if the variable is sparse. Further tensors belong to a tensor X:
// "X/slot.0", "X/slot.1" and so on hold the optimiser's state. If the variable
// is sparse, "X/rows" holds the numbers of the rows that are stored.
//
// The package opens no files itself: callers pass open ones.
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

// FileName returns the name of the file that task t writes in a save. If state
// is true, this is the file with the recurrent state that t carries; otherwise
// the file with its pieces of variables.
func FileName(t cluster.Task, state bool) string {
	name := string(t.Role) + "-" + strconv.Itoa(t.Index)
	if state {
		name += ".state"
	}
	return name + ".safetensors"
}

// Content is the content of one checkpoint file: its tensors, and the entries
// of the manifest that describe them.
type Content struct {
	Tensors []safetensors.Tensor
	Parts   []checkpoint.Part
	Carried []checkpoint.Carried
	names   map[string]bool // names of the tensors in this file so far
}

func newContent() Content { return Content{names: map[string]bool{"__metadata__": true}} }

// dtypes maps the element types of programs and manifests to those of
// safetensors files.
var dtypes = map[string]safetensors.Dtype{
	"float32": safetensors.F32, "float64": safetensors.F64,
	"int64": safetensors.I64, "uint64": safetensors.U64, "uint8": safetensors.U8,
}

// OfPieces lists the tensors of all pieces in s, the snapshot of the variables
// that one task stores. The tensors share the snapshot's memory.
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

// rowsOf and slotOf return the names of tensors that belong to another tensor:
// rowsOf of its row numbers, slotOf of its i-th optimiser slot.
func rowsOf(tensor string) string        { return tensor + "/rows" }
func slotOf(tensor string, i int) string { return tensor + "/slot." + strconv.Itoa(i) }

// add appends the tensors of k, one piece of variable v, and the piece's entry
// in the manifest.
func (c *Content) add(v layout.Variable, k aggregate.SavedPiece, file string) {
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
	name = c.uniqueName(name, len(k.Slots))
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

// uniqueName appends "~" to name until the file has no tensor with that name,
// and returns the result. The names of the tensors with the row numbers
// (name/rows) and with the optimiser's state (name/slot.N) must be unused too.
// A clash is possible because users may give variables any name, such as
// "x/rows".
func (c *Content) uniqueName(name string, slots int) string {
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

// Size returns the total size of all tensors in bytes.
func (c Content) Size() (n int64) {
	for _, t := range c.Tensors {
		n += int64(len(t.Data))
	}
	return n
}

// Carried is recurrent state that a worker carries from step to step for one
// input of the model.
type Carried struct {
	Dtype string // element type: float32, float64, int64, uint64 or uint8
	Shape []int  // the first dimension counts the rows of the global batch that the worker processes
	Data  []byte // the elements in row-major order, little-endian
}

// State is the recurrent state that a worker carries, for all inputs.
type State struct {
	Step   uint64             // number of steps made when the worker had this state
	Lo, Hi int                // range [Lo, Hi) of the rows of the global batch that the worker processes
	Values map[string]Carried // state by name of the input
}

// OfState lists the tensors of a worker's recurrent state, and their entries
// in the manifest. file is the name of the file that will have the tensors.
func OfState(s State, file string) Content {
	c := newContent()
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		v := s.Values[key]
		name := c.uniqueName(key, 0)
		c.tensor(name, dtypes[v.Dtype], v.Shape, v.Data)
		c.Carried = append(c.Carried, checkpoint.Carried{Name: key, File: file, Tensor: name,
			Dtype: v.Dtype, Shape: v.Shape, Lo: s.Lo, Hi: s.Hi})
	}
	return c
}

// ReadCarried reads the recurrent state for rows [from, to) of the global
// batch from file. s describes that file's state in the manifest, and must
// contain these rows.
func ReadCarried(file *safetensors.File, s checkpoint.Carried, from, to int) ([]byte, error) {
	info, ok := file.Tensor(s.Tensor)
	if !ok || info.Dtype != dtypes[s.Dtype] || !slices.Equal(info.Shape, s.Shape) {
		return nil, fmt.Errorf("tensor %q of %s is not what the manifest says", s.Tensor, s.File)
	}
	row := info.Size / int64(s.Hi-s.Lo)
	b := make([]byte, row*int64(to-from))
	return b, file.ReadAt(s.Tensor, b, row*int64(from-s.Lo))
}

// portionSize is the approximate number of bytes that ReadPart reads at a
// time.
const portionSize = 4 << 20

// ReadPart reads the units [lo, hi) of a variable from file and passes them to
// into. The units must lie within part. Units are rows of a sparse variable,
// and elements of a dense one. The parameter variable is the index of v in the
// job's declaration.
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

// extract reads one part of a variable from a file, portion by portion.
type extract struct {
	file    *safetensors.File
	part    checkpoint.Part
	unit    int // size in bytes of a unit: an element of a dense variable, or a row of a sparse one
	portion int // number of bytes of values to read at a time; at least one unit is read
}

// check compares the sizes of the tensors in the file with the manifest.
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

// put reads the units (elements or rows) [lo, hi) of the part, a portion at a
// time, and passes each portion to into.
func (e extract) put(ctx context.Context, variable, lo, hi int, into transition.Restoring) error {
	next := 0
	for at := lo; at < hi; at = next {
		var k aggregate.SavedPiece
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

// elements reads a portion of a dense part. The portion begins at element at,
// and the next portion begins at the element that elements returns.
func (e extract) elements(at, hi int) (aggregate.SavedPiece, int, error) {
	n := min(hi-at, max(1, e.portion/e.unit))
	k, err := e.values(at-e.part.Offset, n)
	return k, at + n, err
}

// rows reads a portion of a sparse part: those rows in [at, hi) that the file
// has. It returns the row at which the next portion begins.
func (e extract) rows(at, hi int) (k aggregate.SavedPiece, next int, err error) {
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
	if len(rows) == n && first+n < e.part.Rows { // the file has more rows, and some may be below hi
		if next = int(rows[n-1]) + 1; next <= at {
			return k, 0, fmt.Errorf("rows that are not in order: %d follows %d", next-1, at)
		}
	}
	k, err = e.values(first, len(rows))
	k.Rows = rows
	return k, next, err
}

// search returns the index in the file of the first stored row whose number is
// at least row.
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

// values reads n units (elements or rows) of values and optimiser slots. It
// begins with the unit at index first in the file.
func (e extract) values(first, n int) (k aggregate.SavedPiece, err error) {
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
