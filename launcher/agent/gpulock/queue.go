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

// A launch that waits for GPUs has a ticket for each of them: a socket whose abstract name
// has the device and the ticket. Tickets sort by the time at which their launches began.
// /proc/net/unix lists the names, so everybody sees the queue.

// plainTicket is what a ticket looks like.
var plainTicket = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-z-]{1,24}$`) })

func ticketName(device, ticket string) string { return prefix + device + "/wait/" + ticket }

// Queue is a launch's tickets for all its devices.
type Queue struct {
	claims []protocol.Claim
	ticket string
	fds    []int // of the tickets
}

// Enter draws the tickets of a launch. They last until Leave, or the end of the process.
func Enter(claims []protocol.Claim, ticket string) (*Queue, error) {
	q := &Queue{claims: merged(claims), ticket: ticket}
	if !plainTicket().MatchString(ticket) {
		return nil, fmt.Errorf("wait for GPUs: bad ticket %q", ticket)
	}
	for _, c := range q.claims {
		if !device().MatchString(c.Device) {
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

// Leave gives the tickets up.
func (q *Queue) Leave() {
	for _, fd := range q.fds {
		unix.Close(fd) // nothing was written to it
	}
	q.fds = nil
}

// Ahead returns the tickets of launches that were there before and wait for one of the
// devices, sorted.
func (q *Queue) Ahead() ([]string, error) { return ahead(q.claims, q.ticket) }

// ahead returns the tickets before the given one.
func ahead(claims []protocol.Claim, ticket string) (before []string, err error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, fmt.Errorf("list who waits for GPUs: %w", err)
	}
	defer f.Close() // only read
	return ticketsBefore(f, claims, ticket)
}

// ticketsBefore reads a list in the form of /proc/net/unix, in which the name is the last
// field.
func ticketsBefore(list io.Reader, claims []protocol.Claim, ticket string) (before []string, err error) {
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		line := lines.Text()
		name := line[strings.LastIndexByte(line, ' ')+1:]
		for _, c := range claims {
			other, ok := strings.CutPrefix(name, ticketName(c.Device, ""))
			if ok && plainTicket().MatchString(other) && other < ticket && !slices.Contains(before, other) {
				before = append(before, other)
			}
		}
	}
	slices.Sort(before)
	return before, lines.Err()
}

// Waiting is the error of devices for which other launches wait.
type Waiting struct {
	Launches int // that wait and were there before
}

func (w *Waiting) Error() string {
	if w.Launches == 1 {
		return "another launch was there before and waits for its GPUs"
	}
	return fmt.Sprintf("%d other launches were there before and wait for its GPUs", w.Launches)
}
