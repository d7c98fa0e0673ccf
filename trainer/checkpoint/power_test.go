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

// disk remembers what of a folder would be there after a loss of power, at
// worst: of a file what was flushed, of a folder the names that it had when it
// was flushed.
type disk struct {
	dir   string
	side  string                       // a second name of each flushed file
	names map[string]map[string]uint64 // by folder
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

func (d *disk) content(number uint64) string { return filepath.Join(d.side, fmt.Sprint(number)) }

// flush takes the place of (*os.File).Sync.
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

// after makes a folder of what is left.
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

// TestPowerLossAtEachDiskOperation cuts the power at each hit of each hook.
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
		if x.at == "checkpoint.syncdir" { // the manifest may be there before its writer knows
			made = append(made, id(30))
		}
		for _, dir := range []string{d.after(t), f.dir} { // at worst, and at best
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
