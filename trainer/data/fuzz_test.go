package data

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// opened returns a source of the given bytes. For input that begins like a
// gzip file but is not one, it checks the error and returns an empty source.
func opened(t *testing.T, content []byte) *source {
	t.Helper()
	s, err := newSource(bytes.NewReader(content), "fuzzed")
	if err != nil {
		checkNamed(t, err)
		return opened(t, nil)
	}
	return s
}

// checkNamed fails the test if an error does not begin with the file's name.
func checkNamed(t *testing.T, err error) {
	t.Helper()
	if err != nil && !strings.HasPrefix(err.Error(), "fuzzed:") {
		t.Fatalf("the error does not name the file: %v", err)
	}
}

// checkWhole fails the test if an array does not have the number of elements
// of its shape.
func checkWhole(t *testing.T, a *array) {
	t.Helper()
	n, err := elements(a.shape, maxBytes)
	if err != nil || int64(reflect.ValueOf(a.values).Len()) != n || len(a.float32s()) != int(n) {
		t.Fatalf("shape %v of %d values: %v", a.shape, reflect.ValueOf(a.values).Len(), err)
	}
}

func FuzzIDX(f *testing.F) {
	f.Add([]byte{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 1, 1, 2})
	f.Add([]byte{0, 0, 0x0e, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Add(zip(f, []byte{0, 0, 0x0b, 0, 1, 2}))
	f.Fuzz(func(t *testing.T, content []byte) {
		a, err := decodeIDX(opened(t, content))
		if checkNamed(t, err); err == nil {
			checkWhole(t, a)
		}
	})
}

func FuzzCIFAR10(f *testing.F) {
	f.Add(cifar(1, 2))
	f.Add(cifar(11))
	f.Add(cifar(1)[:100])
	f.Add(zip(f, cifar(1)))
	f.Fuzz(func(t *testing.T, content []byte) {
		d := &Images{}
		err := d.appendCIFAR(opened(t, content))
		checkNamed(t, err)
		if len(d.Pixels) != d.Len()*cifarPixels || err == nil && d.Len() == 0 {
			t.Fatalf("%d labels, %d pixels, %v", d.Len(), len(d.Pixels), err)
		}
	})
}

func FuzzNPY(f *testing.F) {
	f.Add(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "abcd"))
	f.Add(npy(2, "{'descr': '>i8', 'fortran_order': True, 'shape': (), }", "abcdefgh"))
	f.Add(npy(3, `{"shape":(2,1),"fortran_order":False,"descr":"|u1"}`, "ab"))
	f.Add(npy(1, "{'descr': [('a', 'O')], 'fortran_order': False, 'shape': (0, 99999999999), }"))
	f.Fuzz(func(t *testing.T, content []byte) {
		a, err := decodeNPY(opened(t, content))
		if checkNamed(t, err); err != nil {
			return
		}
		checkWhole(t, a)
	})
}

// written returns a header in NumPy's notation.
func written(h npyHeader) string {
	order, shape := "False", ""
	if h.fortran {
		order = "True"
	}
	for _, n := range h.shape {
		shape += fmt.Sprintf("%d, ", n)
	}
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }", h.descr, order, strings.TrimSuffix(shape, " "))
}

// A header that is parsed, written and parsed again must not change.
func FuzzNPYHeader(f *testing.F) {
	f.Add("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }   \n")
	f.Add(`{"shape": (3L, 4), "fortran_order": True, "descr": '|O',}`)
	f.Add("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4,), }")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseNPYHeader(text)
		if err != nil || strings.Contains(h.descr, "'") {
			return
		}
		if again, err := parseNPYHeader(written(h)); err != nil || !reflect.DeepEqual(again, h) {
			t.Fatalf("%q is %+v, written %q and read as %+v, %v", text, h, written(h), again, err)
		}
	})
}

// A table must have whole rows of finite numbers. Skipping corrupt rows must
// not lose valid ones.
func FuzzCSV(f *testing.F) {
	f.Add([]byte("a,b\n1,2\n3,4\n"), true)
	f.Add([]byte("1,2\n\"3\",-0x1p-2\n5,\n"), false)
	f.Add([]byte("\ufeff 1,inf\n,\n"), false)
	f.Fuzz(func(t *testing.T, content []byte, header bool) {
		rows := [2]int{}
		for i, s := range []*Skipped{nil, NewSkipped(func(err error) { checkNamed(t, err) })} {
			table, err := decodeCSV(s, header, opened(t, content))
			if checkNamed(t, err); err != nil {
				continue
			}
			if rows[i] = table.Len(); rows[i] == 0 || rows[i]*table.Width != len(table.Values) {
				t.Fatalf("%+v", table)
			}
			for _, x := range table.Values {
				if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
					t.Fatalf("%v was read", x)
				}
			}
		}
		if rows[0] > 0 && rows[0] != rows[1] {
			t.Fatalf("%d rows, and %d if corrupt ones are skipped", rows[0], rows[1])
		}
	})
}

