package tree

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// whileScanning scans a folder repeatedly while another goroutine calls write
// repeatedly.
func whileScanning(t *testing.T, dir string, rounds int, write func(i int) error) {
	t.Helper()
	stop := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := write(i); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer writing.Wait()
	defer close(stop)
	for range rounds {
		f, err := Scan(t.Context(), dir, Options{})
		if err != nil {
			t.Error(err)
			return
		}
		if _, found := f.Find("train.py"); !found {
			t.Error("train.py is not sent")
		}
		for _, e := range f.Entries {
			if e.Kind == File && e.Size > 0 && e.Sum == (Sum{}) {
				t.Errorf("%s has no hash", e.Path)
			}
		}
	}
}

// Temporary files that are created and deleted during the scan cause no error.
func TestDeletedTemporaryFilesDoNotStopScan(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"train.py": "x"})
	whileScanning(t, dir, 50, func(i int) error {
		folder := filepath.Join(dir, "tmp")
		file := filepath.Join(folder, "file")
		return errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(file, make([]byte, i%5000), 0o600), os.Remove(file), os.Remove(folder))
	})
}

// A file that is deleted after Scan has found it is omitted, at whatever point
// of the scan that happens.
func TestFileDeletedDuringScanIsOmitted(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "1", "b": "1", "train.py": "x"})
	vanishes := map[string]string{"a": "b", "train.py": "a"} // delete b before Stat, and a between Stat and reading
	f, err := Scan(t.Context(), dir, Options{Leave: func(p string, _ fs.DirEntry) string {
		if gone, found := vanishes[p]; found {
			if err := os.Remove(filepath.Join(dir, gone)); err != nil {
				t.Error(err)
			}
		}
		return ""
	}})
	if err != nil || !slices.Equal(files(f.Manifest), []string{"train.py"}) {
		t.Errorf("sent %+v, %v", f, err)
	}
	w := newWalk(t.Context(), dir, dir, Options{})
	if err := w.enter("folder"); err != nil || len(w.refused) > 0 {
		t.Errorf("a folder that has vanished: %v, refused %v", err, w.refused)
	}
}

// If a log file grows during the scan, its first part is sent.
func TestBeginningOfGrowingLogIsSent(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	write(t, dir, map[string]string{"train.py": "x", "log": strings.Repeat("x", 1<<20)})
	f, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	whileScanning(t, dir, 20, func(int) error {
		_, err := f.WriteString("y")
		return err
	})
	found := scan(t, dir)
	if _, err := f.WriteString("more"); err != nil {
		t.Fatal(err)
	}
	e, _ := found.Find("log")
	var sent bytes.Buffer
	if err := found.pour(&sent, slices.Collect(e.Pieces())); err != nil || int64(sent.Len()) != e.Size || Sum(sha256.Sum256(sent.Bytes())) != e.Sum {
		t.Errorf("sent %d bytes of %d: %v", sent.Len(), e.Size, err)
	}
}

// reader replaces the content of an open file after each read.
type reader struct {
	file string
	n    byte
}

func (r *reader) Write(p []byte) (int, error) {
	r.n++
	return len(p), os.WriteFile(r.file, bytes.Repeat([]byte{r.n}, 10+int(r.n)), 0o600) // the changed length is noticed at once
}

// grower appends to an open file after each read.
type grower struct{ *os.File }

func (g grower) Write(p []byte) (int, error) {
	_, err := g.WriteString("more")
	return len(p), err
}

// For a file that grows during each read, the entry describes the bytes that
// were there first.
func TestGrowingFileKeepsItsFirstLength(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"log": "0123456789"})
	file := filepath.Join(dir, "log")
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := readFile(Entry{Path: "log"}, file, grower{f}, func(fs.FileInfo, content) { t.Error("its hash is kept") })
	if err != nil || e.Size != 10 || e.Sum != sha256.Sum256([]byte("0123456789")) {
		t.Errorf("%+v, %v", e, err)
	}
}

// A file that is replaced during each read is not mistaken for one that only
// grows.
func TestChangingFileIsNotTakenForGrowing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a": "0123456789"})
	file := filepath.Join(dir, "a")
	_, err := readFile(Entry{Path: "a"}, file, &reader{file: file}, func(fs.FileInfo, content) { t.Error("its hash is kept") })
	if !errors.As(err, new(*ChangedError)) {
		t.Errorf("%v, want that it changed", err)
	}
	w := &walk{entries: []Entry{{Path: "a"}}, gone: map[string]bool{}}
	if err := w.dropFile("a", err); err != nil || !w.gone["a"] || !slices.Equal(w.notes, []string{"a stays here: it changes all the time"}) {
		t.Errorf("%v, notes %q", err, w.notes)
	}
}

// Rescan returns the present content of a file that has changed since Scan.
func TestAgainReadsChangedFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"same": "1", "changed": "1", "gone": "1", "always": "1", "swapped": "1"})
	f := scan(t, dir)
	write(t, dir, map[string]string{"changed": "22", "new": "1", "swapped": "2"})
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"changed", "gone", "swapped"} {
		e, _ := f.Find(p)
		var changed *ChangedError
		if err := f.pour(io.Discard, slices.Collect(e.Pieces())); !errors.As(err, &changed) || changed.Path != p {
			t.Errorf("%s: %v, want that it changed", p, err)
		}
	}
	again, err := f.Rescan(t.Context(), "always")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := files(again.Manifest), []string{"changed", "same", "swapped"}; !slices.Equal(got, want) {
		t.Errorf("after a second look %q, want %q", got, want)
	}
	e, _ := again.Find("changed")
	if err := again.pour(io.Discard, slices.Collect(e.Pieces())); err != nil || e.Size != 2 {
		t.Errorf("size %d: %v", e.Size, err)
	}
	if e, _ := again.Find("swapped"); e.Sum != sha256.Sum256([]byte("2")) {
		t.Error("a file that has changed and kept its size is taken for what it was")
	}
	if got := again.Notes(); len(got) != 1 || !strings.HasPrefix(got[0], "always stays here") {
		t.Errorf("notes %q", got)
	}
}
