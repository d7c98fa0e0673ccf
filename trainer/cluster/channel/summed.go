package channel

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
)

// Format of a record, with little-endian numbers:
//
//	0 length u32, 1..maxRecord   4 CRC-32C of the length   8 data   CRC-32C of the data
//
// The length has a checksum of its own. So the reader detects a changed length
// at once, and does not wait for data that was never sent.
const (
	maxRecord = 256 << 10
	headSize  = 8
	tailSize  = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksummed is a connection that carries records with checksums. Each written
// buffer becomes one record, or several if it is long. Read returns a record's
// last byte only if the checksum of the whole record is right.
type checksummed struct {
	net.Conn
	ends ends
	in   *bufio.Reader
	left int    // number of bytes of the current record that are not read yet
	sum  uint32 // checksum of those bytes of the current record that were already read
	err  error  // first error of Read, which every later Read returns

	write         sync.Mutex  // held during a write; guards the fields headsAndTails and iovec
	headsAndTails []byte      // lengths and checksums of all records of one write, which come before (head) and after (tail) each record's data
	iovec         net.Buffers // buffers that one write sends: heads, data and tails
}

func newChecksummed(conn net.Conn, between ends) *checksummed {
	return &checksummed{Conn: conn, ends: between, in: bufio.NewReaderSize(conn, 16<<10)}
}

// NetConn returns the connection that carries the records.
func (c *checksummed) NetConn() net.Conn { return c.Conn }

// CloseWrite closes the connection for writing: the peer then reads io.EOF
// after the last record.
func (c *checksummed) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("%T cannot be closed for writing only", c.Conn)
	}
	return half.CloseWrite()
}

// Read reads data of the current record only, even if b has room for more.
func (c *checksummed) Read(b []byte) (int, error) {
	if c.err != nil || len(b) == 0 {
		return 0, c.err
	}
	if c.left == 0 {
		if c.err = c.begin(); c.err != nil {
			return 0, c.err
		}
	}
	n, err := c.in.Read(b[:min(len(b), c.left)])
	c.sum = crc32.Update(c.sum, castagnoli, b[:n])
	c.left -= n
	switch {
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	case err == nil && c.left == 0:
		err = c.end()
	}
	if err != nil {
		c.err = err
		return 0, c.err
	}
	return n, nil
}

// begin reads the head of the next record: its length and the length's
// checksum.
func (c *checksummed) begin() error {
	var head [headSize]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return err
	}
	if crc32.Checksum(head[:4], castagnoli) != binary.LittleEndian.Uint32(head[4:]) {
		return c.ends.changed()
	}
	length := binary.LittleEndian.Uint32(head[:])
	if length == 0 || length > maxRecord {
		return fmt.Errorf("record of %d bytes: want 1 to %d", length, maxRecord)
	}
	c.left, c.sum = int(length), 0
	return nil
}

// end reads the tail of the current record, which is the checksum of its data.
// It returns an error if the checksum is wrong.
func (c *checksummed) end() error {
	var tail [tailSize]byte
	_, err := io.ReadFull(c.in, tail[:])
	switch {
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	case err == nil && c.sum != binary.LittleEndian.Uint32(tail[:]):
		return c.ends.changed()
	}
	return err
}

// Write sends b in one record, or in several if b is long.
func (c *checksummed) Write(b []byte) (int, error) {
	n, err := c.WriteBuffers(b)
	return int(n), err
}

// WriteBuffers sends all buffers in one system call. After an error it returns
// 0, although part of the data may have been sent.
func (c *checksummed) WriteBuffers(buffers ...[]byte) (int64, error) {
	c.write.Lock()
	defer c.write.Unlock()
	c.headsAndTails, c.iovec = c.headsAndTails[:0], c.iovec[:0]
	records, total := 0, int64(0)
	for _, b := range buffers {
		records += (len(b) + maxRecord - 1) / maxRecord
		total += int64(len(b))
	}
	if need := records * (headSize + tailSize); cap(c.headsAndTails) < need {
		c.headsAndTails = make([]byte, 0, need) // allocate the maximum now: a later reallocation would move headsAndTails, to which iovec points
	}
	for _, b := range buffers {
		for len(b) > maxRecord {
			c.record(b[:maxRecord])
			b = b[maxRecord:]
		}
		if len(b) > 0 {
			c.record(b)
		}
	}
	whole := c.iovec
	_, err := c.iovec.WriteTo(c.Conn) // WriteTo removes from c.iovec the buffers that it has sent
	clear(whole)
	c.iovec = whole[:0]
	if err != nil {
		return 0, err
	}
	return total, nil
}

// fault injects faults in tests. If it returns an error, the code at the given
// place simulates a failure. Only builds with the tag failpoint set it.
var fault = func(place string) error { return nil }

// record appends a record with the data b to iovec. The caller holds c.write.
func (c *checksummed) record(b []byte) {
	from := len(c.headsAndTails)
	c.headsAndTails = binary.LittleEndian.AppendUint32(c.headsAndTails, uint32(len(b)))
	c.headsAndTails = binary.LittleEndian.AppendUint32(c.headsAndTails, crc32.Checksum(c.headsAndTails[from:], castagnoli))
	c.headsAndTails = binary.LittleEndian.AppendUint32(c.headsAndTails, crc32.Checksum(b, castagnoli))
	if len(b) > 1<<10 && fault("channel.change") != nil {
		b = bytes.Clone(b)
		b[len(b)/2] ^= 1
	}
	c.iovec = append(c.iovec, c.headsAndTails[from:from+headSize], b, c.headsAndTails[from+headSize:])
}
