package defaults

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

var flags = map[string][]string{"launch": {"hosts", "lease", "env", "detach", "rank"}, "logs": {"hosts", "follow"}}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOf(t *testing.T) {
	path := file(t, `# mine
hosts = "all.txt"
[launch]
"lease" = "60s"
env = ["A=1", "B=2, 3"]
detach = true
rank = [0, 1]
`)
	d, err := Read(path)
	if err == nil {
		err = d.Check(flags)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLX_LEASE", "90s")
	t.Setenv("PLX_RANK", "3") // of a task
	t.Setenv("PLX_ENV", "")
	for flag, want := range map[string]*Setting{
		"launch hosts":  {[]string{"all.txt"}, path + ":2"},
		"logs hosts":    {[]string{"all.txt"}, path + ":2"},
		"launch lease":  {[]string{"90s"}, "$PLX_LEASE"},
		"launch env":    {[]string{"A=1", "B=2, 3"}, path + ":5"},
		"launch detach": {[]string{"true"}, path + ":6"},
		"launch rank":   {[]string{"0", "1"}, path + ":7"},
		"logs follow":   nil,
	} {
		command, name, _ := strings.Cut(flag, " ")
		if got, err := d.Of(command, name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", flag, got, err, want)
		}
	}
	t.Setenv("PLX_ENV", "A=1\nB=2")
	if got, err := d.Of("launch", "env"); err != nil || len(got.Values) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"lease = ":                        ":1: ",
		"\nleese = 3":                     ":2: no command has a flag --leese",
		"[launch]\n# x\nfollow = true":    ":3: plx launch has no flag --follow",
		"[lunch]\nlease = 1":              ":1: plx has no command lunch",
		"[launch]\nlease = 1.5":           `:2: lease: want a text such as "60s"`,
		"env = [[1]]":                     ":1: env: want a list of texts",
		"hosts = \"a\"\nhosts = \"b\"":    ":2: ",
		"[launch.more]\nlease = \"3s\"\n": "plx launch has no flag --more",
	} {
		path := file(t, text)
		d, err := Read(path)
		if err == nil {
			err = d.Check(flags)
		}
		for _, name := range []string{"lease", "env"} {
			if err == nil {
				_, err = d.Of("launch", name)
			}
		}
		var m *Mistake
		if !errors.As(err, &m) || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// No file is no error, unless the user names it.
func TestNoFile(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.toml")
	d, err := Read(none)
	if err != nil || d.Check(flags) != nil {
		t.Fatal(err)
	}
	if got, err := d.Of("launch", "hosts"); got != nil || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	t.Setenv("PLX_CONFIG", none)
	if path, err := Path(); path != none || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	if _, err := Read(none); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestPath(t *testing.T) {
	t.Setenv("PLX_CONFIG", "")
	t.Setenv("HOME", "/home/me")
	for set, want := range map[string]string{"": "/home/me/.config/plx/config.toml", "relative": "/home/me/.config/plx/config.toml", "/cfg": "/cfg/plx/config.toml"} {
		t.Setenv("XDG_CONFIG_HOME", set)
		if got, err := Path(); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", set, got, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add("hosts = \"a\"\n[launch]\nlease = 3\nenv = [1, true, \"x\"]\n")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := Read(file(t, text))
		if err != nil || d.Check(flags) != nil {
			return
		}
		for command, names := range flags {
			for _, name := range names {
				if s, err := d.Of(command, name); err == nil && s != nil && s.From == "" {
					t.Errorf("%s %s: %+v", command, name, s)
				}
			}
		}
	})
}
