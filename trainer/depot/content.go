package depot

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/safetensors"
)

// fileName is what a task's file is called.
func fileName(t cluster.Task, state bool) string {
	name := string(t.Role) + "-" + strconv.Itoa(t.Index)
	if state {
		name += ".state"
	}
	return name + ".safetensors"
}

// content is what a file is to hold, and what the manifest says of it.
type content struct {
	tensors []safetensors.Tensor
	parts   []checkpoint.Part
	carried []checkpoint.Carried
	names   map[string]bool
}

// dtypes are the names of types in programs and in files.
var dtypes = map[string]safetensors.Dtype{
	"float32": safetensors.F32, "float64": safetensors.F64,
	"int64": safetensors.I64, "uint64": safetensors.U64, "uint8": safetensors.U8,
}

// describe lists the tensors of an owner's pieces. They share its memory.
func describe(s owner.Snapshot) (content, error) {
	c := content{names: map[string]bool{"__metadata__": true}}
	for _, k := range s.Pieces {
		if k.Variable < 0 || k.Variable >= len(s.Declaration.Variables) {
			return c, fmt.Errorf("a piece of variable %d, there are %d", k.Variable, len(s.Declaration.Variables))
		}
		c.add(s.Declaration.Variables[k.Variable], k, fileName(s.Owner, false))
	}
	return c, nil
}

// rowsOf and slotOf name what lies beside a tensor.
func rowsOf(tensor string) string        { return tensor + "/rows" }
func slotOf(tensor string, i int) string { return tensor + "/slot." + strconv.Itoa(i) }

// add lists the tensors of one piece.
func (c *content) add(v owner.Variable, k owner.Kept, file string) {
	name, shape, whole := v.Name, []int{k.Count}, wholeOf(v)
	if k.Offset > 0 || k.Count < whole {
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
	c.parts = append(c.parts, checkpoint.Part{Variable: v.Name, File: file, Tensor: name,
		Offset: k.Offset, Count: k.Count, Rows: rows, Updates: k.Updates, Slots: len(k.Slots)})
}

// wholeOf is the elements of a dense variable, the rows of a sparse one.
func wholeOf(v owner.Variable) int {
	if v.Sparse != nil {
		return v.Shape[0]
	}
	return product(v.Shape)
}

// width is the elements of a row.
func width(v owner.Variable) int { return product(v.Shape[1:]) }

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// free makes a name that no other tensor of the file has, nor what lies beside
// it: variables may be called anything.
func (c *content) free(name string, slots int) string {
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

func (c *content) tensor(name string, dtype safetensors.Dtype, shape []int, data []byte) {
	c.names[name] = true
	c.tensors = append(c.tensors, safetensors.Tensor{Name: name, Dtype: dtype, Shape: shape, Data: data})
}

func indexBytes(rows []int64) []byte {
	b := make([]byte, 0, 8*len(rows))
	for _, row := range rows {
		b = binary.LittleEndian.AppendUint64(b, uint64(row))
	}
	return b
}

// Carried is what a worker carries from step to step under one name: Dtype is
// float32, float64, int64, uint64 or uint8, the first dimension of Shape the
// rows of the batch, Data the elements in order, little-endian.
type Carried struct {
	Dtype string
	Shape []int
	Data  []byte
}

// state is all that a worker carries.
type state struct {
	step   uint64
	lo, hi int // rows of the global batch
	values map[string]Carried
}

// describe lists the tensors of a worker's state.
func (s state) describe(file string) content {
	c := content{names: map[string]bool{"__metadata__": true}}
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		v := s.values[key]
		name := c.free(key, 0)
		c.tensor(name, dtypes[v.Dtype], v.Shape, v.Data)
		c.carried = append(c.carried, checkpoint.Carried{Name: key, File: file, Tensor: name,
			Dtype: v.Dtype, Shape: v.Shape, Lo: s.lo, Hi: s.hi})
	}
	return c
}

func (c content) size() (n int64) {
	for _, t := range c.tensors {
		n += int64(len(t.Data))
	}
	return n
}

// write writes a file of the checkpoint. A disk that takes for ever is left
// to itself.
func (d *Depot) write(ctx context.Context, p *part, name string, c content) (checkpoint.File, error) {
	type written struct {
		size int64
		sum  string
		err  error
	}
	ctx, cancel := d.hurry(ctx, c.size())
	defer cancel()
	done := make(chan written, 1)
	metadata := map[string]string{"format": "plx", "job": d.config.Job, "checkpoint": p.id, "task": d.config.Peers.Self.String()}
	p.running.Add(1)
	started := d.start(func(context.Context) {
		defer p.running.Done()
		size, sum, err := d.folder.Write(p.id, name, func(w io.Writer) error {
			if err := d.hook("depot.write"); err != nil {
				return err
			}
			_, err := safetensors.Write(patient{ctx, w}, metadata, c.tensors)
			return err
		})
		done <- written{size, sum, err}
	})
	if !started {
		p.running.Done()
		return checkpoint.File{}, errClosed
	}
	select {
	case w := <-done:
		return checkpoint.File{Name: name, Task: d.config.Peers.Self.String(), Size: w.size, Sum: w.sum}, w.err
	case <-ctx.Done():
		return checkpoint.File{}, fmt.Errorf("write %s: %w", name, context.Cause(ctx))
	}
}

// hurry bounds what is done with so many bytes.
func (d *Depot) hurry(ctx context.Context, bytes int64) (context.Context, context.CancelFunc) {
	most := d.config.patience(bytes)
	return context.WithTimeoutCause(ctx, most, fmt.Errorf("not done after %v", most))
}

// patient writes until a context ends.
type patient struct {
	ctx context.Context
	w   io.Writer
}

func (p patient) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		if p.ctx.Err() != nil {
			return n, context.Cause(p.ctx)
		}
		var wrote int
		wrote, err = p.w.Write(b[:min(len(b), chunkSize)])
		n, b = n+wrote, b[wrote:]
	}
	return n, err
}
