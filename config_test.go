package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/plx-run/plx/defaults"
)

// configured writes text to the user's configuration file.
func configured(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PLX_CONFIG", path)
	return path
}

// A flag on the command line overrides its variable, and the variable
// overrides the configuration file.
func TestFlagDefaultsPrecedence(t *testing.T) {
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
	code, got, stderr := ran(t, "config")
	var rows []string
	for line := range strings.Lines(got) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"COMMAND FLAG VALUE FROM", "launch --host a: 0, b: 0 " + path + ":3", "all --color never " + path + ":1", "launch -n 1 " + path + ":5",
		"launch --ps none $PLX_PS", "all --hosts - none"}
	if code != 0 || len(rows) < len(want) || !slices.Equal(rows[:len(want)], want) {
		t.Errorf("%d, %s%s, want %q", code, got, stderr, want)
	}
	for _, row := range []string{"all but launch --host - none", "launch --visible auto default", "launch --detach - none", "scale, stop --checkpoint-timeout 5m default"} {
		if !slices.Contains(rows, row) {
			t.Errorf("no row %q in %s", row, got)
		}
	}
}

// plx config --json has every flag of every command.
func TestConfigHasAllFlags(t *testing.T) {
	path := configured(t, "[launch]\ncopy = [\"~/a\", \"b\"]\n")
	t.Setenv("HOME", "/home/me")
	code, stdout, stderr := ran(t, "config", "--json")
	var rows []setting
	if err := json.Unmarshal([]byte(stdout), &rows); code != 0 || err != nil {
		t.Fatalf("%d, %v, %s", code, err, stderr)
	}
	got := map[string]setting{}
	for _, r := range rows {
		got[r.Command+" "+r.Flag] = r
	}
	count := 0
	for _, c := range (&command{}).app().VisibleCommands() {
		for _, f := range c.VisibleFlags() {
			if _, found := got[c.Name+" "+longName(f)]; !found && f != cli.HelpFlag {
				t.Errorf("plx config lacks --%s of plx %s", longName(f), c.Name)
			}
			count++
		}
	}
	for _, want := range []setting{{"launch", "copy", []string{"/home/me/a", "b"}, path + ":2"}, {"exec", "grace", []string{"10s"}, "default"}, {"launch", "tls", []string{}, "none"}} {
		if r := got[want.Command+" "+want.Flag]; !reflect.DeepEqual(r, want) {
			t.Errorf("got %+v, want %+v", r, want)
		}
	}
	if len(rows) != len(got) || len(rows) > count {
		t.Errorf("%d rows of %d flags", len(rows), count)
	}
}

// A mistake in the user's defaults stops each command, even one that does not
// have the flag.
func TestWrongDefaults(t *testing.T) {
	for text, want := range map[string]string{
		"[launch]\nleese = 3":           ":2: plx launch has no flag --leese\nplx: hint: lease? plx help config",
		"\nhsots = \"a\"":               ":2: no command has a flag --hsots\nplx: hint: hosts? plx help config",
		"lunch = {}":                    `:1: plx has no command lunch` + "\nplx: hint: launch? plx help config",
		"[launch]\nlease = \"60\"":      `:2: lease = "60": want a time with its unit, such as 90s, 5m or 1h` + "\nplx: hint: lease = \"60s\"",
		"[launch]\ndetach = \"yes\"":    `:2: detach = "yes": want true or false` + "\nplx: hint: detach = true",
		"[launch]\non-hang = \"kill\"":  `:2: on-hang = "kill": want report, stop or restart` + "\nplx: hint: on-hang = \"report\"",
		"[launch]\nport-range = \"99\"": `:2: --port-range 99: want LOW-HIGH`,
		"[launch]\ngrep = \"(\"":        `:2: --grep: `,
		"[prune]\nall = true":           ":2: --all of plx prune works on the command line only\nplx: hint: remove this setting",
		"all = true":                    ":1: --all of plx prune works on the command line only\nplx: hint: remove this setting",
		"color = ":                      ":1: ",
	} {
		path := configured(t, text)
		for _, line := range [][]string{{"launch", "--dry-run", "echo"}, {"jobs"}, {"config"}} {
			if line[0] != "launch" && strings.Contains(want, ": --") {
				continue // these values are checked only by the launch itself
			}
			if code, _, stderr := ran(t, line...); code != 2 || !strings.HasPrefix(stderr, "plx: "+path+want) {
				t.Errorf("%q: plx %s: %d, %q, want %q", text, line[0], code, stderr, want)
			}
		}
	}
	t.Setenv("PLX_CONFIG", filepath.Join(t.TempDir(), "none"))
	if code, _, stderr := ran(t, "jobs"); code != 2 || !strings.HasPrefix(stderr, "plx: $PLX_CONFIG: open ") || !strings.Contains(stderr, "none: no such file") || !strings.Contains(stderr, "plx: hint: unset PLX_CONFIG") {
		t.Errorf("%d, %q", code, stderr)
	}
}

