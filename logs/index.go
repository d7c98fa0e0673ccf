package logs

import (
	"encoding/binary"
	"errors"
	"io"
	"sort"
)

// indexExt is appended to a spool's name for its index.
const indexExt = ".index"

// record gives the time at which the bytes from offset on were written. In the
// file it is two little-endian 64-bit words: the offset, whose top bit is the
// restart mark, and the time. Offsets and times never fall.
type record struct {
	offset  int64 // in bytes
	time    int64 // nanoseconds since 1970
	restart bool  // a new generation of the task begins here
}

const (
	recordSize  = 16
	restartMark = 1 << 63
)

func (r record) append(b []byte) []byte {
	offset := uint64(r.offset)
	if r.restart {
		offset |= restartMark
	}
	b = binary.LittleEndian.AppendUint64(b, offset)
	return binary.LittleEndian.AppendUint64(b, uint64(r.time))
}

func decodeRecord(b []byte) record {
	offset := binary.LittleEndian.Uint64(b)
	return record{
		offset:  int64(offset &^ restartMark),
		time:    int64(binary.LittleEndian.Uint64(b[8:])),
		restart: offset&restartMark != 0,
	}
}

// readRecords reads whole records of an index from record n on, as many as fit
// into buf. It leaves an incomplete last record for later.
func readRecords(index io.ReaderAt, n int64, buf []byte) ([]record, error) {
	got, err := index.ReadAt(buf[:len(buf)/recordSize*recordSize], n*recordSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	recs := make([]record, 0, got/recordSize)
	for i := 0; i+recordSize <= got; i += recordSize {
		recs = append(recs, decodeRecord(buf[i:]))
	}
	return recs, nil
}

// searchRecords returns the number of the first of n records for which after is
// true, or n. If after is true for a record, it must be true for all later ones.
func searchRecords(index io.ReaderAt, n int64, after func(record) bool) (int64, error) {
	var buf [recordSize]byte
	var failed error
	found := sort.Search(int(n), func(i int) bool {
		if _, err := index.ReadAt(buf[:], int64(i)*recordSize); err != nil {
			failed = err
			return true
		}
		return after(decodeRecord(buf[:]))
	})
	return int64(found), failed
}
