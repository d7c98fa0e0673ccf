package data

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestReadCSV(t *testing.T) {
	for name, c := range map[string]struct {
		content string
		header  bool
		want    Table
	}{
		"plain":      {"1,2\n3,4.5e1\n", false, Table{2, []float32{1, 2, 3, 45}}},
		"no newline": {"1, 2\r\n\r\n3 ,-4", false, Table{2, []float32{1, 2, 3, -4}}},
		"header":     {"\ufeffa, b\n1,2\n", true, Table{2, []float32{1, 2}}},
		"quoted":     {"\"1\",\"2\"\n", false, Table{2, []float32{1, 2}}},
	} {
		for _, content := range [][]byte{[]byte(c.content), zip(t, []byte(c.content))} {
			got, err := ReadCSV(nil, file(t, "x.csv", content), c.header)
			if err != nil || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
			}
		}
	}
	table, err := ReadCSV(nil, file(t, "x", []byte("0.1,1\n0.2,2\n")), false)
	if err != nil {
		t.Fatal(err)
	}
	if row, err := table.At(1); err != nil || !slices.Equal(row, []float32{0.2, 2}) || table.Len() != 2 {
		t.Errorf("%v, %v", row, err)
	}
	if _, err := table.At(2); err == nil {
		t.Error("row 2 of 2")
	}
}

func TestReadCSVErrors(t *testing.T) {
	read := func(path string) error { _, err := ReadCSV(nil, path, false); return err }
	checkFaults(t, []faulty{
		{"empty", nil, ": byte 0: no rows of values", ""},
		{"short row", []byte("1,2\n3\n"), ":2: wrong number of fields", ""},
		{"cut", []byte("1,2\n3,4\n5,"), ":3: column 1: empty, want a number", ""},
		{"word", []byte("1,2\n\n3,four\n"), `:3: column 1: "four" is no number`, ""},
		{"missing", []byte("1,2\n3, \n"), ":2: column 1: empty, want a number", ""},
		{"nan", []byte("1,nan\n"), `:1: column 1: "nan" is not finite`, ""},
		{"large", []byte("1,1e39\n"), `:1: column 1: "1e39" does not fit into float32`, ""},
		{"quote", []byte("1,2\n3,4\"4\n"), `:2: bare "`, ""},
		{"many lines", []byte("\"1\n\",2\n3,x\n"), ":3: column 1: ", ""},
		{"binary", []byte("\x00\x01\x02"), ":1: column 0: ", ""},
	}, read)
	checkBrokenPacking(t, []byte("1,2\n3,4\n"), read)
	checkFaults(t, []faulty{
		{"empty", nil, ": byte 0: no rows of values", ""},
		{"only a header", []byte("a,b\n"), ": byte 4: no rows of values", ""},
		{"short row", []byte("a,b\n1\n"), ":2: wrong number of fields", ""},
	}, func(path string) error { _, err := ReadCSV(nil, path, true); return err })
}

// If corrupt rows are skipped, they are left out and each is reported. A file
// that cannot be read any further is still an error.
func TestReadCSVSkipsCorruptRows(t *testing.T) {
	var told []string
	s := NewSkipped(func(err error) { told = append(told, err.Error()) })
	path := file(t, "x.csv", []byte("a,b\n1,2\n3\n4,x\n5,6\n7,8\"\n9,10\n"))
	table, err := ReadCSV(s, path, true)
	if err != nil || !slices.Equal(table.Values, []float32{1, 2, 5, 6, 9, 10}) {
		t.Errorf("%+v, %v", table, err)
	}
	want := []string{path + ":3: wrong number of fields", path + `:4: column 1: "x" is no number`, path + `:6: bare " in non-quoted-field`}
	if !slices.Equal(told, want) || s.Count() != 3 {
		t.Errorf("%d skipped: %q, want %q", s.Count(), told, want)
	}
	packed := zip(t, []byte(strings.Repeat("1,2\n", 1000)))
	if _, err := ReadCSV(s, file(t, "y.csv.gz", packed[:len(packed)-9]), false); err == nil || s.Count() != 3 {
		t.Errorf("a packed file that breaks off: %v, %d skipped", err, s.Count())
	}
}

func TestReadCSVLimitsFileSize(t *testing.T) {
	b := &bounded{from: strings.NewReader("123456"), left: 5}
	if _, err := b.Read(make([]byte, 5)); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(make([]byte, 5)); err == nil {
		t.Error("byte 6 of 5 was read")
	}
}
