package logs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// limited opens a spool with the smallest allowed limit.
func limited(t *testing.T, dir string, src Source) *Writer {
	t.Helper()
	w, err := Create(dir, src, MinLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// onDisk returns the total size of the files of a task in dir, in bytes.
func onDisk(t *testing.T, dir, task string) (n int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil {
			t.Fatal(err)
		} else if strings.HasPrefix(e.Name(), strings.Replace(task, ":", "-", 1)) {
			n += info.Size()
		}
	}
	return n
}

// The spools and indexes of a task never exceed its limit, whatever the task
// writes to its two streams. The spools of other tasks stay.
func TestLimitIsNeverExceeded(t *testing.T) {
	long := strings.Repeat("x", 300_000) // longer than a segment
	for name, texts := range map[string][2]string{
		"lines":                {strings.Repeat("a line of a program\n", 900), ""},
		"both streams":         {strings.Repeat("a line of a program\n", 900), strings.Repeat("a warning\n", 200)},
		"lines without an end": {long, "no newline either"},
		"single bytes":         {"a", "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			other := limited(t, dir, worker1)
			write(t, other, "of another task\n")
			writers := []*Writer{limited(t, dir, worker0), limited(t, dir, Source{"worker:0", Stderr})}
			var clock time.Time
			most := int64(0)
			for i := range max(12, min(2*MinLimit/len(texts[0]+texts[1]), 40_000)) {
				clock = clock.Add(burst) // so that every write has its own index record
				for s, w := range writers {
					w.now = func() time.Time { return clock }
					write(t, w, texts[s])
				}
				if i%1000 == 0 || len(texts[0]) > 1 {
					most = max(most, onDisk(t, dir, "worker:0"))
				}
			}
			if most > MinLimit || most < MinLimit*3/4 {
				t.Errorf("%d bytes at most, want nearly %d", most, MinLimit)
			}
			if got := collect(t, NewReader(bytes.NewReader(serve(t, dir, all))))[worker1]; got != "of another task\n" {
				t.Errorf("the other task has %q", got)
			}
		})
	}
}

// received is what a reader received of one source.
type received struct {
	gaps [][2]int64 // offset and number of bytes, for each report of dropped bytes
	data string     // all bytes
}

// receive reads the chunks of worker0 to the end of the stream and checks that
// they are consecutive.
func receive(t *testing.T, out []byte) (got received) {
	t.Helper()
	next, begun := int64(0), false
	var data strings.Builder
	defer func() { got.data = data.String() }()
	for r := NewReader(bytes.NewReader(out)); ; {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		if begun && c.Offset != next {
			t.Fatalf("chunk at %d, want %d", c.Offset, next)
		}
		if c.Dropped > 0 {
			got.gaps = append(got.gaps, [2]int64{c.Offset, c.Dropped})
		}
		next, begun = c.Offset+c.Dropped+int64(len(c.Data)), true
		data.Write(c.Data)
	}
}

// After drops, the spool has the end of the output, from the start of a line
// on, and a reader receives the number of missing bytes. Otherwise every
// request returns the same bytes as from a spool without a limit.
func TestServeReportsDroppedBytes(t *testing.T) {
	dir, whole := t.TempDir(), t.TempDir()
	rng := rand.New(rand.NewPCG(11, 12))
	start := time.Unix(1_700_000_000, 0)
	var written strings.Builder
	var w, twin *Writer
	for i := range 300 {
		if i%100 == 0 { // a generation
			w, twin = limited(t, dir, worker0), create(t, whole, worker0)
		}
		w.now = func() time.Time { return start.Add(time.Duration(i) * time.Second) }
		twin.now = w.now
		p := strings.Repeat(fmt.Sprintf("line %d\n", rng.IntN(1000)), 1+rng.IntN(1800))
		p = p[:1+rng.IntN(len(p))]
		written.WriteString(p)
		write(t, w, p)
		write(t, twin, p)
	}
	text := written.String()
	got := receive(t, serve(t, dir, all))
	if len(got.gaps) != 1 || got.gaps[0][0] != 0 || !strings.HasSuffix(text, got.data) {
		t.Fatalf("gaps %v, %d bytes", got.gaps, len(got.data))
	}
	first := got.gaps[0][1]
	if int(first)+len(got.data) != len(text) || len(got.data) < MinLimit/2 || text[first-1] != '\n' {
		t.Fatalf("%d bytes were dropped, %d are left of %d", first, len(got.data), len(text))
	}
	for range 24 {
		req := Request{TailLines: -1}
		switch rng.IntN(4) {
		case 0:
			req.TailLines = rng.IntN(200_000)
		case 1:
			req.Since = start.Add(time.Duration(rng.IntN(310_000)) * time.Millisecond)
		case 2:
			req.From = []Position{{worker0, rng.Int64N(int64(len(text)))}}
		case 3:
			req.TailLines, req.Since = rng.IntN(10_000), start.Add(time.Duration(rng.IntN(310_000))*time.Millisecond)
		}
		got, want := receive(t, serve(t, dir, req)), receive(t, serve(t, whole, req))
		cut := int64(len(text)-len(want.data)) - first // of what is wanted
		switch {
		case cut > 0 && (got.data != want.data || len(got.gaps) > 0):
			t.Errorf("%+v: %d bytes and gaps %v, want %d bytes", req, len(got.data), got.gaps, len(want.data))
		case cut <= 0 && got.data != text[first:]:
			t.Errorf("%+v: %d bytes, want all %d that are left", req, len(got.data), len(text)-int(first))
		case cut < 0 && len(req.From) > 0 && (len(got.gaps) != 1 || got.gaps[0] != [2]int64{req.From[0].Offset, -cut}):
			t.Errorf("%+v: gaps %v, want %d bytes", req, got.gaps, -cut)
		case cut < 0 && len(req.From) == 0 && (len(got.gaps) != 1 || got.gaps[0] != [2]int64{0, first}):
			t.Errorf("%+v: gaps %v, want %d bytes from 0 on", req, got.gaps, first)
		}
	}
}

