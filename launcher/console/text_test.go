package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/logs/style"
)

// hostile returns a text with each byte and terminal control sequence, and
// with lines that imitate messages of plx.
func hostile() string {
	text := "begin\x1b[2J\x1b]0;title\x07\x1b[5;35mpaint\x1b[8m\nplx: all well\r\nhost h9: all well\u2028plx: all well\rplx: all well"
	for b := range 256 {
		text += string([]byte{'.', byte(b)})
	}
	for _, r := range "\u0080\u0085\u009b\u009f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069" {
		text += "." + string(r)
	}
	return text + "end"
}

// harmful returns the control sequences in text that a terminal would obey,
// except plx's own colours.
func harmful(text string) []string {
	var found []string
	for _, colour := range []string{"\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m", "\x1b[m"} {
		text = strings.ReplaceAll(text, colour, "")
	}
	for at, r := range text {
		steers := r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || strings.ContainsRune("\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
		if steers || r == '\ufffd' && !strings.HasPrefix(text[at:], "\ufffd") {
			found = append(found, fmt.Sprintf("%+q", text[at:min(len(text), at+4)]))
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "plx: all well") || strings.HasPrefix(line, "host h9") || strings.Contains(line, "hosts h") {
			found = append(found, line)
		}
	}
	return found
}

// No control byte of an untrusted text reaches the terminal through any print
// function of the package.
func TestUntrustedTextIsEscaped(t *testing.T) {
	text := hostile()
	for way, show := range map[string]func(Terminal, *Printer) error{
		"Printf": func(_ Terminal, p *Printer) error { p.Printf("host h1: %s", text); return nil },
		"Report": func(_ Terminal, p *Printer) error { p.Report(style.Bad, "host h1: %s", text); return nil },
		"Lines":  func(_ Terminal, p *Printer) error { p.Lines([]string{"host h1: " + text, "host h2: x"}); return nil },
		"Error":  func(_ Terminal, p *Printer) error { p.Error(errors.New(text)); return nil },
		"joined": func(_ Terminal, p *Printer) error {
			p.Error(errors.Join(errors.New(text), errors.New("host h9: bad")))
			return nil
		},
		"hint":     func(_ Terminal, p *Printer) error { p.Error(exit.WithHint(errors.New("x"), text)); return nil },
		"question": func(_ Terminal, p *Printer) error { p.print([]string{p.question(text)}); return nil },
		"row":      func(_ Terminal, p *Printer) error { p.print([]string{p.row(text)}); return nil },
		"Print":    func(to Terminal, _ *Printer) error { return to.Print("host h1: %s", text) },
		"Marked":   func(to Terminal, _ *Printer) error { return to.Marked(style.Bad, text, text) },
		"Text":     func(to Terminal, _ *Printer) error { return to.Text("#" + strings.ReplaceAll(text, "\n", "\n#")) },
		"JSON":     func(to Terminal, _ *Printer) error { return json.NewEncoder(to.JSON()).Encode(text) },
		"Table": func(to Terminal, _ *Printer) error {
			table := NewTable("A", "B")
			table.Level = func(string, string) style.Level { return style.Bad }
			table.Row(text, "b"+text)
			return table.Write(to)
		},
	} {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			to := Terminal{Stdout: &out, Stderr: &out, StdoutTTY: way == "Text", StdoutColour: colour, StderrColour: colour}
			if err := show(to, NewPrinter(to)); err != nil {
				t.Fatal(err)
			}
			got := out.String()
			if found := harmful(strings.ReplaceAll(got, "host h9: bad", "")); len(found) > 0 {
				t.Errorf("%s, colour %v: %.200q", way, colour, found)
			}
			if plain := ansi.Strip(got); !strings.Contains(plain, "begin") || !strings.Contains(plain, "end") {
				t.Errorf("%s, colour %v: the text is not whole: %q", way, colour, got)
			}
		}
	}
}

// Each joined error is printed as a message of its own, and the further lines
// of a message are indented.
func TestJoinedErrorsAreSeparateLines(t *testing.T) {
	lost := errors.New("lost\nhost h2: all well\r\n  quoted\n")
	for _, c := range []struct {
		err  error
		want string
	}{
		{lost, "plx: lost\nplx:   host h2: all well\nplx:   quoted\n"},
		{errors.Join(fmt.Errorf("host h1: %w", lost), fmt.Errorf("host h3: %w", lost), errors.New("x")),
			"plx: hosts h[1,3]: lost\nplx:   host h2: all well\nplx:   quoted\nplx: x\n"},
		{exit.WithHint(exit.WithCode(errors.Join(errors.New("a"), errors.Join(errors.New("b"))), 2), "h\ni"), "plx: a\nplx: b\nplx: hint: h\nplx:   i\n"},
		{fmt.Errorf("c: %w", errors.Join(errors.New("a"), errors.New("b"))), "plx: c: a\nplx:   b\n"},
		{fmt.Errorf("%w and %w", errors.New("a"), errors.New("b")), "plx: a and b\n"},
	} {
		var out output
		NewPrinter(Terminal{Stderr: &out}).Error(c.err)
		if got := out.take(); got != c.want {
			t.Errorf("%q: got\n%s", c.err, got)
		}
	}
}
