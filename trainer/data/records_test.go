package data

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// record encodes one TFRecord record.
func record(content string) []byte {
	head := binary.LittleEndian.AppendUint64(nil, uint64(len(content)))
	head = binary.LittleEndian.AppendUint32(head, maskedSum(head))
	return binary.LittleEndian.AppendUint32(append(head, content...), maskedSum([]byte(content)))
}

// The checksum must be a CRC-32C, and its masking must be reversible.
func TestMaskedSum(t *testing.T) {
	if sum := crc32.Checksum([]byte("123456789"), castagnoli); sum != 0xe3069283 { // RFC 3720's check value
		t.Fatalf("%08x", sum)
	}
	turned := maskedSum([]byte("123456789")) - 0xa282ead8
	if sum := turned>>17 | turned<<15; sum != 0xe3069283 {
		t.Errorf("unmasked it is %08x", sum)
	}
}

// The bytes of this record were computed by another program, bit by bit.
func TestRecordFormat(t *testing.T) {
	want, err := hex.DecodeString("0500000000000000eab2043e68656c6c6fbb1f1c19")
	if err != nil {
		t.Fatal(err)
	}
	d, err := OpenRecords(nil, file(t, "file", want))
	if err != nil || !slices.Equal(contents(t, d), []string{"hello"}) || !bytes.Equal(record("hello"), want) {
		t.Errorf("%v, written % x", err, record("hello"))
	}
}

func contents(t *testing.T, d Dataset[Record]) []string {
	t.Helper()
	var all []string
	for _, r := range some(t, d, 0, d.Len()) {
		all = append(all, string(r.Data))
	}
	return all
}

func TestOpenRecords(t *testing.T) {
	one, two := file(t, "1", join(record("a"), record(""), record("c"))), file(t, "2", join(record("d"), record("e")))
	empty := file(t, "3", nil)
	d, err := OpenRecords(nil, two, empty, one)
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, d); !slices.Equal(got, []string{"a", "d", "", "e", "c"}) {
		t.Errorf("%q", got)
	}
	if _, err := d.At(5); err == nil {
		t.Error("record 5 of 5")
	}
	if _, err := OpenRecords(nil, empty); err == nil || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("no records: %v", err)
	}
	changed := file(t, "1", join(record("b"), record(""), record("c")))
	if other, err := OpenRecords(nil, two, empty, changed); err != nil || Describe(other) == Describe(d) {
		t.Errorf("another file has the same description: %s, %v", Describe(d), err)
	}
}

// spoiled returns a file's content with one byte changed.
func spoiled(content []byte, at int) []byte {
	content = bytes.Clone(content)
	content[at] ^= 0x10
	return content
}

// OpenRecords must reject a false length without allocating memory for it,
// whether the length's checksum is right or not. It must detect a truncated
// file at any position.
func TestOpenRecordsErrors(t *testing.T) {
	whole := join(record("first"), record("second")) // from 0 and 21
	huge := binary.LittleEndian.AppendUint64(nil, 1<<63)
	huge = binary.LittleEndian.AppendUint32(huge, maskedSum(huge))
	for _, c := range []faulty{
		{"head", whole[:30], ": byte 21: truncated: a record begins with 12 bytes, the file has 9", ""},
		{"data", whole[:40], ": byte 21: truncated: a record of 6 bytes, the file has 3", ""},
		{"length", spoiled(whole, 22), ": byte 21: the length of a record is corrupt", ""},
		{"sum of the length", spoiled(whole, 30), ": byte 21: the length of a record is corrupt", ""},
		{"huge", join(record("a"), huge, make([]byte, 100)), ": byte 17: truncated: a record of 9223372036854775808 bytes, the file has 96", ""},
		{"packed", zip(t, spoiled(whole, 22)), ": byte 21: the length of a record is corrupt", ""},
	} {
		path := file(t, "file", c.content)
		_, err := OpenRecords(nil, path)
		var hinted interface{ Hint() string }
		if err == nil || !strings.HasPrefix(err.Error(), path+c.want) || c.hint != "" && (!errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), c.hint)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	for cut := 1; cut < len(whole); cut++ {
		if _, err := OpenRecords(nil, file(t, "file", whole[:cut])); (err == nil) != (cut == 21) {
			t.Errorf("cut to %d bytes: %v", cut, err)
		}
	}
}

// A gzip file must be decompressed, and no temporary file may be left.
func TestGzipRecords(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	content := join(record("first"), record("second"))
	plain, packed := file(t, "1", content), file(t, "2", zip(t, content))
	d, err := OpenRecords(nil, plain, packed)
	if err != nil {
		t.Fatal(err)
	}
	if got := contents(t, d); !slices.Equal(got, []string{"first", "first", "second", "second"}) {
		t.Errorf("%q", got)
	}
	checkBrokenPacking(t, content, func(path string) error { _, err := OpenRecords(nil, path); return err })
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", folder+"/none")
	if _, err := OpenRecords(nil, packed); err == nil || !strings.HasPrefix(err.Error(), packed+": unpack: ") {
		t.Errorf("no place to unpack: %v", err)
	}
}

