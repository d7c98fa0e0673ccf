package data

import (
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// file writes a file for a test and returns its path.
func file(t testing.TB, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func zip(t testing.TB, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func join(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		case int:
			b = append(b, byte(p))
		}
	}
	return b
}

// faulty is a file that a reader must reject with the error want at a certain
// position.
type faulty struct {
	name    string
	content []byte
	want    string // after the path
	hint    string // part of the error's hint; "" means that no hint is required
}

// checkFaults reads each file, plain and compressed with gzip. The errors must
// be the same, except for properties that compression hides, such as the
// file's size.
func checkFaults(t *testing.T, faults []faulty, read func(path string) error) {
	t.Helper()
	for _, f := range faults {
		for _, content := range [][]byte{f.content, zip(t, f.content)} {
			path := file(t, "file", content)
			err := read(path)
			if err == nil {
				t.Errorf("%s: no error", f.name)
				continue
			}
			after, named := strings.CutPrefix(err.Error(), path)
			if !named || !strings.Contains(after, f.want) {
				t.Errorf("%s: error %q, want the path and %q", f.name, err, f.want)
			}
			var hinted interface{ Hint() string }
			if f.hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), f.hint)) {
				t.Errorf("%s: error %q has no hint with %q", f.name, err, f.hint)
			}
		}
	}
}

// checkBrokenPacking reads gzip files that are truncated or damaged anywhere.
// The reader must return an error and never a part of the data.
func checkBrokenPacking(t *testing.T, content []byte, read func(path string) error) {
	t.Helper()
	packed := zip(t, content)
	if err := read(file(t, "file", packed)); err != nil {
		t.Fatal(err)
	}
	for cut := 2; cut < len(packed); cut++ {
		path := file(t, "file", packed[:cut])
		if err := read(path); err == nil || !strings.HasPrefix(err.Error(), path) {
			t.Errorf("cut to %d of %d bytes: %v", cut, len(packed), err)
		}
	}
	damaged := bytes.Clone(packed)
	damaged[len(damaged)-6] ^= 1 // of the checksum
	if err := read(file(t, "file", damaged)); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("wrong checksum: %v", err)
	}
}

func TestMissingFilesAndFolders(t *testing.T) {
	folder := t.TempDir()
	for _, path := range []string{filepath.Join(folder, "none"), folder} {
		for name, read := range map[string]func() error{
			"idx": func() error { _, err := readIDX(path); return err },
			"npy": func() error { _, err := ReadNPY(path); return err },
			"csv": func() error { _, err := ReadCSV(nil, path, false); return err },
			"tfr": func() error { _, err := OpenRecords(nil, path); return err },
			"par": func() error { _, err := OpenParallel(path, path); return err },
			"c10": func() error { _, err := ReadCIFAR10(path); return err },
			"txt": func() error {
				for _, err := range lines(path) {
					return err
				}
				return nil
			},
		} {
			if err := read(); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s %s: %v", name, path, err)
			}
		}
	}
}

func TestFiles(t *testing.T) {
	t.Chdir(folderOf(t, map[string][]byte{"b-2": nil, "b-1": nil, "b-[1]": nil, "a": nil}))
	for list, want := range map[string]string{
		"a,b-*": "a b-1 b-2 b-[1]", "b-?": "b-1 b-2", "b-[1]": "b-[1]", "b-[12]": "b-1 b-2", "missing,a": "missing a",
	} {
		if got, err := Files(list); err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %q, %v", list, got, err)
		}
	}
	for list, want := range map[string]string{"a,c*": "files c*: there are none", "[": "syntax error"} {
		if _, err := Files(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", list, err)
		}
	}
}

// An empty name results, for example, from a superfluous comma in a list of
// names.
func TestReadingAnEmptyFileNameFails(t *testing.T) {
	if _, err := ReadCIFAR10(""); err == nil || !strings.Contains(err.Error(), "it has no name") {
		t.Errorf("%v", err)
	}
}

// If a header promises more data than the file has, the reader must not
// allocate memory for it. This includes compressed files, whose decompressed
// size is unknown in advance.
func TestFalseLengthsAllocateNoMemory(t *testing.T) {
	claim := join(0, 0, 0x0e, 1, 0x40, 0, 0, 0, "few") // 2^30 doubles, 8 GiB
	for _, content := range [][]byte{claim, zip(t, claim)} {
		path := file(t, "claim", content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readIDX(path)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "truncated: want 8589934592 bytes, the file has 3") {
			t.Errorf("error %v", err)
		}
		if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
			t.Errorf("%d bytes allocated", allocated)
		}
	}
}
