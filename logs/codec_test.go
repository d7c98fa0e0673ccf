package logs

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// encode returns a log stream with the given chunks and an end record.
func encode(t testing.TB, chunks ...Chunk) []byte {
	t.Helper()
	var out bytes.Buffer
	w := bufio.NewWriter(&out)
	w.WriteString(magic)
	for _, c := range chunks {
		if err := writeChunk(w, c); err != nil {
			t.Fatal(err)
		}
		if err := writeHeaderOnly(w, kindKeepAlive); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeHeaderOnly(w, kindEnd); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

var someChunks = []Chunk{
	{Source: worker0, Time: time.Unix(0, 0)},
	{Source: server0, Offset: 1 << 40, Time: time.Unix(17, 5), Data: []byte("text\n"), Restart: true},
	{Source: worker0, Offset: 7, Time: time.Unix(17, 5), Dropped: 1 << 41},
	{Source: Source{Task: "agent"}, Time: time.Unix(17, 6), Data: bytes.Repeat([]byte{0xff}, maxData)},
}

func same(a, b Chunk) bool {
	return a.Source == b.Source && a.Offset == b.Offset && a.Time.Equal(b.Time) &&
		a.Restart == b.Restart && a.Dropped == b.Dropped && bytes.Equal(a.Data, b.Data)
}

func TestReaderRoundTrip(t *testing.T) {
	r := NewReader(bytes.NewReader(encode(t, someChunks...)))
	for i, want := range someChunks {
		if c, err := r.Next(); err != nil || !same(c, want) {
			t.Fatalf("chunk %d: %+v, %v", i, c.Source, err)
		}
	}
	for range 2 {
		if _, err := r.Next(); !errors.Is(err, io.EOF) {
			t.Errorf("at the end: %v", err)
		}
	}
}

// A stream that is cut off at any byte never looks like a stream that has
// ended.
func TestReaderReportsCutStream(t *testing.T) {
	whole := encode(t, someChunks[:3]...)
	for n := range whole {
		r, err := NewReader(bytes.NewReader(whole[:n])), error(nil)
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", n, err)
		}
		why := fmt.Errorf("connection lost: %w", io.EOF)
		r = NewReader(io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(why)))
		for err = nil; err == nil; {
			_, err = r.Next()
		}
		if err != why {
			t.Errorf("lost at %d: %v", n, err)
		}
	}
}

func TestReaderRejectsMalformedStreams(t *testing.T) {
	chunk := encode(t, someChunks[1])
	change := func(at int, b byte) []byte {
		c := bytes.Clone(chunk)
		c[at] = b
		return c
	}
	dropped := func(at int, b byte) []byte {
		c := encode(t, someChunks[2])
		c[at] = b
		return c
	}
	number := len(magic) + headerSize + len("worker:0") // where it begins
	tests := []struct {
		in   []byte
		want string
	}{
		{dropped(4+4, 7), "malformed record of dropped bytes"},
		{dropped(4+3, flagRestart), "malformed record of dropped bytes"},
		{dropped(number+5, 0), "invalid number of dropped bytes"},
		{encode(t, Chunk{Source: worker0, Offset: maxData, Dropped: math.MaxInt64 - 2*maxData + 1}), "invalid number of dropped bytes"},
		{dropped(number+7, 0x80), "invalid number of dropped bytes"},
		{[]byte("Welcome to gpu01"), `begins with "Welc"`},
		{change(3, 9), "version 9"},
		{change(4, 77), "malformed record of kind 77"},
		{append([]byte(magic), append([]byte{77}, make([]byte, headerSize-1)...)...), "unknown record kind 77"},
		{change(5, 2), "unknown stream"},
		{change(6, maxTask+1), "invalid length or offset"},
		{change(7, 2), "invalid length or offset"},
		{change(10, 5), "invalid length or offset"},
		{change(4+15, 0x80), "invalid length or offset"},
		{change(4+headerSize, '/'), "task name"},
	}
	for _, tt := range tests {
		_, err := NewReader(bytes.NewReader(tt.in)).Next()
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.8q: error %v, want %q", tt.in, err, tt.want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(f, someChunks[:3]...))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		var chunks []Chunk
		for {
			c, err := r.Next()
			if err != nil {
				break
			}
			if len(c.Data) > maxData || c.Source.check() != nil || c.Offset < 0 || c.Dropped < 0 || c.Offset+c.Dropped < 0 {
				t.Fatalf("chunk out of bounds: %v at %d", c.Source, c.Offset)
			}
			c.Data = bytes.Clone(c.Data)
			chunks = append(chunks, c)
		}
		again := NewReader(bytes.NewReader(encode(t, chunks...)))
		for i, want := range chunks {
			if c, err := again.Next(); err != nil || !same(c, want) {
				t.Fatalf("chunk %d: %+v, %v, want %+v", i, c, err, want)
			}
		}
	})
}

