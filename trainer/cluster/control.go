package cluster

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// ControlVersion is the version of the control channel's messages. A task
// and an agent of different versions refuse each other at hello.
const ControlVersion = 1

// ControlKind says what a control message means.
type ControlKind string

// What a task says to its agent, and what an agent says to its task.
const (
	Hello     ControlKind = "hello"     // task: first message; Version is set
	Heartbeat ControlKind = "heartbeat" // task: alive, at Step
	Failed    ControlKind = "failed"    // task: about to exit, at Step; Cause, and Peer when a peer is to blame
	Finished  ControlKind = "finished"  // task: done with its work, will exit with 0
	Bears     ControlKind = "bears"     // chief: from now on the job goes on when another worker is lost
	Stop      ControlKind = "stop"      // agent: end now, in good order
	// Checkpoint asks the chief to save at the next step boundary, and is the
	// chief's answer, one for each that it was asked: a checkpoint of Step is
	// complete, or, with a Cause, there is none and that is why.
	Checkpoint ControlKind = "checkpoint"
	// Resume, from the agent: a chief that was asked to hold, by Request or one
	// before it, goes on.
	Resume ControlKind = "resume"
)

// ControlMessage is one message on the control channel.
type ControlMessage struct {
	Kind    ControlKind `json:"kind"`
	Version int         `json:"version,omitempty"`
	Step    int64       `json:"step,omitempty"`
	Cause   string      `json:"cause,omitempty"`
	Peer    string      `json:"peer,omitempty"`

	// Hold has a Checkpoint make the chief take no further step until Resume or
	// Stop: the job goes on with Workers workers, without the tasks of Leaving (a
	// list with spaces) and their hosts. Held, in the answer, is for how long it has been doing so,
	// and Loose that the other workers go on meanwhile.
	//
	// An answer carries the Request of what it answers.
	Request int           `json:"request,omitempty"`
	Hold    bool          `json:"hold,omitempty"`
	Workers int           `json:"workers,omitempty"`
	Leaving string        `json:"leaving,omitempty"`
	Held    time.Duration `json:"held,omitempty"`
	Loose   bool          `json:"loose,omitempty"`
}

// maxControl bounds one encoded message, so that a confused task cannot make
// its agent allocate more.
const maxControl = 64 << 10

// controlWrite bounds one Send: the other side reads all the time, so a
// channel that takes no bytes for this long is dead.
const controlWrite = 10 * time.Second

// Control is one end of the control channel. Send may be called by any
// goroutine, Receive by one at a time.
type Control struct {
	conn net.Conn
	mu   sync.Mutex
	torn error // why a message went out in part; nothing can follow it
}

// NewControl wraps one end of a connected pair. It owns conn.
func NewControl(conn net.Conn) *Control { return &Control{conn: conn} }

// ControlPair returns the agent's end of a new control channel, and the file
// that the task inherits. The caller closes both.
func ControlPair() (*Control, *os.File, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn works on its own copy
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	return NewControl(conn), theirs, nil
}

// socketpair returns two connected descriptors, both close-on-exec before any
// other goroutine can fork.
func socketpair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	return fds, err
}

// Control opens the task's end of the control channel.
func (c Contract) Control() (*Control, error) {
	f, err := inherited(c.ControlFD, "PLX_CONTROL_FD")
	if err != nil {
		return nil, err
	}
	defer f.Close() // FileConn works on its own copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("PLX_CONTROL_FD=%d: %w", c.ControlFD, err)
	}
	return NewControl(conn), nil
}

// Send writes one message, in bounded time.
func (c *Control) Send(m ControlMessage) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	if len(body) > maxControl {
		return fmt.Errorf("send %s: %d bytes, at most %d fit", m.Kind, len(body), maxControl)
	}
	frame := append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.torn != nil {
		return fmt.Errorf("send %s: an earlier message went out in part: %w", m.Kind, c.torn)
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(controlWrite)); err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	n, err := c.conn.Write(frame)
	if err != nil && n > 0 {
		c.torn = err
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

// Receive reads one message. It blocks until there is one or the other side
// is gone (io.EOF) or Close is called.
func (c *Control) Receive() (ControlMessage, error) {
	var m ControlMessage
	var size [4]byte
	if _, err := io.ReadFull(c.conn, size[:]); err != nil {
		return m, err
	}
	n := binary.LittleEndian.Uint32(size[:])
	if n > maxControl {
		return m, fmt.Errorf("control message of %d bytes, at most %d are allowed", n, maxControl)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		if err == io.EOF { // not the end between two messages that it stands for
			err = io.ErrUnexpectedEOF
		}
		return m, fmt.Errorf("control message cut short: %w", err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("control message: %w", err)
	}
	return m, nil
}

// Close ends the channel. A blocked Receive returns.
func (c *Control) Close() error { return c.conn.Close() }

// inherited returns the descriptor that the variable named, close-on-exec so
// that no child of the task keeps it. A child that inherits the variable
// alone is told so: the number may be anything there, even the runtime's own.
func inherited(fd int, name string) (*os.File, error) {
	if fd < 3 {
		return nil, fmt.Errorf("%s is not set: the task was not started by a launcher", name)
	}
	if _, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil {
		return nil, fmt.Errorf("%s=%d is not an inherited socket, or was opened before: %w", name, fd, err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), name), nil
}
