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

// BusyHint is the hint printed with an error about GPUs that are in use.
const BusyHint = "--exclude HOST:ID leaves a GPU out, --wait-gpus 30m waits for it, --share-gpus uses it all the same"

// scaleBusyHint is the hint with which plx scale reports GPUs that are in use.
// It differs from BusyHint because plx scale cannot wait for GPUs.
const scaleBusyHint = "--exclude HOST:ID leaves a GPU out; plx probe shows when it is free"

// InUse returns an error with the given hint if the placement (which tasks get
// which GPUs) contains GPUs that other processes use. If share is true, it
// only prints which of these GPUs the job will share.
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
	return exit.WithHint(errors.New(BusyText(busy)), hint)
}

// Reservations returns the GPUs that the placement reserves on each host.
// agents are the agents of the placement's hosts, in the same order. The
// result omits hosts without GPUs.
func Reservations(p placement.Placement, agents []*hosts.AgentHost) (all []reservation.Host) {
	for i, a := range agents {
		if claims := protocol.Claims(p.Hosts[i].Specs()); len(claims) > 0 {
			all = append(all, reservation.Host{Agent: a, Claims: claims})
		}
	}
	return all
}

// CheckReservations returns an error with the given hint if another job has
// reserved a GPU that the placement gives to a task.
func CheckReservations(ctx context.Context, p placement.Placement, agents []*hosts.AgentHost, ticket, hint string) error {
	err := reservation.Check(ctx, Reservations(p, agents), ticket)
	if err != nil && ctx.Err() == nil {
		err = exit.WithHint(err, hint)
	}
	return err
}

// BusyText joins at most 8 descriptions of GPUs in use into one error text. It
// returns "" if lines is empty.
func BusyText(lines []string) string {
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
