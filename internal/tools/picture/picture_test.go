package main

import (
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// docs/NAME.svg is what this package draws from docs/NAME.ansi, a screen that has what the scene
// waited for, at its width. A page shows the picture.
func TestPictures(t *testing.T) {
	pages := read(t, "../../../README.md") + strings.ReplaceAll(read(t, "../../../docs/watch.md"), "](", "](docs/")
	for _, s := range scenes {
		screen := read(t, "../../../docs/"+s.name+".ansi")
		want, err := s.paint(screen)
		if err != nil {
			t.Fatal(err)
		}
		if read(t, "../../../docs/"+s.name+".svg") != want {
			t.Errorf("docs/%s.svg is another picture: run scripts/tool internal/tools/picture -draw", s.name)
		}
		if !s.until.MatchString(ansi.Strip(screen)) {
			t.Errorf("%s: %s does not match\n%s", s.name, s.until, ansi.Strip(screen))
		}
		for line := range strings.Lines(ansi.Strip(screen)) {
			if ansi.StringWidth(line) > s.columns {
				t.Errorf("%s: wider than %d columns: %q", s.name, s.columns, line)
			}
		}
		if !strings.Contains(pages, "](docs/"+s.name+".svg)") {
			t.Errorf("no page shows docs/%s.svg", s.name)
		}
	}
}

// The screen of README.md has its commands, from a run without a fault of plx. TestREADME in e2e
// compares the lines of the training.
func TestScreenShowsTheSession(t *testing.T) {
	screen, readme, commands := ansi.Strip(read(t, "../../../docs/terminal.ansi")), read(t, "../../../README.md"), scenes[0].commands
	for i, command := range commands {
		if !strings.Contains(screen, "$ "+command+"\n") {
			t.Errorf("no %q in\n%s", command, screen)
		}
		if i < len(commands)-1 && !strings.Contains(readme, "\n"+command+"\n") {
			t.Errorf("README.md has no command %q", command)
		}
	}
	for _, part := range []string{"\nh2 ", ": done", "ModuleNotFoundError", " exited with status 1"} {
		if !strings.Contains(screen, part) {
			t.Errorf("no %q in\n%s", part, screen)
		}
	}
}

// A picture has a character's place and colour, and text that is markup in it is text.
func TestPaint(t *testing.T) {
	got, err := scenes[0].paint("a\x1b[38;5;196m<b>\x1b[0m&\n\x1b[1;2m!\x1b[49m \x1b[0;31mx\x1b[39m\x1b[38;5;9my▄")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<text x="16.0" y="29" textLength="7.8">a</text>`, `<text x="23.8" y="29" textLength="23.4" fill="#ff0000">&lt;b&gt;</text>`, `>&amp;</text>`,
		`y="47" textLength="7.8" font-weight="bold" opacity="0.65">!</text>`, ` fill="#f38ba8">x</text>`, ` fill="#f38ba8">y </text>`,
		`<path d="M47.2 52v-9h7.8v9z" fill="#f38ba8"/>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for _, text := range []string{"\x1b]0;title\x07", "\x1b[5mblink", "\x1b[1K", "\x1b[38;2;1;2;3m"} {
		if _, err := scenes[0].paint(text); err == nil {
			t.Errorf("%q is drawn", text)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
