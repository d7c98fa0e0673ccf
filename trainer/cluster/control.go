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

// ControlVersion is the version of the control channel's messages. An agent refuses a
// task of another version at its hello.
const ControlVersion = 3

// ControlKind says what a control message means.
type ControlKind string

// Messages of a task to its agent.
const (
	Hello         ControlKind = "hello"     // the first one; with Version
	Heartbeat     ControlKind = "heartbeat" // the task is alive; with Step and From
	Failed        ControlKind = "failed"    // it is about to exit; with Cause, Step, From, and Peer if a peer is to blame
	Finished      ControlKind = "finished"  // it has done its work and will exit with status 0; with Step and From
	ToleratesLoss ControlKind = "bears"     // chief: from now on the job goes on if another worker is lost
)

// Messages of an agent to its task. Checkpoint is also the chief's answer, Stacks any task's.
const (
	Stop       ControlKind = "stop"       // end now, in good order
	Checkpoint ControlKind = "checkpoint" // save at the next step boundary; see the package's documentation
	Resume     ControlKind = "resume"     // go on, if held by Request or an earlier one
	Stacks     ControlKind = "stacks"     // send the stacks of all goroutines; answered in pieces of the same kind and Request
)

// ControlMessage is one message on the control channel.
type ControlMessage struct {
	Kind    ControlKind `json:"kind"`
	Version int         `json:"version,omitempty"` // in a Hello: the task's ControlVersion; 0 in others
	Step    int64       `json:"step,omitempty"`    // steps made; in an answer to Checkpoint, steps saved; 0 means none
	From    int64       `json:"from,omitempty"`    // number of steps made before the task's generation began
	Loss    string      `json:"loss,omitempty"`    // with Step: the loss of the last step, such as 0.31 or NaN; empty: not known
	Saved   int64       `json:"saved,omitempty"`   // with Step, of the chief: number of steps in the newest checkpoint that this run has completed; 0: none
	Cause   string      `json:"cause,omitempty"`   // why the task fails or has no checkpoint; empty if it does neither
	Peer    string      `json:"peer,omitempty"`    // the task that it blames, as "worker:1 on gpu02"; empty means none

	Text string `json:"text,omitempty"` // in an answer to Stacks: the next piece
	More bool   `json:"more,omitempty"` // in an answer to Stacks: another piece follows

	// These belong to Checkpoint and Resume; Request to Stacks too.
	Request int           `json:"request,omitempty"` // number of the request, also in its answer
	Hold    bool          `json:"hold,omitempty"`    // request: take no step after saving until Resume or Stop
	Workers int           `json:"workers,omitempty"` // with Hold: number of workers with which the job will go on
	Leaving string        `json:"leaving,omitempty"` // with Hold: tasks that will leave, separated by spaces
	Held    time.Duration `json:"held,omitempty"`    // answer: how long the chief had held when the checkpoint was written
}

// maxControl bounds an encoded message in bytes, so that a faulty task cannot make its
// agent allocate more.
const maxControl = 64 << 10

// controlWrite bounds one Send. The other side reads all the time, so a channel that
// takes no bytes for this long is dead.
const controlWrite = 10 * time.Second

// Control is one end of the control channel. Any goroutine may call Send; one at a
// time may call Receive.
type Control struct {
	conn net.Conn
	mu   sync.Mutex
	torn error // error that left a message sent in part, so that nothing can follow it; nil means none
}

// newControl returns the end of a control channel whose messages travel on conn. The
// Control owns conn.
func newControl(conn net.Conn) *Control { return &Control{conn: conn} }

// ControlPair returns the agent's end of a new control channel and the file that the
// task inherits. The caller closes both.
func ControlPair() (*Control, *os.File, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn works on its own copy
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close() // nothing was written to it
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	return newControl(conn), theirs, nil
}

// socketpair returns two connected descriptors. Both are close-on-exec before another
// goroutine can fork.
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
	return &Control{conn: conn}, nil
}

// Send writes one message, in bounded time.
func (c *Control) Send(m ControlMessage) error {
	body, err := json.Marshal(m)
	if err == nil && len(body) > maxControl {
		err = fmt.Errorf("%d bytes, at most %d fit", len(body), maxControl)
	}
	if err == nil {
		err = c.write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(body))), body...))
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

func (c *Control) write(frame []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.torn != nil {
		return fmt.Errorf("an earlier message was sent in part: %w", c.torn)
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(controlWrite)); err != nil {
		return err
	}
	n, err := c.conn.Write(frame)
	if err != nil && n > 0 {
		c.torn = err
	}
	return err
}

// Receive reads one message. It blocks until one comes, the other side is gone
// (io.EOF) or Close is called.
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
		if err == io.EOF { // io.EOF means an end between two messages
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

// inherited returns the descriptor that a variable names. It marks it close-on-exec, so
// that no child of the task keeps it. In a child that inherits only the variable, the
// number can mean any descriptor; inherited refuses one that is no socket.
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
