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

// backlog is how many processes can ask who holds a lock while its holder is stuck. The
// kernel bounds it by net.core.somaxconn.
const backlog = 1024

// Bounds of asking the holder of a lock.
const (
	askTime   = 500 * time.Millisecond
	maxAnswer = 1 << 10 // bytes
)

// Held is the error of a device that somebody else has booked.
type Held struct {
	Device string // UUID
	Holder Holder
}

func (h *Held) Error() string {
	kind := "GPU"
	if strings.HasPrefix(h.Device, "MIG-") {
		kind = "MIG device"
	}
	return fmt.Sprintf("%s %s is booked by %s", kind, h.Device, h.Holder)
}

// Holder is who has a lock.
type Holder struct {
	User string // login name, or the uid if it has none; as the kernel knows it
	Job  string // as the holder says; "": it did not answer
}

func (h Holder) String() string {
	if h.Job == "" {
		return "user " + h.User
	}
	return fmt.Sprintf("job %s of user %s", h.Job, h.User)
}

// answer is what a holder tells whoever asks.
type answer struct {
	Job string `json:"job"`
}

// Answer tells whoever asks that a job holds the locks, until the process ends. One of the
// processes that have the locks does so.
func Answer(locks []*os.File, job string) error {
	text, err := json.Marshal(answer{Job: job})
	if err != nil {
		return err
	}
	for _, f := range locks {
		ln, err := net.FileListener(f)
		if err != nil {
			return fmt.Errorf("answer for the lock of GPU %s: %w", f.Name(), err)
		}
		go func() {
			for {
				conn, err := ln.Accept()
				if err != nil {
					return // no more descriptors: whoever asks hears nothing, and sees the user
				}
				_, _ = conn.Write(append(text, '\n')) // a short text never waits, and who asked may be gone
				conn.Close()                          // as above
			}
		}()
	}
	return nil
}

// heldBy asks who listens on a name. The error is a *Held, or errUnsettled if nobody does.
func heldBy(device, name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("ask who has booked GPU %s: %w", device, err)
	}
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	if errors.Is(err, unix.ECONNREFUSED) {
		unix.Close(fd) // never connected
		return errUnsettled
	}
	held := &Held{Device: device, Holder: Holder{User: "unknown"}}
	if err != nil { // the holder is stuck, and too many have asked
		unix.Close(fd) // never connected
		return held
	}
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		held.Holder.User = userName(cred.Uid)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close() // only read
	if f.SetReadDeadline(time.Now().Add(askTime)) != nil {
		return held // a read could last for ever
	}
	var told answer
	if json.NewDecoder(io.LimitReader(f, maxAnswer)).Decode(&told) == nil {
		held.Holder.Job = shortened(told.Job)
	}
	return held
}

// userName returns the login name of a user, or the number.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return shortened(u.Username)
	}
	return id
}

// shortened returns the start of a text that somebody else wrote.
func shortened(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