func TestCursor(t *testing.T) {
	var k Cursor
	req := Request{TailLines: 3, Since: time.Unix(9, 0), Follow: true}
	if got := k.Request("gpu01", req); got.TailLines != 3 || got.From != nil {
		t.Errorf("before anything: %+v", got)
	}
	steps := []struct {
		offset  int64
		data    string
		restart bool
		want    string
		fails   string
		dropped int64
	}{
		{offset: 100},
		{offset: 100, data: "abc", restart: true, want: "abc 100 true"},
		{offset: 101, data: "bcde", restart: true, want: "de 103 false"},
		{offset: 90, data: "x", want: " 105 false"},
		{offset: 107, data: "h", fails: "host gpu01: log of worker:0 stdout: 2 bytes are missing at 105"},
		{offset: 105, data: "f", want: "f 105 false"},
		{offset: 106, dropped: 10, want: " 106 false 10"},
		{offset: 110, dropped: 20, want: " 116 false 14"},
		{offset: 110, dropped: 5, want: " 130 false"},
		{offset: 131, dropped: 5, fails: "host gpu01: log of worker:0 stdout: 1 bytes are missing at 130"},
		{offset: 129, data: "gh", want: "h 130 false"},
	}
	for i, s := range steps {
		c, err := k.Take("gpu01", Chunk{Source: worker0, Offset: s.offset, Data: []byte(s.data), Restart: s.restart, Dropped: s.dropped})
		got := fmt.Sprintf("%s %d %v", c.Data, c.Offset, c.Restart)
		if c.Dropped != 0 {
			got += fmt.Sprint(" ", c.Dropped)
		}
		if s.fails != "" && (err == nil || err.Error() != s.fails) || s.fails == "" && err != nil {
			t.Errorf("step %d: error %v", i, err)
		}
		if s.want != "" && got != s.want {
			t.Errorf("step %d: %q, want %q", i, got, s.want)
		}
	}
	got := k.Request("gpu01", req)
	if fmt.Sprint(got.From) != "[worker:0 stdout]" || got.From[0].Offset != 131 || got.TailLines != -1 || !got.Since.IsZero() || !got.Follow {
		t.Errorf("after: %+v", got)
	}
	if got := k.Request("gpu02", req); got.From != nil {
		t.Errorf("another host: %+v", got)
	}
}

func TestMerge(t *testing.T) {
	at := func(sec int64, src Source, text string) Chunk {
		return Chunk{Source: src, Time: time.Unix(sec, 0), Data: []byte(text)}
	}
	whole := encode(t, at(2, worker1, "d"), at(4, worker1, "f"))
	hosts := []func() (Chunk, error){
		NewReader(bytes.NewReader(encode(t, at(0, worker0, ""), at(1, worker0, "b"), at(5, worker0, "g")))).Next,
		NewReader(bytes.NewReader(whole[:len(whole)-1])).Next,
		NewReader(bytes.NewReader(encode(t))).Next,
		NewReader(bytes.NewReader(encode(t, at(1, server0, "c"), at(3, server0, "e")))).Next,
		NewReader(strings.NewReader("noise")).Next,
		func() (Chunk, error) { return Chunk{}, fmt.Errorf("dial: %w", io.EOF) },
	}
	got := ""
	errs := Merge(hosts, func(_ int, c Chunk) error {
		got += string(c.Data)
		return nil
	})
	if got != "bcdefg" {
		t.Errorf("merged %q", got)
	}
	want := []error{nil, io.ErrUnexpectedEOF, nil, nil, ErrMalformed, io.EOF}
	for i, err := range errs {
		if !errors.Is(err, want[i]) || (err == nil) != (want[i] == nil) {
			t.Errorf("host %d: %v, want %v", i, err, want[i])
		}
	}
	again := []func() (Chunk, error){hosts[2], NewReader(bytes.NewReader(whole)).Next}
	if errs := Merge(again, func(int, Chunk) error { return errCut }); errs[0] != nil || !errors.Is(errs[1], errCut) {
		t.Errorf("an emit that fails: %v", errs)
	}
}
