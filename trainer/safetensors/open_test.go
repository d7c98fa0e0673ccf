package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// file returns a file with this header and a number of data bytes: 0, 1, 2,
// ...
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range data {
		b = append(b, byte(i))
	}
	return b
}

func open(b []byte) (*File, error) { return Open(bytes.NewReader(b), int64(len(b))) }

// says reports whether err has the text want, or begins with the part of want
// before "..."
func says(err error, want string) bool {
	start, cut := strings.CutSuffix(want, "...")
	return err != nil && (err.Error() == want || cut && strings.HasPrefix(err.Error(), start))
}

// one returns the header of a file whose only tensor, a, is described by
// value.
func one(value string) string { return `{"a":` + value + `}` }

var wrongFiles = map[string]struct {
	file []byte
	want string
}{
	"nothing":        {nil, "file of 0 bytes, too few for the length of a header"},
	"seven bytes":    {make([]byte, 7), "file of 7 bytes, too few for the length of a header"},
	"no header":      {make([]byte, 8), "header does not begin with {: no safetensors file"},
	"length 1<<63":   {[]byte("\x00\x00\x00\x00\x00\x00\x00\x80"), "header of 9223372036854775808 bytes, at most 16777216 are read"},
	"past the limit": {[]byte("\x01\x00\x00\x01\x00\x00\x00\x00{"), "header of 16777217 bytes, at most 16777216 are read"},
	"cut header":     {file(`{}`, 0)[:9], "header of 2 bytes in a file of 9: the file is cut, or no safetensors file"},
	"another format": {[]byte("GGUF\x03\x00\x00\x00..."), "header of 14064895815 bytes, at most 16777216 are read"},

	"space first":     {file(` {}`, 0), "header does not begin with {: no safetensors file"},
	"byte order mark": {file("\uFEFF{}", 0), "header does not begin with {: no safetensors file"},
	"not UTF-8":       {file("{\"\xff\":1}", 0), "header is not UTF-8"},
	"ends early":      {file(`{"a":{"dtype":"U8"`, 0), "header: tensor \"a\": after byte 18: the text ends too early"},
	"ends in a name":  {file(`{"a`, 0), "header: after byte 1: the text ends too early"},
	"no colon":        {file(`{"a" 1}`, 0), "header: tensor \"a\": after byte 4: invalid character '1'..."},
	"comma last":      {file(`{"__metadata__":{},}`, 0), "header: after byte 18: invalid character '}'..."},
	"zeros behind":    {file("{}\x00\x00", 0), `header: after byte 2: "\x00\x00" after the end`},
	"two objects":     {file(`{}  {}`, 0), `header: after byte 2: "{}" after the end`},
	"half a character": {file(`{"\ud83d":{}}`, 0),
		"header: after byte 1: an escape that is half a character"},

	"metadata null":   {file(`{"__metadata__":null}`, 0), "header: metadata: after byte 15: want an object"},
	"metadata number": {file(`{"__metadata__":{"a":1}}`, 0), "header: metadata: after byte 20: want a string"},
	"metadata twice":  {file(`{"__metadata__":{},"__metadata__":{}}`, 0), `header: key "__metadata__": twice`},
	"metadata's key twice": {file(`{"__metadata__":{"k":"1","k":"1"}}`, 0),
		`header: metadata: key "k": twice`},

	"name twice": {file(`{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 2),
		`header: key "a": twice`},
	"no name":         {file(`{"":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1), `header: tensor "": no name`},
	"no tensor":       {file(one(`7`), 0), `header: tensor "a": after byte 4: want an object`},
	"no dtype":        {file(one(`{"shape":[],"data_offsets":[0,1]}`), 1), `header: tensor "a": no dtype`},
	"no shape":        {file(one(`{"dtype":"U8","data_offsets":[0,1]}`), 1), `header: tensor "a": no shape`},
	"no offsets":      {file(one(`{"dtype":"U8","shape":[]}`), 1), `header: tensor "a": 0 data_offsets, want 2`},
	"one offset":      {file(one(`{"dtype":"U8","shape":[],"data_offsets":[0]}`), 1), `header: tensor "a": 1 data_offsets, want 2`},
	"three offsets":   {file(one(`{"dtype":"U8","shape":[],"data_offsets":[0,1,2]}`), 1), `header: tensor "a": data_offsets: after byte 49: more than 2 numbers`},
	"unknown key":     {file(one(`{"dtype":"U8","offsets":[0,1]}`), 1), `header: tensor "a": unknown key "offsets"`},
	"shape twice":     {file(one(`{"shape":[],"shape":[]}`), 1), `header: tensor "a": key "shape": twice`},
	"dtype no string": {file(one(`{"dtype":8}`), 0), `header: tensor "a": dtype: after byte 13: want a string`},
	"unknown dtype":   {file(one(`{"dtype":"F128","shape":[],"data_offsets":[0,16]}`), 16), `header: tensor "a": unknown dtype "F128"`},
	"lower case":      {file(one(`{"dtype":"f32","shape":[],"data_offsets":[0,4]}`), 4), `header: tensor "a": unknown dtype "f32"`},
	"shape a number":  {file(one(`{"dtype":"U8","shape":1}`), 1), `header: tensor "a": shape: after byte 26: want an array`},
	"shape nested":    {file(one(`{"dtype":"U8","shape":[[1]]}`), 1), `header: tensor "a": shape: after byte 28: want a whole number from 0 to 9223372036854775807`},
	"negative":        {file(one(`{"dtype":"U8","shape":[-1]}`), 1), `header: tensor "a": shape: after byte 28: want a whole number from 0 to 9223372036854775807`},
	"minus zero":      {file(one(`{"dtype":"U8","shape":[-0]}`), 1), `header: tensor "a": shape: after byte 28: want a whole number from 0 to 9223372036854775807`},
	"a fraction":      {file(one(`{"dtype":"U8","shape":[1.0]}`), 1), `header: tensor "a": shape: after byte 28: want a whole number from 0 to 9223372036854775807`},
	"1<<63":           {file(one(`{"dtype":"U8","shape":[9223372036854775808]}`), 1), `header: tensor "a": shape: after byte 28: want a whole number from 0 to 9223372036854775807`},
	"65 dimensions": {file(one(`{"dtype":"U8","shape":[1`+strings.Repeat(",1", 64)+`]}`), 1),
		`header: tensor "a": shape: after byte 155: more than 64 numbers`},
	"product of shape": {file(one(`{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}`), 0),
		`header: tensor "a": U8 [4294967296 4294967296] has more elements than a file can hold`},
	"product of zero": {file(one(`{"dtype":"U8","shape":[4294967296,0,4294967296],"data_offsets":[0,0]}`), 0),
		`header: tensor "a": U8 [4294967296 0 4294967296] has more elements than a file can hold`},
	"inside a byte": {file(one(`{"dtype":"F4","shape":[3],"data_offsets":[0,2]}`), 2), `header: tensor "a": F4 [3] ends inside a byte`},
	"short offsets": {file(one(`{"dtype":"F32","shape":[2,2],"data_offsets":[0,12]}`), 12),
		`header: tensor "a": data_offsets [0 12] for F32 [2 2], want 16 bytes`},
	"turned offsets": {file(one(`{"dtype":"U8","shape":[4],"data_offsets":[4,0]}`), 4),
		`header: tensor "a": data_offsets [4 0] for U8 [4], want 4 bytes`},

	"hole in front": {file(one(`{"dtype":"U8","shape":[4],"data_offsets":[4,8]}`), 8),
		`tensor "a": begins at byte 4 of the data, nothing fills the bytes from 0 on`},
	"hole": {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}}`, 9),
		`tensor "b": begins at byte 5 of the data, nothing fills the bytes from 4 on`},
	"overlap": {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[3,7]},"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, 8),
		`tensor "a": begins at byte 3 of the data, inside of "b", which ends at 4`},
	"same bytes": {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}}`, 8),
		`tensor "b": begins at byte 0 of the data, inside of "a", which ends at 4`},
	"empty inside": {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}}`, 4),
		`tensor "b": begins at byte 2 of the data, inside of "a", which ends at 4`},
	"cut data": {file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 7),
		`tensor "b": ends at byte 8 of the data, the file has 7: it is cut`},
	"huge tensor": {file(one(`{"dtype":"F64","shape":[1152921504606846975],"data_offsets":[0,9223372036854775800]}`), 8),
		`header: tensor "a": F64 [1152921504606846975] has more elements than a file can hold`},
	"far away": {file(one(`{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}`), 1),
		`tensor "a": begins at byte 9223372036854775806 of the data, nothing fills the bytes from 0 on`},
	"trailing byte": {file(one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`), 5), "1 bytes after the last tensor"},
	"only data":     {file(`{}`, 3), "3 bytes after the last tensor"},
}

