package booking

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Check refuses GPUs that another job has booked, or for which an earlier launch waits. It
// needs no agent on the hosts and changes nothing, so it comes before anything is sent;
// the agents look again when they start. binary returns where an agent may lie on the
// hosts from a launch before. It can name the job.
func Check(ctx context.Context, wanted []Host, ticket string, binary func() string) error {
	agents := make([]*hosts.AgentHost, len(wanted))
	for i, w := range wanted {
		agents[i] = w.Agent
	}
	return hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) error {
		list, err := locks(ctx, a.Host)
		if err != nil {
			return fmt.Errorf("list who has booked GPUs: %w", err)
		}
		cause := taken(strings.NewReader(list), wanted[i].Claims, ticket)
		if cause == "" {
			return nil
		}
		named := *a
		named.Binary = binary()
		h := Host{Agent: &named, Claims: wanted[i].Claims}.host(ticket)
		if said, err := h.ask(ctx, protocol.BookingTake); err == nil {
			cause = said.Cause // none: it is free by now
			_, err = h.ask(ctx, protocol.BookingLeave)
			if err != nil {
				return err
			}
		}
		if cause == "" {
			return nil
		}
		return fmt.Errorf("%s", cause)
	})
}

// listLocks prints the abstract sockets of locks and queues, which the kernel lists for all
// users. A host without /proc/net/unix has none to show: the agent reports that.
const listLocks = `[ ! -r /proc/net/unix ] || grep -a '@` + protocol.LockPrefix + `' /proc/net/unix || [ $? = 1 ]`

// locks returns the lines of a host on its locks: those of the survey just now, if it told them.
func locks(ctx context.Context, h *hosts.Host) (string, error) {
	if lines, known := h.Locks(); known {
		return lines[:min(len(lines), protocol.MostLocks)], nil
	}
	var list bytes.Buffer
	err := h.Script(ctx, listLocks, nil, &capped{to: &list, left: protocol.MostLocks})
	return list.String(), err
}

// capped passes the first bytes on and drops the rest.
type capped struct {
	to   io.Writer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if _, err := c.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}

// listening is set in the flags of a socket that listens. One that does not is a ticket, or
// a lock that is just being taken or given up.
const listening = "00010000"

// taken reads a list in the form of /proc/net/unix. It returns why the claims cannot be
// booked, "" if they can.
func taken(list io.Reader, claims []protocol.Claim, ticket string) string {
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 {
			continue
		}
		name, ok := strings.CutPrefix(fields[len(fields)-1], "@"+protocol.LockPrefix)
		if !ok {
			continue
		}
		for _, c := range claims {
			if cause := stands(name, fields[3] == listening, c, ticket); cause != "" {
				return cause
			}
		}
	}
	return ""
}

// stands returns how a socket stands in the way of a claim, "" if it does not.
func stands(name string, held bool, c protocol.Claim, ticket string) string {
	before := ""
	if c.Name != "" {
		before = c.Name + ": "
	}
	shared, isShared := strings.CutPrefix(name, c.Device+"/shared/")
	other, waits := strings.CutPrefix(name, c.Device+"/wait/")
	switch {
	case held && (name == c.Device || isShared && !c.Shared && shared != ""):
		return before + "GPU " + c.Device + " is booked by another job of plx"
	case held && c.Whole != "" && name == c.Whole:
		return before + "GPU " + c.Whole + " is booked as a whole by another job of plx"
	case waits && other < ticket:
		return "another launch was there before and waits for its GPUs"
	}
	return ""
}
