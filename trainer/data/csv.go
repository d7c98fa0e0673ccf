package data

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Table is a dataset of rows of numbers, all in memory.
type Table[T float32 | float64] struct {
	Columns []string // names of the columns; empty if the file has none
	Width   int      // numbers in a row
	Values  []T      // Len() x Width
}

// Len is the number of rows.
func (t *Table[T]) Len() int { return len(t.Values) / max(1, t.Width) }

// At returns row i in the table's own memory.
func (t *Table[T]) At(i int) ([]T, error) {
	if err := checkIndex(i, t.Len()); err != nil {
		return nil, err
	}
	return t.Values[i*t.Width : (i+1)*t.Width : (i+1)*t.Width], nil
}

// CSV says how a file of comma-separated values is read. The zero value reads
// every column of a file without a header.
type CSV struct {
	Header bool // the first line names the columns
	// Names or Indices (from 0) choose columns and their order. Without either,
	// every column is read.
	Names   []string
	Indices []int
	Comma   rune // character that separates fields; 0 means a comma
	Comment rune // first character of lines that are skipped; 0 means none
}

// ReadCSV reads the chosen columns of a file as numbers. It refuses rows that
// are longer or shorter than the first, empty fields, fields that are not
// numbers, and numbers that are not finite or too large for T. Other columns
// may hold anything.
func ReadCSV[T float32 | float64](path string, c CSV) (*Table[T], error) {
	return readFile(path, func(s *source) (*Table[T], error) { return decodeCSV[T](c, s) })
}

func decodeCSV[T float32 | float64](c CSV, s *source) (*Table[T], error) {
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	if bom, _ := s.reader.Peek(3); string(bom) == byteOrderMark {
		s.reader.Discard(3) // cannot fail after the Peek
	}
	r := records{csv.NewReader(&bounded{from: s, left: maxBytes}), s.name}
	r.ReuseRecord, r.Comment = true, c.Comment
	if c.Comma != 0 {
		r.Comma = c.Comma
	}
	t := &Table[T]{}
	columns, record, err := c.begin(r)
	if c.Header && err == nil {
		for _, i := range columns {
			t.Columns = append(t.Columns, record[i])
		}
		record, err = r.Read()
	}
	for t.Width = len(columns); err == nil; record, err = r.Read() {
		if err = t.append(r, record, columns); err != nil {
			break
		}
	}
	if err != io.EOF {
		return nil, r.named(err)
	}
	if len(t.Values) == 0 {
		return nil, s.fault("no rows of values")
	}
	return t, nil
}

// bounded is a reader that fails after a number of bytes.
type bounded struct {
	from io.Reader
	left int64 // bytes that may still be read
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("more than the %d bytes that are read at most", int64(maxBytes))
	}
	return n, err
}

func (c CSV) validate() error {
	if len(c.Names) > 0 && len(c.Indices) > 0 {
		return errors.New("columns are chosen by name and by index, want one of the two")
	}
	if len(c.Names) > 0 && !c.Header {
		return errors.New("columns are chosen by name, but Header is not set")
	}
	for _, i := range c.Indices {
		if i < 0 {
			return fmt.Errorf("column %d: columns count from 0", i)
		}
	}
	return nil
}

// begin reads the first record and returns the indices of the chosen columns.
func (c CSV) begin(r records) (columns []int, first []string, err error) {
	first, err = r.Read()
	if err == io.EOF && c.Header {
		err = &formatError{file: r.file, line: 1, cause: errors.New("the file is empty, want a header")}
	}
	if err != nil {
		return nil, nil, err
	}
	for i := range first {
		first[i] = strings.TrimSpace(first[i])
	}
	if columns, err = c.choose(first); err != nil {
		return nil, nil, r.wrong(0, err)
	}
	return columns, first, nil
}

// choose returns the indices of the chosen columns, of all without a choice,
// and checks that the first record has them.
func (c CSV) choose(first []string) ([]int, error) {
	columns := slices.Clone(c.Indices)
	for _, name := range c.Names {
		i := slices.Index(first, name)
		if i < 0 {
			return nil, fmt.Errorf("no column %q, there are %.200q", name, first)
		}
		if slices.Contains(first[i+1:], name) {
			return nil, fmt.Errorf("two columns are named %q, choose by index", name)
		}
		columns = append(columns, i)
	}
	if len(columns) == 0 {
		for i := range first {
			columns = append(columns, i)
		}
	}
	if last := slices.Max(columns); last >= len(first) {
		return nil, fmt.Errorf("no column %d, there are %d", last, len(first))
	}
	return columns, nil
}

// append reads the chosen columns of a record. encoding/csv has checked that it
// is as long as the first.
func (t *Table[T]) append(r records, record []string, columns []int) error {
	for _, column := range columns {
		x, err := parseNumber[T](record[column])
		if err != nil {
			return r.wrong(column, fmt.Errorf("column %d: %w", column, err))
		}
		t.Values = append(t.Values, x)
	}
	return nil
}

func parseNumber[T float32 | float64](field string) (T, error) {
	field = strings.TrimSpace(field)
	var one T
	size := 64
	if _, small := any(one).(float32); small {
		size = 32
	}
	x, err := strconv.ParseFloat(field, size)
	switch {
	case field == "":
		return 0, errors.New("empty, want a number")
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%.40q does not fit into float%d", field, size)
	case err != nil:
		return 0, fmt.Errorf("%.40q is no number", field)
	case math.IsNaN(x) || math.IsInf(x, 0):
		return 0, fmt.Errorf("%.40q is not finite", field)
	}
	return T(x), nil
}

// records reads the records of a file.
type records struct {
	*csv.Reader
	file string
}

// wrong is an error in a column of the record that was read last.
func (r records) wrong(column int, cause error) error {
	line, _ := r.FieldPos(column)
	return &formatError{file: r.file, line: line, cause: cause}
}

// named names the file in an error of encoding/csv, which has the line.
func (r records) named(err error) error {
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		return &formatError{file: r.file, line: syntax.Line, cause: syntax.Err}
	}
	var ours *formatError
	if errors.As(err, &ours) {
		return err
	}
	return fmt.Errorf("%s: %w", r.file, err)
}
