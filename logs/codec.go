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

// Reader takes chunks off the stream that [Serve] wrote. One goroutine may use
// it at a time.
type Reader struct {
	r     *bufio.Reader
	begun bool   // the magic and the version were read
	err   error  // what Next returns from now on; nil means that Next reads on
	whole bool   // a whole record was read
	data  []byte // memory of the last chunk's Data

	scratch [headerSize + maxTask]byte
}

// The wire: four bytes of magic and version, then records. A record has a
// header of 24 bytes
//
//	0 kind  1 stream  2 length of the task's name  3 flags
//	4 length of the data, 4 bytes
//	8 offset, 8 bytes  16 time in ns since 1970, 8 bytes
//
// (numbers little-endian), then the name, then the data. Dropped bytes are such a record
// too; its data is their number, 8 bytes. A keep-alive and the end record are bare
// headers of zeros behind their kind.
const (
	magic      = "plg\x01"
	headerSize = 24
	maxData    = 256 << 10 // what a Reader takes
	sendData   = 32 << 10  // what Serve sends: what is received in part is lost with a connection

	kindChunk     = 1
	kindKeepAlive = 2
	kindEnd       = 3
	kindDropped   = 4

	flagRestart = 1
)

// NewReader returns a Reader of r. It reads ahead of what it returns.
func NewReader(r io.Reader) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10)}
}

// ErrMalformed is the error of bytes that no Serve of this version wrote.
var ErrMalformed = errors.New("log stream")

// Brought reports whether anything has come whole, be it that there is nothing new.
func (r *Reader) Brought() bool { return r.whole }

// Next returns the next chunk; its Data is valid until the next call. The
// error is io.EOF itself when the sender has sent all it had to send,
// io.ErrUnexpectedEOF when the stream was cut before that, an [ErrMalformed] when
// the bytes are not of this protocol. It is returned again ever after.
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

// begin reads the magic and the version once.
func (r *Reader) begin() error {
	if r.begun {
		return nil
	}
	var b [len(magic)]byte
	if err := r.fill(b[:]); err != nil {
		return err
	}
	if string(b[:3]) != magic[:3] {
		return fmt.Errorf("%w: begins with %q, not with plx's mark", ErrMalformed, b[:])
	}
	if b[3] != magic[3] {
		return fmt.Errorf("%w: version %d, this plx speaks %d", ErrMalformed, b[3], magic[3])
	}
	r.begun = true
	return nil
}

// chunk reads the rest of a chunk whose header is h. Every length is checked
// before it is used.
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
		return Chunk{}, fmt.Errorf("%w: chunk out of bounds", ErrMalformed)
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

// gap returns the dropped bytes of which c tells.
func (c Chunk) gap() (Chunk, error) {
	if len(c.Data) != 8 || c.Restart {
		return Chunk{}, fmt.Errorf("%w: malformed record of dropped bytes", ErrMalformed)
	}
	c.Dropped, c.Data = int64(binary.LittleEndian.Uint64(c.Data)), nil
	if c.Dropped <= 0 || c.Dropped > math.MaxInt64-maxData-c.Offset {
		return Chunk{}, fmt.Errorf("%w: dropped bytes out of bounds", ErrMalformed)
	}
	return c, nil
}

// fill reads len(b) bytes. Only the end record may end the stream.
func (r *Reader) fill(b []byte) error {
	_, err := io.ReadFull(r.r, b)
	if err == io.EOF { // one that is wrapped says more
		return io.ErrUnexpectedEOF
	}
	return err
}

// writeChunk encodes c, whose Data is at most maxData long.
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
	// A bufio.Writer keeps its first error for the last write.
	w.Write(h[:])
	w.WriteString(c.Task)
	_, err := w.Write(c.Data)
	return err
}

// writeMark encodes a record that is a bare header.
func writeMark(w *bufio.Writer, kind byte) error {
	_, err := w.Write([]byte{headerSize - 1: 0, 0: kind})
	return err
}

// Merge takes all hosts' chunks to their ends, with a function for each that is
// like [Reader.Next], and emits them in order of time, as far as the hosts'
// clocks agree; chunks of one host keep their order, and the next is asked for
// once the one before was emitted. It waits for the slowest host, so it is for
// requests without Follow.
//
// A host whose chunks end with an error does not stop the others. Merge returns
// each host's error, nil for the good ones; that of emit, which ends it, is the
// error of the host whose chunk it was.
func Merge(hosts []func() (Chunk, error), emit func(host int, c Chunk) error) []error {
	errs := make([]error, len(hosts))
	heads := make([]*Chunk, len(hosts)) // the next chunk of each host, nil after its last
	advance := func(i int) {
		heads[i] = nil
		switch c, err := hosts[i](); err {
		case nil:
			heads[i] = &c
		case io.EOF: // others may wrap it
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
		advance(oldest) // not before emit is done: reading on takes its bytes away
	}
}