// At must verify checksums. SkipCorrupt must skip a corrupt record. A corrupt
// length must skip the rest of its file.
func TestCorruptRecords(t *testing.T) {
	content := join(record("first"), record("second"), record("third")) // the records begin at offsets 0, 21 and 43
	path := file(t, "file", spoiled(content, 34))
	d, err := OpenRecords(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"", path + ": byte 21: the record is corrupt: the checksum of its 6 bytes is", ""} {
		if _, err := d.At(i); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("record %d: %v", i, err)
		}
	}
	s := NewSkipped(func(error) {})
	if got := contents(t, SkipCorrupt(d, s)); !slices.Equal(got, []string{"first", "third", "third"}) || s.Count() != 1 {
		t.Errorf("%q, %d skipped", got, s.Count())
	}
	var told []string
	s = NewSkipped(func(err error) { told = append(told, err.Error()) })
	d, err = OpenRecords(s, file(t, "file", spoiled(content, 22)))
	if err != nil || d.Len() != 1 || s.Count() != 1 || !strings.Contains(told[0], "byte 21: ") || !strings.Contains(told[0], "the 43 bytes from here on cannot be read") {
		t.Errorf("%v, %d skipped: %q", err, s.Count(), told)
	}
}

// However many files a dataset has, plain and compressed, only a few may be
// open. Several goroutines must read the same records as one.
func TestRecordFilesLimitOpenFiles(t *testing.T) {
	temporary, folder, most := t.TempDir(), t.TempDir(), 3
	t.Setenv("TMPDIR", temporary)
	var paths, want []string
	for i := range 20 {
		content := record(fmt.Sprintf("%02d", i))
		if i%2 == 1 {
			content = zip(t, content)
		}
		path := filepath.Join(folder, fmt.Sprint(i))
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		paths, want = append(paths, path), append(want, fmt.Sprintf("%02d", i))
	}
	check := func(when string) {
		t.Helper()
		open := 0
		all, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range all {
			if to, err := os.Readlink(name); err == nil && (strings.HasPrefix(to, folder) || strings.HasPrefix(to, temporary)) {
				open++
			}
		}
		if open < 1 || open > most+1 {
			t.Errorf("%s %d files are open, want %d and the unpacked one", when, open, most)
		}
	}
	d, err := openRecords(nil, &recordFiles{most: most}, paths)
	if err != nil {
		t.Fatal(err)
	}
	check("at the start")
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			if got := contents(t, d); !slices.Equal(got, want) {
				t.Errorf("%q", got)
			}
		})
	}
	readers.Wait()
	check("at the end")
	if err := os.Remove(paths[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := d.At(0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is gone: %v", err)
	}
}

// If a file has become shorter, reading a record must return an error, not
// io.EOF.
func TestRecordsReportAFileThatShrinks(t *testing.T) {
	path := file(t, "file", join(record("first"), record("second")))
	d, err := OpenRecords(nil, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 25); err != nil {
		t.Fatal(err)
	}
	if _, err := d.At(1); err == nil || !strings.HasPrefix(err.Error(), path+": byte 33: truncated") {
		t.Errorf("%v", err)
	}
}

// Every record that is found must be read unchanged, or fail because of its
// checksum.
func FuzzRecords(f *testing.F) {
	f.Add(join(record("first"), record(""), record("third")))
	f.Add(record("some")[:14])
	f.Add(spoiled(record("some"), 13))
	f.Add(binary.LittleEndian.AppendUint64(nil, 1<<63))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, s := range []*Skipped{nil, NewSkipped(func(err error) { checkNamed(t, err) })} {
			d, err := scanRecords(s, "fuzzed", bytes.NewReader(content), int64(len(content)))
			if checkNamed(t, err); err != nil {
				if s != nil {
					t.Fatalf("not skipped: %v", err)
				}
				continue
			}
			var again []byte
			for i := range d.Len() {
				r, err := d.At(i)
				if checkNamed(t, err); err != nil {
					return
				}
				again = append(again, record(string(r.Data))...)
			}
			if !bytes.HasPrefix(content, again) || s == nil && len(again) != len(content) {
				t.Fatalf("% x is read as % x", content, again)
			}
		}
	})
}

// broken is a file whose reads all fail with a disk error.
type broken struct{}

func (broken) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

var errDisk = fmt.Errorf("the disk is broken: %w", io.ErrNoProgress)

// A disk error must never be skipped.
func TestDiskErrorsAreNotSkipped(t *testing.T) {
	s := NewSkipped(func(error) {})
	if _, err := scanRecords(s, "file", broken{}, 100); !errors.Is(err, errDisk) || s.Count() != 0 {
		t.Errorf("%v, %d skipped", err, s.Count())
	}
}
