package envsync

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// tree makes files under a new folder: a path that ends in / is a folder, a
// content that begins with "-> " a link.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		target, isLink := strings.CutPrefix(files[name], "-> ")
		switch {
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, []byte(files[name]), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// list is what tree takes, read back from a folder, with modes.
func list(t testing.TB, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			found[name] = "-> " + target
			return err
		case d.IsDir():
			found[name+"/"] = info.Mode().Perm().String()
		default:
			content, err := os.ReadFile(path)
			found[name] = info.Mode().Perm().String() + " " + string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func archiveOf(t testing.TB, paths ...string) (Blob, []byte) {
	t.Helper()
	b, err := ArchiveBlob(paths)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	r, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	content, err := io.ReadAll(r)
	if err != nil || int64(len(content)) != b.Size {
		t.Fatalf("%d of %d bytes: %v", len(content), b.Size, err)
	}
	return b, content
}

func TestArchiveUnpacksAsItWas(t *testing.T) {
	src := tree(t, map[string]string{
		"conf/a.json":        "{}",
		"conf/run.sh":        "#!/bin/sh",
		"conf/empty/":        "",
		"conf/ro/data":       "d",
		"conf/sub/up":        "-> ../a.json",
		"conf/dangling":      "-> not/there",
		"conf/sub/é \n name": "odd",
		"one":                "file",
		"link":               "-> one",
	})
	for path, mode := range map[string]fs.FileMode{"conf/run.sh": 0o755, "conf/ro": 0o555, "conf/ro/data": 0o400, "one": 0o600} {
		if err := os.Chmod(filepath.Join(src, path), mode); err != nil {
			t.Fatal(err)
		}
	}
	// Without root a folder that may not be written cannot be removed.
	t.Cleanup(func() { os.Chmod(filepath.Join(src, "conf/ro"), 0o755) })
	_, content := archiveOf(t, filepath.Join(src, "conf")+"/", filepath.Join(src, "one"), filepath.Join(src, "link"))
	dst := t.TempDir()
	t.Cleanup(func() { os.Chmod(filepath.Join(dst, "conf/ro"), 0o755) })
	defer syscall.Umask(syscall.Umask(0o077))
	if err := Unpack(t.Context(), bytes.NewReader(content), dst); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"conf/": "-rwxr-xr-x", "conf/a.json": "-rw-r--r-- {}", "conf/run.sh": "-rwxr-xr-x #!/bin/sh",
		"conf/empty/": "-rwxr-xr-x", "conf/ro/": "-r-xr-xr-x", "conf/ro/data": "-r-------- d",
		"conf/sub/": "-rwxr-xr-x", "conf/sub/up": "-> ../a.json", "conf/dangling": "-> not/there",
		"conf/sub/é \n name": "-rw-r--r-- odd", "one": "-rw------- file", "link": "-rw------- file",
	}
	if got := list(t, dst); !maps.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if err := Unpack(t.Context(), bytes.NewReader(content), dst); !errors.Is(err, fs.ErrExist) {
		t.Errorf("unpacked over what is there: %v", err)
	}
}

func TestArchiveIsDeterministic(t *testing.T) {
	files := map[string]string{"d/a": strings.Repeat("abc", 100_000), "d/b/c": "2", "d/l": "-> a"}
	x, y := tree(t, files), tree(t, files)
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(x, "d/a"), old, old); err != nil {
		t.Fatal(err)
	}
	a, _ := archiveOf(t, filepath.Join(x, "d"))
	b, _ := archiveOf(t, filepath.Join(y, "d"))
	if a.Sum != b.Sum || a.Size != b.Size {
		t.Errorf("equal folders give %s and %s", a.Sum, b.Sum)
	}
	if err := os.Chmod(filepath.Join(y, "d/a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if c, _ := archiveOf(t, filepath.Join(y, "d")); c.Sum == a.Sum {
		t.Error("a changed mode makes no difference")
	}
}

func TestArchiveRefuses(t *testing.T) {
	src := tree(t, map[string]string{
		"abs/l": "-> /etc/passwd", "up/l": "-> ../x", "odd/a/": "", "odd/l": "-> a/../x",
		"sock/": "", "pipe/": "", "x": "", "other/x": "",
	})
	listener, err := net.Listen("unix", filepath.Join(src, "sock/s"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := syscall.Mkfifo(filepath.Join(src, "pipe/p"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	before, err := filepath.Glob(filepath.Join(os.TempDir(), "plx-archive-*"))
	if err != nil {
		t.Fatal(err)
	}
	for want, paths := range map[string][]string{
		"abs/l: the link to \"/etc/passwd\" may lead out": {"abs"},
		"up/l: the link to \"../x\" may lead out":         {"up"},
		"odd/l: the link to \"a/../x\" may lead out":      {"odd"},
		"sock/s: it is a socket":                          {"sock"},
		"pipe/p: it is a named pipe":                      {"pipe"},
		"has the same base name":                          {"x", "other/x"},
		"no such file or directory":                       {"missing"},
	} {
		for i := range paths {
			paths[i] = filepath.Join(src, paths[i])
		}
		if _, err := ArchiveBlob(paths); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", paths, err, want)
		}
	}
	if _, err := ArchiveBlob([]string{"/"}); err == nil {
		t.Error("the root folder was packed")
	}
	after, err := filepath.Glob(filepath.Join(os.TempDir(), "plx-archive-*"))
	if err != nil || len(after) > len(before) {
		t.Errorf("temporary files are left: %v %v", after, err)
	}
}

// archive makes what ArchiveBlob would never make.
func archive(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range headers {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestUnpackRefuses(t *testing.T) {
	file := func(name string) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: 1}
	}
	folder := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }
	link := func(name, to string) tar.Header {
		return tar.Header{Name: name, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}
	}
	for name, headers := range map[string][]tar.Header{
		"parent":              {file("../evil")},
		"parent inside":       {folder("d"), file("d/../../evil")},
		"absolute":            {file("/tmp/evil")},
		"itself":              {folder(".")},
		"no folder":           {file("d/x")},
		"link out":            {folder("d"), link("d/l", "../../x")},
		"absolute link":       {folder("d"), link("d/l", "/etc")},
		"top link":            {link("l", "x")},
		"behind a link":       {folder("d"), folder("d/e"), link("d/l", "e"), file("d/l/x")},
		"up through a link":   {folder("d"), folder("d/e"), link("d/e/l", ".."), link("d/m", "e/l/../..")},
		"twice":               {folder("d"), file("d/x"), file("d/x")},
		"over a link":         {folder("d"), link("d/l", "x"), file("d/l")},
		"hard link":           {folder("d"), {Name: "d/h", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}},
		"device":              {folder("d"), {Name: "d/n", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"long name":           {file(strings.Repeat("x", maxName+1))},
		"the sum of all":      {folder("d"), {Name: "d/big", Typeflag: tar.TypeReg, Mode: 0o644, Size: 5}},
		"a link of no length": {folder("d"), link("d/l", "./")},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			inner := filepath.Join(dir, "inner")
			if err := os.Mkdir(inner, 0o700); err != nil {
				t.Fatal(err)
			}
			err := Unpack(t.Context(), bytes.NewReader(archive(t, headers...)), inner)
			fine := name == "the sum of all" || name == "a link of no length"
			if (err == nil) != fine {
				t.Errorf("%v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("it left the folder: %v %v", entries, err)
			}
		})
	}
}

func TestUnpackDropsSpecialBits(t *testing.T) {
	dir := t.TempDir()
	h := tar.Header{Name: "x", Typeflag: tar.TypeReg, Mode: 0o6755}
	if err := Unpack(t.Context(), bytes.NewReader(archive(t, h)), dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "x")); err != nil || info.Mode() != 0o755 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

// A link may climb with its first words only: a/.. is anywhere if a is a link.
func TestStaysInside(t *testing.T) {
	for _, c := range []struct {
		link, target string
		want         bool
	}{
		{"l", "x", true}, {"l", ".", true}, {"l", "a//b/.", true}, {"d/l", "../x", true}, {"d/e/l", "../../x", true},
		{"l", "..", false}, {"d/l", "../../x", false}, {"d/e/l", "a/../x", false}, {"d/e/l", "../a/../x", false},
		{"d/l", "/etc", false}, {"l", "", false}, {"l", "a\x00b", false}, {"d/./l", "../../x", false},
	} {
		if got := StaysInside(c.link, c.target); got != c.want {
			t.Errorf("%s -> %q: %v, want %v", c.link, c.target, got, c.want)
		}
	}
}

// An archive's file is removed, and a blob that is a file of the user is not.
func TestClosedBlobs(t *testing.T) {
	file := filepath.Join(tree(t, map[string]string{"a": "x"}), "a")
	mine, err := FileBlob(file)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := ArchiveBlob([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []Blob{mine, packed} {
		if err := errors.Join(b.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	if r, err := packed.Open(); err == nil {
		r.Close()
		t.Error("the archive is still there")
	}
}

func TestSpecialFilesHaveNames(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{fs.ModeSocket: "socket", fs.ModeNamedPipe: "named pipe",
		fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device", fs.ModeIrregular: "special file"} {
		if got := Special(mode | 0o644); got != want {
			t.Errorf("%v is a %s, want %s", mode, got, want)
		}
	}
}

// A folder that its owner cannot enter is closed after all in it is in place. Root can
// enter any, so the test runs as another user.
func TestUnpackClosesTheInnerFoldersFirst(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), "TMPDIR=/tmp")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("as another user: %v\n%s", err, out)
		}
		return
	}
	folder := func(name string, mode int64) tar.Header {
		return tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode}
	}
	dir := t.TempDir()
	outer := filepath.Join(dir, "a")
	err := Unpack(t.Context(), bytes.NewReader(archive(t, folder("a", 0), folder("a/b", 0o750), folder("a/b/c", 0o710))), dir)
	if info, failed := os.Stat(outer); err != nil || failed != nil || info.Mode().Perm() != 0 {
		t.Fatalf("%v, %v, %v", err, info, failed)
	}
	if err := os.Chmod(outer, 0o700); err != nil { // also for whoever removes it
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"b": 0o750, "b/c": 0o710} {
		if info, err := os.Stat(filepath.Join(outer, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestUnpackErrors(t *testing.T) {
	_, content := archiveOf(t, tree(t, map[string]string{"a": strings.Repeat("x", 100_000)}))
	if err := Unpack(t.Context(), bytes.NewReader(content[:len(content)/2]), t.TempDir()); err == nil {
		t.Error("half an archive was unpacked")
	}
	if err := Unpack(t.Context(), strings.NewReader("no archive"), t.TempDir()); err == nil {
		t.Error("garbage was unpacked")
	}
	if err := Unpack(t.Context(), bytes.NewReader(content), filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("unpacked into a folder that is not there")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Unpack(ctx, bytes.NewReader(content), t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// Whatever the archive, nothing appears outside of the folder, and no link in
// it leads out.
func FuzzUnpack(f *testing.F) {
	plain := func(headers ...tar.Header) []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if err := w.WriteHeader(&h); err != nil {
				f.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	d := tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o755}
	f.Add(plain(d, tar.Header{Name: "d/l", Linkname: "..", Typeflag: tar.TypeSymlink}))
	f.Add(plain(d, tar.Header{Name: "d/l", Linkname: "x", Typeflag: tar.TypeSymlink}, tar.Header{Name: "d/l/../../x", Typeflag: tar.TypeReg}))
	f.Add(plain(tar.Header{Name: "../x", Typeflag: tar.TypeReg, Mode: 0o644}))
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 64<<10 {
			return
		}
		dir := t.TempDir()
		inner := filepath.Join(dir, "inner")
		if err := os.Mkdir(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(t.Context(), bytes.NewReader(encoder.EncodeAll(archive, nil)), inner) // what it left is judged
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("outside: %v %v", entries, err)
		}
		err = filepath.WalkDir(inner, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.Type()&fs.ModeSymlink == 0 {
				return nil // a folder without the right to read it
			}
			if to, err := filepath.EvalSymlinks(path); err == nil && to != inner && !strings.HasPrefix(to, inner+"/") {
				t.Errorf("link %s leads to %s", path, to)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
