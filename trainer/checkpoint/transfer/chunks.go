package transfer

import (
	"fmt"
	"io"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const (
	chunkSize = 1 << 20 // bytes of a file in one frame, at most
	maxFile   = 1 << 50 // bytes
)

// sendChunks sends length bytes of a file from offset on.
func sendChunks(s *peers.Session, w *watch, from io.ReaderAt, offset, length int64) error {
	buffer := make([]byte, min(length, chunkSize))
	for length > 0 {
		b := buffer[:min(length, chunkSize)]
		if n, err := from.ReadAt(b, offset); n < len(b) {
			return fmt.Errorf("read: %w", err)
		}
		if err := s.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: uint64(offset)}, Payload: b}); err != nil {
			return err
		}
		w.extend(0)
		offset, length = offset+int64(len(b)), length-int64(len(b))
	}
	return nil
}

// receiveChunk reads the next chunk, which must begin at an offset of the file,
// into b and returns its length.
func receiveChunk(s *peers.Session, offset int64, b []byte) (int, error) {
	h, err := s.Next()
	if err != nil {
		return 0, err
	}
	if h.Kind != wire.Chunk || h.Offset != uint64(offset) || h.Length == 0 || h.Length > uint64(min(len(b), chunkSize)) {
		return 0, fmt.Errorf("unexpected %s frame of %d bytes from %d on, want a chunk from %d on", h.Kind, h.Length, h.Offset, offset)
	}
	return int(h.Length), s.Payload(b[:h.Length])
}

// receiveFile writes size bytes that come as chunks.
func receiveFile(s *peers.Session, w *watch, to io.Writer, size int64) error {
	buffer := make([]byte, min(size, chunkSize))
	for at := int64(0); at < size; {
		n, err := receiveChunk(s, at, buffer[:min(size-at, chunkSize)])
		if err != nil {
			return err
		}
		w.extend(0)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}
