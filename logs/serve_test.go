package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var (
	worker0 = Source{Task: "worker:0", Stream: Stdout}
	worker1 = Source{Task: "worker:1", Stream: Stdout}
	server0 = Source{Task: "ps:0", Stream: Stderr}
)

// all requests every byte of every spool.
var all = Request{TailLines: -1}

// create opens a spool whose Writer uses the test's clock.
func create(t *testing.T, dir string, src Source) *Writer {
	t.Helper()
	w, err := Create(dir, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

func write(t *testing.T, w *Writer, text string) {
	t.Helper()
	if n, err := w.Write([]byte(text)); n != len(text) || err != nil {
		t.Fatalf("Write = %d, %v", n, err)
	}
}

// serve returns the stream that Serve writes for a request without Follow.
func serve(t *testing.T, dir string, req Request) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Serve(t.Context(), dir, req, func() bool { return true }, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// collect reads r to its end and returns the received bytes by source.
func collect(t *testing.T, r *Reader) map[Source]string {
	t.Helper()
	parts, got := map[Source][]byte{}, map[Source]string{}
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			for src, part := range parts {
				got[src] = string(part)
			}
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		parts[c.Source] = append(parts[c.Source], c.Data...)
	}
}

func TestServeStartsAtRequestedByte(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, worker0)
	start := time.Unix(1_700_000_000, 0)
	for i, text := range []string{"one\ntw", "o\nthree\n", "four\nfi", "ve"} {
		w.now = func() time.Time { return start.Add(time.Duration(i) * time.Minute) }
		write(t, w, text)
	}
	const whole = "one\ntwo\nthree\nfour\nfive"
	at := func(d time.Duration) time.Time { return start.Add(d) }
	tests := []struct {
		name string
		req  Request
		want string
	}{
		{"all", all, whole},
		{"none", Request{}, "five"},
		{"two lines", Request{TailLines: 2}, "four\nfive"},
		{"more lines than there are", Request{TailLines: 9}, whole},
		{"since before", Request{TailLines: -1, Since: at(-time.Hour)}, whole},
		{"since a line that was begun before", Request{TailLines: -1, Since: at(30 * time.Second)}, "two\nthree\nfour\nfive"},
		{"since in a burst", Request{TailLines: -1, Since: at(2*time.Minute + time.Millisecond)}, "four\nfive"},
		{"since and tail", Request{TailLines: 1, Since: at(time.Minute)}, "five"},
		{"since the future", Request{TailLines: -1, Since: time.Now().Add(time.Hour)}, "five"},
		{"from", Request{From: []Position{{worker0, 5}}}, whole[5:]},
		{"from the end", Request{From: []Position{{worker0, int64(len(whole))}}}, ""},
		{"another's from", Request{From: []Position{{worker1, 5}}}, whole},
		{"task", Request{TailLines: -1, Tasks: []string{"worker:0"}}, whole},
		{"another task", Request{TailLines: -1, Tasks: []string{"worker:1"}}, ""},
		{"follow", Request{TailLines: 1, Follow: true}, "five"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := collect(t, NewReader(bytes.NewReader(serve(t, dir, tt.req))))[worker0]
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestServeOrdersByTime(t *testing.T) {
	for _, withIndex := range []bool{true, false} {
		dir := t.TempDir()
		writers := []*Writer{create(t, dir, worker0), create(t, dir, server0), create(t, dir, worker1)}
		want := ""
		for i := range 3000 {
			w := writers[i*i%3]
			w.now = func() time.Time { return time.Unix(int64(i), 0) }
			text := fmt.Sprintf("%d\n", i)
			write(t, w, text)
			want += text
		}
		if !withIndex {
			os.Remove(filepath.Join(dir, worker0.file()+indexExt))
		}
		r, got := NewReader(bytes.NewReader(serve(t, dir, all))), ""
		for c, err := r.Next(); !errors.Is(err, io.EOF); c, err = r.Next() {
			if err != nil {
				t.Fatal(err)
			}
			got += string(c.Data)
		}
		if len(got) != len(want) || withIndex && got != want {
			t.Errorf("index %v: got %d bytes, want %d in order of time", withIndex, len(got), len(want))
		}
	}
}

func TestServeErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, create(t, dir, worker0), "ten bytes\n")
	tests := []struct {
		req  Request
		want string
	}{
		{Request{From: []Position{{worker0, 11}}}, "spool of worker:0 stdout: has 10 bytes, but 11"},
		{Request{From: []Position{{worker0, -1}}}, "negative offset"},
		{Request{From: []Position{{Source{Task: "../x"}, 1}}}, `task name "../x"`},
		{Request{Tasks: []string{"worker 0"}}, `task name "worker 0"`},
	}
	for _, tt := range tests {
		var out bytes.Buffer
		err := Serve(t.Context(), dir, tt.req, nil, &out)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.req, err, tt.want)
		}
		r := NewReader(&out)
		for err = nil; err == nil; {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%+v: receiver got %v, want io.ErrUnexpectedEOF", tt.req, err)
		}
	}
}

func TestServeWithoutFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "none")
	if err := Serve(t.Context(), dir, all, nil, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without Follow: %v", err)
	}
	if got := serve(t, dir, Request{TailLines: -1, Follow: true}); len(got) != len(magic)+headerSize {
		t.Errorf("with Follow: %q", got)
	}
}

// A spool that appears while Serve follows is sent from its first byte:
// TailLines applies only to spools that existed at the start.
func TestServeLateSpools(t *testing.T) {
	dir := t.TempDir()
	write(t, create(t, dir, worker0), "old\nlast\n")
	polls := 0
	var out bytes.Buffer
	var s *server
	s = newServer(dir, Request{TailLines: 1, Follow: true}, func() bool {
		if polls++; polls == 2 {
			write(t, create(t, dir, worker1), "new\nnewer\n")
			s.looked = time.Time{}
		}
		return polls > 2
	}, &out)
	if err := s.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := collect(t, NewReader(&out))
	if got[worker0] != "last\n" || got[worker1] != "new\nnewer\n" {
		t.Errorf("got %q", got)
	}
}

func TestServeEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		defer w.Close()
		done <- Serve(ctx, t.TempDir(), Request{TailLines: -1, Follow: true}, nil, w)
	}()
	if _, err := io.ReadFull(r, make([]byte, len(magic))); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v, want context.Canceled", err)
	}
}

func TestServeKeepsAlive(t *testing.T) {
	dir := t.TempDir()
	create(t, dir, worker0)
	var out bytes.Buffer
	var s *server
	polls := 0
	s = newServer(dir, Request{Follow: true}, func() bool { polls++; s.sent = time.Time{}; return polls > 3 }, &out)
	if err := s.serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(out.Bytes(), append([]byte{kindKeepAlive}, make([]byte, headerSize-1)...)) {
		t.Error("an idle server sent no keep-alive")
	}
	collect(t, NewReader(&out))
}

// While there are no new bytes, the server polls ten times a second.
func TestIdleServerPollsTenTimesPerSecond(t *testing.T) {
	dir := t.TempDir()
	create(t, dir, worker0)
	synctest.Test(t, func(t *testing.T) {
		began, polls := time.Now(), 0
		ended := func() bool {
			polls++
			return polls > 1000 || time.Since(began) >= 10*time.Second
		}
		if err := Serve(t.Context(), dir, Request{Follow: true}, ended, io.Discard); err != nil {
			t.Fatal(err)
		}
		if polls < 100 || polls > 110 {
			t.Errorf("%d polls in 10 s", polls)
		}
	})
}

// cutter passes on limit bytes and then fails, like a connection that is lost.
type cutter struct {
	w     io.Writer
	limit int
}

var errCut = errors.New("connection lost")

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p[:min(len(p), c.limit)])
	c.limit -= n
	if err == nil && n < len(p) {
		err = errCut
	}
	return n, err
}

