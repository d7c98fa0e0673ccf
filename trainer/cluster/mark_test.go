package cluster

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestMarkedFindsTheMark(t *testing.T) {
	padded := func(n int) []byte {
		return append(append(bytes.Repeat([]byte{0}, n), TrainerMark...), 1)
	}
	for _, c := range []struct {
		name string
		text []byte
		want bool
	}{
		{"nothing", nil, false},
		{"the first half", []byte(markStart), false},
		{"the halves, apart", []byte(markStart + "x" + markEnd), false},
		{"all but the last byte", []byte(TrainerMark[:len(TrainerMark)-1]), false},
		{"alone", []byte(TrainerMark), true},
		{"across the end of the buffer", padded(1<<20 - len(TrainerMark)/2), true},
		{"at the end of the buffer", padded(1<<20 - len(TrainerMark)), true},
		{"after its own beginning", []byte(markStart + TrainerMark), true},
		{"an older program", []byte("runtime.main\x00" + nameStart + nameEnd + "\x00"), true},
		{"a program of another package", []byte(nameStart + "trainer/cluster.Main\x00"), false},
	} {
		for how, reader := range map[string]func(io.Reader) io.Reader{
			"whole":       func(r io.Reader) io.Reader { return r },
			"halves":      iotest.HalfReader,
			"with errors": iotest.DataErrReader,
		} {
			if got, err := Marked(reader(bytes.NewReader(c.text))); got != c.want || err != nil {
				t.Errorf("%s, %s: %v, %v; want %v", c.name, how, got, err, c.want)
			}
		}
	}
	if got, err := Marked(iotest.OneByteReader(bytes.NewReader([]byte(markStart + TrainerMark)))); !got || err != nil {
		t.Errorf("byte by byte: %v, %v", got, err)
	}
	broken := errors.New("broken")
	if got, err := Marked(iotest.ErrReader(broken)); got || !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v, %v", got, err)
	}
}
