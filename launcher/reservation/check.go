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

// Check returns an error if another job has reserved one of the wanted GPUs,
// or if an earlier launch waits for one of them. It uses the list of sockets
// that each host sent in the survey (the launch's first call to the host).
// Check reserves nothing. It runs before plx sends the user's program; the
// agents check again when they start.
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
		h := wanted[i].host(ticket) // ask the host's agent which job has reserved the GPU
		if said, err := h.ask(ctx, protocol.ReserveTake); err == nil {
			cause = said.Cause // Cause is "" if the GPU has become free in the meantime.
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

// listening is the flags field in /proc/net/unix of a listening socket. The
// lock of a GPU is a listening socket. A socket with other flags is a launch's
// ticket in the queue, or a lock that is being taken or released.
const listening = "00010000"

// taken parses a list of sockets in the format of /proc/net/unix. It returns
// why the GPUs in claims cannot be reserved, or "" if they can.
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
			if cause := blocks(name, fields[3] == listening, c, ticket); cause != "" {
				return cause
			}
		}
	}
	return ""
}

// blocks returns why a socket with this name prevents the reservation of the
// GPU in c, or "" if the socket does not. A socket that listens is a lock of a
// GPU, and held is true for it. Other names can be places in the queue for a
// GPU.
func blocks(name string, held bool, c protocol.Claim, ticket string) string {
	before := ""
	if c.Name != "" {
		before = c.Name + ": "
	}
	shared, isShared := strings.CutPrefix(name, c.Device+"/shared/")
	other, waits := strings.CutPrefix(name, c.Device+"/wait/")
	switch {
	case held && (name == c.Device || isShared && !c.Shared && shared != ""):
		return before + "GPU " + c.Device + " is reserved by another job of plx"
	case held && c.Whole != "" && name == c.Whole:
		return before + "GPU " + c.Whole + " is reserved as a whole by another job of plx"
	case waits && other < ticket:
		return "another launch is ahead in the queue for its GPUs"
	}
	return ""
}
