package logs

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the screens in testdata anew")

// scene lists the chunks that a small job prints.
var scene = []struct {
	host, task string
	stream     Stream
	text       string
}{
	{"gpu01", "worker:0", Stdout, "step 1 loss 0.693\nstep 2 lo"},
	{"gpu01", "ps:0", Stdout, "serving 14 partitions\n"},
	{"gpu02", "worker:10", Stderr, "warning: slow disk\n"},
	{"gpu01", "worker:0", Stdout, "ss 0.412\n\n"},
	{"gpu02", "worker:10", Stdout, "\r 10%|#   |\r 50%|##  |\r100%|####|\n" +
		"\x1b[31;1mred\x1b[0m \x1b[2J\x1b]0;title\x07 caf\u00e9 \xff\x9b2J \u202eevil\u009b\n"},
	{"gpu01", "ps:0", Stderr, "dos line\r\nno newline"},
	{"store1", "ps:1", Stdout, "\x1b[32munclosed colour\n"},
	{"gpu01", "worker:0", Stdout, "same line\nsame line\n"},
}

// pipes returns a Display whose outputs are no terminals.
func pipes(stdout, stderr io.Writer) *Display {
	return NewDisplay(Screen{Writer: stdout}, Screen{Writer: stderr})
}

// play passes the scene to a Printer and returns what it wrote to both
// outputs.
func play(t *testing.T, opts Options, screens [2]Screen) (stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	screens[Stdout].Writer, screens[Stderr].Writer = &out, &errOut
	opts.Hosts = []string{"gpu01", "gpu02", "store1"}
	opts.Tasks = []string{"worker:0", "worker:10", "ps:0", "ps:1"}
	p := NewPrinter(NewDisplay(screens[Stdout], screens[Stderr]), opts)
	offsets := map[string]int64{}
	for i, s := range scene {
		src := Source{s.task, s.stream}
		c := Chunk{Source: src, Offset: offsets[src.file()], Time: time.Unix(1_700_000_000, int64(i)), Data: []byte(s.text)}
		offsets[src.file()] += int64(len(s.text))
		if err := p.Chunk(s.host, c); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.String(), errOut.String()
}

func TestPrinterMatchesScreenFiles(t *testing.T) {
	terminal, coloured := Screen{Terminal: true}, Screen{Terminal: true, Colour: true}
	screens := map[string][2]Screen{
		"pipe":            {},
		"terminal":        {terminal, terminal},
		"terminal-colour": {coloured, coloured},
		"pipe-colour":     {{Colour: true}, {Colour: true}},
		"stderr-terminal": {{}, coloured},
		"grep":            {},
		"json":            {coloured, {}},
	}
	options := map[string]Options{
		"grep": {Grep: regexp.MustCompile(`^(same|no) |worker|%`)},
		"json": {JSON: true},
	}
	for name := range screens {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := play(t, options[name], screens[name])
			got := visible("-- stdout --\n" + stdout + "-- stderr --\n" + stderr)
			path := filepath.Join("testdata", name+".screen")
			want, err := os.ReadFile(path) // read the old content before -update writes, so that a run that changes the file fails
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// visible escapes control characters and invalid UTF-8 as Go does, so that an
// editor can show and compare screens.
func visible(text string) string {
	var b strings.Builder
	for _, l := range strings.SplitAfter(text, "\n") {
		body, ended := strings.CutSuffix(l, "\n")
		q := fmt.Sprintf("%+q", body)
		b.WriteString(strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`))
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// noise returns random bytes, including carriage returns and invalid UTF-8,
// but no escape sequences.
func noise(rng *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
		if rng.IntN(20) == 0 {
			b[i] = "\n\n\r\x1b"[rng.IntN(4)]
		}
	}
	for i, c := range b { // without control sequences, whose effects the tests of cursors cover
		if (c == '\b' || c == '\x1b') && (commandOf(b[i:]).size != 0 || control().Match(b[i:])) {
			b[i] = 'x'
		}
	}
	return b
}

// chunks cuts text anywhere.
func chunks(rng *rand.Rand, src Source, text []byte) []Chunk {
	var cs []Chunk
	for at := 0; at < len(text); {
		n := min(1+rng.IntN(5000), len(text)-at)
		cs = append(cs, Chunk{Source: src, Offset: int64(at), Data: text[at : at+n]})
		at += n
	}
	return cs
}

// checker is a writer that splits the output into lines and assigns them to
// tasks by their prefix.
type checker struct {
	t    *testing.T
	busy sync.Mutex
	text map[string]*bytes.Buffer
}

func (k *checker) Write(p []byte) (int, error) {
	if !k.busy.TryLock() {
		k.t.Error("two writes at once")
		return 0, errors.New("busy")
	}
	defer k.busy.Unlock()
	for l := range bytes.Lines(p) {
		name, text, ok := bytes.Cut(l, []byte(" "))
		at := bytes.IndexAny(text, "|!")
		if !ok || at < 0 || l[len(l)-1] != '\n' {
			return 0, fmt.Errorf("no whole line: %.80q", l)
		}
		key := string(name) + string(text[at])
		if k.text[key] == nil {
			k.text[key] = &bytes.Buffer{}
		}
		k.text[key].Write(text[at+2:])
	}
	return len(p), nil
}

// TestPrinterKeepsEveryByte prints random bytes of many tasks concurrently
// into one pipe, removes the prefixes and compares. Of a redrawn line, the
// last state must be left.
func TestPrinterKeepsEveryByte(t *testing.T) {
	k := &checker{t: t, text: map[string]*bytes.Buffer{}}
	p := NewPrinter(pipes(k, k), Options{})
	p.limit = 1 << 30
	want := map[string][]byte{}
	var printing sync.WaitGroup
	for i := range 8 {
		rng := rand.New(rand.NewPCG(uint64(i), 5))
		src := Source{Task: fmt.Sprintf("worker:%d", i/2), Stream: Stream(i % 2)}
		text := noise(rng, 100_000)
		if i == 5 {
			text = append(bytes.Repeat([]byte("long"), 1<<20/4), "\nshort"...)
		}
		want[src.Task+"|!"[i%2:][:1]] = text
		printing.Go(func() {
			for _, c := range chunks(rng, src, text) {
				if err := p.Chunk("gpu01", c); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	printing.Wait()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for key, text := range want {
		if text[len(text)-1] != '\n' {
			text = append(text, '\n')
		}
		text = []byte(strings.Join(naiveSplit(string(text), true), ""))
		if k.text[key] == nil || !bytes.Equal(k.text[key].Bytes(), text) {
			t.Errorf("%s: other bytes came out", key)
		}
	}
}

func TestPrinterCutsLongLines(t *testing.T) {
	var out bytes.Buffer
	p := NewPrinter(pipes(&out, io.Discard), Options{})
	p.limit = 10
	for i, text := range []string{"0123456", "789abcdefghijklm", "nop\nnext", " line is long\n0123456789\n"} {
		offset := int64(strings.Index("0123456789abcdefghijklmnop\nnext line is long", text[:3]))
		if i == 0 {
			offset = 0
		}
		if err := p.Chunk("h", Chunk{Source: worker0, Offset: offset, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	want := "worker:0 h | 0123456789\nworker:0 h + abcdefghij\nworker:0 h + klmnop\n" +
		"worker:0 h | next line \nworker:0 h + is long\nworker:0 h | 0123456789\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

func TestPrinterNeverMerges(t *testing.T) {
	var out bytes.Buffer
	p := NewPrinter(pipes(&out, &out), Options{})
	for _, c := range []Chunk{
		{Offset: 0, Data: []byte("died in the mid")},
		{Offset: 15},
		{Offset: 15, Data: []byte("a new life\nsecond "), Restart: true},
		{Offset: 90, Data: []byte("after a gap\n")},
		{Offset: 102, Data: []byte("last")},
	} {
		c.Source = worker0
		if err := p.Chunk("h", c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.display.Write(Stderr, []byte("plx: lost host h\n")); err != nil {
		t.Fatal(err)
	}
	if err := p.flush("h", worker0); err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(out.String(), "worker:0 h | ", ">")
	if want := ">died in the mid\n>a new life\n>second \n>after a gap\nplx: lost host h\n>last\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPrinterErrors(t *testing.T) {
	p := NewPrinter(pipes(&cutter{io.Discard, 5}, io.Discard), Options{})
	for range 2 {
		if err := p.Chunk("h", Chunk{Source: worker0, Data: []byte("text\n")}); !errors.Is(err, errCut) {
			t.Errorf("Chunk = %v", err)
		}
	}
	if err := p.Close(); !errors.Is(err, errCut) {
		t.Errorf("Close = %v", err)
	}
	if err := p.Chunk("h", Chunk{Source: Source{Task: "\x1b[2J"}}); err == nil {
		t.Error("a control sequence was taken for a task")
	}
}

// TestJSON decodes the printed objects with encoding/json.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	p := NewPrinter(pipes(&out, io.Discard), Options{JSON: true})
	text := noise(rand.New(rand.NewPCG(1, 1)), 50_000)
	text = append(text, "\nplain \"quoted\" \\ \u00e9 \u202e \u2028 \x7f \ufffd \U0001f600\nlast"...)
	rng := rand.New(rand.NewPCG(8, 8))
	for _, c := range chunks(rng, server0, text) {
		c.Time = time.Unix(0, c.Offset).UTC()
		if err := p.Chunk("gpu\x1b01", c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if i := bytes.IndexFunc(out.Bytes(), func(r rune) bool { return r != '\n' && (r < ' ' || steers(r)) }); i >= 0 {
		t.Errorf("control %q in the output", out.Bytes()[i])
	}
	if got := decodeJSON(t, out.Bytes()); !bytes.Equal(got, text) {
		t.Error("other bytes came out")
	}
}

// decodeJSON joins the lines of printed JSON objects to the original bytes.
func decodeJSON(t *testing.T, in []byte) (text []byte) {
	t.Helper()
	for l := range bytes.Lines(in) {
		o := struct {
			Time               time.Time
			Host, Task, Stream string
			Offset             int64
			Line               string
			Base64             []byte
			Newline            *bool
		}{}
		if err := json.Unmarshal(l, &o); err != nil {
			t.Fatalf("%v: %s", err, l)
		}
		if o.Host != "gpu\x1b01" || o.Task != "ps:0" || o.Stream != "stderr" || o.Offset != int64(len(text)) {
			t.Fatalf("at %d: %s", len(text), l)
		}
		if o.Time.UnixNano() > o.Offset || o.Time.UnixNano() < o.Offset-5000 {
			t.Errorf("line at %d has time %d", o.Offset, o.Time.UnixNano())
		}
		text = append(append(text, o.Line...), o.Base64...)
		if o.Newline == nil {
			text = append(text, '\n')
		}
	}
	return text
}

// The index of a task, or the place of a host, determines its colour in every
// command. Neighbours differ even with 16 colours. A prefix for several tasks
// has no colour.
func TestColours(t *testing.T) {
	c := newColumns(Options{Hosts: []string{"h1", "h2"}})
	for _, screen := range []Screen{{Colour: true}, {Colour: true, Sixteen: true}} {
		of := func(task string) string { return c.style(origin{"h1", Source{task, Stdout}}, screen).Render("x") }
		for i := range 100 {
			if a, b := of(fmt.Sprint("worker:", i)), of(fmt.Sprint("worker:", i+1)); a == b {
				t.Errorf("worker:%d and its neighbour have %q", i, a)
			}
		}
		if a := of("6 workers"); a != "x" {
			t.Errorf("several workers have %q", a)
		}
		if first := of("worker:0"); screen.Sixteen != (len(first) == len("\x1b[36mx\x1b[0m")) {
			t.Errorf("%+v: %q", screen, first)
		}
		c := c
		c.noTasks = true
		one, two := c.style(origin{host: "h1"}, screen), c.style(origin{host: "h2"}, screen)
		if one.Render("x") == two.Render("x") {
			t.Errorf("both hosts have %q", one)
		}
	}
}

// With Timestamps each line begins with the time of its chunk, even a line
// that was held back or printed in pieces. A line that began in an earlier
// chunk has that chunk's time.
func TestTimestamps(t *testing.T) {
	var out, errs bytes.Buffer
	p := NewPrinter(pipes(&out, &errs), Options{Timestamps: true, Fold: true, Tasks: []string{"worker:0", "worker:1"}})
	at := time.Date(2026, 11, 28, 9, 0, 0, int(7*time.Millisecond), time.FixedZone("", 3600))
	offset := int64(0)
	for _, text := range []string{"one\ntw", "o\nthree\n"} {
		if err := p.Chunk("h", Chunk{Source: Source{"worker:0", Stdout}, Time: at, Offset: offset, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		offset, at = offset+int64(len(text)), at.Add(1500*time.Millisecond)
	}
	for i := range 2 {
		c := Chunk{Source: Source{fmt.Sprint("worker:", i), Stderr}, Time: at.Add(time.Duration(i) * time.Second), Data: []byte("normalized\n")}
		if err := p.Chunk("h", c); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if want := "2026-11-28T08:00:00.007Z worker:0 h | one\n2026-11-28T08:00:00.007Z worker:0 h | two\n2026-11-28T08:00:01.507Z worker:0 h | three\n"; out.String() != want {
		t.Errorf("stdout:\n%swant\n%s", out.String(), want)
	}
	if want := "2026-11-28T08:00:03.007Z 2 workers h ! normalized\n"; errs.String() != want {
		t.Errorf("stderr:\n%swant\n%s", errs.String(), want)
	}
}

// Marked lines of stderr are omitted, or with Verbose printed without the
// mark. All other lines, and JSON output, stay unchanged.
func TestMarkedLines(t *testing.T) {
	const text = "p: more: a table\np: kept\nx p: more: kept too\n"
	show := func(o Options, stream Stream) string {
		var out bytes.Buffer
		o.Mark, o.Plain = "p: more: ", "p: "
		p := NewPrinter(pipes(&out, &out), o)
		if err := p.Chunk("h", Chunk{Source: Source{"t", stream}, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(strings.ReplaceAll(out.String(), "t h ! ", ""), "t h | ", "")
	}
	if got := show(Options{}, Stderr); got != "p: kept\nx p: more: kept too\n" {
		t.Errorf("%q", got)
	}
	if got := show(Options{Verbose: true}, Stderr); got != "p: a table\np: kept\nx p: more: kept too\n" {
		t.Errorf("verbose: %q", got)
	}
	if got := show(Options{}, Stdout); got != text {
		t.Errorf("stdout: %q", got)
	}
	if got := show(Options{JSON: true}, Stderr); strings.Count(got, "\n") != 3 || !strings.Contains(got, `"p: more: a table"`) {
		t.Errorf("JSON: %q", got)
	}
}

// Unfinished lines of ever more tasks take no more memory than the limit, and
// none of their bytes is lost.
func TestUnfinishedLinesAreLimited(t *testing.T) {
	const room, piece, tasks = 256 << 10, 4 << 10, 90
	for name, c := range map[string]struct {
		opts Options
		text string
	}{
		"plain":   {Options{}, strings.Repeat("x", piece)},
		"redrawn": {Options{}, strings.Repeat("x", piece-1) + "\r"},
		"nested":  {Options{}, "\rbar\n\r" + strings.Repeat("x", piece) + "\x1b[A"},
		"json":    {Options{JSON: true}, strings.Repeat("x", piece)},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := NewPrinter(pipes(&out, &out), c.opts)
			p.room = room
			offset, most := int64(0), 0
			for range 3 {
				for i := range tasks {
					chunk := Chunk{Source: Source{Task: fmt.Sprintf("worker:%d", i)}, Offset: offset, Data: []byte(c.text)}
					if err := p.Chunk("h", chunk); err != nil {
						t.Fatal(err)
					}
					most = max(most, p.held())
				}
				offset += int64(len(c.text))
			}
			if most > room+4*piece || most < room/2 {
				t.Errorf("%d bytes are kept, room is for %d", most, room)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Count(out.String(), "x"); (name == "plain" || name == "json") && got != 3*tasks*piece {
				t.Errorf("%d of %d bytes are printed", got, 3*tasks*piece)
			}
		})
	}
}

// held returns the memory of all streams' buffers, in bytes.
func (p *Printer) held() (n int) {
	for _, s := range p.streams {
		n += s.split.size() + cap(s.out)
	}
	return n
}
