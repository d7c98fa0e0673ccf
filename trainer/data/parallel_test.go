package data

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
)

func TestOpenParallel(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	d, err := OpenParallel(file(t, "en", []byte("\ufeffone\r\ntwo words\n"+long+"\nlast")), file(t, "de", []byte("eins\nzwei W\u00f6rter\nlang\nletztes\n")))
	if err != nil {
		t.Fatal(err)
	}
	want := []Pair{{"one", "eins"}, {"two words", "zwei W\u00f6rter"}, {long, "lang"}, {"last", "letztes"}}
	if got := some(t, d, 0, d.Len()); !reflect.DeepEqual(got, want) {
		t.Errorf("%.200q", got)
	}
	if _, err := d.At(4); err == nil {
		t.Error("pair 4 of 4")
	}
	other, err := OpenParallel(file(t, "en", []byte("a\nb\nc\nd\n")), file(t, "de", []byte("eins\nzwei W\u00f6rter\nlang\nletztes\n")))
	if err != nil || Describe(other) == Describe(d) {
		t.Errorf("another text has the same description: %s, %v", Describe(d), err)
	}
}

func TestOpenParallelErrors(t *testing.T) {
	two := file(t, "two", []byte("a\nb\n"))
	for _, c := range []struct{ content, want string }{
		{"", ": the text is empty"},
		{"a\nb\nc", " has 3 lines, " + two + " has 2: line by line"},
		{string(zip(t, []byte("a\nb\n"))), ": the text is packed with gzip"},
	} {
		path := file(t, "text", []byte(c.content))
		if _, err := OpenParallel(path, two); err == nil || !strings.HasPrefix(err.Error(), path+c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if _, err := OpenParallel(two, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("as the target: %v", err)
		}
	}
}

// The error of a corrupt line must have the line's number, in both files.
// SkipCorrupt must skip the pair.
func TestCorruptLines(t *testing.T) {
	bad := "fine\n \n\xff\n" + strings.Repeat("x", maxLine) + "\nfine\n"
	path, good := file(t, "bad", []byte(bad)), file(t, "good", []byte("a\nb\nc\nd\ne\n"))
	for _, texts := range [][2]string{{path, good}, {good, path}} {
		d, err := OpenParallel(texts[0], texts[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{"", ":2: the line has no word", ":3: not a text in UTF-8", ":4: a line of 1048577 bytes, at most 1048576 are read", ""} {
			if _, err := d.At(i); (err == nil) != (want == "") || err != nil && err.Error() != path+want {
				t.Errorf("line %d: %v, want %q", i, err, want)
			}
		}
		s := NewSkipped(func(error) {})
		some(t, SkipCorrupt(d, s), 0, 5)
		if s.Count() != 3 {
			t.Errorf("%d skipped", s.Count())
		}
	}
	d, err := OpenParallel(good, good)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(good, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := d.At(3); err == nil || !strings.HasPrefix(err.Error(), good+":4: truncated") {
		t.Errorf("a file that has become shorter: %v", err)
	}
}

// OpenParallel must find the same lines as splitting the text at newlines.
func FuzzParallel(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nthree"))
	f.Add([]byte("\ufeff\n\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		text := &textFile{path: "fuzzed", file: bytes.NewReader(content)}
		err := text.scan(bytes.NewReader(content))
		if checkNamed(t, err); err != nil {
			return
		}
		want := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
		if len(text.ends) != len(want) {
			t.Fatalf("%d lines, want %d", len(text.ends), len(want))
		}
		for i := range want {
			if i == 0 {
				want[i] = strings.TrimPrefix(want[i], byteOrderMark)
			}
			if got, err := text.line(i); err == nil && got != strings.TrimRight(want[i], "\r") {
				t.Fatalf("line %d is %q, want %q", i, got, want[i])
			}
		}
	})
}
