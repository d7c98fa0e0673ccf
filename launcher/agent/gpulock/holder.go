//go:build linux

package gpulock

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// backlog is the number of connections that can wait while the process that
// holds a lock does not accept any. The kernel limits it to
// net.core.somaxconn.
const backlog = 1024

// Limits for the reply of the process that holds a lock.
const (
	replyTimeout = 500 * time.Millisecond
	maxReply     = 1 << 10 // size of a reply in bytes
)

// Held is the error for a device that another job has reserved.
type Held struct {
	Device string // UUID of the device
	Holder Holder
}

func (h *Held) Error() string {
	kind := "GPU"
	if strings.HasPrefix(h.Device, "MIG-") {
		kind = "MIG device"
	}
	return fmt.Sprintf("%s %s is reserved by %s", kind, h.Device, h.Holder)
}

// Holder describes the job and the user that hold a lock.
type Holder struct {
	User string // login name, or the numeric user id if it has no name; the kernel reports it (SO_PEERCRED)
	Job  string // name of the job, as the holder's process reports it; "" if that process did not reply
}

func (h Holder) String() string {
	if h.Job == "" {
		return "user " + h.User
	}
	return fmt.Sprintf("job %s of user %s", h.Job, h.User)
}

// reply is the JSON reply of the process that holds a lock. It sends the reply
// to each client that connects.
type reply struct {
	Job string `json:"job"`
}

// ServeHolder starts goroutines that accept connections on the locks' sockets and
// reply with the job's name, until the process ends. Only one of the processes
// that share the locks needs to call it.
func ServeHolder(locks []*os.File, job string) error {
	text, err := json.Marshal(reply{Job: job})
	if err != nil {
		return err
	}
	for _, f := range locks {
		ln, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("reply to clients of the lock of GPU %s: %w", f.Name(), err)
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return // Accept failed because file descriptors have run out. A launch that asks who holds a GPU then gets no reply, and reports only the user, not the job.
				}
				// The text fits into the socket's buffer, so Write does not
				// block; it fails if the client has disconnected.
				_, _ = conn.Write(append(text, '\n'))
				conn.Close() // the reply is complete, or the client has disconnected
			}
		}()
	}
	return nil
}

// heldBy connects to the socket with the given name to find out which job
// holds the device. It returns a *Held, or errLockChanging if no process listens
// on the socket.
func heldBy(device, name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("find out who has reserved GPU %s: %w", device, err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	if errors.Is(err, unix.ECONNREFUSED) {
		unix.Close(fd)
		return errLockChanging
	}
	held := &Held{Device: device, Holder: Holder{User: "unknown"}}
	if err != nil { // the process that holds the lock accepts no connections and its backlog is full, or connect failed for another reason
		unix.Close(fd) // the socket was never connected
		return held
	}
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		held.Holder.User = userName(cred.Uid)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // the socket was only read
	if f.SetReadDeadline(time.Now().Add(replyTimeout)) != nil {
		return held // give up: without a deadline, the read below could block for ever
	}
	var got reply
	if json.NewDecoder(io.LimitReader(f, maxReply)).Decode(&got) == nil {
		held.Holder.Job = shortened(got.Job)
	}
	return held
}

// userName returns the login name of a user, or the numeric id if the user has
// no name.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return shortened(u.Username)
	}
	return id
}

// shortened returns at most the first 100 characters of a text that another
// process has sent.
func shortened(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
