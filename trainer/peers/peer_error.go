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

// PeerError says that training ended because of another task: it died, went
// silent or broke the protocol. The task that returns it is a victim.
type PeerError struct {
	Task cluster.Task
	Addr string // address at which the task was seen
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("%s (%s): %v", e.Task, e.Addr, e.Err) }

func (e *PeerError) Unwrap() error { return e.Err }

// Lost puts what the operating system says about a dead connection in words.
// Other errors it returns as they are.
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

// maxReport bounds an encoded report, in bytes.
const maxReport = 64 << 10

// report is the payload of an error frame.
type report struct {
	Cause string        `json:"cause"`
	Peer  *cluster.Task `json:"peer,omitempty"`
	Addr  string        `json:"addr,omitempty"`
}

// EncodeReport makes the payload of an error frame that tells another task
// why training ended, and through whom if err is a [*PeerError]. It has at
// most maxReport bytes.
func EncodeReport(err error) []byte {
	r := report{Cause: cut(err.Error())}
	var peer *PeerError
	if errors.As(err, &peer) && peer.Task.Role != "" {
		r = report{Cause: cut(peer.Err.Error()), Peer: &peer.Task, Addr: cut(peer.Addr)}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(`{"cause":"unknown"}`) // a role that cannot be written
	}
	return body
}

// cut keeps a report below maxReport: JSON writes a byte as six at most.
func cut(text string) string { return text[:min(len(text), maxReport/16)] }

// DecodeReport is what EncodeReport was given, in words: a [*PeerError] when
// that was one. It never returns nil.
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

// ReadReport reads the payload of an error frame whose header h came from
// conn. told is what it says.
func ReadReport(conn *wire.Conn, h wire.Header) (told, err error) {
	if h.Length > maxReport {
		return nil, fmt.Errorf("error report of %d bytes", h.Length)
	}
	body := make([]byte, h.Length)
	if err := conn.Payload(body); err != nil {
		return nil, err
	}
	return DecodeReport(body), nil
}
