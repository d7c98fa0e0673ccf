package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
)

// open opens a checkpoint folder that does not flush to disk, to be fast.
func open(t testing.TB, dir string) *Folder {
	t.Helper()
	f, err := OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	f.flush = func(*os.File) error { return nil }
	return f
}

// content returns the bytes of a test file. They differ from file to file, and
// exceed the write buffer.
func content(id, name string) []byte {
	return []byte(strings.Repeat(id+"/"+name+"\n", 2+writeBuffer/len(id+name)))
}

// filling writes in two pieces.
func filling(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		if _, err := w.Write(b[:len(b)/2]); err != nil {
			return err
		}
		_, err := w.Write(b[len(b)/2:])
		return err
	}
}

var names = []string{"ps-0.safetensors", "worker-0.safetensors"}

// epoch is the time of checkpoints at step 0; later steps have later times.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// manifest returns the manifest of a checkpoint with these files, all written
// by one task.
func manifest(id string, files ...File) *Manifest {
	named, err := parseID(id)
	if err != nil {
		panic(err)
	}
	return &Manifest{ID: id, Step: named.step, Generation: named.generation, VirtualWorkers: 1,
		Time: epoch.Add(time.Duration(named.step) * time.Second), Optimizer: optimizer.Settings{Rule: optimizer.SGD}, Files: files}
}

// save writes a complete checkpoint: two files, then the manifest.
func save(f *Folder, id string) error {
	var files []File
	for _, name := range names {
		size, sum, err := f.Write(id, name, filling(content(id, name)))
		if err != nil {
			return err
		}
		files = append(files, File{Name: name, Task: "worker:0", Size: size, Sum: sum})
	}
	return f.WriteManifest(manifest(id, files...))
}

func saved(t testing.TB, f *Folder, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := save(f, id); err != nil {
			t.Fatal(err)
		}
	}
}

func listed(t testing.TB, f *Folder) FolderCopies {
	t.Helper()
	holding, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	return holding
}

// offered returns the ID of the newest checkpoint that can be restored from
// the folder, or "". The test fails if a listed checkpoint is damaged.
func offered(t testing.TB, f *Folder) string {
	t.Helper()
	newest := ""
	for _, c := range Candidates([]Place{{Tasks: []cluster.Task{cluster.Chief}, Host: "a", Holding: listed(t, f)}}) {
		if c.Missing != "" {
			continue
		}
		for _, file := range c.Manifest.Files {
			if err := f.Verify(c.ID, file); err != nil {
				t.Fatalf("offered, but: %v", err)
			}
		}
		if newest == "" {
			newest = c.ID
		}
	}
	return newest
}

func ids(holding FolderCopies) []string {
	var all []string
	for _, h := range holding {
		all = append(all, h.ID)
	}
	return all
}

func id(step uint64) string { return formatID(step, 0, "5f3a9c1e") }

func TestFolderModeIs0700(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	f := open(t, dir)
	saved(t, f, id(1))
	for path, want := range map[string]fs.FileMode{
		dir: 0o700 | fs.ModeDir, filepath.Dir(dir): 0o700 | fs.ModeDir, filepath.Join(dir, id(1)): 0o700 | fs.ModeDir,
		filepath.Join(dir, id(1), names[0]): 0o600, filepath.Join(dir, id(1), manifestName): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, info.Mode(), err, want)
		}
	}
}

// If a user removes the checkpoint folder while a job runs, the next save
// recreates it.
func TestWriteRecreatesRemovedFolder(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "a", "b")
	f := open(t, dir)
	if err := os.RemoveAll(filepath.Join(top, "a")); err != nil {
		t.Fatal(err)
	}
	want := content(id(1), names[0])
	if _, _, err := f.Write(id(1), names[0], filling(want)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, id(1), names[0])); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestOpenFolderReportsFileInPath(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if _, err := OpenFolder(dir); err == nil || !strings.Contains(err.Error(), "checkpoint folder "+dir) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestWrittenFilesCanBeRead(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(10), id(20))
	if _, _, err := f.Write(id(30), names[0], filling([]byte("x"))); err != nil {
		t.Fatal(err)
	}
	holding := listed(t, f)
	if got := ids(holding); !slices.Equal(got, []string{id(30), id(20), id(10)}) {
		t.Fatal(got)
	}
	if h := holding[0]; h.Manifest != nil || h.Damage != "no manifest: it was not finished" || len(h.Files) != 1 || h.Files[names[0]] != 1 {
		t.Errorf("%+v", h)
	}
	for _, h := range holding[1:] {
		if h.Damage != "" || h.Manifest.ID != h.ID || len(h.Files) != 2 {
			t.Errorf("%+v", h)
		}
		for _, file := range h.Manifest.Files {
			if err := f.Verify(h.ID, file); err != nil || file.Size != h.Files[file.Name] {
				t.Errorf("%+v: %v", file, err)
			}
		}
	}
	file, err := f.Open(id(20), names[1])
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	want := content(id(20), names[1])
	if got, err := io.ReadAll(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
	}
}

