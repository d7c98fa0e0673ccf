package envsync

import (
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestInspect(t *testing.T) {
	h := newHost(t)
	h.env = []string{"SSH_CONNECTION=10.0.0.9 50512 10.0.0.1 22"}
	f, err := Inspect(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if f.OS != runtime.GOOS || f.Arch != runtime.GOARCH || f.Home != h.home || f.User != me.Username ||
		strconv.Itoa(f.UID) != me.Uid || f.ServerAddr != "10.0.0.1" || f.HostName != name {
		t.Errorf("%+v", f)
	}
	if runtime.GOOS == "linux" && len(f.BootID) != 36 {
		t.Errorf("boot id %q", f.BootID)
	}
	for _, folder := range []string{".plx", ".plx/blobs"} {
		if info, err := os.Stat(filepath.Join(h.home, folder)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", folder, info, err)
		}
	}
	again, err := Inspect(t.Context(), h)
	if err != nil || again.FileSystem != f.FileSystem {
		t.Errorf("the file system was %s and is %s: %v", f.FileSystem, again.FileSystem, err)
	}
	if files, _ := filepath.Glob(filepath.Join(h.home, ".plx/.*")); len(files) != 0 {
		t.Errorf("left over: %v", files)
	}
}

// Many hosts with one home, and many launches, ask at the same moment.
func TestInspectAgreesOnTheFileSystem(t *testing.T) {
	home := t.TempDir()
	ids := make([]string, 16)
	var wait sync.WaitGroup
	for i := range ids {
		wait.Go(func() {
			f, err := Inspect(t.Context(), &localHost{home: home})
			if err != nil {
				t.Error(err)
			}
			ids[i] = f.FileSystem
		})
	}
	wait.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Fatalf("they do not agree: %v", ids)
		}
	}
	other, err := Inspect(t.Context(), newHost(t))
	if err != nil || other.FileSystem == ids[0] {
		t.Errorf("another home has the same name %s: %v", other.FileSystem, err)
	}
}

func TestInspectWithoutLinks(t *testing.T) {
	h := newHost(t)
	withPrograms(t, h, []string{"mkdir", "chmod", "rm", "mv", "cat", "uname", "id"}, map[string]string{"ln": "exit 1\n"})
	a, err := Inspect(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Inspect(t.Context(), h); err != nil || a.FileSystem != b.FileSystem {
		t.Errorf("%s %s %v", a.FileSystem, b.FileSystem, err)
	}
}

func TestInspectErrors(t *testing.T) {
	for _, c := range []struct {
		name, stub, want string
	}{
		{"full", "echo 'cat: write error: No space left on device' >&2; exit 1\n", "inspect: the home folder's file system is full: "},
		{"quota", "echo 'cat: write error: Disk quota exceeded' >&2; exit 1\n", "inspect: the home folder's quota is used up: "},
	} {
		h := newHost(t)
		h.before = "printf() { return 1; }\n" // as that of the shell where nothing can be written
		withPrograms(t, h, []string{"mkdir", "chmod", "rm", "mv", "ln"}, map[string]string{"cat": c.stub})
		if _, err := Inspect(t.Context(), h); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What a host says besides is no error, unless the script fails.
func TestAHostThatSaysMore(t *testing.T) {
	h := newHost(t)
	if out, err := script(t.Context(), h, "echo warning >&2; echo answer"); err != nil || out != "answer\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := script(t.Context(), h, "exit 3"); err == nil || err.Error() != "exit status 3" {
		t.Errorf("%v", err)
	}
	if _, err := script(t.Context(), h, "echo a '  b' >&2; exit 3"); err == nil || err.Error() != "exit status 3: a b" {
		t.Errorf("%v", err)
	}
}

// A folder that another launch makes in the moment before is nothing in the way.
func TestInspectWhileAnotherMakesTheFolder(t *testing.T) {
	h := newHost(t)
	withPrograms(t, h, []string{"cat", "chmod", "rm", "mv", "ln", "uname", "id"}, map[string]string{
		"mkdir": "/bin/mkdir \"$2\"\necho \"mkdir: cannot create directory '$2': File exists\" >&2\nexit 1\n"})
	if _, err := Inspect(t.Context(), h); err != nil {
		t.Error(err)
	}
}

// What is in the way is named, in one line that says what to do.
func TestInspectNamesWhatIsInTheWay(t *testing.T) {
	const file, link = " is not a folder: remove or rename it, then plx makes its own",
		" is a link to a folder that is not there: make that folder, or remove the link"
	for _, c := range []struct{ target, path, want string }{
		{"", ".plx", file},
		{"", ".plx/blobs", file},
		{"nothing", ".plx", link},
		{"nothing", ".plx/blobs", link},
		{".plx", ".plx", link},
	} {
		h := newHost(t)
		path := filepath.Join(h.home, c.path)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if c.target == "" {
			err = firstError(err, os.WriteFile(path, nil, 0o600))
		} else {
			err = firstError(err, os.Symlink(c.target, path))
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Inspect(t.Context(), h); err == nil || err.Error() != "inspect: "+path+c.want {
			t.Errorf("%+v: %v", c, err)
		}
	}
	// A link to a folder is as good as a folder.
	h := newHost(t)
	if err := os.Symlink(t.TempDir(), filepath.Join(h.home, ".plx")); err != nil {
		t.Fatal(err)
	}
	if _, err := Inspect(t.Context(), h); err != nil {
		t.Error(err)
	}
}

const answer = "os=Linux\narch=aarch64\nhome=/home/a b\nuser=a\nuid=1000\nconnection=fe80::1%eth0 1 fe80::2%eth0 22\nhostname=h\nboot=b\nfsid=000102030405060708090a0b0c0d0e0f\n"

func TestParseFacts(t *testing.T) {
	f, err := ReadFacts(answer)
	if err != nil || f.Arch != "arm64" || f.Home != "/home/a b" || f.ServerAddr != "fe80::2" {
		t.Errorf("%+v %v", f, err)
	}
	for old, wrong := range map[string]string{
		"uid=1000":     "uid=x",
		"home=/home":   "home=home",
		"os=Linux\n":   "",
		"fsid=00":      "fsid=zz",
		"hostname=h":   "hostname=\x1b[31mh",
		"arch=aarch64": "arch=",
	} {
		if _, err := ReadFacts(strings.Replace(answer, old, wrong, 1)); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}

func FuzzParseFacts(f *testing.F) {
	f.Add(answer)
	f.Add("")
	f.Fuzz(func(t *testing.T, out string) {
		facts, err := ReadFacts(out)
		if err == nil && (facts.Home[0] != '/' || facts.OS == "" || facts.Arch == "" || facts.UID < 0 || len(facts.FileSystem) != 32) {
			t.Fatalf("%q gives %+v", out, facts)
		}
	})
}