func TestOpenRefusesInvalidFiles(t *testing.T) {
	for name, c := range wrongFiles {
		t.Run(name, func(t *testing.T) {
			f, err := open(c.file)
			if f != nil || !says(err, c.want) {
				t.Fatalf("got %v, %v\nwant %s", f, err, c.want)
			}
		})
	}
}

// A name or number of a megabyte in a file causes only a short error text.
func TestErrorsQuoteOnlyShortTexts(t *testing.T) {
	long := strings.Repeat("1", 1<<20)
	for _, header := range []string{
		`{"` + long + `":7}`,
		one(`{"` + long + `":7}`),
		one(`{"dtype":"` + long + `","shape":[],"data_offsets":[0,1]}`),
		one(`{"shape":[` + long + `]}`),
		`{}` + long,
	} {
		if _, err := open(file(header, 0)); err == nil || len(err.Error()) > 300 {
			t.Errorf("%.40s: %.400v", header, err)
		}
	}
}

// failing is a reader that returns the first bytes and then an error.
type failing struct {
	good []byte
	err  error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	n, _ := bytes.NewReader(f.good).ReadAt(p, off)
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

func TestReadErrorsAreReturned(t *testing.T) {
	whole := file(one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`), 4)
	broken := errors.New("input/output error")
	for _, c := range []struct {
		good int
		err  error
		want string
	}{
		{5, broken, "read length of the header: input/output error"},
		{20, broken, "read header: input/output error"},
		{20, io.EOF, "read header: unexpected EOF"},
		{len(whole) - 1, broken, `tensor "a": read 4 bytes from 0 on: input/output error`},
		{len(whole) - 1, io.EOF, `tensor "a": read 4 bytes from 0 on: unexpected EOF`},
	} {
		f, err := Open(failing{whole[:c.good], c.err}, int64(len(whole)))
		if err == nil {
			err = f.ReadAt("a", make([]byte, 4), 0)
		}
		if err == nil || err.Error() != c.want {
			t.Errorf("%d bytes: got %v, want %s", c.good, err, c.want)
		}
	}
}

// eager is a reader that returns io.EOF together with the last bytes, which
// io.ReaderAt allows.
type eager struct{ content []byte }

func (e eager) ReadAt(p []byte, off int64) (int, error) {
	n := copy(p, e.content[off:])
	if int(off)+n == len(e.content) {
		return n, io.EOF
	}
	return n, nil
}

func TestEOFWithLastBytesIsNoError(t *testing.T) {
	whole := file(one(`{"dtype":"U8","shape":[4],"data_offsets":[0,4]}`), 4)
	f, err := Open(eager{whole}, int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.ReadAt("a", make([]byte, 2), 2); err != nil {
		t.Error(err)
	}
}

// counting is a reader that records the highest offset that was read.
type counting struct {
	io.ReaderAt
	end int64
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	c.end = max(c.end, off+int64(len(p)))
	return c.ReaderAt.ReadAt(p, off)
}

func TestOpenReadsNoData(t *testing.T) {
	b := file(one(`{"dtype":"U8","shape":[400],"data_offsets":[0,400]}`), 400)
	c := &counting{ReaderAt: bytes.NewReader(b)}
	if _, err := Open(c, int64(len(b))); err != nil || c.end != int64(len(b)-400) {
		t.Fatalf("read up to byte %d of %d: %v", c.end, len(b), err)
	}
}

func TestReadAt(t *testing.T) {
	b := file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}}`, 8)
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		length int
		off    int64
		want   string // expected content, or the expected error
	}{
		{"a", 4, 0, "\x00\x01\x02\x03"},
		{"b", 4, 0, "\x04\x05\x06\x07"},
		{"b", 2, 1, "\x05\x06"},
		{"a", 1, 3, "\x03"},
		{"a", 0, 4, ""},
		{"a", 5, 0, `tensor "a": 5 bytes from 0 on are outside of its 4 bytes`},
		{"a", 1, 4, `tensor "a": 1 bytes from 4 on are outside of its 4 bytes`},
		{"a", 0, 5, `tensor "a": 0 bytes from 5 on are outside of its 4 bytes`},
		{"b", 1, -1, `tensor "b": 1 bytes from -1 on are outside of its 4 bytes`},
		{"b", 2, 1<<63 - 1, `tensor "b": 2 bytes from 9223372036854775807 on are outside of its 4 bytes`},
		{"c", 1, 0, `tensor "c": not in the file`},
	} {
		p := make([]byte, c.length)
		got := ""
		if err := f.ReadAt(c.name, p, c.off); err != nil {
			got = err.Error()
		} else {
			got = string(p)
		}
		if got != c.want {
			t.Errorf("%s, %d bytes from %d on: got %q, want %q", c.name, c.length, c.off, got, c.want)
		}
	}
	if _, ok := f.Tensor("c"); ok {
		t.Error("there is a tensor c")
	}
	info, _ := f.Tensor("a")
	info.Shape[0] = 7
	if again, _ := f.Tensor("a"); again.Shape[0] != 4 {
		t.Error("who asks for a shape can change the file's")
	}
}
