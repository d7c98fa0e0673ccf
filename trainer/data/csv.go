package data

import (
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"strconv"
	"strings"
)

// Table is a dataset of rows of numbers. All rows are in memory.
type Table struct {
	Width  int       // number of values in each row
	Values []float32 // the rows, one after the other: Len() x Width values
}

// Len is the number of rows.
func (t *Table) Len() int { return len(t.Values) / max(1, t.Width) }

// Describe returns the number of rows and columns, and a checksum of all
// numbers.
func (t *Table) Describe() string {
	return fmt.Sprintf("%d rows of %d numbers, checksum %08x", t.Len(), t.Width, sumOf(t.Values))
}

// At returns row i as a slice of Values, without a copy.
func (t *Table) At(i int) ([]float32, error) {
	if err := checkIndex(i, t.Len()); err != nil {
		return nil, err
	}
	return t.Values[i*t.Width : (i+1)*t.Width : (i+1)*t.Width], nil
}

// ReadCSV reads a file of comma-separated numbers. The file may be compressed
// with gzip. If header is set, ReadCSV ignores the first line, which names the
// columns. A row is corrupt if its length differs from the first row's, or if
// a field is not a finite float32 number. If s is nil, a corrupt row is an
// error. Otherwise the table leaves out corrupt rows, and s counts them.
func ReadCSV(s *Skipped, path string, header bool) (*Table, error) {
	return readFile(path, func(from *source) (*Table, error) { return decodeCSV(s, header, from) })
}

func decodeCSV(skipped *Skipped, header bool, s *source) (*Table, error) {
	if bom, _ := s.reader.Peek(3); string(bom) == byteOrderMark {
		s.reader.Discard(3) // cannot fail, because Peek has buffered these bytes
	}
	r := records{csv.NewReader(&bounded{from: s, left: maxBytes}), s.name}
	r.ReuseRecord = true
	t := &Table{}
	for number := 0; ; number++ {
		record, err := r.Read()
		if err == io.EOF {
			break
		}
		var syntax *csv.ParseError
		if err != nil && !errors.As(err, &syntax) {
			return nil, r.named(err) // a read error and not a malformed row, so nothing more can be read from the file
		}
		if err == nil && (number > 0 || !header) {
			err = t.append(r, record)
		}
		if err = r.named(err); err != nil && !skipped.skips(err) {
			return nil, err
		}
	}
	if len(t.Values) == 0 {
		return nil, s.fault("no rows of values")
	}
	return t, nil
}

// bounded is a reader that fails after a given number of bytes.
type bounded struct {
	from io.Reader
	left int64 // number of bytes that may still be read
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("more than the %d bytes that are read at most", int64(maxBytes))
	}
	return n, err
}

// append adds a CSV record as a row of the table. The csv.Reader has already
// checked that the record is as long as the first one.
func (t *Table) append(r records, record []string) error {
	before := len(t.Values)
	for column, field := range record {
		x, err := parseNumber(field)
		if err != nil {
			t.Values = t.Values[:before]
			line, _ := r.FieldPos(column)
			return &formatError{file: r.file, line: line, cause: fmt.Errorf("column %d: %w", column, err)}
		}
		t.Values = append(t.Values, x)
	}
	t.Width = len(record)
	return nil
}

func parseNumber(field string) (float32, error) {
	field = strings.TrimSpace(field)
	x, err := strconv.ParseFloat(field, 32)
	switch {
	case field == "":
		return 0, errors.New("empty, want a number")
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%.40q does not fit into float32", field)
	case err != nil:
		return 0, fmt.Errorf("%.40q is no number", field)
	case math.IsNaN(x) || math.IsInf(x, 0):
		return 0, fmt.Errorf("%.40q is not finite", field)
	}
	return float32(x), nil
}

// records reads the records of a CSV file and knows the file's name for error
// messages.
type records struct {
	*csv.Reader
	file string
}

// named adds the file's name to an error of encoding/csv, whose parse errors
// have only a line number.
func (r records) named(err error) error {
	var syntax *csv.ParseError
	if errors.As(err, &syntax) {
		return &formatError{file: r.file, line: syntax.Line, cause: syntax.Err}
	}
	var ours *formatError
	if err == nil || errors.As(err, &ours) {
		return err
	}
	return fmt.Errorf("%s: %w", r.file, err)
}

// sumOf returns a CRC-32C checksum of the numbers. The checksum does not
// depend on the host's byte order.
func sumOf(values []float32) (sum uint32) {
	var b [1 << 12]byte
	for len(values) > 0 {
		n := min(len(values), len(b)/4)
		for i, x := range values[:n] {
			binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(x))
		}
		sum, values = crc32.Update(sum, castagnoli, b[:4*n]), values[n:]
	}
	return sum
}
