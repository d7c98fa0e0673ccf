package defaults

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wholeNumber is the Wrong function of a flag that takes a number.
func wholeNumber(value string) (want, right string) {
	if _, err := strconv.Atoi(value); err != nil {
		return "want a whole number", "3"
	}
	return "", ""
}

func yesOrNo(value string) (want, right string) {
	if value != "true" && value != "false" {
		return "want true or false", "true"
	}
	return "", ""
}

var flags = Flags{
	"launch": {"hosts": {Path: true}, "lease": {}, "env": {Repeatable: true}, "detach": {Switch: true, Wrong: yesOrNo},
		"rank": {Repeatable: true, Wrong: wholeNumber}, "n": {Wrong: wholeNumber}, "fetch": {Path: true}, "copy": {Repeatable: true, Path: true}, "setup": {}},
	"logs":  {"hosts": {Path: true}, "follow": {Switch: true, Wrong: yesOrNo}, "env": {CommandTableOnly: true}, "lease": {CommandTableOnly: true}},
	"fetch": {"hosts": {Path: true}},
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOf(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	path := file(t, `logs.lease = "5s" # mine
hosts = "~/all.txt"
logs.follow = true
fetch = "~"
[launch]
"lease" = "60s"
env = ["A=1", "B=2, 3", "~"]
detach = true
rank = [0, 1]
n = 2

# The name of a command, and of a flag of launch.
`)
	t.Setenv("PLX_LEASE", "90s")
	t.Setenv("PLX_RANK", "3") // of a task
	t.Setenv("PLX_ENV", "")
	t.Setenv("PLX_COPY", "~/a\n~b\nc/~")
	t.Setenv("PLX_SETUP", "ulimit -c 0\nexport A=1")
	d, err := Read(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]*Setting{
		"launch hosts":  {[]string{"/home/me/all.txt"}, path + ":2"},
		"logs hosts":    {[]string{"/home/me/all.txt"}, path + ":2"},
		"logs follow":   {[]string{"true"}, path + ":3"},
		"launch fetch":  {[]string{"/home/me"}, path + ":4"},
		"launch lease":  {[]string{"90s"}, "$PLX_LEASE"},
		"launch env":    {[]string{"A=1", "B=2, 3", "~"}, path + ":7"},
		"launch detach": {[]string{"true"}, path + ":8"},
		"launch rank":   {[]string{"0", "1"}, path + ":9"},
		"launch n":      {[]string{"2"}, path + ":10"},
		"launch copy":   {[]string{"/home/me/a", "~b", "c/~"}, "$PLX_COPY"},
		"launch setup":  {[]string{"ulimit -c 0\nexport A=1"}, "$PLX_SETUP"},
		"launch follow": nil,
		"logs env":      nil, // --env of plx logs is another flag than --env of other commands
		"logs lease":    {[]string{"5s"}, path + ":1"},
	} {
		command, name, _ := strings.Cut(flag, " ")
		if got := d.Of(command, name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", flag, got, want)
		}
	}
}

// The table of the command fetch is not taken as a value of the flag --fetch,
// in any TOML notation.
func TestTableOfCommandIsNoFlagValue(t *testing.T) {
	for _, text := range []string{"[fetch]\nhosts = \"a\"", "fetch = { hosts = \"a\" }", "fetch.hosts = \"a\"", "[launch]\nfetch = \"dir\"\n[fetch]\nhosts = \"a\""} {
		d, err := Read(file(t, text), flags)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s := d.Of("fetch", "hosts"); s == nil || s.Values[0] != "a" || d.Of("launch", "hosts") != nil {
			t.Errorf("%q: %+v, %+v", text, s, d.Of("launch", "hosts"))
		}
		if s := d.Of("launch", "fetch"); (s != nil) != strings.Contains(text, "dir") {
			t.Errorf("%q: launch has the flag fetch: %+v", text, s)
		}
	}
}

func TestWrongSettingsAreRejected(t *testing.T) {
	for text, want := range map[string]string{
		"lease = ":                           ":1: ",
		"\nleese = 3":                        ":2: no command has a flag --leese",
		"[launch]\n# x\nfollow = true":       ":3: plx launch has no flag --follow",
		"[launch]\n# follow = 1\nfollow = 2": ":3: plx launch has no flag --follow",
		"[lunch]\nlease = 1":                 ":1: plx has no command lunch",
		"[Launch]\nlease = 1":                ":1: plx has no command Launch",
		"[launch]\nlease = 1.5":              ":2: lease: want a text in quotes",
		"env = [[1]]":                        ":1: env: want a text in quotes",
		"hosts = [\"a\"]":                    ":1: hosts: want one value, not a list",
		"hosts = true":                       ":1: hosts: want a text in quotes or a whole number, not true",
		"\n[launch]\n\ndetach = \"yes\"":     `:4: detach = "yes": want true or false`,
		"n = 1\nrank = [1, \"x\"]":           `:2: rank = "x": want a whole number`,
		"hosts = \"a\"\nhosts = \"b\"":       ":2: ",
		"hosts = 2026-11-28":                 ":1: hosts: want a text in quotes",
		"[launch.more]\nlease = \"3s\"\n":    ":1: plx launch has no flag --more",
		"launch = { n = 1, more = 2 }":       ":1: plx launch has no flag --more",
		"[[launch]]":                         ":1: no command has a flag --launch",
		"hosts = \"\xff\"":                   ":1: invalid UTF-8",
		"# \xff":                             ":1: invalid UTF-8",
		"\x00":                               ":1: ",
	} {
		path := file(t, text)
		_, err := Read(path, flags)
		if m, is := errors.AsType[*Mistake](err); !is || m.Where == "" || !strings.HasPrefix(err.Error(), path+want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	t.Setenv("PLX_N", "two")
	if _, err := Read(file(t, ""), flags); err == nil || err.Error() != `$PLX_N: "two": want a whole number` {
		t.Errorf("got %v", err)
	}
}

// If the configuration file cannot be read, the error names it. A missing or
// empty file sets nothing.
func TestUnreadableFileIsReported(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\r\n", "\ufeff", "[launch]\n"} {
		if d, err := Read(file(t, text), flags); err != nil || d.Of("launch", "hosts") != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if d, err := Read(file(t, "\ufeffhosts = \"a\"\r\n"), flags); err != nil || d.Of("launch", "hosts") == nil {
		t.Errorf("got %v", err)
	}
	below := filepath.Join(file(t, ""), "config.toml")
	for _, path := range []string{t.TempDir(), below, "/proc/self/mem"} { // even root cannot read this file
		if _, err := Read(path, flags); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestUnknownVariablesAreListed(t *testing.T) {
	d, err := Read(file(t, ""), flags)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"PLX_HOSTS", "PLX_RANK", "PLX_HSOTS", "PLX_CONFIG"} {
		t.Setenv(v, "")
	}
	if got := d.Strays(); !slices.Contains(got, "PLX_HSOTS") || slices.Contains(got, "PLX_HOSTS") || slices.Contains(got, "PLX_RANK") || slices.Contains(got, "PLX_CONFIG") {
		t.Errorf("got %v", got)
	}
	if known := d.Variables(); !slices.Contains(known, "PLX_HOSTS") || !slices.Contains(known, "PLX_CONFIG") || slices.Contains(known, "PLX_RANK") {
		t.Errorf("got %v", known)
	}
}

// A missing file is an error only if $PLX_CONFIG names it.
func TestMissingFileIsNoErrorUnlessNamed(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.toml")
	d, err := Read(none, flags)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.Of("launch", "hosts"); got != nil {
		t.Errorf("%+v", got)
	}
	t.Setenv("PLX_CONFIG", none)
	if path, err := Path(); path != none || err != nil {
		t.Errorf("%s, %v", path, err)
	}
	if _, err := Read(none, flags); !errors.Is(err, os.ErrNotExist) {
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

// For any content of the file, each setting has a line of the file as its
// source.
func FuzzRead(f *testing.F) {
	f.Add("hosts = \"a\"\n[launch]\nlease = 3\nenv = [1, \"x\"]\n")
	f.Add("launch = { n = 1, lease = \"~\" }\nfetch.hosts = \"\"\"\na\"\"\"\n[[logs]]\n")
	f.Add("\"launch\".'env' = [ # x\n \"a\",\n]\n[logs]\r\nfollow=true")
	f.Fuzz(func(t *testing.T, text string) {
		path := file(t, text)
		d, err := Read(path, flags)
		if err != nil {
			if _, is := errors.AsType[*Mistake](err); !is {
				t.Errorf("got %v", err)
			}
			return
		}
		for command, names := range flags {
			for name := range names {
				s := d.Of(command, name)
				if s == nil {
					continue
				}
				line, err := strconv.Atoi(strings.TrimPrefix(s.From, path+":"))
				if err != nil || line < 1 || line > strings.Count(text, "\n")+1 {
					t.Errorf("%s %s: %+v", command, name, s)
				}
			}
		}
	})
}
