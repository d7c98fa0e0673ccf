package data

import (
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("word ", 40000)
	one := file(t, "1", []byte("\ufefffirst\r\n\n"+long+"\nno end"))
	two := file(t, "2", zip(t, []byte("\nlast\n")))
	want := []string{"first", "", long, "no end", "", "last"}
	lines := lines(one, two)
	for range 2 {
		if got := collect(t, lines); !slices.Equal(got, want) {
			t.Fatalf("%.100q", got)
		}
	}
	for line, err := range lines {
		if line != "first" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		break
	}
}

func TestLinesErrors(t *testing.T) {
	read := func(path string) (err error) {
		for _, err = range lines(path) {
		}
		return err
	}
	checkFaults(t, []faulty{
		{"bytes", []byte("fine\nstill\xff\n"), ":2: not a text in UTF-8", ""},
		{"long", []byte("\n\n" + strings.Repeat("x", maxLine+1)), ":3: a line of more than 1048576 bytes", ""},
	}, read)
	checkBrokenPacking(t, []byte("some\nlines\nof text\n"), read)
}
