package logs

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// screenful collects the bytes written to it. Its methods may be called from
// any goroutine.
type screenful struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *screenful) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *screenful) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// drawn waits, in a synctest bubble, until all pending rows are drawn.
func drawn() {
	time.Sleep(2 * redrawEvery)
	synctest.Wait()
}

// rendered returns what a terminal shows after text was written to it, if
// every line fits in its width.
func rendered(t *testing.T, text string) string {
	lines, y, x := []string{""}, 0, 0
	move := regexp.MustCompile(`^\x1b\[([KA])`)
	for len(text) > 0 {
		if m := move.FindString(text); m != "" {
			if m == "\x1b[A" {
				y--
			} else {
				lines[y] = lines[y][:x]
			}
			text = text[len(m):]
			continue
		}
		switch c := text[0]; c {
		case '\n': // a terminal driver adds a carriage return to each newline
			if y, x = y+1, 0; y == len(lines) {
				lines = append(lines, "")
			}
		case '\r':
			x = 0
		case '\x1b':
			t.Fatalf("unknown sequence: %q", text)
		default:
			lines[y] = lines[y][:x] + string(c)
			x++
		}
		text = text[1:]
	}
	return strings.Join(lines, "\n")
}

// Tasks that draw progress bars at the same time have one row each, below all
// lines. The last state of each bar is printed as a line. A pipe receives only
// those lines.
func TestProgressBars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		var pipe bytes.Buffer
		opts := Options{Hosts: []string{"h1", "h2"}, Tasks: []string{"worker:0", "worker:1"}}
		tty := Screen{Writer: &screen, Terminal: true}
		live, piped := NewPrinter(NewDisplay(tty, tty), opts), NewPrinter(pipes(&pipe, &pipe), opts)
		offsets := map[Source]int64{}
		task := func(index int, stream Stream, text string) {
			t.Helper()
			src := Source{fmt.Sprint("worker:", index), stream}
			c := Chunk{Source: src, Offset: offsets[src], Data: []byte(text)}
			offsets[src] += int64(len(text))
			for _, p := range []*Printer{live, piped} {
				if err := p.Chunk(fmt.Sprint("h", index+1), c); err != nil {
					t.Fatal(err)
				}
			}
			drawn()
		}
		check := func(want string) {
			t.Helper()
			if got := rendered(t, screen.String()); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
		task(1, Stderr, "\r  0%|    |")
		task(0, Stderr, "\r  0%|    |\r 50%|")
		task(0, Stderr, "##  |")
		check("worker:0 h1 !  50%|##  |\nworker:1 h2 !   0%|    |")
		task(1, Stdout, "epoch 1\n")
		check("worker:1 h2 | epoch 1\nworker:0 h1 !  50%|##  |\nworker:1 h2 !   0%|    |")
		task(0, Stderr, "\r100%|####|\n")
		check("worker:1 h2 | epoch 1\nworker:0 h1 ! 100%|####|\nworker:1 h2 !   0%|    |")
		task(1, Stderr, "\r            \r")
		check("worker:1 h2 | epoch 1\nworker:0 h1 ! 100%|####|\n")
		task(1, Stderr, "\r 10%|    |")
		if err := live.Close(); err != nil {
			t.Fatal(err)
		}
		want := "worker:1 h2 | epoch 1\nworker:0 h1 ! 100%|####|\nworker:1 h2 !  10%|    |\n"
		check(want)
		if err := piped.Close(); err != nil || pipe.String() != want {
			t.Errorf("in a pipe: %v\n%s", err, pipe.String())
		}
	})
}

