// Package weights reads the values of variables from a checkpoint without the job that
// made it, or from a single file of tensors:
//
//	s, err := weights.Open(ctx, "ckpt", logf)   // a folder of checkpoints: the newest good one
//	s, err := weights.Open(ctx, "model.safetensors", logf)
//	defer s.Close()
//	for _, v := range s.Variables() {
//		values, err := s.Read(ctx, v.Name)
//	}
//
// All files of the checkpoint must lie in the folder, as plx fetch leaves them.
//
// # What it refuses
//
// It changes nothing, and reads a checkpoint only if every file has the SHA-256 that the
// manifest says. A file of tensors has no sums. What the optimiser keeps is left out.
package weights

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/plx-run/plx/trainer/aggregate"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/choose"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/layout"
	"github.com/plx-run/plx/trainer/safetensors"
)

// Source is a checkpoint, or a file of tensors, that is open for reading. Several
// goroutines may call its methods.
type Source struct {
	path     string
	manifest *checkpoint.Manifest         // nil: a single file of tensors
	files    map[string]*safetensors.File // by name; of a single file: by ""
	open     []*os.File
}

// Open opens the newest good checkpoint of a folder, by DIR/best the one with the highest score
// in DIR, a checkpoint by its own folder, or a file in the safetensors format. logf gets a warning about each checkpoint that is not
// used.
func Open(ctx context.Context, path string, logf func(slog.Level, string, ...any)) (*Source, error) {
	s, err := open(ctx, path, logf)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string, logf func(slog.Level, string, ...any)) (*Source, error) {
	info, err := os.Stat(path)
	best := errors.Is(err, fs.ErrNotExist) && filepath.Base(path) == "best"
	if best {
		path = filepath.Dir(path)
		info, err = os.Stat(path)
	}
	if err != nil {
		return nil, err
	}
	s := &Source{path: path, files: map[string]*safetensors.File{}}
	if !info.IsDir() {
		if !info.Mode().IsRegular() { // to open a pipe waits for its writer
			return nil, errors.New("it is neither a folder nor a file")
		}
		if err := s.add("", func() (*os.File, error) { return os.Open(path) }); err != nil {
			return nil, errors.Join(err, s.Close())
		}
		return s, nil
	}
	dir, only := checkpoint.Split(path)
	folder, err := checkpoint.OpenFolder(dir)
	if err != nil {
		return nil, err
	}
	if best {
		if only, err = folder.Best(); err != nil {
			return nil, err
		}
	}
	chosen, err := choose.Newest(ctx, here{folder, only}, func(*checkpoint.Manifest) error { return nil },
		func(level slog.Level, format string, args ...any) {
			if level >= slog.LevelWarn { // not that a training begins anew
				logf(level, format, args...)
			}
		})
	if err != nil {
		return nil, err
	}
	if s.manifest = chosen.Manifest; s.manifest == nil {
		return nil, errors.New("there is no checkpoint in it: name the folder that --ckpt-dir named, or that of one checkpoint")
	}
	for _, file := range s.manifest.Files {
		if err := s.add(file.Name, func() (*os.File, error) { return folder.Open(s.manifest.ID, file.Name) }); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", file.Name, err), s.Close())
		}
	}
	return s, nil
}

// add opens a file of tensors.
func (s *Source) add(name string, open func() (*os.File, error)) error {
	file, err := open()
	if err != nil {
		return err
	}
	s.open = append(s.open, file)
	info, err := file.Stat()
	if err == nil {
		s.files[name], err = safetensors.Open(file, info.Size())
	}
	return err
}

// here is a folder that no other task knows.
type here struct {
	folder *checkpoint.Folder
	only   string // ID of the one checkpoint that counts; empty: all do
}

// Places is that of choose.Folders.
func (h here) Places(context.Context) ([]checkpoint.Place, error) {
	holding, err := h.folder.List()
	if h.only != "" {
		holding = slices.DeleteFunc(holding, func(held checkpoint.Held) bool { return held.ID != h.only })
	}
	return []checkpoint.Place{{Tasks: []cluster.Task{cluster.Chief}, Host: "this machine", Holding: holding}}, err
}

