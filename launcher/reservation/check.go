package reservation

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Check refuses GPUs that another job has booked, or for which an earlier launch waits, by what the
// hosts told when they were surveyed. It changes nothing, so it comes before the program is sent;
// the agents look again when they start.
func Check(ctx context.Context, wanted []Host, ticket string) error {
	agents := make([]*hosts.AgentHost, len(wanted))
	for i, w := range wanted {
		agents[i] = w.Agent
	}
	return hosts.Each(ctx, agents, func(i int, a *hosts.AgentHost) error {
		cause := taken(strings.NewReader(a.Locks()), wanted[i].Claims, ticket)
		if cause == "" {
			return nil
		}
		h := wanted[i].host(ticket) // it can name the job
		if said, err := h.ask(ctx, protocol.ReserveTake); err == nil {
			cause = said.Cause // none: it is free by now
			_, err = h.ask(ctx, protocol.ReserveLeave)
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
