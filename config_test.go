package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configured writes the user's configuration file.
func configured(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLX_CONFIG", path)
	return path
}

// The command line is preferred to variables, these to the file.
func TestDefaultsOfFlags(t *testing.T) {
	path := configured(t, "color = \"never\"\n[launch]\nhost = [\"a: 0\", \"b: 0\"]\nps = \"all\"\nn = 1\n")
	t.Setenv("PLX_PS", "none")
	plan := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := ran(t, append(append([]string{"launch"}, args...), "--dry-run", "echo")...)
		if code != 0 {
			t.Fatalf("%v: %d, %s", args, code, stderr)
		}
		return stdout
	}
	if got := plan(); strings.Contains(got, "ps:0") || !strings.Contains(got, "worker:0") || strings.Contains(got, "worker:1") {
		t.Errorf("got %s", got)
	}
	if got := plan("--ps", "b", "-n", "2"); !strings.Contains(got, "ps:0") || !strings.Contains(got, "worker:1") {
		t.Errorf("got %s", got)
	}
	if got := plan("--host", "c: 0"); !strings.Contains(got, " c ") || strings.Contains(got, " a ") {
		t.Errorf("got %s", got)
	}
	want := "COMMAND  FLAG     VALUE       FROM\n" +
		"launch   --host   a: 0, b: 0  " + path + ":3\n" +
		"all      --color  never       " + path + ":1\n" +
		"launch   -n       1           " + path + ":5\n" +
		"launch   --ps     none        $PLX_PS\n"
	if code, got, stderr := ran(t, "config"); code != 0 || got != want {
		t.Errorf("%d, %s%s, want %s", code, got, stderr, want)
	}
}

func TestWrongDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"[launch]\nleese = 3":      ":2: plx launch has no flag --leese\nplx: hint: lease? plx help config",
		"lunch = {}":               `:1: plx has no command lunch` + "\nplx: hint: launch? plx help config",
		"[launch]\nlease = \"60\"": `:2: --lease "60": want a value as on the command line, such as 90s, 3 or true` + "\nplx: hint: plx help launch",
		"color = ":                 ":1: ",
	} {
		path := configured(t, text)
		if code, _, stderr := ran(t, "launch", "--dry-run", "echo"); code != 2 || !strings.HasPrefix(stderr, "plx: "+path+want) {
			t.Errorf("%q: %d, %q, want %q", text, code, stderr, want)
		}
	}
	t.Setenv("PLX_CONFIG", filepath.Join(t.TempDir(), "none"))
	if code, _, stderr := ran(t, "jobs"); code != 2 || !strings.HasPrefix(stderr, "plx: $PLX_CONFIG: open ") || !strings.Contains(stderr, "none: no such file") || !strings.Contains(stderr, "plx: hint: unset PLX_CONFIG") {
		t.Errorf("%d, %q", code, stderr)
	}
}
