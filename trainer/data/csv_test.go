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
		how     CSV
		want    Table[float64]
	}{
		"plain":       {"1,2\n3,4.5e1\n", CSV{}, Table[float64]{nil, 2, []float64{1, 2, 3, 45}}},
		"no newline":  {"1, 2\r\n\r\n3 ,-4", CSV{}, Table[float64]{nil, 2, []float64{1, 2, 3, -4}}},
		"header":      {"\ufeffa, b\n1,2\n", CSV{Header: true}, Table[float64]{[]string{"a", "b"}, 2, []float64{1, 2}}},
		"names":       {"a,b,c\n1,x,3\n4,y,6\n", CSV{Header: true, Names: []string{"c", "a"}}, Table[float64]{[]string{"c", "a"}, 2, []float64{3, 1, 6, 4}}},
		"indices":     {"1;x;3\n4;y;6\n", CSV{Indices: []int{2, 0, 2}, Comma: ';'}, Table[float64]{nil, 3, []float64{3, 1, 3, 6, 4, 6}}},
		"header, one": {"a,b\n1,2\n", CSV{Header: true, Indices: []int{1}}, Table[float64]{[]string{"b"}, 1, []float64{2}}},
		"quoted":      {"# comment\n\"1\",\"2\"\n", CSV{Comment: '#'}, Table[float64]{nil, 2, []float64{1, 2}}},
	} {
		for _, content := range [][]byte{[]byte(c.content), zip(t, []byte(c.content))} {
			got, err := ReadCSV[float64](file(t, "x.csv", content), c.how)
			if err != nil || !reflect.DeepEqual(*got, c.want) {
				t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
			}
		}
	}
	table, err := ReadCSV[float32](file(t, "x", []byte("0.1,1\n0.2,2\n")), CSV{})
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

func TestFaultyCSV(t *testing.T) {
	for _, c := range []struct {
		how    CSV
		faults []faulty
	}{
		{CSV{}, []faulty{
			{"empty", nil, ": byte 0: no rows of values", ""},
			{"short row", []byte("1,2\n3\n"), ":2: wrong number of fields", ""},
			{"word", []byte("1,2\n\n3,four\n"), `:3: column 1: "four" is no number`, ""},
			{"missing", []byte("1,2\n3, \n"), ":2: column 1: empty, want a number", ""},
			{"nan", []byte("1,nan\n"), `:1: column 1: "nan" is not finite`, ""},
			{"large", []byte("1,1e39\n"), `:1: column 1: "1e39" does not fit into float32`, ""},
			{"quote", []byte("1,2\n3,4\"4\n"), `:2: bare "`, ""},
			{"many lines", []byte("\"1\n\",2\n3,x\n"), ":3: column 1: ", ""},
			{"binary", []byte("\x00\x01\x02"), ":1: column 0: ", ""},
		}},
		{CSV{Header: true}, []faulty{
			{"empty", nil, ":1: the file is empty, want a header", ""},
			{"only a header", []byte("a,b\n"), ": byte 4: no rows of values", ""},
			{"short row", []byte("a,b\n1\n"), ":2: wrong number of fields", ""},
		}},
		{CSV{Header: true, Names: []string{"b"}}, []faulty{
			{"no such name", []byte("\na,c\n1,2\n"), `:2: no column "b", there are ["a" "c"]`, ""},
			{"two of them", []byte("b,a,b\n1,2,3\n"), `:1: two columns are named "b"`, ""},
		}},
		{CSV{Header: true, Indices: []int{2}}, []faulty{{"few", []byte("a,b\n1,2\n"), ":1: no column 2, there are 2", ""}}},
		{CSV{Indices: []int{2}}, []faulty{{"few", []byte("1,2\n"), ":1: no column 2, there are 2", ""}}},
		{CSV{Names: []string{"a"}}, []faulty{{"no header", []byte("a\n1\n"), ": columns are chosen by name, but Header", ""}}},
		{CSV{Header: true, Names: []string{"a"}, Indices: []int{0}}, []faulty{{"both", []byte("a\n1\n"), ": columns are chosen by name and by index", ""}}},
		{CSV{Indices: []int{-1}}, []faulty{{"negative", []byte("a\n1\n"), ": column -1: ", ""}}},
		{CSV{Comma: '\n'}, []faulty{{"comma", []byte("a\n1\n"), ": csv: invalid field or comment delimiter", ""}}},
	} {
		checkFaults(t, c.faults, func(path string) error { _, err := ReadCSV[float32](path, c.how); return err })
	}
	checkBrokenPacking(t, []byte("1,2\n3,4\n"), func(path string) error { _, err := ReadCSV[float32](path, CSV{}); return err })
}

func TestCSVIsBounded(t *testing.T) {
	b := &bounded{from: strings.NewReader("123456"), left: 5}
	if _, err := b.Read(make([]byte, 5)); err != nil {
		t.Error(err)
	}
	if _, err := b.Read(make([]byte, 5)); err == nil {
		t.Error("byte 6 of 5 was read")
	}
}