// lines must return the same lines as splitting the text at newlines.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\ntwo\r\n\nthree"))
	f.Add([]byte("\ufeff\n\xff"))
	f.Add(zip(f, []byte("one\n")))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "fuzzed")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		whole, err := allLines(lines(path))
		if err != nil || bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
			return
		}
		want := strings.Split(strings.TrimSuffix(strings.TrimPrefix(string(content), byteOrderMark), "\n"), "\n")
		for i := range want {
			want[i] = strings.TrimSuffix(want[i], "\r")
		}
		if len(content) == 0 {
			want = nil
		}
		if !slices.Equal(whole, want) {
			t.Fatalf("lines %q, want %q", whole, want)
		}
	})
}

func allLines(all iter.Seq2[string, error]) (lines []string, err error) {
	for line, err := range all {
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// For any file, IDs must belong to the words, the special words must come
// first, no word may occur twice, and the vocabulary must not exceed its
// limit.
func FuzzWords(f *testing.F) {
	f.Add([]byte("a 1\nb 2\n<UNK> 3"), uint8(3))
	f.Add([]byte("a\r\n<S>\n7"), uint8(9))
	f.Add([]byte("a 1\nb\n"), uint8(2))
	f.Fuzz(func(t *testing.T, content []byte, most uint8) {
		v, err := decodeWords(opened(t, content), int(most), "<S>", "<UNK>")
		if checkNamed(t, err); err != nil {
			return
		}
		if v.Len() > int(most) || v.ID("<S>") != 0 || v.ID("<UNK>") != 1 || len(v.ids) != v.Len() {
			t.Fatalf("%q", v.tokens)
		}
		for id := range v.Len() {
			if v.ID(v.tokens[id]) != id || strings.ContainsAny(v.tokens[id], " \t\r\n") || v.tokens[id] == "" {
				t.Fatalf("token %q of id %d has id %d", v.tokens[id], id, v.ID(v.tokens[id]))
			}
		}
	})
}

// A corpus must have the same words as splitting all lines at white space,
// wherever a row begins.
func FuzzCorpus(f *testing.F) {
	f.Add([]byte("a b\n\n c a\n"), uint8(2))
	f.Add([]byte("\ufeffa\t\r\n\x00b \u00a0c"), uint8(3))
	f.Add(zip(f, []byte("a\n")), uint8(1))
	v := &Vocabulary{ids: map[string]int{"<S>": 0, "<UNK>": 1, "a": 2, "b": 3}, unknown: 1}
	f.Fuzz(func(t *testing.T, content []byte, of uint8) {
		path := filepath.Join(t.TempDir(), "fuzzed")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadCorpus(v, "<S>", path)
		if err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Fatalf("the error does not name the file: %v", err)
		}
		if err != nil || of == 0 || bytes.HasPrefix(content, []byte{0x1f, 0x8b}) {
			return
		}
		blank := func(c byte) bool { return strings.IndexByte(" \t\v\f\r\n", c) >= 0 }
		var want []int64
		for _, line := range bytes.Split(bytes.TrimPrefix(content, []byte(byteOrderMark)), []byte("\n")) {
			before, begin := len(want), 0
			for i := range len(line) + 1 {
				if i < len(line) && !blank(line[i]) {
					continue
				}
				if i > begin {
					want = append(want, int64(v.ID(string(line[begin:i]))))
				}
				begin = i + 1
			}
			if len(want) > before {
				want = append(want, 0)
			}
		}
		for row := range int(of) {
			from, _ := share(len(want), row, int(of))
			next := c.Row(row, int(of), 0)
			for i := range want {
				if got := next(); got != want[(from+i)%len(want)] {
					t.Fatalf("row %d of %d: word %d is %d, want all to be %v", row, of, i, got, want)
				}
			}
		}
		if c.Len() != len(want) {
			t.Fatalf("%d words, want %d", c.Len(), len(want))
		}
	})
}