// If the path of the configuration file is a directory, plx fails instead of
// ignoring the user's defaults.
func TestConfigFileIsADirectory(t *testing.T) {
	t.Setenv("PLX_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	path := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "plx", "config.toml")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := ran(t, "jobs"); code != 2 || !strings.Contains(stderr, path+": is a directory\nplx: hint: ") {
		t.Errorf("%d, %q", code, stderr)
	}
}

// PLX_ variables are checked like the configuration file, unless they belong
// to another program.
func TestWrongVariables(t *testing.T) {
	for variable, want := range map[string]string{
		"PLX_HSOTS=a":         "$PLX_HSOTS: plx has no such variable\nplx: hint: PLX_HOSTS? plx help config",
		"PLX_START_TIMEOT=5m": "$PLX_START_TIMEOT: plx has no such variable\nplx: hint: PLX_START_TIMEOUT? plx help config",
		"PLX_CONFGI=a":        "$PLX_CONFGI: plx has no such variable\nplx: hint: PLX_CONFIG? plx help config",
		"PLX_LEASE=60":        `$PLX_LEASE: "60": want a time with its unit, such as 90s, 5m or 1h` + "\nplx: hint: PLX_LEASE=60s",
		"PLX_COLOR=red":       `$PLX_COLOR: "red": want auto, always or never` + "\nplx: hint: PLX_COLOR=auto",
		"PLX_PORT_RANGE=99":   "$PLX_PORT_RANGE: --port-range 99: want LOW-HIGH",
		"PLX_ALL=1":           "$PLX_ALL: --all of plx prune works on the command line only\nplx: hint: unset PLX_ALL",
		"PLX_VERSION=3":       "",
		"PLX_DATA=/data":      "",
	} {
		t.Run(variable, func(t *testing.T) {
			name, value, _ := strings.Cut(variable, "=")
			t.Setenv(name, value)
			code, _, stderr := ran(t, "launch", "--dry-run", "echo")
			if want == "" && code != 0 || want != "" && (code != 2 || !strings.HasPrefix(stderr, "plx: "+want)) {
				t.Errorf("%d, %q, want %q", code, stderr, want)
			}
		})
	}
}

// Variables that plx sets for tasks or tests are not reported as misspelled
// defaults, because a task may run plx.
func TestTaskVariablesAreNoMisspellings(t *testing.T) {
	t.Setenv("PLX_CONFIG", "")
	d, err := defaults.Read(filepath.Join(t.TempDir(), "none"), allFlags((&command{}).app()))
	if err != nil {
		t.Fatal(err)
	}
	variable, seen := regexp.MustCompile(`"(PLX_[A-Z_]+)[="]`), map[string]bool{}
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || path == "config_test.go" || filepath.Dir(path) == "defaults" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range variable.FindAllStringSubmatch(string(text), -1) {
			seen[found[1]] = true
		}
		return err
	})
	if err != nil || !seen["PLX_ROLE"] || !seen["PLX_CHECKPOINTS"] {
		t.Fatal(err, seen)
	}
	for name := range seen {
		t.Setenv(name, "")
	}
	for _, stray := range d.Strays() {
		if suggestion := likeVariable(stray, d.Variables()); suggestion != "" && seen[stray] {
			t.Errorf("%s is taken for %s", stray, suggestion)
		}
	}
}

// A default of --json for all commands does not apply to plx launch, but one
// in its own table does. Then even a launch with wrong flags reports its error
// as JSON.
func TestDefaultOfJSONFlag(t *testing.T) {
	for text, want := range map[string]string{"json = true": "", "[launch]\njson = true": `"error":"--lease 1s is too short, at least 5s is needed"`} {
		configured(t, text)
		t.Setenv("PLX_JSON", "true")
		code, stdout, _ := ran(t, "launch", "--lease", "1s", "true")
		if code != 2 || !strings.Contains(stdout, want) || want == "" && stdout != "" {
			t.Errorf("%q: %d, %q", text, code, stdout)
		}
	}
}
