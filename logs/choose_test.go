package logs

import (
	"bytes"
	"regexp"
	"testing"
)

// Exclude omits lines and NoPrefix omits the names of task and host. Both work
// alone and together with every other option that changes a line.
func TestExcludeAndNoPrefix(t *testing.T) {
	const text = "DEBUG a\nINFO a\n\x1b[32mDE\x1b[0mBUG b\nWARN b\n"
	debug, info := regexp.MustCompile("^DEBUG"), regexp.MustCompile("INFO|DEBUG")
	for name, c := range map[string]struct {
		opts   Options
		stream Stream
		want   string
	}{
		"exclude":           {Options{Exclude: debug}, Stdout, "worker:0 h | INFO a\nworker:0 h | WARN b\n"},
		"exclude and grep":  {Options{Exclude: debug, Grep: info}, Stdout, "worker:0 h | INFO a\n"},
		"exclude in stderr": {Options{Exclude: debug}, Stderr, "worker:0 h ! INFO a\nworker:0 h ! WARN b\n"},
		"no prefix":         {Options{NoPrefix: true}, Stdout, text},
		"no prefix, stderr": {Options{NoPrefix: true}, Stderr, text},
		"stamps remain":     {Options{NoPrefix: true, Timestamps: true, Grep: regexp.MustCompile("WARN")}, Stdout, "0001-01-01T00:00:00.000Z WARN b\n"},
		"all":               {Options{}, Stdout, "worker:0 h | DEBUG a\nworker:0 h | INFO a\nworker:0 h | \x1b[32mDE\x1b[0mBUG b\nworker:0 h | WARN b\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			p := NewPrinter(pipes(&out, &out), c.opts)
			if err := p.Chunk("h", Chunk{Source: Source{"worker:0", c.stream}, Data: []byte(text)}); err != nil {
				t.Fatal(err)
			}
			if got := out.String(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