// TestFollowOverLostConnections writes from many goroutines and follows over
// connections that are cut at random bytes. It compares every byte in the
// files of a Dir and in the lines of a Printer.
func TestFollowOverLostConnections(t *testing.T) {
	dir := t.TempDir()
	sources := []Source{worker0, {"worker:0", Stderr}, worker1, server0}
	var written sync.Map
	var writing sync.WaitGroup
	var over atomic.Bool
	for i, src := range sources {
		writing.Go(func() { written.Store(src, writeRandom(t, dir, src, uint64(i))) })
	}
	go func() { writing.Wait(); over.Store(true) }()

	r := receiver{t: t, printed: &checker{t: t, text: map[string]*bytes.Buffer{}}}
	r.printer = NewPrinter(pipes(r.printed, r.printed), Options{})
	r.dir, _ = NewDir(filepath.Join(dir, "received"))
	rng, cuts := rand.New(rand.NewPCG(1, 2)), 0
	for !r.connect(dir, over.Load, 2*sendData+rng.IntN(100_000)) {
		cuts++
	}
	if err := errors.Join(r.printer.Close(), r.dir.Close()); err != nil {
		t.Fatal(err)
	}
	for _, src := range sources {
		got, err := os.ReadFile(r.dir.File(src))
		w, _ := written.Load(src)
		want := w.([2][]byte)
		if err != nil || !bytes.Equal(got, bytes.Join(want[:], nil)) {
			t.Errorf("%s: file with %d bytes, or others (%v)", src, len(got), err)
		}
		lines := []byte(strings.Join(naiveSplit(string(bytes.Join(append(want[:], nil), []byte("\n"))), true), ""))
		if got := r.printed.text[src.Task+"|!"[src.Stream:][:1]]; !bytes.Equal(got.Bytes(), lines) {
			t.Errorf("%s: %d bytes written, %d printed, or others", src, len(lines), got.Len())
		}
	}
	if cuts == 0 {
		t.Error("no connection was cut")
	}
}

// writeRandom writes random bursts in two generations, whose last lines have
// no newline. It returns the bytes of each generation.
func writeRandom(t *testing.T, dir string, src Source, seed uint64) (whole [2][]byte) {
	rng := rand.New(rand.NewPCG(seed, 7))
	for generation := range whole {
		w, err := Create(dir, src, 0)
		if err != nil {
			t.Error(err)
			return whole
		}
		for i := range 60 {
			p := noise(rng, rng.IntN(4000))
			if i == 59 {
				p = append(p, "cut off"...)
			}
			if _, err := w.Write(p); err != nil {
				t.Error(err)
			}
			whole[generation] = append(whole[generation], p...)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	}
	return whole
}

// receiver is the launching machine.
type receiver struct {
	t       *testing.T
	cursor  Cursor
	printer *Printer
	printed *checker
	dir     *Dir
}

// connect follows over a connection that is lost after limit bytes, and
// reports whether the end record arrived.
func (r *receiver) connect(dir string, ended func() bool, limit int) bool {
	pr, pw := io.Pipe()
	req := r.cursor.Request("gpu01", Request{TailLines: -1, Follow: true})
	served := make(chan error, 1)
	go func() {
		err := Serve(r.t.Context(), dir, req, ended, &cutter{pw, limit})
		pw.Close()
		served <- err
	}()
	err := r.take(NewReader(pr))
	serr := <-served
	if errors.Is(err, io.EOF) != (serr == nil) || err != io.EOF && !errors.Is(err, io.ErrUnexpectedEOF) {
		r.t.Fatalf("reader %v, server %v", err, serr)
	}
	return serr == nil
}

func (r *receiver) take(in *Reader) error {
	for {
		c, err := in.Next()
		if err != nil {
			return err
		}
		if c, err = r.cursor.Take("gpu01", c); err != nil {
			r.t.Fatal(err)
		}
		if err := errors.Join(r.dir.Chunk("gpu01", c), r.printer.Chunk("gpu01", c)); err != nil {
			r.t.Fatal(err)
		}
	}
}

func TestRestartReachesTheReader(t *testing.T) {
	dir := t.TempDir()
	w := create(t, dir, worker0)
	write(t, w, "cut off in the mid")
	w.Close()
	write(t, create(t, dir, worker0), "new life\n")
	out := serve(t, dir, all)
	r, starts := NewReader(bytes.NewReader(out)), []string{}
	for c, err := r.Next(); err == nil; c, err = r.Next() {
		if c.Restart {
			starts = append(starts, string(c.Data))
		}
	}
	if len(starts) != 1 || starts[0] != "new life\n" {
		t.Errorf("restarts at %q", starts)
	}
}
