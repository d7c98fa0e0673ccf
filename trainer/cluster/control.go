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
const ControlVersion = 3

// ControlKind says what a control message means.
type ControlKind string

// What a task says to its agent, and what an agent says to its task.
const (
	Hello     ControlKind = "hello"     // task: first message; Version is set
	Heartbeat ControlKind = "heartbeat" // task: alive, at Step, having begun at From
	Failed    ControlKind = "failed"    // task: about to exit, at Step, having begun at From; Cause, and Peer when a peer is to blame
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
	// Regroup, from the agent: give the generation up, and keep the process for
	// the next one. Waiting, from the task: it has. Begin, from the agent: be the
	// task that Next describes; the listening socket comes with the message.
	Regroup ControlKind = "regroup"
	Waiting ControlKind = "waiting"
	Begin   ControlKind = "begin"
)

// ControlMessage is one message on the control channel.
type ControlMessage struct {
	Kind    ControlKind `json:"kind"`
	Version int         `json:"version,omitempty"`
	Step    int64       `json:"step,omitempty"`
	From    int64       `json:"from,omitempty"` // the steps behind which this generation went on
	Cause   string      `json:"cause,omitempty"`
	Peer    string      `json:"peer,omitempty"`

	// Hold has a Checkpoint make the chief take no further step until Resume or
	// Stop: the job goes on with Workers workers, without the tasks of Leaving (a
	// list with spaces) and their hosts. Held, in the answer, is for how long it
	// has been doing so.
	//
	// An answer carries the Request of what it answers.
	Request int           `json:"request,omitempty"`
	Hold    bool          `json:"hold,omitempty"`
	Workers int           `json:"workers,omitempty"`
	Leaving string        `json:"leaving,omitempty"`
	Held    time.Duration `json:"held,omitempty"`

	// What a Heartbeat, Failed and Finished tell of steps, beside Step and From.
	// Those of a worker are its Group's, of workers that take every step together:
	// one of Groups, of which there is one where nothing is said. Those of a server
	// are in Made: by group, how many it has applied to all that it owns. Last says
	// that the task makes no more of them and is exact about its group, or about
	// all of which it says something.
	//
	// Cut is the chief's, where not all workers are in step: how many steps of each
	// group the checkpoint holds that this generation went on from, by groups of
	// the generation that made it.
	//
	// Where there are more than MaxGroups neither list is there.
	Group  int     `json:"group,omitempty"`
	Groups int     `json:"groups,omitempty"`
	Last   bool    `json:"last,omitempty"`
	Made   []int64 `json:"made,omitzero"`
	Cut    []int64 `json:"cut,omitzero"`

	// Keeps, in Hello, says that the process can be a task of one generation
	// after the other; in Failed, that it does not exit but waits to be asked
	// to Regroup, or to Stop.
	Keeps bool  `json:"keeps,omitempty"`
	Next  *Next `json:"next,omitempty"`
}

// Next is what a process gets that becomes a task of another generation.
type Next struct {
	Environ [][]byte `json:"environ"` // NAME=VALUE, as Contract.Environ has it
	Dir     []byte   `json:"dir"`     // the working folder
}

// MaxGroups bounds Made and Cut, of which one fits into a message.
const MaxGroups = 4096

// Bounds of an encoded message, so that a confused task cannot make its agent
// allocate more. What begins a generation has the addresses of all tasks.
const (
	maxControl = 64 << 10
	maxBegin   = 1 << 20
)

// controlWrite bounds one Send: the other side reads all the time, so a
// channel that takes no bytes for this long is dead.
const controlWrite = 10 * time.Second

// Control is one end of the control channel. Send may be called by any
// goroutine, Receive by one at a time.
type Control struct {
	conn net.Conn
	most uint32 // bytes of a message that comes
	mu   sync.Mutex
	torn error // why a message went out in part; nothing can follow it
}

// NewControl wraps one end of a connected pair. It owns conn.
func NewControl(conn net.Conn) *Control { return &Control{conn: conn, most: maxControl} }

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
	return &Control{conn: conn, most: maxBegin}, nil
}

// Send writes one message, in bounded time.
func (c *Control) Send(m ControlMessage) error { return c.send(m, nil) }

// SendSocket is Send with a descriptor, of which the other side gets a copy.
func (c *Control) SendSocket(m ControlMessage, fd int) error {
	return c.send(m, syscall.UnixRights(fd))
}

func (c *Control) send(m ControlMessage, rights []byte) error {
	body, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	most := maxControl
	if m.Kind == Begin {
		most = maxBegin
	}
	if len(body) > most {
		return fmt.Errorf("send %s: %d bytes, at most %d fit", m.Kind, len(body), most)
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
	n, err := c.write(frame, rights)
	if err != nil && n > 0 {
		c.torn = err
	}
	if err != nil {
		return fmt.Errorf("send %s: %w", m.Kind, err)
	}
	return nil
}

// write sends a frame, with rights on its first byte.
func (c *Control) write(frame, rights []byte) (n int, err error) {
	if len(rights) == 0 {
		return c.conn.Write(frame)
	}
	local, ok := c.conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("a %T takes no descriptors", c.conn)
	}
	if n, _, err = local.WriteMsgUnix(frame, rights, nil); err != nil {
		return n, err
	}
	rest, err := c.conn.Write(frame[n:])
	return n + rest, err
}

// Receive reads one message. It blocks until there is one or the other side
// is gone (io.EOF) or Close is called.
func (c *Control) Receive() (ControlMessage, error) {
	m, socket, err := c.ReceiveSocket()
	if socket != nil {
		socket.Close() // nobody asked for it
	}
	return m, err
}

// ReceiveSocket is Receive. socket, close-on-exec and the caller's to close, is
// what came with the message, else nil.
func (c *Control) ReceiveSocket() (m ControlMessage, socket *os.File, err error) {
	var size [4]byte
	if socket, err = c.head(size[:]); err == nil {
		err = c.body(binary.LittleEndian.Uint32(size[:]), &m)
	}
	if err != nil && socket != nil {
		socket.Close() // of a message that is none
		socket = nil
	}
	return m, socket, err
}

func (c *Control) body(n uint32, m *ControlMessage) error {
	if n > c.most {
		return fmt.Errorf("control message of %d bytes, at most %d are allowed", n, c.most)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(c.conn, body); err != nil {
		if err == io.EOF { // not the end between two messages that it stands for
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("control message cut short: %w", err)
	}
	if err := json.Unmarshal(body, m); err != nil {
		return fmt.Errorf("control message: %w", err)
	}
	return nil
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
