package holes

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// room returns the number of bytes that a file takes on the disk.
func room(t *testing.T, file string) int64 {
	t.Helper()
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// The file has exactly the written bytes, for writes of any size and with
// Flush between them.
func TestWriter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var want []byte
		for range r.IntN(12) {
			piece := make([]byte, r.IntN(3*block))
			if r.IntN(2) == 0 {
				for i := range piece {
					piece[i] = byte(r.Uint32())
				}
			}
			want = append(want, piece...)
		}
		path := filepath.Join(t.TempDir(), "file")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := NewWriter(file, 0)
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(2*block))
			if got, err := w.Write(rest[:n]); got != n || err != nil {
				t.Fatalf("%d of %d bytes were written: %v", got, n, err)
			}
			rest = rest[n:]
			if r.IntN(4) == 0 {
				if err := w.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := errors.Join(w.Flush(), file.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("round %d: %d bytes are read, %d were written: %v", round, len(got), len(want), err)
		}
	}
}

// A file with one megabyte of data among zeros takes one megabyte on the disk.
func TestZerosTakeNoDiskSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(file, 0)
	const mega = 1 << 20
	for _, piece := range [][]byte{make([]byte, 8*mega), bytes.Repeat([]byte{1}, mega), make([]byte, 8*mega)} {
		if _, err := w.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), file.Close()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 17*mega {
		t.Errorf("the file is %v, %v", info, err)
	}
	if got := room(t, path); got > 2*mega {
		t.Errorf("the file takes %d bytes of the disk", got)
	}
}

// If the disk is full, Write returns the number of bytes that were written.
func TestWriterReportsFullDisk(t *testing.T) {
	full := errors.New("full")
	w := NewWriter(&failing{room: 2, err: full}, 0)
	if n, err := w.Write(append(make([]byte, block), 1, 2, 3)); n != block+2 || err != full {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// failing is a File that accepts only a limited number of bytes.
type failing struct {
	room int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return f.room, f.err
	}
	return len(p), nil
}
func (f *failing) Seek(offset int64, _ int) (int64, error) { return offset, nil }
func (f *failing) Truncate(int64) error                    { return nil }
