package logs

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// benchText is 256 KiB of lines of a training loop's length.
var benchText = []byte(strings.Repeat("2026-01-02 15:04:05 step 123456 loss 0.693147 accuracy 0.97 images/s 1234.5\n", 3450))[:maxData]

func BenchmarkPrinter(b *testing.B) {
	for name, opts := range map[string]Options{
		"pipe":     {},
		"terminal": {},
		"json":     {JSON: true},
		"grep":     {Grep: regexp.MustCompile("loss 0.5")},
	} {
		b.Run(name, func(b *testing.B) {
			screen := Screen{Writer: io.Discard, Terminal: name == "terminal", Colour: name == "terminal"}
			p := NewPrinter(NewDisplay(screen, screen), opts)
			c := Chunk{Source: worker0, Data: benchText, Time: time.Unix(1_700_000_000, 0)}
			b.SetBytes(int64(len(benchText)))
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Chunk("gpu01.example.org", c); err != nil {
					b.Fatal(err)
				}
				c.Offset += int64(len(c.Data))
			}
		})
	}
}

func BenchmarkWriter(b *testing.B) {
	w, err := Create(b.TempDir(), worker0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	line := benchText[:76]
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Write(line); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkServe goes from spool files to a Reader's chunks.
func BenchmarkServe(b *testing.B) {
	dir := b.TempDir()
	const writes = 256
	for _, src := range []Source{worker0, server0} {
		w, err := Create(dir, src, 0)
		if err != nil {
			b.Fatal(err)
		}
		defer w.Close()
		for range writes {
			if _, err := w.Write(benchText); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.SetBytes(int64(2 * writes * len(benchText)))
	b.ReportAllocs()
	for b.Loop() {
		var out bytes.Buffer
		out.Grow(3 * writes * len(benchText))
		if err := Serve(b.Context(), dir, all, nil, &out); err != nil {
			b.Fatal(err)
		}
		r := NewReader(&out)
		for {
			if _, err := r.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
	}
}
