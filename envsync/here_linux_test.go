package envsync

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// newHome makes a temporary folder the home folder (HOME) of this process, and
// creates the folders in it that the launcher creates on a host.
func newHome(t *testing.T) string {
	t.Helper()
	return homeAt(t, t.TempDir())
}

func homeAt(t *testing.T, home string) string {
	t.Helper()
	t.Setenv("HOME", home)
	if err := os.MkdirAll(filepath.Join(home, ".plx/blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return home
}

// factsHere returns the parsed output of Here.
func factsHere(t *testing.T) Facts {
	t.Helper()
	text, err := DescribeHost()
	if err != nil {
		t.Fatal(err)
	}
	f, err := ReadFacts(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestHereDescribesTheHost(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("SSH_CONNECTION", "fe80::1%eth0 50512 fe80::2%eth0 22")
	if text, err := DescribeHost(); err == nil {
		t.Errorf("without ~/.plx: %q", text)
	}
	homeAt(t, home)
	blobs := filepath.Join(home, ".plx/blobs")
	if err := os.Chmod(blobs, 0o755); err != nil {
		t.Fatal(err)
	}
	f := factsHere(t)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if f.OS != runtime.GOOS || f.Arch != runtime.GOARCH || f.ServerAddr != "fe80::2" || f.HostName != name || len(f.BootID) != 36 {
		t.Errorf("%+v", f)
	}
	if info, err := os.Stat(blobs); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others may read the blobs: %v, %v", info, err)
	}
	if again := factsHere(t); again != f {
		t.Errorf("it was %+v and is %+v", f, again)
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".plx/.*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
}

// The first call of Here creates the identifier of the file system, even if a
// full disk has left an empty file.
func TestHereCreatesTheFileSystemID(t *testing.T) {
	home := newHome(t)
	file := filepath.Join(home, ".plx/fsid")
	first := factsHere(t).FileSystem
	if text, err := os.ReadFile(file); err != nil || string(text) != first+"\n" {
		t.Errorf("%q, %v, want %s", text, err, first)
	}
	if err := os.Truncate(file, 0); err != nil {
		t.Fatal(err)
	}
	second := factsHere(t).FileSystem
	if text, err := os.ReadFile(file); err != nil || string(text) != second+"\n" || second == first {
		t.Errorf("%q, %v, want %s, which is not %s", text, err, second, first)
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".plx/.*")); len(left) != 0 {
		t.Errorf("left over: %v", left)
	}
	// A file that plx has not written is not overwritten.
	for _, text := range []string{"garbage\n", "\n\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said, err := DescribeHost()
		if err == nil {
			_, err = ReadFacts(said)
		}
		if now, _ := os.ReadFile(file); err == nil || string(now) != text {
			t.Errorf("%q became %q: %v", text, now, err)
		}
	}
}

// Many hosts that share a home folder, and many launches, call Here at the
// same time.
func TestConcurrentHereAgreeOnTheFileSystemID(t *testing.T) {
	newHome(t)
	names := make([]string, 16)
	var wait sync.WaitGroup
	for i := range names {
		wait.Go(func() {
			text, err := DescribeHost()
			f, unread := ReadFacts(text)
			if err = firstError(err, unread); err != nil {
				t.Error(err)
			}
			names[i] = f.FileSystem
		})
	}
	wait.Wait()
	for _, name := range names {
		if name != names[0] || name == "" {
			t.Fatalf("they do not agree: %v", names)
		}
	}
	newHome(t)
	if other := factsHere(t).FileSystem; other == names[0] {
		t.Errorf("another home has the same name %s", other)
	}
}

func TestHereFailsInAReadOnlyHome(t *testing.T) {
	home := t.TempDir()
	if err := syscall.Mount("plx-test", home, "tmpfs", 0, "size=1m,mode=700"); err != nil {
		t.Skipf("needs root, to mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(home, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	homeAt(t, home)
	factsHere(t)
	if err := syscall.Mount("plx-test", home, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if text, err := DescribeHost(); !errors.Is(err, syscall.EROFS) {
		t.Errorf("%q, %v", text, err)
	}
}

// place writes content as the blob b into a home folder.
func place(t *testing.T, home string, b Blob, content []byte) string {
	t.Helper()
	path := filepath.Join(home, BlobPath(b.Sum))
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// has reports whether Having returns the blob b as present, and whether it
// hashed the blob: then it has rewritten the verification record.
func has(t *testing.T, home string, b Blob) (has, hashed bool) {
	t.Helper()
	old := time.Now().Add(-time.Hour)
	_ = os.Chtimes(recordPath(home, b.Sum), old, old) // there may be none
	sums, _ := CachedBlobs(map[string]int64{b.Sum: b.Size, "../fsid": 33})
	after, err := os.Stat(recordPath(home, b.Sum))
	return len(sums) == 1 && sums[0] == b.Sum, err == nil && !after.ModTime().Equal(old)
}

// check compares what has returns.
func check(t *testing.T, home string, b Blob, name string, wantHas, wantHashed bool) {
	t.Helper()
	if has, hashed := has(t, home, b); has != wantHas || hashed != wantHashed {
		t.Errorf("%s: has it %v, hashed it %v", name, has, hashed)
	}
}

func TestBlobIsHashedOncePerBoot(t *testing.T) {
	home := newHome(t)
	b, content := programBlob(t, 50_000)
	check(t, home, b, "before", false, false)
	path := place(t, home, b, content)
	check(t, home, b, "first", true, true)
	check(t, home, b, "second", true, false)
	// Verification records of an earlier boot, or of another host with this
	// home folder, are neither used nor removed.
	boot, err := firstLine(bootFile)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(home, ".plx/verified", "0b0b0b0b-0000-4000-8000-000000000001."+b.Sum)
	if own := filepath.Join(home, ".plx/verified", boot+"."+b.Sum); os.Rename(own, other) != nil {
		t.Fatalf("there is no %s", own)
	}
	kept, err := os.ReadFile(other)
	if err != nil || len(kept) == 0 {
		t.Fatalf("no marks: %v", err)
	}
	check(t, home, b, "after a reboot", true, true)
	check(t, home, b, "again after a reboot", true, false)
	if now, err := os.ReadFile(other); err != nil || !bytes.Equal(now, kept) {
		t.Errorf("other marks are %q, were %q: %v", now, kept, err)
	}
	// CachedBlobs sets an old modification time to now, and wrong permissions to
	// those of a program.
	old := time.Now().Add(-48 * time.Hour)
	if err := firstError(os.Chtimes(path, old, old), os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	check(t, home, b, "an old file", true, true)
	check(t, home, b, "a used file", true, false)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("a used file is %v, %v", info, err)
	}
}

// A disk can corrupt a file without changing its times, so a blob is hashed
// again after a day.
func TestBlobIsHashedAgainAfterADay(t *testing.T) {
	home := newHome(t)
	b, content := programBlob(t, 50_000)
	path := place(t, home, b, content)
	check(t, home, b, "first", true, true)
	content[30_000] ^= 1
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	kept, err := identity(path)
	if err != nil {
		t.Fatal(err)
	}
	writeRecord(home, b.Sum, kept) // as if the file had kept the times of the intact content
	check(t, home, b, "within the day", true, false)
	old := time.Now().Add(-verifiedFor - time.Minute)
	if err := os.Chtimes(recordPath(home, b.Sum), old, old); err != nil {
		t.Fatal(err)
	}
	if sums, damaged := CachedBlobs(map[string]int64{b.Sum: b.Size}); len(sums) != 0 || len(damaged) != 1 {
		t.Errorf("after a day there are %q, damaged are %q", sums, damaged)
	}
	content[30_000] ^= 1
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	check(t, home, b, "mended", true, true)
}

// CachedBlobs detects a blob that a power cut or another program has damaged.
func TestCorruptBlobIsNotReported(t *testing.T) {
	b, content := programBlob(t, 5000)
	wrong := bytes.Repeat([]byte{'x'}, len(content))
	for name, damage := range map[string]func(path string) error{
		"zeros":               func(path string) error { return os.WriteFile(path, make([]byte, len(content)), 0o700) },
		"short":               func(path string) error { return os.Truncate(path, 10) },
		"long":                func(path string) error { return os.WriteFile(path, append(wrong, 'x'), 0o700) },
		"gone":                os.Remove,
		"other bytes":         func(path string) error { return os.WriteFile(path, wrong, 0o700) },
		"folder":              func(path string) error { return firstError(os.Remove(path), os.Mkdir(path, 0o700)) },
		"link to nothing":     func(path string) error { return firstError(os.Remove(path), os.Symlink("nothing", path)) },
		"link to the content": func(path string) error { return firstError(os.Rename(path, path+"x"), os.Symlink(path+"x", path)) },
		"another file of that time": func(path string) error {
			info, err := os.Stat(path)
			return firstError(err, os.WriteFile(path+".new", wrong, 0o700), os.Chtimes(path+".new", info.ModTime(), info.ModTime()), os.Rename(path+".new", path))
		},
	} {
		home := newHome(t)
		path := place(t, home, b, content)
		check(t, home, b, name, true, true)
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		check(t, home, b, name, false, false)
	}
}

// An invalid verification record makes Having hash the blob again, and has no
// other effect.
func TestDamagedVerificationRecordsCostOneHash(t *testing.T) {
	b, content := programBlob(t, 5000)
	for name, damage := range map[string]func(mark string) error{
		"empty":       func(mark string) error { return os.Truncate(mark, 0) },
		"zeros":       func(mark string) error { return os.WriteFile(mark, make([]byte, 200_000), 0o600) },
		"garbage":     func(mark string) error { return os.WriteFile(mark, []byte(b.Sum+"\n \xff*\\\n"), 0o600) },
		"cut off":     func(mark string) error { return os.Truncate(mark, 20) },
		"no folder":   func(mark string) error { return os.RemoveAll(filepath.Dir(mark)) },
		"broken link": func(mark string) error { return firstError(os.Remove(mark), os.Symlink("nothing", mark)) },
	} {
		home := newHome(t)
		place(t, home, b, content)
		check(t, home, b, name, true, true)
		files, err := filepath.Glob(filepath.Join(home, ".plx/verified/*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("files of marks %v, %v, want one", files, err)
		}
		if err := damage(files[0]); err != nil {
			t.Fatal(err)
		}
		check(t, home, b, name, true, true)
		check(t, home, b, name, true, false)
		if info, err := os.Stat(files[0]); err != nil || info.Size() > 100_000 {
			t.Errorf("%s: marks %v %v", name, info, err)
		}
	}
	// If the records' folder is a regular file, Having leaves it alone and
	// hashes the blob every time.
	home := newHome(t)
	place(t, home, b, content)
	if err := os.WriteFile(filepath.Join(home, ".plx/verified"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, home, b, "without a place for marks", true, false)
	if text, err := os.ReadFile(recordPath(home, b.Sum)); err == nil {
		t.Errorf("it is marked: %q", text)
	}
}

func TestSettleReplacesOnlyDamagedBlobs(t *testing.T) {
	home := newHome(t)
	b, content := programBlob(t, 50_000)
	file := filepath.Join(home, ".plx/new")
	if err := StoreBlob(file, b.Sum, b.Size); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without file and blob: %v", err)
	}
	path := filepath.Join(home, BlobPath(b.Sum))
	for name, before := range map[string]func() error{
		"nothing there":   func() error { return nil },
		"damaged":         func() error { return os.WriteFile(path, content[1:], 0o700) },
		"folder":          func() error { return os.MkdirAll(filepath.Join(path, "a/b"), 0o700) },
		"link to nothing": func() error { return os.Symlink("nothing", path) },
		"link to a file":  func() error { return os.Symlink("/bin/sh", path) },
	} {
		if err := firstError(os.RemoveAll(path), before()); err != nil {
			t.Fatal(err)
		}
		var stays os.FileInfo
		for i := range 2 { // the second call finds the blob, and does not replace it
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := StoreBlob(file, b.Sum, b.Size); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(path)
			if got, unread := os.ReadFile(path); firstError(err, unread) != nil || !bytes.Equal(got, content) || info.Mode() != 0o700 {
				t.Fatalf("%s: %v, %v", name, info, firstError(err, unread))
			}
			if stays != nil && !os.SameFile(stays, info) {
				t.Errorf("%s: a right blob was replaced", name)
			}
			stays = info
			check(t, home, b, name+", "+strconv.Itoa(i), true, false)
			if _, err := os.Stat(file); !os.IsNotExist(err) {
				t.Errorf("left over: %v", err)
			}
			if err := StoreBlob(file, b.Sum, b.Size); err != nil { // the file is gone as if another launch had just moved it
				t.Errorf("after another launch: %v", err)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(home, ".plx/verified/*")); len(left) != 1 {
		t.Errorf("left over: %v", left)
	}
}
