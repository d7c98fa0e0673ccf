package safetensors

import (
	"bytes"
	"runtime"
	"testing"
	"unicode/utf8"
)

// allocated returns how many bytes a call of f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Every file that Open accepts can be written again and reopened with the same
// content.
func FuzzOpen(f *testing.F) {
	metadata, tensors := checkpoint()
	var whole bytes.Buffer
	if _, err := Write(&whole, metadata, tensors); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:whole.Len()-1])
	for _, c := range wrongFiles {
		f.Add(c.file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var file *File
		var err error
		if n := allocated(func() { file, err = open(b) }); n > 1<<20+100*uint64(len(b)) {
			t.Fatalf("%d bytes allocated for a file of %d", n, len(b))
		}
		if err != nil {
			return
		}
		metadata, tensors := decode(t, file)
		again, err := open(encode(t, metadata, tensors))
		if err != nil {
			t.Fatal(err)
		}
		gotMetadata, got := decode(t, again)
		checkSame(t, metadata, gotMetadata, tensors, got)
	})
}

// Open reads every file that Write has written. Write refuses only arguments
// that are invalid.
func FuzzRoundTrip(f *testing.F) {
	f.Add("w1", "F32", 2, 1, []byte("01234567"), "w2", []byte("abc"), "step", "40")
	f.Add("", "U8", 0, 0, []byte{}, "__metadata__", []byte{}, "", "")
	f.Add("a", "F4", 1<<62, 4, []byte("x"), "a", []byte("x"), "\xff", "\x00")
	f.Add("\xff", "none", -1, 3, []byte("x"), "\U0001F600", []byte("x"), "<", "\u2028")
	f.Fuzz(func(t *testing.T, name, dtype string, rows, columns int, data []byte, other string, bytesOf []byte, key, value string) {
		metadata := map[string]string{key: value}
		tensors := []Tensor{
			{name, Dtype(dtype), []int{rows, columns}, data},
			{other, U8, []int{len(bytesOf)}, bytesOf},
		}
		var b bytes.Buffer
		if _, err := Write(&b, metadata, tensors); err != nil {
			if b.Len() > 0 {
				t.Fatalf("%d bytes written before %v", b.Len(), err)
			}
			if plain(name, other, key, value) && name != other && dtype == "U8" && rows == len(data) && columns == 1 {
				t.Fatal(err)
			}
			return
		}
		opened, err := open(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		gotMetadata, got := decode(t, opened)
		checkSame(t, metadata, gotMetadata, tensors, got)
	})
}

// plain reports whether these names and this metadata are valid in a file.
func plain(name, other, key, value string) bool {
	return utf8.ValidString(name+"|"+other+"|"+key+"|"+value) &&
		name != "" && other != "" && name != metadataKey && other != metadataKey
}
