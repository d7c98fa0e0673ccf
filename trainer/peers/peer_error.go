package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/wire"
)

// PeerError is the error of a training that ends because of another task: that
// task died, sent nothing for too long, or broke the protocol. The task that
// returns this error is not at fault itself.
type PeerError struct {
	Task cluster.Task
	Addr string // network address of the other task
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("%s (%s): %v", e.Task, e.Addr, e.Err) }

func (e *PeerError) Unwrap() error { return e.Err }

// Lost returns a readable error for an operating system's error about a broken
// connection. It returns all other errors unchanged.
func Lost(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection lost: closed by the peer")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed),
		errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("connection lost: %w", err)
	}
	return err
}

// maxReport is the maximum number of bytes of an encoded error report.
const maxReport = 64 << 10

// report is the JSON payload of an error frame.
type report struct {
	Cause string        `json:"cause"`
	Peer  *cluster.Task `json:"peer,omitempty"`
	Addr  string        `json:"addr,omitempty"`
}

// EncodeReport encodes the payload of an error frame, which reports to another
// task why training ended. If err is a [*PeerError], the report names the task
// that caused the end. It has at most maxReport bytes.
func EncodeReport(err error) []byte {
	r := report{Cause: cut(err.Error())}
	var peer *PeerError
	if errors.As(err, &peer) && peer.Task.Role != "" {
		r = report{Cause: cut(peer.Err.Error()), Peer: &peer.Task, Addr: cut(peer.Addr)}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(`{"cause":"unknown"}`) // happens only if the task's role is invalid
	}
	return body
}

// cut shortens a text so that a report stays below maxReport bytes, even if
// JSON encodes each byte of the text as six bytes.
func cut(text string) string { return text[:min(len(text), maxReport/16)] }

// DecodeReport decodes what EncodeReport has written. The result is a
// [*PeerError] if the encoded error was one, and is never nil.
func DecodeReport(body []byte) error {
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("unreadable error report: %w", err)
	}
	if r.Peer == nil {
		return errors.New(r.Cause)
	}
	return &PeerError{Task: *r.Peer, Addr: r.Addr, Err: errors.New(r.Cause)}
}

// ReadReport reads and decodes the payload of an error frame with header h
// from conn. reported is the error that the peer reports; err is an error of
// reading.
func ReadReport(conn *wire.Conn, h wire.Header) (reported, err error) {
	if h.Length > maxReport {
		return nil, fmt.Errorf("error report of %d bytes", h.Length)
	}
	body := make([]byte, h.Length)
	if err := conn.Payload(body); err != nil {
		return nil, err
	}
	return DecodeReport(body), nil
}
