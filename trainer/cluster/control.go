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

// ControlVersion is the version of the messages on the control channel,
// between a task and its agent. The agent refuses a task whose hello message
// has another version.
const ControlVersion = 3

// ControlKind is the kind of a control message.
type ControlKind string

// Messages that a task sends to its agent.
const (
	Hello         ControlKind = "hello"     // first message of a task; has the field Version
	Heartbeat     ControlKind = "heartbeat" // the task is alive; has the fields Step and From
	Failed        ControlKind = "failed"    // the task is about to exit after an error; has the fields Cause, Step and From, and Peer if another task caused the error
	Finished      ControlKind = "finished"  // the task has done its work and will exit with status 0; has the fields Step and From
	ToleratesLoss ControlKind = "bears"     // sent by the chief (worker 0): from now on the job continues even if another worker is lost
)

// Messages that an agent sends to its task. The chief (worker 0) replies to
// Checkpoint, and any task to Stacks, with a message of the same kind.
const (
	Stop       ControlKind = "stop"       // the task must exit in an orderly way now
	Checkpoint ControlKind = "checkpoint" // the chief must save a checkpoint at the end of the current step; the package documentation describes the replies
	Resume     ControlKind = "resume"     // the chief must continue training, if it paused (field Hold) for the request with this number or an earlier one
	Stacks     ControlKind = "stacks"     // the task must send the stacks of all goroutines; its replies have the same kind and Request number
)

// ControlMessage is a message between a task and its agent on the control
// channel.
type ControlMessage struct {
	Kind    ControlKind `json:"kind"`
	Version int         `json:"version,omitempty"` // in a Hello: the task's ControlVersion; 0 in all other messages
	Step    int64       `json:"step,omitempty"`    // number of steps done; in a reply to Checkpoint, number of steps in the saved checkpoint, or 0 if none was saved
	From    int64       `json:"from,omitempty"`    // number of steps that were done when the current generation (run of all tasks since the last restart) began
	Loss    string      `json:"loss,omitempty"`    // in a message with Step: the loss of the last step, such as 0.31 or NaN; empty means that it is not known
	Saved   int64       `json:"saved,omitempty"`   // sent by the chief with Step: number of steps in the newest checkpoint that this run has completed; 0 means none yet
	Cause   string      `json:"cause,omitempty"`   // why the task fails, or why it could not save a checkpoint; empty in all other messages
	Peer    string      `json:"peer,omitempty"`    // the task that caused the failure, such as "worker:1 on gpu02"; empty means none

	Text string `json:"text,omitempty"` // in a reply to Stacks: the next part of the text of the goroutine stacks
	More bool   `json:"more,omitempty"` // in a reply to Stacks: true if another reply with the next part follows

	// The fields below belong to Checkpoint and Resume messages. Request is
	// also set in Stacks messages.
	Request int           `json:"request,omitempty"` // number of the request; a reply has the number of its request
	Hold    bool          `json:"hold,omitempty"`    // in a request: after the checkpoint, do no step until Resume or Stop arrives
	Workers int           `json:"workers,omitempty"` // in a request with Hold: number of workers with which the job will continue
	Leaving string        `json:"leaving,omitempty"` // in a request with Hold: names of the tasks that will leave the job, separated by spaces
	Held    time.Duration `json:"held,omitempty"`    // in a reply: how long the chief had been paused when the checkpoint was written
}

// maxControl is the maximum number of bytes of an encoded message. Without
// this limit, a faulty task could make its agent allocate any amount of
// memory.
const maxControl = 64 << 10

// sendTimeout is the time limit of one Send. The receiver reads continuously,
// so a channel that accepts no bytes for this long is broken.
const sendTimeout = 10 * time.Second

// Control is one end of the control channel between a task and its agent. Any
// goroutine may call Send. Only one goroutine at a time may call Receive.
type Control struct {
	conn net.Conn
	mu   sync.Mutex
	torn error // the error of a Send that sent only part of a message; every later Send fails with it; nil if there was none
}

// newControl returns a Control that sends and receives on conn, and that
// closes conn.
func newControl(conn net.Conn) *Control { return &Control{conn: conn} }

// ControlPair creates a control channel. It returns the agent's end, and the
// file that the task inherits as its end. The caller must close both.
func ControlPair() (*Control, *os.File, error) {
	fds, err := socketpair()
	if err != nil {
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "control")
	defer ours.Close() // FileConn has duplicated this descriptor
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close() // an error of Close does not matter: nothing was written
		return nil, nil, fmt.Errorf("control channel: %w", err)
	}
	return newControl(conn), theirs, nil
}

// socketpair returns two connected sockets. It holds ForkLock until both are
// close-on-exec, so that no child process of another goroutine inherits them.
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

// Control opens the task's end of the control channel, which the task has
// inherited.
func (c Contract) Control() (*Control, error) {
	f, err := inherited(c.ControlFD, "PLX_CONTROL_FD")
	if err != nil {
		return nil, err
	}
	defer f.Close() // FileConn has duplicated this descriptor
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("PLX_CONTROL_FD=%d: %w", c.ControlFD, err)
	}
	return &Control{conn: conn}, nil
}

// Send writes one message. It fails if the receiver does not read the message
// within sendTimeout.
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
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	n, err := c.conn.Write(frame)
	if err != nil && n > 0 {
		c.torn = err
	}
	return err
}

// Receive reads one message. It blocks until a message arrives, the process at
// the other end closes the channel (io.EOF), or Close is called.
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
		// Receive returns io.EOF only for a channel that ends between two
		// messages.
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return m, fmt.Errorf("control message cut short: %w", err)
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return m, fmt.Errorf("control message: %w", err)
	}
	return m, nil
}

// Close closes the channel. A blocked Receive then returns an error.
func (c *Control) Close() error { return c.conn.Close() }

// inherited returns the inherited socket whose descriptor number fd comes from
// the environment variable name. It marks the descriptor close-on-exec, so
// that no child of the task inherits it. A child inherits the environment
// variable but not the socket, and may have another file at this number. So
// inherited refuses a descriptor that is not a socket.
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
