package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// disk simulates the worst possible power loss in a folder. Of a file, only
// content that was flushed survives; of a folder, only the names that it had
// when it was last flushed.
type disk struct {
	dir   string
	side  string                       // folder with a hard link to each flushed file, so that renames do not lose it
	names map[string]map[string]uint64 // by folder
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (d *disk) content(number uint64) string { return filepath.Join(d.side, fmt.Sprint(number)) }

// flush replaces (*os.File).Sync: it records what would survive a power loss.
func (d *disk) flush(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return os.Link(file.Name(), d.content(inode(info)))
	}
	entries, err := os.ReadDir(file.Name())
	if err != nil {
		return err
	}
	names := map[string]uint64{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		names[e.Name()] = inode(info)
	}
	d.names[file.Name()] = names
	return nil
}

// after creates a folder with what survives the power loss, and returns its
// path.
func (d *disk) after(t *testing.T) string {
	left := t.TempDir()
	for id := range d.names[d.dir] {
		if err := os.Mkdir(filepath.Join(left, id), 0o700); err != nil {
			t.Fatal(err)
		}
		for name, number := range d.names[filepath.Join(d.dir, id)] {
			path := filepath.Join(left, id, name)
			err := os.Link(d.content(number), path)
			if errors.Is(err, fs.ErrNotExist) {
				err = os.WriteFile(path, nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return left
}

// TestPowerLossAtEachDiskOperation simulates a power loss at each disk
// operation of a save and a Retain.
func TestPowerLossAtEachDiskOperation(t *testing.T) {
	for n := 1; ; n++ {
		f := open(t, t.TempDir())
		d := &disk{dir: f.dir, side: t.TempDir(), names: map[string]map[string]uint64{}}
		f.flush = d.flush
		saved(t, f, id(10), id(20))
		half(t, f, id(25))
		x := &fault{n: n}
		f.hook = x.hook
		made := []string{id(20)}
		lost, err := crashing(func() error {
			if err := save(f, id(30)); err != nil {
				return err
			}
			made = []string{id(30)}
			if _, err := f.Retain(1, ""); err != nil {
				return err
			}
			half(t, f, id(35))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if x.at == "checkpoint.syncdir" { // the manifest may exist although its writer has not returned yet
			made = append(made, id(30))
		}
		for _, dir := range []string{d.after(t), f.dir} { // the worst case (only flushed data survive) and the best case (all data survive)
			f := open(t, dir)
			if got := offered(t, f); !slices.Contains(made, got) {
				t.Errorf("power lost at %s, hit %d: %q is offered, want one of %v", x.at, n, got, made)
			}
			saved(t, f, id(40))
			if got := offered(t, f); got != id(40) {
				t.Errorf("power lost at %s, hit %d: afterwards %q is offered", x.at, n, got)
			}
		}
		if !lost {
			return
		}
	}
}
