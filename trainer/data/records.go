package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
)

// Record is one record of a TFRecord file.
type Record struct {
	Data   []byte
	file   string
	offset int64 // file offset at which the record's length field begins
}

// Wrong returns an error for a record whose data is invalid, for example
// because it cannot be parsed. The error names the file and the record's
// offset, and [SkipCorrupt] treats the record as corrupt. If cause is nil,
// Wrong returns nil.
func (r Record) Wrong(cause error) error {
	if cause == nil {
		return nil
	}
	return &formatError{file: r.file, offset: r.offset, cause: cause}
}

// OpenRecords opens TFRecord files. The dataset takes records from the files
// in turn, like Interleave. OpenRecords reads only the length and the stored
// checksum of every record; At reads a record and verifies its checksum. At
// most 256 files stay open while they are not being read; At reopens the
// others.
//
// If the length of a record is corrupt, the position of the next record is
// unknown. If s is not nil, the rest of that file is then skipped and counts
// as one corrupt sample. A file compressed with gzip has no random access, so
// OpenRecords decompresses it into a temporary file that no other process can
// open. Offsets in such a file count decompressed bytes.
func OpenRecords(s *Skipped, paths ...string) (Dataset[Record], error) {
	return openRecords(s, &recordFiles{most: 256}, paths)
}

func openRecords(s *Skipped, from *recordFiles, paths []string) (Dataset[Record], error) {
	var files []Dataset[Record]
	for _, path := range paths {
		f, err := from.open(s, path)
		if err != nil {
			from.close()
			return nil, err
		}
		files = append(files, f)
	}
	d := Interleave(files...)
	if d.Len() == 0 {
		from.close()
		return nil, fmt.Errorf("read records of %q: there are none", paths)
	}
	return d, nil
}

// A TFRecord record consists of the length of its data (8 bytes), a checksum
// of the length (4 bytes), the data, and a checksum of the data (4 bytes), all
// little-endian. The checksums are masked CRC-32Cs (tensorflow/core/lib/io and
// tensorflow/core/lib/hash/crc32c.h).
const (
	recordHead = 8 + 4
	recordTail = 4
	maxRecord  = 1 << 30 // largest accepted length of a record's data, in bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedSum returns the masked CRC-32C that TFRecord files store: the CRC
// rotated right by 15 bits, plus a constant. The masking avoids the special
// results of a CRC over data that contains CRCs.
func maskedSum(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// recordFile is a dataset of the records in one TFRecord file.
type recordFile struct {
	path string
	file io.ReaderAt
	ends []int64 // for each record, the file offset after its last byte
	sum  uint32  // CRC-32C of all record lengths and stored checksums
}

// open opens a TFRecord file and finds where its records begin. It
// decompresses a gzip file into the temporary file.
func (r *recordFiles) open(s *Skipped, path string) (*recordFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.release(file)
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: want a regular file", path)
	}
	from, err := newSource(file, path)
	if err != nil {
		return nil, err
	}
	if from.size >= 0 {
		f, err := scanRecords(s, path, file, info.Size())
		if err == nil {
			f.file = reopened{r, path}
		}
		return f, err
	}
	unpacked, err := r.unpack(from)
	if err != nil {
		return nil, err
	}
	return scanRecords(s, path, unpacked, unpacked.Size())
}

// scanRecords finds where the records of a file begin. size is the file's
// length in bytes.
func scanRecords(s *Skipped, path string, file io.ReaderAt, size int64) (*recordFile, error) {
	f, sums, at := &recordFile{path: path, file: file}, crc32.New(castagnoli), int64(0)
	for at < size {
		n, err := f.scan(at, size, sums)
		if err != nil && s.skips(err) {
			break
		}
		if err != nil {
			return nil, err
		}
		at += recordHead + n + recordTail
		f.ends = append(f.ends, at)
	}
	f.sum = sums.Sum32()
	return f, nil
}

// scan reads the header of the record at file offset at and returns the length
// of the record's data in bytes. It adds the length and the stored data
// checksum to sums.
func (f *recordFile) scan(at, size int64, sums hash.Hash32) (int64, error) {
	wrong := func(format string, args ...any) error {
		return &formatError{file: f.path, offset: at, cause: fmt.Errorf(format, args...)}
	}
	left := size - at
	if left < recordHead {
		return 0, wrong("truncated: a record begins with %d bytes, the file has %d", recordHead, left)
	}
	var head [recordHead]byte
	if err := f.read(head[:], at); err != nil {
		return 0, err
	}
	if want, got := binary.LittleEndian.Uint32(head[8:]), maskedSum(head[:8]); want != got {
		return 0, wrong("the length of a record is corrupt: its checksum is %08x, want %08x; the %d bytes from here on cannot be read", got, want, left)
	}
	length := binary.LittleEndian.Uint64(head[:])
	if most := uint64(max(0, left-recordHead-recordTail)); length > most {
		return 0, wrong("truncated: a record of %d bytes, the file has %d", length, most)
	}
	if length > maxRecord {
		return 0, wrong("a record of %d bytes, at most %d are read", length, maxRecord)
	}
	var tail [recordTail]byte
	if err := f.read(tail[:], at+recordHead+int64(length)); err != nil {
		return 0, err
	}
	sums.Write(head[:8])
	sums.Write(tail[:])
	return int64(length), nil
}

// read fills b from the file, beginning at offset at.
func (f *recordFile) read(b []byte, at int64) error {
	_, err := f.file.ReadAt(b, at)
	if errors.Is(err, io.EOF) {
		return &formatError{file: f.path, offset: at, cause: fmt.Errorf("truncated: want %d bytes: the file has become shorter", len(b))}
	}
	if err != nil {
		return fmt.Errorf("byte %d: %w", at, err)
	}
	return nil
}

func (f *recordFile) Len() int { return len(f.ends) }

func (f *recordFile) Describe() string {
	return fmt.Sprintf("%d records, checksum %08x", len(f.ends), f.sum)
}

func (f *recordFile) At(i int) (Record, error) {
	if err := checkIndex(i, f.Len()); err != nil {
		return Record{}, err
	}
	r := Record{file: f.path}
	if i > 0 {
		r.offset = f.ends[i-1]
	}
	b := make([]byte, f.ends[i]-r.offset-recordHead)
	if err := f.read(b, r.offset+recordHead); err != nil {
		return Record{}, err
	}
	data, tail := b[:len(b)-recordTail], b[len(b)-recordTail:]
	if want, got := binary.LittleEndian.Uint32(tail), maskedSum(data); want != got {
		return Record{}, r.Wrong(fmt.Errorf("the record is corrupt: the checksum of its %d bytes is %08x, want %08x", len(data), got, want))
	}
	r.Data = data[:len(data):len(data)]
	return r, nil
}
