package logs

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Reader decodes the stream of log chunks that [Serve] wrote. Only one
// goroutine may use a Reader at a time.
type Reader struct {
	r     *bufio.Reader
	begun bool   // true after Next has read the magic bytes and the version
	err   error  // error that Next returns from now on; nil before the first error
	whole bool   // true after Next has read one complete record
	data  []byte // buffer of the last chunk's Data, reused by the next chunk

	scratch [headerSize + maxTask]byte
}

// The wire format of a log stream: three bytes of magic and one byte of
// version, then records. A record has a header of 24 bytes
//
//	0 kind  1 stream  2 length of the task's name  3 flags
//	4 length of the data, 4 bytes
//	8 offset, 8 bytes  16 time in ns since 1970, 8 bytes
//
// (numbers are little-endian), followed by the task's name and the data. A
// record of dropped bytes has the same form, and its data is the number of
// dropped bytes (8 bytes). A keep-alive record and the end record are headers
// that are zero except for the kind.
const (
	magic      = "plg\x01"
	headerSize = 24
	maxData    = 256 << 10 // longest data of a record that a Reader accepts, in bytes
	sendData   = 32 << 10  // longest data that Serve sends, in bytes; short, because a record is lost if its connection breaks halfway

	kindChunk     = 1
	kindKeepAlive = 2
	kindEnd       = 3
	kindDropped   = 4

	flagRestart = 1
)

// NewReader returns a Reader that decodes the log stream r. It buffers, so it
// may read more of r than it returns.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// ErrMalformed reports bytes that are not a valid log stream of this version.
var ErrMalformed = errors.New("log stream")

// Received reports whether Next has read at least one complete record, even a
// mere keep-alive.
func (r *Reader) Received() bool { return r.whole }

// Next returns the next chunk, whose Data is valid until the next call. The
// error is io.EOF itself after the end record, which [Serve] writes last. It
// is io.ErrUnexpectedEOF if the stream ends before that record. It is
// [ErrMalformed] if the bytes are not a valid log stream. After an error, Next
// returns the same error again.
func (r *Reader) Next() (c Chunk, err error) {
	if r.err == nil {
		c, r.err = r.next()
	}
	if r.err != nil {
		return Chunk{}, r.err
	}
	r.whole = true
	return c, nil
}

func (r *Reader) next() (Chunk, error) {
	if err := r.begin(); err != nil {
		return Chunk{}, err
	}
	header := r.scratch[:headerSize]
	for {
		if err := r.fill(header); err != nil {
			return Chunk{}, err
		}
		switch kind := header[0]; {
		case kind == kindChunk, kind == kindDropped:
			return r.chunk(header)
		case [headerSize]byte(header) != [headerSize]byte{kind}:
			return Chunk{}, fmt.Errorf("%w: malformed record of kind %d", ErrMalformed, kind)
		case kind == kindEnd:
			return Chunk{}, io.EOF
		case kind != kindKeepAlive:
			return Chunk{}, fmt.Errorf("%w: unknown record kind %d", ErrMalformed, kind)
		}
		r.whole = true
	}
}

// begin reads and checks the magic bytes and the version at the beginning of
// the stream. Later calls do nothing.
func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	var b [len(magic)]byte
	if err := r.fill(b[:]); err != nil {
		return err
	}
	if string(b[:3]) != magic[:3] {
		return fmt.Errorf("%w: begins with %q, not with plx's magic bytes", ErrMalformed, b[:])
	}
	if b[3] != magic[3] {
		return fmt.Errorf("%w: version %d, want %d", ErrMalformed, b[3], magic[3])
	}
	r.begun = true
	return nil
}

