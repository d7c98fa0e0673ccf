package main

import (
	"os"
	"strings"
	"testing"
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

// The capture has the whole session, and README.md shows the picture and its commands.
func TestPictureShowsTheSession(t *testing.T) {
	s := newScreen(columns)
	if err := s.write(read(t, "../../docs/terminal.ansi")); err != nil {
		t.Fatal(err)
	}
	var screen strings.Builder
	for _, line := range s.rows {
		for _, c := range line {
			screen.WriteRune(c.r)
		}
		screen.WriteByte('\n')
	}
	readme := read(t, "../../README.md")
	if !strings.Contains(readme, "](docs/terminal.svg)") {
		t.Error("README.md does not show the picture")
	}
	for _, command := range session[1:] {
		if !strings.Contains(readme, "\n"+command+"\n") {
			t.Errorf("README.md has no command %q", command)
		}
	}
	for _, command := range session {
		if !strings.Contains(screen.String(), "$ "+command+"\n") {
			t.Errorf("no %q in\n%s", command, &screen)
		}
	}
	if n := strings.Count(screen.String(), ": done"); n != 2 {
		t.Errorf("%d jobs are done, want 2, in\n%s", n, &screen)
	}
	if len(s.rows) > rows {
		t.Errorf("%d rows, want %d at most", len(s.rows), rows)
	}
}

// A screen shows what a terminal does.
func TestScreen(t *testing.T) {
	for text, want := range map[string]string{
		"one\r\ntwo":                          "one/two",
		"send 10%\r\x1b[Ksent":                "sent",
		"abc\rX":                              "Xbc",
		"abc\x1b[2K\rX":                       "X",
		"one\r\ntwo\r\n\x1b[2A\x1b[J\rthree":  "three",
		"12345678901":                         "1234567890/1",
		"\x1b[1mplx:\x1b[0m <\xc3\xa9>":       "plx: <é>",
		"a\x1b[?25lb\x1b[38;5;133mc\x1b[2m d": "abc d",
	} {
		s := newScreen(10)
		if err := s.write(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		var lines []string
		for _, line := range s.rows {
			var runes []rune
			for _, c := range line {
				runes = append(runes, c.r)
			}
			lines = append(lines, string(runes))
		}
		if got := strings.Join(lines, "/"); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"\x1b]0;title\x07", "\x07", "\x1b[5mblink", "\x1b[1K", "\x1b[3D"} {
		if err := newScreen(10).write(text); err == nil {
			t.Errorf("%q is drawn", text)
		}
	}
}

// A picture has a character's colour, and text that is markup in it is text.
func TestPaint(t *testing.T) {
	got, err := paint("a\x1b[38;5;196m<b>\x1b[0m&\x1b[1;2m!")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`>a</text>`, `fill="#ff0000">&lt;b&gt;</text>`, `>&amp;</text>`, ` font-weight="bold" opacity="0.65">!</text>`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
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
