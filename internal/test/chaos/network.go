package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// linkFault changes a link and waits until the kernel shows the effect.
func linkFault(change func(*run), proof string, shown func(context.Context, *run) (bool, error)) strike {
	return func(ctx context.Context, r *run) (string, error) {
		change(r)
		return proof, until(ctx, proof, func() (bool, error) { return shown(ctx, r) })
	}
}

// The rates of slow links: between tasks, and for a link that carries orders alone.
const (
	slowRate    = "2mbit"
	slowestRate = "16kbit"
)

const dropped, delayed = "packets dropped", "packets had to wait"

var (
	muteHost = linkFault(func(r *run) { r.host().Mute() }, dropped, func(_ context.Context, r *run) (bool, error) {
		from, _, err := r.host().Queued()
		return from.Dropped > 0, err
	})
	deafenHost = linkFault(func(r *run) { r.host().Deafen() }, dropped, func(_ context.Context, r *run) (bool, error) {
		_, to, err := r.host().Queued()
		return to.Dropped > 0, err
	})
	slowHost = linkFault(func(r *run) { r.host().Shape(slowRate) }, delayed, func(_ context.Context, r *run) (bool, error) {
		from, to, err := r.host().Queued()
		return from.Delayed > 0 && to.Delayed > 0, err
	})
	muteMachine = linkFault(func(r *run) { r.lab.cluster.Mute() }, dropped, func(_ context.Context, r *run) (bool, error) {
		q, err := r.lab.cluster.Queued()
		return q.Dropped > 0, err
	})
	deafenMachine = linkFault(func(r *run) { r.lab.cluster.Deafen() }, "the hosts send to nobody", func(ctx context.Context, r *run) (bool, error) {
		for _, h := range r.lab.cluster.Hosts {
			out, err := h.Command(ctx, "ip", "neigh", "show", r.lab.cluster.Gateway).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "PERMANENT") {
				return false, err
			}
		}
		return true, nil
	})
	slowMachine = linkFault(func(r *run) { r.lab.cluster.Shape(slowestRate) }, delayed, func(_ context.Context, r *run) (bool, error) {
		q, err := r.lab.cluster.Queued()
		return q.Delayed > 0, err
	})
	cutMachine = both(deafenMachine, muteMachine)
)

func cutHost(ctx context.Context, r *run) (string, error) { return linkDown(ctx, r.host()) }

func linkDown(ctx context.Context, h *testhosts.Host) (string, error) {
	h.Cut()
	return "the link of " + h.Name + " is down", until(ctx, "the link is down", func() (bool, error) {
		out, err := h.Command(ctx, "cat", "/sys/class/net/eth0/operstate").CombinedOutput()
		return strings.TrimSpace(string(out)) != "up", err
	})
}

func healHost(_ context.Context, r *run) error {
	r.host().Shape("")
	r.host().Heal()
	return nil
}

func healMachine(_ context.Context, r *run) error {
	r.lab.cluster.Heal()
	return nil
}

// endConnections kills what serves SSH connections: on the agent's host, or on all
// hosts if the launcher is the victim.
func endConnections(ctx context.Context, r *run) (string, error) {
	hosts := r.lab.cluster.Hosts
	if r.cell.Victim != launching {
		hosts = []*testhosts.Host{r.host()}
	}
	ended := 0
	for _, h := range hosts {
		serving, err := h.Processes()
		if err != nil {
			return "", err
		}
		serving = slices.DeleteFunc(serving, func(p testhosts.Process) bool { return !p.Server || p.PID == 1 })
		for _, p := range serving {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				return "", fmt.Errorf("%v: %w", p, err)
			}
		}
		if err := inState(ctx, h, serving, 'X'); err != nil {
			return "", err
		}
		ended += len(serving)
	}
	if ended == 0 {
		return "", errors.New("there was no SSH connection")
	}
	return fmt.Sprintf("%d SSH connections ended", ended), nil
}