// Verify is that of choose.Folders.
func (h here) Verify(_ context.Context, _ cluster.Task, id string, file checkpoint.File) error {
	return h.folder.Verify(id, file)
}

// Close closes the files.
func (s *Source) Close() error {
	for _, file := range s.open {
		file.Close() // opened for reading: nothing to lose
	}
	s.open = nil
	return nil
}

// Manifest says what the checkpoint is made of. It is nil for a file of tensors.
func (s *Source) Manifest() *checkpoint.Manifest { return s.manifest }

// String names what was opened, for messages.
func (s *Source) String() string {
	if s.manifest == nil {
		return s.path
	}
	return fmt.Sprintf("checkpoint %s of step %d", s.manifest.ID, s.manifest.Step)
}

// Variables lists what can be read. Of a file of tensors these are the tensors of float32
// and float64.
func (s *Source) Variables() []checkpoint.Variable {
	if s.manifest != nil {
		return s.manifest.Variables
	}
	var all []checkpoint.Variable
	for _, name := range s.files[""].Names() {
		info, _ := s.files[""].Tensor(name) // it has what it lists
		if dtype := dtypes[info.Dtype]; dtype != "" {
			all = append(all, checkpoint.Variable{Name: name, Dtype: string(dtype), Shape: info.Shape})
		}
	}
	return all
}

var dtypes = map[safetensors.Dtype]layout.Dtype{safetensors.F32: layout.Float32, safetensors.F64: layout.Float64}

// Read returns the elements of a dense variable, in row-major order, little-endian.
func (s *Source) Read(ctx context.Context, name string) ([]byte, error) {
	all := s.Variables()
	i := slices.IndexFunc(all, func(v checkpoint.Variable) bool { return v.Name == name })
	if i < 0 || all[i].Sparse {
		return nil, fmt.Errorf("%s: it has no dense variable %q", s, name)
	}
	v := layout.Variable{Name: name, Dtype: layout.Dtype(all[i].Dtype), Shape: all[i].Shape}
	elements, err := v.Elements()
	if err != nil {
		return nil, fmt.Errorf("%s: variable %q: %w", s, name, err)
	}
	values := whole{make([]byte, elements*v.Dtype.Size()), v.Dtype.Size()}
	if s.manifest == nil {
		err = s.files[""].ReadAt(name, values.memory, 0)
	} else {
		err = s.put(ctx, v, layout.Piece{Count: elements}, values)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: variable %q: %w", s, name, err)
	}
	return values.memory, nil
}

// whole takes all elements of a dense variable.
type whole struct {
	memory []byte
	unit   int // bytes of an element
}

// Put is that of transition.Restoring.
func (w whole) Put(k aggregate.Kept) error {
	copy(w.memory[k.Offset*w.unit:], k.Values)
	return nil
}

// Restore puts the values of a piece, and nothing of what the optimiser kept: it is that of
// transition.Checkpoints for a holder that does not train.
func (s *Source) Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
	return s.put(ctx, d.Variables[p.Variable], p, valuesOnly{into})
}

// Save is that of transition.Checkpoints. Nobody saves.
func (s *Source) Save(transition.Snapshot) {}

// valuesOnly drops what the optimiser kept.
type valuesOnly struct{ into transition.Restoring }

// Put is that of transition.Restoring.
func (v valuesOnly) Put(k aggregate.Kept) error {
	k.Slots = nil
	return v.into.Put(k)
}

// put puts what the checkpoint has of a piece.
func (s *Source) put(ctx context.Context, v layout.Variable, p layout.Piece, into transition.Restoring) error {
	for _, part := range s.manifest.Parts {
		lo, hi := max(part.Offset, p.Offset), min(part.Offset+part.Count, p.Offset+p.Count)
		if part.Variable != v.Name || lo >= hi {
			continue
		}
		if err := tensors.ReadPart(ctx, s.files[part.File], part, v, p.Variable, lo, hi, into); err != nil {
			return fmt.Errorf("tensor %q of %s: %w", part.Tensor, part.File, err)
		}
	}
	return nil
}
