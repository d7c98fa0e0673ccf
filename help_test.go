package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// Help lines are at most 100 columns wide and name no empty default, and each
// flag is listed.
func TestHelpFits(t *testing.T) {
	text, err := os.ReadFile("docs/cli.md") // TestHelpIsDocumented checks that this file equals the help
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > helpWidth {
			t.Errorf("%d columns: %s", n, line)
		}
		for _, wrong := range []string{"default: 0", "default: false", "default: \"", "0m0s", "m0s)"} {
			if strings.Contains(line, wrong) {
				t.Errorf("%q in %s", wrong, line)
			}
		}
	}
	help := commandHelp((&command{}).launchCommand())
	for _, f := range (&command{}).launchCommand().Flags {
		if _, _, found := strings.Cut(help, "\n  -"+strings.Repeat("-", min(len(f.Names()[0])-1, 1))+f.Names()[0]); !found {
			t.Errorf("the help lacks %s", f.Names()[0])
		}
	}
}

// For a misspelled name in a command line, the hint suggests the right one.
func TestMisspelledNamesGetSuggestions(t *testing.T) {
	for line, want := range map[string]string{
		"lunch":                         `no command "lunch"` + "\nhint: plx launch? plx help lists them",
		"help lgos":                     `no command "lgos"` + "\nhint: plx logs? plx help lists them",
		"frobnicate":                    `no command "frobnicate"` + "\nhint: plx help lists them",
		"launch --leese 3s ./train":     "plx launch has no flag --leese\nhint: --lease? plx help launch lists them",
		"launch --zzz":                  "plx launch has no flag --zzz\nhint: plx help launch lists them",
		"logs --taks worker:0":          "plx logs has no flag --taks\nhint: --task? plx help logs lists them",
		"--hosts resources.txt launch":  "plx has no flag --hosts\nhint: flags come after the command: plx COMMAND [FLAGS]; plx help lists the commands",
		"launch --lease soon ./train":   "--lease soon: want a time with its unit, such as 90s, 5m or 1h\nhint: --lease 90s",
		"launch --lease 60 ./train":     "--lease 60: want a time with its unit, such as 90s, 5m or 1h\nhint: --lease 60s",
		"prune --older 3d":              "--older 3d: want a time with its unit, such as 90s, 5m or 1h\nhint: --older 72h",
		"launch --gpus 2 ./train":       "--gpus is for a job that --slurm submits\nhint: without Slurm, write the GPU ids after the host: --host \"gpu01: 0,1\"; with it, plx launch --slurm --gpus VALUE ./train",
		"launch --nproc 2 ./train":      "plx launch has no flag --nproc\nhint: --workers-per-host N; plx help launch lists plx's flags",
		"launch --max-restarts x train": "--max-restarts x: want a whole number\nhint: --max-restarts 3",
	} {
		code, _, stderr := ran(t, strings.Fields(line)...)
		if got := strings.TrimSpace(strings.ReplaceAll(stderr, "plx: hint:", "hint:")); code != 2 || got != "plx: "+want {
			t.Errorf("plx %s: %d, %q, want %q", line, code, got, "plx: "+want)
		}
	}
}

// plx help and plx COMMAND --help print the same text, and so do plx version
// and --version.
func TestHelpAndVersion(t *testing.T) {
	for a, b := range map[string]string{"help": "--help", "help launch": "launch --help", "version": "--version"} {
		code, got, _ := ran(t, strings.Fields(a)...)
		_, want, _ := ran(t, strings.Fields(b)...)
		if code != 0 || got != want || got == "" {
			t.Errorf("plx %s: %d, %.300q; plx %s: %.300q", a, code, got, b, want)
		}
	}
}

// Every command has a manual page with all of its flags.
func TestManPages(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := ran(t, "man", dir); code != 0 {
		t.Fatalf("%d, %s", code, stderr)
	}
	for _, c := range (&command{}).app().VisibleCommands() {
		page, err := os.ReadFile(filepath.Join(dir, "plx-"+c.Name+".1"))
		if err != nil || !strings.Contains(string(page), ".TH plx-"+c.Name+" 1") {
			t.Errorf("plx-%s.1: %v\n%.300s", c.Name, err, page)
		}
		for _, f := range c.VisibleFlags() {
			if name := dashed(longName(f)); !strings.Contains(strings.ReplaceAll(string(page), `\-`, "-"), name) {
				t.Errorf("plx-%s.1 lacks %s", c.Name, name)
			}
		}
	}
	if page, err := os.ReadFile(filepath.Join(dir, "plx.1")); err != nil || !strings.Contains(string(page), "126, 127") {
		t.Errorf("plx.1: %v\n%s", err, page)
	}
}

// ran runs one command line.
func ran(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var files [2]*os.File
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files[i] = f
	}
	code = run(append([]string{"plx"}, args...), files[0], files[1])
	var texts [2]string
	for i, f := range files {
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(b)
	}
	return code, texts[0], texts[1]
}
