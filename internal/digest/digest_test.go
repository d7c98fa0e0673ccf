package digest

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestOf(t *testing.T) {
	broken := errors.New("input/output error")
	for _, test := range []struct {
		from io.Reader
		size int64
		sum  string
		err  error
	}{
		{strings.NewReader(""), 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", nil},
		{iotest.OneByteReader(strings.NewReader("abc")), 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", nil},
		{io.MultiReader(strings.NewReader("abc"), iotest.ErrReader(broken)), 3, "", broken},
	} {
		if size, sum, err := Of(test.from); size != test.size || sum != test.sum || !errors.Is(err, test.err) {
			t.Errorf("%d, %s, %v, want %d, %s, %v", size, sum, err, test.size, test.sum, test.err)
		}
	}
}
