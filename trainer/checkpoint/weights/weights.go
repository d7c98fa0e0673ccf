// Package weights reads the values of variables from a checkpoint, or from a
// single file in the safetensors format, without starting the job that wrote
// it:
//
//	s, err := weights.Open(ctx, "ckpt", logf)   // a folder of checkpoints: the newest good one
//	s, err := weights.Open(ctx, "model.safetensors", logf)
//	defer s.Close()
//	for _, v := range s.Variables() {
//		values, err := s.Read(ctx, v.Name)
//	}
//
// All files of the checkpoint must lie in one folder, as plx fetch leaves
// them.
//
// # What it refuses
//
// The package writes nothing. It reads a checkpoint only if every file has the
// SHA-256 that the manifest lists; a single safetensors file has no checksum.
// It does not return the optimiser's state.
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

// Source is a checkpoint or a safetensors file, open for reading. Several
// goroutines may call its methods.
type Source struct {
	path     string
	manifest *checkpoint.Manifest         // manifest of the checkpoint; nil if the source is a single safetensors file
	files    map[string]*safetensors.File // open files by name; a single safetensors file has the name ""
	open     []*os.File
}

// Open opens a checkpoint or a safetensors file. path is one of: a folder of
// checkpoints, for the newest good one; DIR/best, for the checkpoint with the
// highest score in the folder DIR; the folder of one checkpoint; or a
// safetensors file. logf receives a warning about each checkpoint that is
// skipped.
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
		if !info.Mode().IsRegular() { // opening a named pipe would block until a process writes to it
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
	chosen, err := choose.Newest(ctx, localFolder{folder, only}, func(*checkpoint.Manifest) error { return nil },
		func(level slog.Level, format string, args ...any) {
			if level >= slog.LevelWarn { // drops the message that training begins from scratch, whose level is lower
				logf(level, format, args...)
			}
		})
	if err != nil {
		return nil, err
	}
	if s.manifest = chosen.Manifest; s.manifest == nil {
		return nil, errors.New("there is no checkpoint in it: pass the folder of --ckpt-dir, or the folder of one checkpoint")
	}
	for _, file := range s.manifest.Files {
		if err := s.add(file.Name, func() (*os.File, error) { return folder.Open(s.manifest.ID, file.Name) }); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", file.Name, err), s.Close())
		}
	}
	return s, nil
}

// add opens a safetensors file with the function open and adds it to s.files
// under name.
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

// localFolder implements choose.Folders for one local folder, without other
// tasks.
type localFolder struct {
	folder *checkpoint.Folder
	only   string // ID of the only checkpoint to consider; empty means all checkpoints in the folder
}

// Places implements choose.Folders with the local folder.
func (h localFolder) Places(context.Context) ([]checkpoint.Place, error) {
	holding, err := h.folder.List()
	if h.only != "" {
		holding = slices.DeleteFunc(holding, func(held checkpoint.FolderCopy) bool { return held.ID != h.only })
	}
	return []checkpoint.Place{{Tasks: []cluster.Task{cluster.Chief}, Host: "this machine", Holding: holding}}, err
}

// Verify implements choose.Folders with the local folder.
func (h localFolder) Verify(_ context.Context, _ cluster.Task, id string, file checkpoint.File) error {
	return h.folder.Verify(id, file)
}

// Close closes the files.
func (s *Source) Close() error {
	for _, file := range s.open {
		file.Close() // error ignored: the file was only read
	}
	s.open = nil
	return nil
}

// Manifest returns the checkpoint's manifest, or nil for a single safetensors
// file.
func (s *Source) Manifest() *checkpoint.Manifest { return s.manifest }

// String returns the checkpoint's ID and step, or the path of the safetensors
// file.
func (s *Source) String() string {
	if s.manifest == nil {
		return s.path
	}
	return fmt.Sprintf("checkpoint %s of step %d", s.manifest.ID, s.manifest.Step)
}

// Variables lists the variables of the checkpoint, or the float32 and float64
// tensors of a safetensors file.
func (s *Source) Variables() []checkpoint.Variable {
	if s.manifest != nil {
		return s.manifest.Variables
	}
	var all []checkpoint.Variable
	for _, name := range s.files[""].Names() {
		info, _ := s.files[""].Tensor(name) // cannot fail: Names has returned this name
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

// whole is the memory for all elements of a dense variable. tensors.ReadPart
// fills it.
type whole struct {
	memory []byte
	unit   int // bytes per element
}

// Put implements transition.Restoring: it copies the values of k, a range of
// the variable, to their position in memory.
func (w whole) Put(k aggregate.SavedPiece) error {
	copy(w.memory[k.Offset*w.unit:], k.Values)
	return nil
}

// Restore reads the values of piece p (a range of a variable) into a shard,
// without the optimiser's state. It implements transition.Checkpoints for a
// program that does not train.
func (s *Source) Restore(ctx context.Context, d *layout.Declaration, p layout.Piece, into transition.Restoring) error {
	return s.put(ctx, d.Variables[p.Variable], p, valuesOnly{into})
}

// Save implements transition.Checkpoints. It does nothing, because a Source
// only reads checkpoints.
func (s *Source) Save(transition.Snapshot) {}

// valuesOnly passes values on to a shard and drops the optimiser's state.
type valuesOnly struct{ into transition.Restoring }

// Put implements transition.Restoring: it passes k on without its slots (the
// optimiser's state).
func (v valuesOnly) Put(k aggregate.SavedPiece) error {
	k.Slots = nil
	return v.into.Put(k)
}

// put reads the elements or rows of v that belong to piece p (a range of v),
// and passes them to the shard into.
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
