package logs

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// frames returns the output of a program that draws rows once (first) and
// redraws them 19 times (again). % stands for the number of the redraw.
func frames(first, again string) string {
	text := strings.ReplaceAll(first, "%", "0")
	for i := range 20 {
		text += strings.ReplaceAll(again, "%", fmt.Sprint(i+1))
	}
	return text
}

// redraws maps names to outputs of programs that redraw rows. want is what a
// pipe receives. bits is what it receives if the output arrives in small
// pieces, so that at first it is unknown that rows will be redrawn.
var redraws = map[string]struct{ text, want, bits string }{
	"rich": {"before\n" + frames("\x1b[?25l\r\x1b[2Ka %\nb \x1b[35m%\x1b[0m", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb \x1b[35m%\x1b[0m") + "\n\x1b[?25hafter\n",
		"before\na 20\nb 20\nafter\n", ""},
	"rich, nothing follows": {frames("\x1b[?25l\r\x1b[2Ka %\nb %", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb %") + "\n\x1b[?25h", "a 20\nb 20\n", ""},
	"rich, a line between": {frames("\x1b[?25l\r\x1b[2Ka %\nb %", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb %") +
		"\r\x1b[2K\x1b[1A\x1b[2Klog\na 21\nb 21" + "\r\x1b[2K\x1b[1A\x1b[2Ka 22\nb 22\n\x1b[?25hafter\n", "log\na 22\nb 22\nafter\n", ""},
	"rich, a row more": {frames("\x1b[?25l\r\x1b[2Ka %", "\r\x1b[2Ka %") + "\r\x1b[2Ka 21\nb 21" + "\r\x1b[2K\x1b[1A\x1b[2Ka 22\nb 22\n\x1b[?25h", "a 22\nb 22\n", ""},
	"rich, transient":  {"before\n" + frames("\x1b[?25l\r\x1b[2Ka %\nb %", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb %") + "\n\x1b[?25h\r\x1b[1A\x1b[2K\x1b[1A\x1b[2Kafter\n", "before\nafter\n", ""},
	"rich, an error":   {frames("\x1b[?25l\r\x1b[2Ka %\nb %", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb %") + "\n\x1b[?25hTraceback:\n  File\n\nError\n", "a 20\nb 20\nTraceback:\n  File\n\nError\n", ""},
	"erased lines":     {frames("a %\nb %\n", "\x1b[2A\x1b[2Ka %\n\x1b[2Kb %\n") + "after\n", "a 20\nb 20\nafter\n", "a 0\nb 0\na 20\nb 20\nafter\n"},
	"three rows":       {frames("a %\nb %\nc %\n", "\x1b[3Aa %\nb %\nc %\n"), "a 20\nb 20\nc 20\n", "a 0\nb 0\nc 0\na 20\nb 20\nc 20\n"},
	"to the beginning": {frames("a %\nb %\n", "\x1b[2F\x1b[Ja %\nb %\n"), "a 20\nb 20\n", "a 0\nb 0\na 20\nb 20\n"},
	"down again":       {frames("a %\nb %\n", "\x1b[2F\x1b[Ka %\x1b[E\x1b[Kb %\x1b[E"), "a 20\nb 20\n", "a 0\nb 0\na 20\nb 20\n"},
	"one row of three": {frames("a 0\nb 0\nc 0\n", "\x1b[2A\r\x1b[2Kb %\x1b[2B\r"), "a 0\nb 20\nc 0\n", "a 0\nb 0\nc 0\nb 20\n"},
	"one line":         {frames("\x1b[1Ga %", "\x1b[2K\x1b[1Ga %") + "\n", "a 20\n", ""},
	"the rest erased":  {frames("long %", "\r\x1b[Ka %") + "\nafter\n", "a 20\nafter\n", ""},
	"wiped at the end": {frames("a %", "\r\x1b[2Ka %") + "\r\x1b[Kafter\n", "after\n", ""},
	"saved":            {frames("x \x1b[sa %", "\x1b[u\x1b[Ka %") + "\n", "x a 20\n", ""},
	"saved above":      {frames("\x1b7a %\nb %", "\x1b8a %\nb %") + "\n", "a 20\nb 20\n", ""},
	"a spinner":        {"works |" + frames("", "\b/\b-\b\\\b|") + "\b \bdone\n", "works done\n", ""},
	"columns":          {"name\x1b[10Gok\nnext\x1b[3Cok\n", "name     ok\nnext   ok\n", ""},
	"a whole screen":   {frames("\x1b[H\x1b[2Ja %\n\nb %\n", "\x1b[H\x1b[2Ja %\n\nb %\n"), "a 20\nb 20\n", ""},
	"the screen once":  {"\x1b[H\x1b[2Ja\n\nb\n", "a\n\nb\n", ""},
	"grep":             {"\x1b[01;31m\x1b[Kred\x1b[m\x1b[K line\n", "\x1b[01;31mred\x1b[m line\n", ""},
	"tqdm":             {frames("\r %|outer\n\r 0|a\x1b[A", "\n\r %|a\x1b[A\r %|outer") + "\n\n", " 20|outer\n 20|a\n", ""},
}

// Of rows that a program redraws, a pipe receives only the last states,
// without control characters. A terminal shows them as progress rows of their
// task.
func TestRedrawnRowsLeaveTheirLastStates(t *testing.T) {
	for name, c := range redraws {
		for _, size := range []int{1, 2, 3, 7, len(c.text)} {
			want := c.want
			if size < len(c.text) && c.bits != "" {
				want = c.bits
			}
			t.Run(fmt.Sprint(name, " in pieces of ", size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { checkRedrawn(t, c.text, size, want) })
			})
		}
	}
}

func checkRedrawn(t *testing.T, text string, size int, want string) {
	var screen screenful
	var pipe bytes.Buffer
	opts := Options{Hosts: []string{"h"}, Tasks: []string{"worker:0"}, NoPrefix: true}
	tty := Screen{Writer: &screen, Terminal: true, Colour: true}
	live, piped := NewPrinter(NewDisplay(tty, tty), opts), NewPrinter(pipes(&pipe, &pipe), opts)
	for _, p := range []*Printer{live, piped} {
		for at := 0; at < len(text); at += size {
			c := Chunk{Source: Source{"worker:0", Stdout}, Offset: int64(at), Data: []byte(text[at:min(at+size, len(text))])}
			if err := p.Chunk("h", c); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if pipe.String() != want {
		t.Errorf("in a pipe %q, want %q", pipe.String(), want)
	}
	colours := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	shown := colours.ReplaceAllString(rendered(t, colours.ReplaceAllString(screen.String(), "")), "")
	if want = colours.ReplaceAllString(want, ""); shown != want {
		t.Errorf("on a terminal %q, want %q", shown, want)
	}
}

// Lines that a program could have redrawn but did not are printed soon: below
// a complete bar within a second, and while the cursor is hidden within 5 s.
func TestLinesAreNotHeldForLong(t *testing.T) {
	for text, c := range map[string]struct {
		limit time.Duration
		want  string
	}{
		"\r100%|###|\n":                            {time.Second, "100%|###|\n"},
		"\x1b[?25lone\n\ntwo\n":                    {5 * time.Second, "one\n\ntwo\n"},
		"\x1b7one\ntwo\n":                          {5 * time.Second, "one\ntwo\n"},
		"\x1b[?25l\ra\nb\r\x1b[1Ac\nd\n\x1b[?25h":  {time.Second, "c\nd\n"},
		"\x1b[?25l\ra\nb\r\x1b[1Ac\nd\nlog\nlog\n": {5 * time.Second, "c\nd\nlog\nlog\n"},
		"one\n\r 1|a\n\r 0|b\x1b[A":                {time.Second, "one\n"}, // the program may still redraw the row 1|a
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := NewPrinter(pipes(&out, &out), Options{NoPrefix: true})
			if err := p.Chunk("h", Chunk{Source: worker0, Data: []byte(text)}); err != nil {
				t.Fatal(err)
			}
			for range int(c.limit / (2 * redrawEvery)) {
				drawn()
			}
			if out.String() != c.want {
				t.Errorf("%q: %q within %v, want %q", text, out.String(), c.limit, c.want)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// If two tasks redraw rows with Rich, a terminal shows the rows of one task
// below those of the other.
func TestTasksHaveRowsOneBelowTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		tty := Screen{Writer: &screen, Terminal: true}
		p := NewPrinter(NewDisplay(tty, tty), Options{Hosts: []string{"h"}, Tasks: []string{"worker:0", "worker:1"}})
		text := frames("\x1b[?25l\r\x1b[2Ka %\nb %", "\r\x1b[2K\x1b[1A\x1b[2Ka %\nb %")
		for _, task := range []string{"worker:1", "worker:0"} {
			if err := p.Chunk("h", Chunk{Source: Source{task, Stderr}, Data: []byte(text)}); err != nil {
				t.Fatal(err)
			}
		}
		drawn()
		if got, want := rendered(t, screen.String()), "worker:0 h ! a 20\nworker:0 h ! b 20\nworker:1 h ! a 20\nworker:1 h ! b 20"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestLastStates(t *testing.T) {
	for text, want := range map[string]string{
		"one\r\ntwo":                         "one|two",
		redraws["rich, an error"].text:       "a 20|b 20|Traceback:|  File||Error",
		"\x1b[31mred\x1b[0m\n\r 1%\r 2%\n\n": "red| 2%|",
	} {
		if got := strings.Join(RenderedLines(text), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
