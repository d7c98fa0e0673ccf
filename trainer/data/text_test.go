package data

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("word ", 40000)
	one := file(t, "1", []byte("\ufefffirst\r\n\n"+long+"\nno end"))
	two := file(t, "2", zip(t, []byte("\nlast\n")))
	want := []string{"first", "", long, "no end", "", "last"}
	lines := Lines(one, two)
	for range 2 {
		if got := collect(t, lines.All()); !slices.Equal(got, want) {
			t.Fatalf("%.100q", got)
		}
	}
	for line, err := range lines.All() {
		if line != "first" || err != nil {
			t.Errorf("%q, %v", line, err)
		}
		break
	}
	if got := collect(t, Stream[string]{}.All()); got != nil {
		t.Errorf("the zero stream holds %q", got)
	}
}

func TestFaultyLines(t *testing.T) {
	read := func(path string) (err error) {
		for _, err = range Lines(path).All() {
		}
		return err
	}
	checkFaults(t, []faulty{
		{"bytes", []byte("fine\nstill\xff\n"), ":2: not a text in UTF-8", ""},
		{"long", []byte("\n\n" + strings.Repeat("x", maxLine+1)), ":3: a line of more than 1048576 bytes", ""},
	}, read)
	checkBrokenPacking(t, []byte("some\nlines\nof text\n"), read)
}

func TestFaultyShardLines(t *testing.T) {
	for content, want := range map[string]string{
		string(zip(t, []byte("text"))):              ": byte 0: a packed file",
		"fine\nfine\nfi\xffne\nfine\n":              ": byte 10: not a text in UTF-8",
		"fine\n" + strings.Repeat("x", 2*maxLine):   "a line of more than 1048576 bytes",
		strings.Repeat("y", maxLine+2) + "\nfine\n": "a line of more than 1048576 bytes",
	} {
		path := file(t, "x", []byte(content))
		var first error
		for shard := range 2 {
			s, err := ShardLines(path, shard, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range s.All() {
				if first == nil {
					first = err
				}
			}
		}
		if first == nil || !strings.HasPrefix(first.Error(), path) || !strings.Contains(first.Error(), want) {
			t.Errorf("error %v, want %q", first, want)
		}
	}
	s, err := ShardLines(file(t, "x", zip(t, nil)), 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range s.All() {
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "ShardStream") {
			t.Errorf("%v has no hint", err)
		}
	}
}

func TestVocabulary(t *testing.T) {
	v, err := ReadVocabulary(file(t, "vocabulary", []byte("<unk>\nthe\ncat\n")), "<unk>")
	if err != nil {
		t.Fatal(err)
	}
	ids := v.Append([]int{9}, strings.FieldsSeq("the dog saw the cat"))
	if !slices.Equal(ids, []int{9, 1, 0, 0, 1, 2}) || v.Len() != 3 || v.Token(2) != "cat" || v.ID("the") != 1 {
		t.Errorf("%v", ids)
	}
	checkFaults(t, []faulty{
		{"twice", []byte("<unk>\na\nb\na\n"), `:4: token "a" is on line 2 already`, ""},
		{"empty line", []byte("<unk>\n\na\n"), ":2: an empty line", ""},
		{"no unknown", []byte("a\nb\n"), `: the token "<unk>", which stands for unknown ones, is none of its 2 tokens`, ""},
		{"foreign", []byte("a\xfe\n"), ":1: not a text", ""},
	}, func(path string) error { _, err := ReadVocabulary(path, "<unk>"); return err })
}