// A live reader that is slower than the Writer's drops continues with the
// bytes that are left, and receives the number of all bytes that it missed.
func TestSlowReaderLearnsNumberOfDroppedBytes(t *testing.T) {
	dir, text := t.TempDir(), ""
	w := limited(t, dir, worker0)
	put := func(lines int) {
		p := strings.Repeat(fmt.Sprintf("line after %d\n", len(text)), lines)
		text += p
		write(t, w, p)
	}
	put(100)
	var out bytes.Buffer
	polls := 0
	s := newServer(dir, Request{TailLines: -1, Follow: true}, func() bool {
		// The server calls this between two passes: write so fast that
		// segments are dropped.
		switch polls++; polls {
		case 2:
			put(100_000)
		case 5:
			put(30_000)
		case 8:
			w.Close()
			w = limited(t, dir, worker0)
			put(200_000)
		}
		return polls > 10
	}, &out)
	if err := s.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkParts(t, out.Bytes(), text, 2)
}

// checkParts compares the bytes that a reader received with those written. The
// reader must have at least gaps reports of dropped bytes.
func checkParts(t *testing.T, out []byte, text string, gaps int) {
	t.Helper()
	got := receive(t, out)
	want, from := "", 0
	for _, gap := range got.gaps {
		want += text[from:gap[0]]
		from = int(gap[0] + gap[1])
	}
	if want += text[from:]; got.data != want || len(got.gaps) < gaps {
		t.Errorf("%d bytes with gaps %v, want %d and %d gaps or more", len(got.data), got.gaps, len(want), gaps)
	}
}

// The reader's connections are cut and the Writer drops unread bytes: still,
// each byte arrives once or is counted as dropped.
func TestDropsOverLostConnections(t *testing.T) {
	dir := t.TempDir()
	w := limited(t, dir, worker0)
	rng := rand.New(rand.NewPCG(5, 6))
	var cursor Cursor
	text, next, missing := []byte(nil), int64(0), int64(0)
	for try := 0; next < 4*MinLimit; try++ {
		for range rng.IntN(60) {
			p := noise(rng, 40_000)
			text = append(text, p...)
			write(t, w, string(p))
		}
		var out bytes.Buffer
		err := Serve(t.Context(), dir, cursor.Request("gpu01", all), nil, &cutter{&out, 10_000 + rng.IntN(MinLimit)})
		if err != nil && !errors.Is(err, errCut) {
			t.Fatal(err)
		}
		for r := NewReader(&out); ; {
			c, err := r.Next()
			if err != nil {
				break
			}
			if c, err = cursor.Take("gpu01", c); err != nil {
				t.Fatal(err)
			}
			if c.Offset != next && try > 0 || !bytes.Equal(c.Data, text[c.Offset:][:len(c.Data)]) {
				t.Fatalf("chunk of %d bytes at %d, want at %d", len(c.Data), c.Offset, next)
			}
			next, missing = c.Offset+c.Dropped+int64(len(c.Data)), missing+c.Dropped
		}
	}
	if missing == 0 || missing > next*9/10 {
		t.Errorf("%d of %d bytes are missing", missing, next)
	}
}

