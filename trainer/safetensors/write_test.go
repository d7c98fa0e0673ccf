package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// checkpoint returns example metadata and tensors of several types and shapes.
func checkpoint() (map[string]string, []Tensor) {
	return map[string]string{"step": "40", "job": "<ä & \"b\">\n", "": ""}, []Tensor{
		{"w1[0:2]", F32, []int{2, 2}, []byte("0123456789abcdef")},
		{"words[0:500]/rows", I64, []int{1}, []byte("rowrowro")},
		{"scalar", F64, nil, []byte("scalarsc")},
		{"none", F32, []int{3, 0, 1 << 40}, nil},
		{"<schön> \"☃\"\\\x00\n", U8, []int{3}, []byte("abc")},
		{"unaligned", U64, []int{}, []byte("12345678")},
		{"none, last", "BF16", []int{0}, []byte{}},
	}
}

// encode writes to memory.
func encode(t *testing.T, metadata map[string]string, tensors []Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	n, err := Write(&b, metadata, tensors)
	if err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes, %d said: %v", b.Len(), n, err)
	}
	return b.Bytes()
}

// names returns the names of the tensors in the order of their data.
func names(f *File) []string {
	return slices.SortedFunc(maps.Keys(f.tensors), func(a, b string) int {
		x, y := f.tensors[a], f.tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.Size, y.Size), cmp.Compare(a, b))
	})
}

// decode returns the metadata and all tensors of a file.
func decode(t *testing.T, f *File) (map[string]string, []Tensor) {
	t.Helper()
	var tensors []Tensor
	for _, name := range names(f) {
		info, ok := f.Tensor(name)
		if !ok || info.Name != name {
			t.Fatalf("tensor %q: %v, %v", name, info, ok)
		}
		data := make([]byte, info.Size)
		if err := f.ReadAt(name, data, 0); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, Tensor{name, info.Dtype, info.Shape, data})
	}
	return f.Metadata(), tensors
}

// checkSame checks that the metadata and tensors read equal those written.
func checkSame(t *testing.T, metadata, gotMetadata map[string]string, want, got []Tensor) {
	t.Helper()
	if !maps.Equal(metadata, gotMetadata) {
		t.Fatalf("metadata %q, want %q", gotMetadata, metadata)
	}
	if !slices.EqualFunc(want, got, func(a, b Tensor) bool {
		return a.Name == b.Name && a.Dtype == b.Dtype && slices.Equal(a.Shape, b.Shape) && bytes.Equal(a.Data, b.Data)
	}) {
		t.Fatalf("tensors %v, want %v", got, want)
	}
}

func TestRoundTrip(t *testing.T) {
	metadata, tensors := checkpoint()
	b := encode(t, metadata, tensors)
	if length := binary.LittleEndian.Uint64(b); length%8 != 0 {
		t.Errorf("the data begins at byte %d", 8+length)
	}
	f, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	gotMetadata, got := decode(t, f)
	checkSame(t, metadata, gotMetadata, tensors, got)
	if again := encode(t, gotMetadata, got); !bytes.Equal(again, b) {
		t.Errorf("written again:\n%q\nbefore:\n%q", again, b)
	}
}

// Write must produce exactly these bytes, so that checksums of checkpoints do
// not change.
func TestWriteIsByteExact(t *testing.T) {
	got := encode(t, map[string]string{"b": "2", "a": "<1>"}, []Tensor{
		{"z", F32, []int{1, 2}, []byte("12345678")},
		{"a", U8, nil, []byte("x")},
	})
	want := "\x90\x00\x00\x00\x00\x00\x00\x00" +
		`{"__metadata__":{"a":"<1>","b":"2"},` +
		`"z":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},` +
		`"a":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}  ` +
		"12345678x"
	if string(got) != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := encode(t, nil, nil); string(got) != "\x08\x00\x00\x00\x00\x00\x00\x00{}      " {
		t.Errorf("an empty file is %q", got)
	}
}

// Open reads files of other programs: keys in any order, other spaces, escape
// sequences.
func TestOpenReadsFilesOfOtherPrograms(t *testing.T) {
	f, err := open(file("{\"b\" : {\"data_offsets\": [2, 6], \"shape\":\n[2], \"dtype\": \"BF16\"},\t"+
		`"\ud83d\ude00\ufffd\\ud83d": {"dtype": "BOOL", "shape": [1, 2], "data_offsets": [0, 2]}, `+
		`"none": {"dtype": "F32", "shape": [0], "data_offsets": [2, 2]}, "__metadata__": {}}`+" \n  ", 6))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := names(f), []string{"\U0001F600\uFFFD\\ud83d", "none", "b"}; !slices.Equal(got, want) {
		t.Errorf("names %q, want %q", got, want)
	}
	info, _ := f.Tensor("b")
	if want := (Info{"b", "BF16", []int{2}, 4}); !reflect.DeepEqual(info, want) {
		t.Errorf("b is %v, want %v", info, want)
	}
	if len(f.Metadata()) != 0 {
		t.Errorf("metadata %v", f.Metadata())
	}
}