// Progress bars that move the cursor up, such as nested bars of tqdm, get a
// row each. A pipe receives only their last states.
func TestNestedBars(t *testing.T) {
	const first = "\r 0 of 2|outer\n\r  0%|a\x1b[A"
	for _, c := range []struct{ name, text, rows, early, lines string }{
		{"two bars", first + "\n\r 50%|a\x1b[A\r 1 of 2|outer\n\r 90%|a\x1b[A", " 1 of 2|outer\n 90%|a", "", " 1 of 2|outer\n 90%|a\n"},
		{"the lower one is removed", first + "\n\r       \x1b[A\r 2 of 2|outer\n", " 2 of 2|outer\n", "", " 2 of 2|outer\n"},
		{"the lower one stays above", first + "\r100%|a\n\r 1 of 2|outer\n\r  0%|b\x1b[A\n\r 10%|b\x1b[A\r 1 of 2|outer", "100%|a\n 1 of 2|outer\n 10%|b", "100%|a\n", "100%|a\n 1 of 2|outer\n 10%|b\n"},
		{"three bars", first + "\n\n\r 5%|x\x1b[A\x1b[A\n\r 20%|a\x1b[A\n\n\r 7%|x\x1b[2A", " 0 of 2|outer\n 20%|a\n 7%|x", "", " 0 of 2|outer\n 20%|a\n 7%|x\n"},
		{"a line between", first + "\r            \r\n\r      \r\x1b[Asaved\n\r 1 of 2|outer\n\r  9%|a\x1b[A", "saved\n 1 of 2|outer\n  9%|a", "saved\n", "saved\n 1 of 2|outer\n  9%|a\n"},
		{"a traceback", first + "\r 1 of 2|outer\n\r 3%|a\x1b[ATraceback (most recent call last):\n  File\nKeyError\n", " 1 of 2|outer\n 3%|a\nTraceback (most recent call last):\n  File\nKeyError\n", " 1 of 2|outer\n 3%|a\nTraceback (most recent call last):\n  File\nKeyError\n", " 1 of 2|outer\n 3%|a\nTraceback (most recent call last):\n  File\nKeyError\n"},
		{"bars one after another", first + "\r 2 of 2|outer\n\r  5%|x\n\r  5%|y\n\r 5%|z", " 2 of 2|outer\n  5%|x\n  5%|y\n 5%|z", " 2 of 2|outer\n  5%|x\n", " 2 of 2|outer\n  5%|x\n  5%|y\n 5%|z\n"},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			t.Run(fmt.Sprint(c.name, " in pieces of ", size), func(t *testing.T) {
				nestedBars(t, c.text, size, c.rows, c.early, c.lines)
			})
		}
	}
}

// nestedBars writes text in pieces of size bytes. It checks the rows of a
// terminal, the lines that a pipe receives in the end (lines) and those it
// receives before the end (early).
func nestedBars(t *testing.T, text string, size int, rows, early, lines string) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		var pipe bytes.Buffer
		opts := Options{Hosts: []string{"h"}, Tasks: []string{"worker:0"}}
		tty := Screen{Writer: &screen, Terminal: true}
		live, piped := NewPrinter(NewDisplay(tty, tty), opts), NewPrinter(pipes(&pipe, &pipe), opts)
		for _, p := range []*Printer{live, piped} {
			for at := 0; at < len(text); at += size {
				c := Chunk{Source: Source{"worker:0", Stderr}, Offset: int64(at), Data: []byte(text[at:min(at+size, len(text))])}
				if err := p.Chunk("h", c); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 4 { // until nothing is pending
			drawn()
		}
		const prefix = "worker:0 h ! "
		unprefixed := func(s string) string { return strings.ReplaceAll(s, prefix, "") }
		if got := unprefixed(rendered(t, screen.String())); strings.TrimRight(got, "\n") != strings.TrimRight(rows, "\n") {
			t.Errorf("on a terminal\n%s\nwant\n%s", got, rows)
		}
		if got := unprefixed(pipe.String()); got != early {
			t.Errorf("in a pipe before the end\n%s\nwant\n%s", got, early)
		}
		for _, p := range []*Printer{live, piped} {
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if got := unprefixed(pipe.String()); got != lines {
			t.Errorf("in a pipe\n%s\nwant\n%s", got, lines)
		}
		if got := unprefixed(rendered(t, screen.String())); got != lines {
			t.Errorf("on a terminal at the end\n%s\nwant\n%s", got, lines)
		}
	})
}

// A terminal that cannot move its cursor receives only lines, without control
// sequences.
func TestDumbTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		tty := Screen{Writer: &screen, Terminal: true, Dumb: true}
		d := NewDisplay(tty, tty)
		p := NewPrinter(d, Options{Hosts: []string{"h"}, Tasks: []string{"worker:0"}})
		d.Row(Bottom).Set("busy")
		if err := p.Chunk("h", Chunk{Source: Source{"worker:0", Stderr}, Data: []byte("\r 1%\r 2%")}); err != nil {
			t.Fatal(err)
		}
		drawn()
		if got := screen.String(); got != "" {
			t.Errorf("before the end: %q", got)
		}
		if err := p.Chunk("h", Chunk{Source: Source{"worker:0", Stderr}, Offset: 8, Data: []byte("\r 3%\n\x1b[2Jx\n")}); err != nil {
			t.Fatal(err)
		}
		drawn()
		if got, want := screen.String(), "worker:0 h !  3%\nworker:0 h ! x\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// If there are more rows than fit on the screen, the last row shows their
// number. A row longer than the terminal's width is cut.
func TestManyRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		tty := Screen{Writer: &screen, Terminal: true}
		d := NewDisplay(tty, tty)
		for i := range 20 {
			d.Row(i).Set(fmt.Sprintf("%d %s", i, strings.Repeat("x", 100)))
		}
		drawn()
		rows := strings.Split(rendered(t, screen.String()), "\n")
		if len(rows) != maxRows || rows[maxRows-1] != "... and 11 more" || len([]rune(rows[0])) > 79+len("…") {
			t.Errorf("%q", rows)
		}
	})
}