// If a Writer cannot create a new segment, it continues with the old one and
// drops nothing.
func TestFailedRotationKeepsSegment(t *testing.T) {
	dir := t.TempDir()
	w := limited(t, dir, worker0)
	w.dir = filepath.Join(dir, "gone")
	line := strings.Repeat("x", 99) + "\n"
	for range 2 * MinLimit / len(line) {
		write(t, w, line)
	}
	if got := collect(t, NewReader(bytes.NewReader(serve(t, dir, all))))[worker0]; int64(len(got)) != w.size || w.size < 2*MinLimit-100 {
		t.Fatalf("%d bytes of %d", len(got), w.size)
	}
	w.dir = dir
	write(t, w, line)
	for range 2 * MinLimit / perLimit / len(line) {
		write(t, w, line)
	}
	if n := onDisk(t, dir, "worker:0"); n > MinLimit {
		t.Errorf("%d bytes are left", n)
	}
}

// dropOldest returns an error for a segment that it cannot remove.
func TestDropOldestReportsSegmentItCannotRemove(t *testing.T) {
	dir := t.TempDir()
	for base := range int64(3) {
		if err := os.WriteFile(filepath.Join(dir, segmentFile(worker0, base)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := dropOldest(dir, "worker:0", 1); err != nil { // none has an index
		t.Errorf("%v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, segmentFile(worker0, 1)+indexExt, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := dropOldest(dir, "worker:0", 0); err == nil || !strings.Contains(err.Error(), "worker-0.stdout.1.index") {
		t.Errorf("%v", err)
	}
}

func TestLimitTooSmall(t *testing.T) {
	if _, err := Create(t.TempDir(), worker0, MinLimit-1); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("error %v", err)
	}
}

func TestSegmentFiles(t *testing.T) {
	for name, base := range map[string]int64{"worker-3.stdout": 0, "worker-3.stdout.65536": 65536} {
		src, got, ok := segmentOf(name)
		if want := (Source{"worker:3", Stdout}); !ok || src != want || got != base || segmentFile(src, base) != name {
			t.Errorf("%s: %v at %d, %v", name, src, got, ok)
		}
	}
	for _, name := range []string{"worker-3.stdout.0", "worker-3.stdout.-1", "worker-3.stdout.+1", "worker-3.stdout.01", "worker-3.stdout.1.index", "worker-3.1", "1", ""} {
		if src, base, ok := segmentOf(name); ok {
			t.Errorf("%s names %v at %d", name, src, base)
		}
	}
}

// Every form of output has a line for dropped bytes, and no filter removes it.
func TestDroppedBytesArePrinted(t *testing.T) {
	const said = "plx: 90 bytes are missing here: the oldest output was dropped (--log-limit)"
	chunks := []Chunk{
		{Source: worker0, Data: []byte("one\ncut of")},
		{Source: worker0, Offset: 10, Dropped: 90, Time: time.Unix(5, 0)},
		{Source: worker0, Offset: 100, Data: []byte("three\n"), Time: time.Unix(5, 0)},
	}
	for name, tt := range map[string]struct {
		opts Options
		want string
	}{
		"pipe": {Options{}, "worker:0 h1 | one\nworker:0 h1 | cut of\nworker:0 h1 | " + said + "\nworker:0 h1 | three\n"},
		"grep": {Options{Grep: regexp.MustCompile("three")}, "worker:0 h1 | " + said + "\nworker:0 h1 | three\n"},
		"json": {Options{JSON: true, Grep: regexp.MustCompile("three")},
			`{"time":"1970-01-01T00:00:05.000000000Z","host":"h1","task":"worker:0","stream":"stdout","offset":10,"line":"` + said + `","newline":false,"dropped":90}` + "\n" +
				`{"time":"1970-01-01T00:00:05.000000000Z","host":"h1","task":"worker:0","stream":"stdout","offset":100,"line":"three"}` + "\n"},
	} {
		var out bytes.Buffer
		p := NewPrinter(pipes(&out, &out), tt.opts)
		for _, c := range chunks {
			if err := p.Chunk("h1", c); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Close(); err != nil || out.String() != tt.want {
			t.Errorf("%s: %v\n%s, want\n%s", name, err, out.String(), tt.want)
		}
	}
	d, err := NewDir(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range chunks {
		if err := d.Chunk("h1", c); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	if got, err := os.ReadFile(d.File(worker0)); err != nil || string(got) != "one\ncut of\n"+said+"\nthree\n" {
		t.Errorf("file %q, %v", got, err)
	}
}
