package tree

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write creates files and their parent folders. A name that ends with a slash
// is a folder.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, name)
		parent := filepath.Dir(file)
		if strings.HasSuffix(name, "/") {
			parent = file
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		if parent == file {
			continue
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func scan(t *testing.T, dir string) *Folder {
	t.Helper()
	f, err := Scan(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// files returns the paths of the files in a manifest.
func files(m Manifest) (paths []string) {
	for _, e := range m.Entries {
		if e.Kind != Directory {
			paths = append(paths, e.Path)
		}
	}
	return paths
}

// git runs a git command without the user's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL="+cmp.Or(os.Getenv("GIT_CONFIG_GLOBAL"), "/dev/null"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestWhatStaysBehind(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "sub", "project")
	write(t, top, map[string]string{
		".git/HEAD": "", ".gitignore": "/sub/project/from-above\nproject/not-this\n", "sub/.gitignore": "*.pt\n",
	})
	write(t, dir, map[string]string{
		"train.py": "", "from-above": "", "not-this": "", "model.pt": "", "keep.pt": "", "code/__pycache__/x.pyc": "", "code/m.py": "",
		"venv/pyvenv.cfg": "", "venv/bin/python": "", "wanted/pyvenv.cfg": "", "wanted/lib/x.py": "", "module/.git": "gitdir: x", "module/x": "",
		"data/set": "", ".gitignore": "data/\n", ".plxignore": "!keep.pt\n!wanted/\n!data/\nsecret\n", "data/.gitignore": "*\n",
		"code/secret": "", "code/.plxignore": "!secret\n",
	})
	f := scan(t, dir)
	want := []string{".gitignore", ".plxignore", "code/.plxignore", "code/m.py", "code/secret", "keep.pt", "module/x", "not-this", "train.py",
		"wanted/lib/x.py", "wanted/pyvenv.cfg"}
	if got := files(f.Manifest); !slices.Equal(got, want) {
		t.Errorf("sent\n%q, want\n%q", got, want)
	}
	for p, why := range map[string]string{
		"model.pt": "sub/.gitignore:1", "from-above": ".gitignore:1", "data/set": "data/.gitignore:1", "venv/bin/python": "a virtual environment",
		"code/__pycache__/x.pyc": "!__pycache__/", "module/.git": "!.git", "train.py": "", "no/such": "",
	} {
		if got := f.Excluded(p); !strings.Contains(got, why) || (got == "") != (why == "") {
			t.Errorf("Excluded(%q) = %q, want %q", p, got, why)
		}
	}
}