// chunk reads the task name and the data of the record whose header is h. It
// checks every length before using it.
func (r *Reader) chunk(h []byte) (Chunk, error) {
	size := binary.LittleEndian.Uint32(h[4:])
	c := Chunk{
		Source:  Source{Stream: Stream(h[1])},
		Offset:  int64(binary.LittleEndian.Uint64(h[8:])),
		Time:    time.Unix(0, int64(binary.LittleEndian.Uint64(h[16:]))),
		Restart: h[3]&flagRestart != 0,
	}
	if size > maxData || h[2] > maxTask || h[3]&^flagRestart != 0 ||
		c.Offset < 0 || c.Offset > math.MaxInt64-maxData {
		return Chunk{}, fmt.Errorf("%w: chunk with an invalid length or offset", ErrMalformed)
	}
	task := r.scratch[headerSize:][:h[2]]
	if err := r.fill(task); err != nil {
		return Chunk{}, err
	}
	c.Task = string(task)
	if err := c.Source.check(); err != nil {
		return Chunk{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if cap(r.data) < int(size) {
		r.data = make([]byte, size)
	}
	c.Data = r.data[:size]
	if err := r.fill(c.Data); err != nil || h[0] == kindChunk {
		return c, err
	}
	return c.gap()
}

// gap decodes a chunk that reports output dropped to limit the size of the
// log. It returns the chunk with the number of dropped bytes in the field
// Dropped.
func (c Chunk) gap() (Chunk, error) {
	if len(c.Data) != 8 || c.Restart {
		return Chunk{}, fmt.Errorf("%w: malformed record of dropped bytes", ErrMalformed)
	}
	c.Dropped, c.Data = int64(binary.LittleEndian.Uint64(c.Data)), nil
	if c.Dropped <= 0 || c.Dropped > math.MaxInt64-maxData-c.Offset {
		return Chunk{}, fmt.Errorf("%w: invalid number of dropped bytes", ErrMalformed)
	}
	return c, nil
}

// fill reads exactly len(b) bytes. It turns io.EOF into io.ErrUnexpectedEOF,
// because a stream must not end before these bytes.
func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.r, b)
	if err == io.EOF { // Compare with ==: a wrapped io.EOF has more detail and is returned as it is.
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeChunk encodes chunk c. The Data of c has at most maxData bytes.
func writeChunk(w *bufio.Writer, c Chunk) error {
	var h [headerSize]byte
	h[0], h[1], h[2] = kindChunk, byte(c.Stream), byte(len(c.Task))
	if c.Restart {
		h[3] = flagRestart
	}
	if c.Dropped > 0 {
		h[0], c.Data = kindDropped, binary.LittleEndian.AppendUint64(nil, uint64(c.Dropped))
	}
	binary.LittleEndian.PutUint32(h[4:], uint32(len(c.Data)))
	binary.LittleEndian.PutUint64(h[8:], uint64(c.Offset))
	binary.LittleEndian.PutUint64(h[16:], uint64(c.Time.UnixNano()))
	// Only the last error is checked, because a bufio.Writer returns its first
	// error from every later write.
	w.Write(h[:])
	w.WriteString(c.Task)
	_, err := w.Write(c.Data)
	return err
}

// writeHeaderOnly encodes a record that has a kind and no task, data or time.
func writeHeaderOnly(w *bufio.Writer, kind byte) error {
	_, err := w.Write([]byte{headerSize - 1: 0, 0: kind})
	return err
}

// Merge reads the chunks of all hosts and passes them to emit in order of
// time, as far as the hosts' clocks agree. Each function in the parameter
// hosts returns the next chunk of one host, as [Reader.Next] does. Chunks of
// one host keep their order. Merge reads the next chunk of a host only after
// emit has returned for the chunk before. Merge waits for the slowest host, so
// use it only for requests without Follow.
//
// An error from one host does not stop the others. Merge returns one error for
// each host, or nil for a host that was read to its end. An error from emit
// stops Merge and becomes the error of the host whose chunk emit received.
func Merge(hosts []func() (Chunk, error), emit func(host int, c Chunk) error) []error {
	errs := make([]error, len(hosts))
	heads := make([]*Chunk, len(hosts)) // the next chunk of each host, nil after its last
	advance := func(i int) {
		heads[i] = nil
		switch c, err := hosts[i](); err {
		case nil:
			heads[i] = &c
		case io.EOF: // The host has no more chunks. Compare with ==, because a wrapped io.EOF is a failure.
		default:
			errs[i] = err
		}
	}
	for i := range hosts {
		advance(i)
	}
	for {
		oldest := -1
		for i, c := range heads {
			if c != nil && (oldest < 0 || c.Time.Before(heads[oldest].Time)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return errs
		}
		if err := emit(oldest, *heads[oldest]); err != nil {
			errs[oldest] = err
			return errs
		}
		advance(oldest) // Call advance only after emit has returned: advance overwrites the Data of the chunk that emit receives.
	}
}