func TestInvalidFileNamesAreRefused(t *testing.T) {
	f := open(t, t.TempDir())
	for _, place := range [][2]string{
		{"..", "a"}, {"", "a"}, {"x", "a"}, {id(1) + "/..", "a"},
		{id(1), ""}, {id(1), ".."}, {id(1), "../a"}, {id(1), ".a"}, {id(1), manifestName},
	} {
		if _, err := f.Open(place[0], place[1]); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: %v", place, err)
		}
		if err := f.Verify(place[0], File{Name: place[1]}); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("verify %q: %v", place, err)
		}
		if _, _, err := f.Write(place[0], place[1], filling(nil)); err == nil {
			t.Errorf("write %q: accepted", place)
		}
	}
	if err := f.WriteManifest(&Manifest{ID: "../x"}); err == nil {
		t.Error("a manifest of another folder was written")
	}
	if left := listed(t, f); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestVerifyReportsDifference(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(1))
	good := listed(t, f)[0].Manifest.Files[0]
	path := filepath.Join(f.dir, id(1), good.Name)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for want, b := range map[string][]byte{
		"it was damaged": flipped,
		fmt.Sprintf("it has %d bytes, not %d", len(whole)-1, len(whole)): whole[:len(whole)-1],
		fmt.Sprintf("it has %d bytes, not %d", len(whole)+1, len(whole)): append(slices.Clone(whole), 0),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		err := f.Verify(id(1), good)
		if err == nil || !strings.Contains(err.Error(), "checkpoint "+id(1)+": "+good.Name+" in "+f.dir+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(id(1), good); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(id(1), good); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Error(err)
	}
}

func TestListReportsDamagedManifests(t *testing.T) {
	for want, damage := range map[string]func(path string) error{
		"no manifest: it was not finished":   os.Remove,
		"manifest: it was cut short":         func(path string) error { return os.Truncate(path, 100) },
		"manifest: more than 67108864 bytes": func(path string) error { return os.Truncate(path, maxManifest+1) },
		"manifest: it is not a regular file": func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
		"manifest: it belongs to checkpoint " + id(1): func(path string) error {
			return os.Link(filepath.Join(filepath.Dir(filepath.Dir(path)), id(1), manifestName), path+"x")
		},
		"manifest: its sum is wrong: it was damaged, or changed by hand": func(path string) error {
			b, err := os.ReadFile(path)
			b[len(b)/2] ^= 4
			return errors.Join(err, os.WriteFile(path, b, 0o600))
		},
	} {
		f := open(t, t.TempDir())
		saved(t, f, id(1), id(2))
		path := filepath.Join(f.dir, id(2), manifestName)
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(path + "x"); err == nil {
			if err := os.Rename(path+"x", path); err != nil {
				t.Fatal(err)
			}
		}
		holding := listed(t, f)
		if h := holding[0]; len(holding) != 2 || h.ID != id(2) || h.Manifest != nil || h.Damage != want || len(h.Files) != 2 {
			t.Errorf("got %+v, want %q", h, want)
		}
		if got := offered(t, f); got != id(1) {
			t.Errorf("%s: %q is offered", want, got)
		}
	}
}

func TestListIgnoresForeignEntries(t *testing.T) {
	f := open(t, t.TempDir())
	saved(t, f, id(1))
	for _, name := range []string{"notes", ".probe-x", "40"} {
		if err := os.Mkdir(filepath.Join(f.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(f.dir, id(2)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".ps-0.safetensors.host.1.2", "other file", "sub/x"} {
		if err := os.MkdirAll(filepath.Join(f.dir, id(1), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if holding := listed(t, f); len(holding) != 1 || len(holding[0].Files) != 2 {
		t.Errorf("%+v", holding)
	}
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	f, same, other := open(t, dir), open(t, link), open(t, t.TempDir())
	if f.Sees("a1") {
		t.Error("sees what is not there")
	}
	if err := f.Probe("a1"); err != nil {
		t.Fatal(err)
	}
	if !f.Sees("a1") || !same.Sees("a1") || other.Sees("a1") || same.Sees("a2") {
		t.Error("a shared folder is told from another one wrongly")
	}
	if err := same.Probe("a1"); err == nil {
		t.Error("two probes have one token")
	}
	for range 2 {
		if err := same.Unprobe("a1"); err != nil || f.Sees("a1") {
			t.Errorf("unprobe: %v", err)
		}
	}
	for _, token := range []string{"", "../x", "a/b", strings.Repeat("x", 300)} {
		if f.Probe(token) == nil || f.Unprobe(token) == nil || f.Sees(token) {
			t.Errorf("token %q: accepted", token)
		}
	}
}
