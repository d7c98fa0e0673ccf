package logs

import (
	"bytes"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// printInPieces passes text to a Printer in chunks of the given lengths, and
// returns the output.
func printInPieces(t testing.TB, opts Options, screen Screen, limit, room int, text, pieces []byte) string {
	t.Helper()
	var out bytes.Buffer
	screen.Writer = &out
	p := NewPrinter(NewDisplay(screen, Screen{Writer: &out}), opts)
	p.limit, p.room = limit, room
	c := Chunk{Source: worker0, Time: time.Unix(17, 5)}
	for len(text) > 0 {
		n := len(text)
		if len(pieces) > 0 {
			n, pieces = min(n, 1+int(pieces[0])), pieces[1:]
		}
		c.Data = text[:n]
		if err := p.Chunk("gpu01", c); err != nil {
			t.Fatal(err)
		}
		c.Offset, c.Time, text = c.Offset+int64(n), c.Time.Add(time.Second), text[n:]
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// checkPlain compares the fast path for plain lines with the ordinary path. A
// Grep pattern that matches every line forces the ordinary path.
func checkPlain(t testing.TB, text, pieces []byte, how uint8, limit int) {
	t.Helper()
	opts := Options{Hosts: []string{"gpu01"}, Tasks: []string{"worker:0"}, Timestamps: how&1 != 0}
	screen := Screen{Terminal: how&2 != 0, Dumb: true, Colour: how&4 != 0}
	room := maxRoom
	if how&8 != 0 {
		room = 0 // without room, unfinished lines are printed in pieces
	}
	one := opts
	one.Grep = regexp.MustCompile("")
	got, want := printInPieces(t, opts, screen, limit, room, text, pieces), printInPieces(t, one, screen, limit, room, text, pieces)
	if got != want {
		t.Errorf("%q in pieces of %v, options %d, limit %d: printed\n%q, want\n%q", text, pieces, how, limit, got, want)
	}
}

func TestFastPathPrintsSameLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	parts := []string{"\n", "\n", "a line\n", "text", "\r", "\x1b[31mred", "\x1b[A", "\x1b[2J", "\u202e", "\xff", strings.Repeat("long ", 20)}
	for range 1000 {
		var text []byte
		for range rng.IntN(20) {
			text = append(text, parts[rng.IntN(len(parts))]...)
		}
		pieces := make([]byte, rng.IntN(10))
		for i := range pieces {
			pieces[i] = byte(rng.IntN(60))
		}
		checkPlain(t, text, pieces, uint8(rng.IntN(16)), 1+rng.IntN(200))
	}
}

func FuzzPlainLines(f *testing.F) {
	f.Add([]byte("one\ntwo\rthree\nfour"), []byte{3, 5}, uint8(3), uint16(6))
	f.Fuzz(func(t *testing.T, text, pieces []byte, how uint8, limit uint16) {
		checkPlain(t, text, pieces, how, 1+int(limit))
	})
}

// BenchmarkPrinter measures the printing of many lines of one task.
func BenchmarkPrinter(b *testing.B) {
	text := []byte(strings.Repeat("step 123456 of worker 3: loss 0.000008\n", 3000))
	for name, opts := range map[string]Options{"plain": {}, "one by one": {Grep: regexp.MustCompile("")}} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			p := NewPrinter(NewDisplay(Screen{Writer: io.Discard}, Screen{Writer: io.Discard}), opts)
			c := Chunk{Source: worker0, Data: text}
			for b.Loop() {
				if err := p.Chunk("gpu01", c); err != nil {
					b.Fatal(err)
				}
				c.Offset += int64(len(text))
			}
		})
	}
}