func TestSizesOfAllDtypes(t *testing.T) {
	for dtype, want := range map[Dtype]int64{
		"BOOL": 24, "U8": 24, "I8": 24, "F8_E4M3": 24, "F8_E5M2": 24, "F8_E8M0": 24, "F8_E4M3FNUZ": 24, "F8_E5M2FNUZ": 24,
		"U16": 48, "I16": 48, "F16": 48, "BF16": 48, "U32": 96, "I32": 96, "F32": 96,
		"U64": 192, "I64": 192, "F64": 192, "C64": 192,
		"F4": 12, "F6_E2M3": 18, "F6_E3M2": 18,
	} {
		tensor := Tensor{"a", dtype, []int{2, 3, 4}, make([]byte, want)}
		f, err := open(encode(t, nil, []Tensor{tensor}))
		if err != nil {
			t.Errorf("%s: %v", dtype, err)
			continue
		}
		if info, _ := f.Tensor("a"); info.Size != want {
			t.Errorf("%s: %d bytes, want %d", dtype, info.Size, want)
		}
	}
}

func TestWriteRefusesInvalidTensors(t *testing.T) {
	good := Tensor{"a", U8, []int{2}, []byte("ab")}
	for want, c := range map[string]struct {
		metadata map[string]string
		tensors  []Tensor
	}{
		`tensor "": no name`: {nil, []Tensor{{"", U8, nil, []byte("a")}}},
		`tensor "a": twice`:  {nil, []Tensor{good, good}},
		`tensor "__metadata__": this name is the metadata's`:                {nil, []Tensor{{"__metadata__", U8, nil, []byte("a")}}},
		`tensor "\xff": the name is not UTF-8`:                              {nil, []Tensor{{"\xff", U8, nil, []byte("a")}}},
		`tensor "b": 3 bytes of data for U8 [2], want 2`:                    {nil, []Tensor{good, {"b", U8, []int{2}, []byte("abc")}}},
		`tensor "b": 0 bytes of data for F32 [], want 4`:                    {nil, []Tensor{{"b", F32, nil, nil}}},
		`tensor "b": unknown dtype "float32"`:                               {nil, []Tensor{{"b", "float32", nil, nil}}},
		`tensor "b": shape [-1] with a negative dimension`:                  {nil, []Tensor{{"b", U8, []int{-1}, nil}}},
		`tensor "b": shape [0 -1] with a negative dimension`:                {nil, []Tensor{{"b", U8, []int{0, -1}, nil}}},
		`tensor "b": 65 dimensions, at most 64 are read`:                    {nil, []Tensor{{"b", U8, make([]int, 65), nil}}},
		`tensor "b": F4 [1] ends inside a byte`:                             {nil, []Tensor{{"b", "F4", []int{1}, []byte("a")}}},
		`metadata "k": not UTF-8`:                                           {map[string]string{"k": "\xff"}, nil},
		`metadata "\xff": not UTF-8`:                                        {map[string]string{"\xff": "v"}, nil},
		"header of 16777248 bytes for 0 tensors, at most 16777216 are read": {map[string]string{"k": strings.Repeat("x", 1<<24)}, nil},
	} {
		n, err := Write(io.Discard, c.metadata, c.tensors)
		if n != 0 || err == nil || err.Error() != want {
			t.Errorf("%d bytes and %v, want %s", n, err, want)
		}
	}
}

// full is a writer that accepts room bytes and then fails with err. If err is
// nil, it returns too small a count without an error.
type full struct {
	room int
	err  error
}

func (f *full) Write(p []byte) (int, error) {
	if n := f.room; len(p) > n {
		f.room = 0
		return n, f.err
	}
	f.room -= len(p)
	return len(p), nil
}

func TestWriteErrorsAreReturned(t *testing.T) {
	tensors := []Tensor{{"a", U8, []int{2}, []byte("ab")}, {"b", U8, []int{2}, []byte("cd")}}
	whole := len(encode(t, nil, tensors))
	noSpace := errors.New("no space left on device")
	for _, c := range []struct {
		room int
		err  error
		want string
	}{
		{0, noSpace, "write header: no space left on device"},
		{whole - 3, noSpace, `write tensor "a": no space left on device`},
		{whole - 1, noSpace, `write tensor "b": no space left on device`},
		{whole - 1, nil, `write tensor "b": short write`},
	} {
		n, err := Write(&full{c.room, c.err}, nil, tensors)
		if n != int64(c.room) || err == nil || err.Error() != c.want {
			t.Errorf("room for %d: %d bytes and %v, want %s", c.room, n, err, c.want)
		}
		if c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("room for %d: %v hides the writer's error", c.room, err)
		}
	}
}