// A flood of lines is not delayed by progress rows: the rows are drawn at most
// once per redrawEvery.
func TestRowsDoNotDelayFloodOfLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		tty := Screen{Writer: &screen, Terminal: true}
		d := NewDisplay(tty, tty)
		row := d.Row(0)
		row.Set("busy")
		drawn()
		for range 1000 {
			if err := d.Write(Stdout, []byte("line\n")); err != nil {
				t.Fatal(err)
			}
		}
		if n := strings.Count(screen.String(), "busy"); n > 2 {
			t.Errorf("drawn %d times", n)
		}
		drawn()
		if got := rendered(t, screen.String()); !strings.HasSuffix(got, "line\nbusy") {
			t.Errorf("%q", got)
		}
		row.Remove()
		if got := rendered(t, screen.String()); strings.Count(got, "line\n") != 1000 || !strings.HasSuffix(got, "line\n") {
			t.Errorf("%q", got)
		}
	})
}

// Host names are shortened to their first label if these labels differ.
func TestShortHosts(t *testing.T) {
	for _, c := range []struct{ hosts, want []string }{
		{[]string{"gpu01.example.org", "gpu02.example.org"}, []string{"gpu01", "gpu02"}},
		{[]string{"gpu01.a.org", "gpu01.b.org", "h"}, []string{"gpu01.a.org", "gpu01.b.org", "h"}},
		{[]string{"10.0.0.1", "10.0.0.2", "fd00::4", "h.example.org"}, []string{"10.0.0.1", "10.0.0.2", "fd00::4", "h"}},
		{[]string{"h.example.org", "h.example.org"}, []string{"h", "h"}},
	} {
		got := shorten(c.hosts)
		for i, host := range c.hosts {
			if got[host] != c.want[i] {
				t.Errorf("%q: %q, want %q", c.hosts, got[host], c.want[i])
			}
		}
	}
}

// --grep ignores colours, in printed lines and in progress rows.
func TestGrepIgnoresColours(t *testing.T) {
	const green, off = "\x1b[32m", "\x1b[0m"
	for name, c := range map[string]struct{ pattern, text, want string }{
		"the beginning":  {"^INFO", green + "INFO" + off + " a\nWARN INFO\n", green + "INFO" + off + " a\n"},
		"within a word":  {"learning", "lear" + green + "ning" + off + "\nother\n", "lear" + green + "ning" + off + "\n"},
		"the sequence":   {`32m`, green + "INFO" + off + "\n", ""},
		"no colours":     {"^INFO", "INFO a\nx INFO\n", "INFO a\n"},
		"a lone escape":  {"^INFO", "\x1bINFO\n" + "INFO \x1b\n", "INFO \x1b\n"},
		"the whole line": {"^INFO a$", green + "INFO a" + off + "\n", green + "INFO a" + off + "\n"},
		"redrawn":        {"^50%$", green + "50%" + off + "\r" + green + "99%" + off + "\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := NewPrinter(pipes(&out, &out), Options{Grep: regexp.MustCompile(c.pattern)})
			if err := p.Chunk("h", Chunk{Source: Source{"worker:0", Stdout}, Data: []byte(c.text)}); err != nil {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(out.String(), "worker:0 h | ", ""); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A line that stays unfinished is shown within a second, and printed once when
// it ends. A line that ends soon is only printed.
func TestUnfinishedLineIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen screenful
		both := Screen{Writer: &screen, Terminal: true}
		p := NewPrinter(NewDisplay(both, both), Options{Mark: "@", Grep: regexp.MustCompile(`^[.@]`)})
		offset := int64(0)
		print := func(text string) {
			t.Helper()
			if err := p.Chunk("h", Chunk{Source: Source{"worker:0", Stderr}, Offset: offset, Data: []byte(text)}); err != nil {
				t.Fatal(err)
			}
			offset += int64(len(text))
		}
		shows := func(want string) {
			t.Helper()
			if got := strings.TrimRight(rendered(t, screen.String()), "\n"); got != want {
				t.Errorf("shows %q, want %q", got, want)
			}
		}
		print(".")
		shows("")
		for i := range 4 {
			time.Sleep(time.Second)
			shows("worker:0 h ! " + strings.Repeat(".", i+1))
			print(".")
		}
		print(" done\n")
		drawn()
		shows("worker:0 h ! ..... done")
		print("x")
		time.Sleep(time.Second)
		shows("worker:0 h ! ..... done") // --grep leaves it out
		print("\n@")
		time.Sleep(time.Second)
		shows("worker:0 h ! ..... done") // a marked line, which is printed only with Options.Verbose
		print("\n.")
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		shows("worker:0 h ! ..... done\nworker:0 h ! .")
	})
}
