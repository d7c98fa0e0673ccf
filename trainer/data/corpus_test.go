package data

import (
	"slices"
	"strings"
	"testing"
)

// readText reads a text with a vocabulary, both from files.
func readText(t *testing.T, vocabulary string, most int, texts ...string) (*Corpus, error) {
	t.Helper()
	v, err := ReadWords(file(t, "words", []byte(vocabulary)), most, "<S>", "<UNK>")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, text := range texts {
		paths = append(paths, file(t, "text", []byte(text)))
	}
	return ReadCorpus(v, "<S>", paths...)
}

// A corpus holds the vocabulary's word numbers, and one number for all unknown
// words. Each row begins at its own position and never ends.
func TestCorpus(t *testing.T) {
	texts := []string{"the cat sat\r\n\nthe\tdog\n", string(zip(t, []byte("\ufeff  the  mat ")))}
	for _, c := range []struct {
		vocabulary string
		most       int
		want       []int64
		unknown    int
	}{
		{"<S>\n<UNK>\nthe\nsat\ncat", 10, []int64{2, 4, 3, 0, 2, 1, 0, 2, 1, 0}, 2},
		{"cat 1\r\nthe 3\n<UNK> 2\n<S> 4\n", 10, []int64{2, 3, 1, 0, 2, 1, 0, 2, 1, 0}, 3},
		{"the\ncat\nsat\ndog\nmat\n", 10, []int64{2, 3, 4, 0, 2, 5, 0, 2, 6, 0}, 0},
		{"mat 1\ndog 1\nthe\t3\ncat  1\nsat 2", 5, []int64{2, 1, 3, 0, 2, 1, 0, 2, 4, 0}, 2},
	} {
		text, err := readText(t, c.vocabulary, c.most, texts...)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		first, second := text.Row(0, 2, 0), text.Row(1, 2, 0)
		for range c.want {
			got = append(got, first())
		}
		if !slices.Equal(got, c.want) || first() != c.want[0] || second() != c.want[5] || text.Row(1, 2, 7)() != c.want[2] {
			t.Errorf("%q: %v, want %v", c.vocabulary, got, c.want)
		}
		if text.Len() != 10 || text.unknown != c.unknown {
			t.Errorf("%q: %v", c.vocabulary, text)
		}
	}
}

func TestReadCorpusErrors(t *testing.T) {
	for want, texts := range map[string][]string{
		": no words": {"", "\n \n"},
		": none of its words is in the vocabulary": {"one two\nthree"},
		":2: not a text in UTF-8":                  {"a\n\x00\xff\xfe"},
		":1: a line of more than 1048576 bytes":    {"a", strings.Repeat("\x00", 2<<20)},
	} {
		if _, err := readText(t, "a 1", 3, texts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	v, err := ReadWords(file(t, "words", []byte("a\nb\n")), 4, "<S>", "<UNK>")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCorpus(v, "</s>"); err == nil || !strings.Contains(err.Error(), `"</s>"`) {
		t.Errorf("a word that is not there ends sentences: %v", err)
	}
}

// Words are ordered by count, and words of equal count by their order in the
// file.
func TestReadWords(t *testing.T) {
	for content, want := range map[string]string{
		"b\na\nc":                   "<S> <UNK> b a",
		"b 1\na 5\nc 1":             "<S> <UNK> a b",
		"<UNK> 9\nb 1\n<S> 0\nc 2":  "<S> <UNK> c b",
		"\ufeffa\u00a0b 1\r\n7 7\n": "<S> <UNK> 7 a\u00a0b",
		"lonely":                    "<S> <UNK> lonely",
	} {
		for _, packed := range []string{content, string(zip(t, []byte(content)))} {
			v, err := ReadWords(file(t, "words", []byte(packed)), 4, "<S>", "<UNK>")
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(v.tokens, " "); got != want || v.ID("nothing") != 1 || v.ID("<S>") != 0 {
				t.Errorf("%q: %q, want %q", content, got, want)
			}
		}
	}
	checkFaults(t, []faulty{
		{"empty", nil, ": no words", ""},
		{"empty line", []byte("a\n\nb"), ":2: an empty line", ""},
		{"count first", []byte("12 a\n"), `:1: "12 a": want a word, followed by its count`, ""},
		{"negative", []byte("a -1\n"), `:1: "a -1"`, ""},
		{"huge", []byte("a 18446744073709551616\n"), `:1: "a 1844`, ""},
		{"three", []byte("a 1 b\n"), `:1: "a 1 b"`, ""},
		{"some counts", []byte("a 1\nb\n"), `:2: "b": want a count on every line, or on none`, ""},
		{"twice", []byte("a\nb\na\n"), `:3: token "a" is on line 1 already`, ""},
		{"binary", []byte("a\n\xff\n"), ":2: not a text", ""},
	}, func(path string) error { _, err := ReadWords(path, 9, "<S>", "<UNK>"); return err })
	for _, c := range []struct {
		most    int
		unknown string
	}{{1, "<UNK>"}, {5, "<S>"}} {
		if _, err := ReadWords(file(t, "words", []byte("a")), c.most, "<S>", c.unknown); err == nil || !strings.Contains(err.Error(), "another unknown word") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
