package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/launcher/ssh/sshconfig"
)

var update = flag.Bool("update", false, "rewrite docs/cli.md")

// docs/cli.md equals the help texts of plx and its commands.
func TestHelpIsDocumented(t *testing.T) {
	var want strings.Builder
	want.WriteString("# Commands and flags\n\nWhat `plx COMMAND --help` says; written by `go test . -update`.\n")
	names := []string{"plx"}
	for _, c := range (&command{}).app().VisibleCommands() {
		names = append(names, "plx "+c.Name)
	}
	for _, name := range names {
		fmt.Fprintf(&want, "\n## %s\n\n```text\n%s```\n", name, help(t, append(strings.Fields(name), "--help")))
	}
	got, err := os.ReadFile("docs/cli.md") // read before the update, so that a run that changes the file fails
	if *update {
		if err := os.WriteFile("docs/cli.md", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("docs/cli.md is not what the commands say: run go test . -update")
	}
}

// help returns the output of plx for args, without blanks at the ends of
// lines.
func help(t *testing.T, args []string) string {
	t.Helper()
	t.Setenv("PLX_HOSTS", "")
	var out bytes.Buffer
	app := (&command{}).app()
	app.Writer = &out
	if err := app.Run(args); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(strings.TrimSpace(out.String())) {
		text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	return text.String()
}

// Each error line of plx begins with "plx:", and the hint has a line of its
// own.
func TestComplain(t *testing.T) {
	for flag, want := range map[string]string{
		"--color=never":  "plx: host a: x\nplx: hosts b,c: y\n",
		"--color=always": "\x1b[1mplx:\x1b[0m \x1b[31mhost a: x\x1b[0m\n\x1b[1mplx:\x1b[0m \x1b[31mhosts b,c: y\x1b[0m\n",
	} {
		out, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
		if err != nil {
			t.Fatal(err)
		}
		(&command{stdout: out, stderr: out}).printError([]string{"plx", "probe", flag}, errors.Join(errors.New("host a: x"), errors.New("host b: y"), errors.New("host c: y")))
		if got, err := os.ReadFile(out.Name()); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", flag, got, err, want)
		}
	}
}

// TestRunWithoutHome runs a command with HOME unset.
func TestRunWithoutHome(t *testing.T) {
	home := sshconfig.PasswordHome()
	if home == "" {
		t.Fatal("this user has no home")
	}
	for what, set := range map[string]func(){"empty": func() {}, "unset": func() { os.Unsetenv("HOME") }} {
		t.Setenv("HOME", "")
		set()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		if code := run([]string{"plx", "config"}, out, out); code != 0 || os.Getenv("HOME") != home {
			t.Errorf("%s: status %d, HOME=%q, want %q", what, code, os.Getenv("HOME"), home)
		}
	}
}
