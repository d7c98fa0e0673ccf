//go:build linux

package gpulock

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// A launch that waits for GPUs binds one abstract Unix socket for each GPU.
// The socket's name contains the device and the launch's ticket, a string.
// Sorted tickets are in the order in which the launches began. Every user can
// read the queue, because /proc/net/unix lists all bound names.

// validTicket matches a valid ticket (a launch's place in the waiting queue):
// lower-case letters, digits and "-".
var validTicket = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z-]{1,24}$`) })

func ticketName(device, ticket string) string { return prefix + device + "/wait/" + ticket }

// Queue holds the places of one launch in the waiting queues of its devices.
type Queue struct {
	claims []protocol.Claim
	ticket string
	fds    []int // sockets whose names contain the ticket (the launch's place in the queue), one for each device
}

// Enter adds a launch with the given ticket to the waiting queues of the
// claimed devices. The launch stays in the queues until Leave, or until the
// process ends.
func Enter(claims []protocol.Claim, ticket string) (*Queue, error) {
	q := &Queue{claims: merged(claims), ticket: ticket}
	if !validTicket().MatchString(ticket) {
		return nil, fmt.Errorf("wait for GPUs: bad ticket %q", ticket)
	}
	for _, c := range q.claims {
		if !validDevice().MatchString(c.Device) {
			q.Leave()
			return nil, fmt.Errorf("wait for GPU %q: that is no UUID", c.Device)
		}
		fd, err := bind(ticketName(c.Device, ticket))
		if err != nil {
			q.Leave()
			return nil, fmt.Errorf("wait for GPU %s: %w", c.Device, err)
		}
		q.fds = append(q.fds, fd)
	}
	return q, nil
}

// Leave removes the launch from the waiting queues.
func (q *Queue) Leave() {
	for _, fd := range q.fds {
		unix.Close(fd) // the socket has no data to flush
	}
	q.fds = nil
}

// Ahead returns the sorted tickets of launches that began earlier and wait for
// one of q's devices.
func (q *Queue) Ahead() ([]string, error) { return ahead(q.claims, q.ticket) }

// ahead returns the tickets of launches in the waiting queues of the claimed
// devices that come before the given ticket. The result is sorted.
func ahead(claims []protocol.Claim, ticket string) (before []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("list the launches that wait for GPUs: %w", err)
	}
	defer f.Close() // the file was only read
	return ticketsBefore(f, claims, ticket)
}

// ticketsBefore returns the tickets of launches that wait in the queue before
// the launch with the given ticket, for at least one of the claimed devices.
// The result is sorted. list is a list of sockets in the format of
// /proc/net/unix, in which the socket's name is the last field.
func ticketsBefore(list io.Reader, claims []protocol.Claim, ticket string) (before []string, err error) {
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		line := lines.Text()
		name := line[strings.LastIndexByte(line, ' ')+1:]
		for _, c := range claims {
			other, ok := strings.CutPrefix(name, ticketName(c.Device, ""))
			if ok && validTicket().MatchString(other) && other < ticket && !slices.Contains(before, other) {
				before = append(before, other)
			}
		}
	}
	slices.Sort(before)
	return before, lines.Err()
}

// Waiting is the error of Take if launches that began earlier wait for one of
// the devices.
type Waiting struct {
	Launches int // number of waiting launches that began earlier
}

func (w *Waiting) Error() string {
	if w.Launches == 1 {
		return "another launch is ahead in the queue for its GPUs"
	}
	return fmt.Sprintf("%d other launches are ahead in the queue for its GPUs", w.Launches)
}
