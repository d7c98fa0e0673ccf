package channel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net"
	"testing"
)

// encode returns the bytes that a connection with checksums sends for buffers.
func encode(t *testing.T, buffers ...[]byte) []byte {
	t.Helper()
	a, b := net.Pipe()
	go func() {
		newChecksummed(a, ends{}).WriteBuffers(buffers...) // an error shows in the comparison of the bytes
		a.Close()
	}()
	all, err := io.ReadAll(b)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// decode returns all data that a connection with checksums reads from the
// bytes b.
func decode(b []byte) ([]byte, error) {
	near, far := net.Pipe()
	go func() {
		far.Write(b) // an error does not matter: the reader may stop early
		far.Close()
	}()
	defer near.Close()
	return io.ReadAll(newChecksummed(near, ends{}))
}

// A record must have exactly these bytes.
func TestRecordFormat(t *testing.T) {
	want := []byte{3, 0, 0, 0}
	table := crc32.MakeTable(crc32.Castagnoli)
	want = binary.LittleEndian.AppendUint32(want, crc32.Checksum([]byte{3, 0, 0, 0}, table))
	want = append(want, "abc"...)
	want = binary.LittleEndian.AppendUint32(want, crc32.Checksum([]byte("abc"), table))
	if got := encode(t, nil, []byte("abc")); !bytes.Equal(got, want) {
		t.Errorf("got %x\nwant %x", got, want)
	}
}

// If any bit changes on the way, Read must fail before it returns the last
// byte of the record.
func TestChangedBitFailsTheConnection(t *testing.T) {
	sent := encode(t, []byte("header"), []byte("some payload"))
	for i := range 8 * len(sent) {
		b := bytes.Clone(sent)
		b[i/8] ^= 1 << (i % 8)
		got, err := decode(b)
		if !errors.Is(err, ErrChanged) {
			t.Errorf("bit %d of byte %d: %v", i%8, i/8, err)
		}
		if first := len("header"); i/8 < headSize+first+tailSize && len(got) >= first || len(got) >= first+len("some payload") {
			t.Errorf("bit %d of byte %d: %q was read", i%8, i/8, got)
		}
	}
}

// If a connection ends within a record, Read must return another error than
// io.EOF.
func TestPartialRecordIsAnError(t *testing.T) {
	sent := encode(t, []byte("header"), []byte("some payload"))
	first := headSize + len("header") + tailSize
	for n := range sent {
		got, err := decode(sent[:n])
		if whole := n == 0 || n == first; whole != (err == nil) || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %q, %v", n, got, err)
		}
	}
}

func FuzzSummed(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0})
	f.Add(make([]byte, 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		go func() {
			far.Write(b) // an error does not matter: the reader may stop early
			far.Close()
		}()
		defer near.Close()
		c := newChecksummed(near, ends{})
		got, err := io.ReadAll(c)
		if err != nil && len(got) > len(b) {
			t.Errorf("%d bytes came of %d", len(got), len(b))
		}
		if n, again := c.Read(make([]byte, 1)); n != 0 || again == nil {
			t.Errorf("after %v a read gives %d, %v", err, n, again)
		}
	})
}

// Read must refuse a record length that no sender uses, even if its checksum
// is right.
func TestInvalidRecordLengthsAreRefused(t *testing.T) {
	for _, n := range []uint32{0, maxRecord + 1, 1 << 31, 1<<32 - 1} {
		head := binary.LittleEndian.AppendUint32(nil, n)
		head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
		if _, err := decode(append(head, make([]byte, 100)...)); err == nil || errors.Is(err, ErrChanged) {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func BenchmarkSummed(b *testing.B) {
	benchmark(b, func(c net.Conn) net.Conn { return newChecksummed(c, ends{}) })
}
func BenchmarkBare(b *testing.B) { benchmark(b, func(c net.Conn) net.Conn { return c }) }
func BenchmarkSealed(b *testing.B) {
	first := true
	benchmark(b, func(c net.Conn) net.Conn {
		dialled := first
		first = false
		s, err := encrypt(b.Context(), c, key, dialled)
		if err != nil {
			b.Error(err)
		}
		return s
	})
}

// benchmark measures the data rate of protected connections over TCP.
func benchmark(b *testing.B, protect func(net.Conn) net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	dialled := make(chan net.Conn, 1)
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	accepted, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	defer accepted.Close()
	to := make(chan net.Conn, 1)
	dialler, acceptor := protect, protect
	go func() { dialled <- dialler(raw) }()
	from := <-after(dialled, func() { to <- acceptor(accepted) })
	reader := <-to
	header, payload, got := make([]byte, 44), make([]byte, 1<<20), make([]byte, 44+1<<20)
	b.SetBytes(int64(len(got)))
	go func() {
		for range b.N {
			if v, ok := from.(interface {
				WriteBuffers(...[]byte) (int64, error)
			}); ok {
				v.WriteBuffers(header, payload) // an error shows as a failure of the reader
				continue
			}
			buffers := net.Buffers{header, payload}
			buffers.WriteTo(from) // an error shows as a failure of the reader
		}
	}()
	b.ResetTimer()
	for range b.N {
		if _, err := io.ReadFull(reader, got); err != nil {
			b.Fatal(err)
		}
	}
}

// after runs f and returns result, the channel of a goroutine that runs at the
// same time.
func after(result <-chan net.Conn, f func()) <-chan net.Conn {
	go f()
	return result
}
