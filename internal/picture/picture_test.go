package main

import (
	"os"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// docs/terminal.svg is what this package draws from docs/terminal.ansi.
func TestPictureIsDrawn(t *testing.T) {
	want, err := paint(read(t, "../../docs/terminal.ansi"))
	if err != nil {
		t.Fatal(err)
	}
	if read(t, "../../docs/terminal.svg") != want {
		t.Error("docs/terminal.svg is another picture: run go run ./internal/picture -draw")
	}
}

// The screen has the whole session, from a run without a fault of plx. README.md shows the
// picture and has its commands. TestREADME in e2e compares the lines of the training.
func TestScreenShowsTheSession(t *testing.T) {
	screen, readme := ansi.Strip(read(t, "../../docs/terminal.ansi")), read(t, "../../README.md")
	if !strings.Contains(readme, "](docs/terminal.svg)") {
		t.Error("README.md does not show the picture")
	}
	for i, command := range session {
		if !strings.Contains(screen, "$ "+command+"\n") {
			t.Errorf("no %q in\n%s", command, screen)
		}
		if i < len(session)-1 && !strings.Contains(readme, "\n"+command+"\n") {
			t.Errorf("README.md has no command %q", command)
		}
	}
	for _, part := range []string{"\nh2 ", ": done", "ModuleNotFoundError", " exited with status 1"} {
		if !strings.Contains(screen, part) {
			t.Errorf("no %q in\n%s", part, screen)
		}
	}
	for line := range strings.Lines(screen) {
		if ansi.StringWidth(line) > columns {
			t.Errorf("wider than %d columns: %q", columns, line)
		}
	}
}

// A picture has a character's place and colour, and text that is markup in it is text.
func TestPaint(t *testing.T) {
	got, err := paint("a\x1b[38;5;196m<b>\x1b[0m&\n\x1b[1;2m!\x1b[49m \x1b[0;31mx\x1b[39m\x1b[38;5;9my")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<text x="16.0" y="29" textLength="7.8">a</text>`, `<text x="23.8" y="29" textLength="23.4" fill="#ff0000">&lt;b&gt;</text>`, `>&amp;</text>`,
		`y="47" textLength="7.8" font-weight="bold" opacity="0.65">!</text>`, ` fill="#f38ba8">x</text>`, ` fill="#f38ba8">y</text>`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	for _, text := range []string{"\x1b]0;title\x07", "\x1b[5mblink", "\x1b[1K", "\x1b[38;2;1;2;3m"} {
		if _, err := paint(text); err == nil {
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
