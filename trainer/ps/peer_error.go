package ps

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
	Addr string // where it was seen
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("%s (%s): %v", e.Task, e.Addr, e.Err) }

func (e *PeerError) Unwrap() error { return e.Err }

// lost puts what the operating system says about a dead connection in words.
func lost(err error) error {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection lost: closed by the peer")
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed),
		errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("connection lost: %w", err)
	}
	return err
}

// report is the payload of an error frame.
type report struct {
	Cause string        `json:"cause"`
	Peer  *cluster.Task `json:"peer,omitempty"`
	Addr  string        `json:"addr,omitempty"`
}

func encodeReport(err error) []byte {
	r := report{Cause: cut(err.Error())}
	var peer *PeerError
	if errors.As(err, &peer) {
		r = report{Cause: cut(peer.Err.Error()), Peer: &peer.Task, Addr: peer.Addr}
	}
	body, err := json.Marshal(r)
	if err != nil {
		return []byte(`{"cause":"unknown"}`) // only texts inside; cannot happen
	}
	return body
}

// cut keeps a report below maxReport, however its text is encoded.
func cut(text string) string { return text[:min(len(text), maxReport/8)] }

// receiveReport reads the payload of an error frame. told is what it says.
func receiveReport(conn *wire.Conn, h wire.Header) (told, err error) {
	if h.Length > maxReport {
		return nil, fmt.Errorf("error report of %d bytes", h.Length)
	}
	body := make([]byte, h.Length)
	if err := conn.Payload(body); err != nil {
		return nil, err
	}
	return decodeReport(body), nil
}

func decodeReport(body []byte) error {
	var r report
	if err := json.Unmarshal(body, &r); err != nil {
		return fmt.Errorf("unreadable error report: %w", err)
	}
	if r.Peer == nil {
		return errors.New(r.Cause)
	}
	return &PeerError{Task: *r.Peer, Addr: r.Addr, Err: errors.New(r.Cause)}
}
