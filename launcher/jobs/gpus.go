package jobs

import (
	"context"
	"errors"
	"strings"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/placement"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/reservation"
)

// BusyHint is the hint for GPUs that somebody uses.
const BusyHint = "--exclude HOST:ID leaves a GPU out, --wait-gpus 30m waits for it, --share-gpus uses it all the same"

// scaleBusyHint is the same for plx scale, which does not wait.
const scaleBusyHint = "--exclude HOST:ID leaves a GPU out; plx probe shows when it is free"

// InUse refuses a job that would use GPUs which others use, or tells the user if the job
// is to share them. hint is what the user can do.
func InUse(p placement.Placement, machines []placement.Machine, share bool, hint string, printer *console.Printer) error {
	busy := p.Busy(machines)
	switch {
	case len(busy) == 0:
		return nil
	case share:
		for _, line := range busy {
			printer.Printf("GPUs that are in use are shared: %s", line)
		}
		return nil
	}
	return exit.WithHint(errors.New(InWords(busy)), hint)
}

// Booked returns what a job books on each host, of which agents are given.
func Booked(p placement.Placement, agents []*hosts.AgentHost) (all []reservation.Host) {
	for i, a := range agents {
		if claims := protocol.Claims(p.Hosts[i].Specs()); len(claims) > 0 {
			all = append(all, reservation.Host{Agent: a, Claims: claims})
		}
	}
	return all
}

// CheckBooked refuses GPUs that another job has booked. hint is what the user can do.
func CheckBooked(ctx context.Context, p placement.Placement, agents []*hosts.AgentHost, ticket, hint string) error {
	err := reservation.Check(ctx, Booked(p, agents), ticket)
	if err != nil && ctx.Err() == nil {
		err = exit.WithHint(err, hint)
	}
	return err
}

// InWords writes the first of the lines as one; "" if there is none.
func InWords(lines []string) string {
	const most = 8
	if len(lines) == 0 {
		return ""
	}
	text := "GPUs are in use: " + strings.Join(lines[:min(len(lines), most)], "; ")
	if len(lines) > most {
		text += "; and more"
	}
	return text
}
