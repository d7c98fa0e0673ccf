package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/testhosts"
)

func takenDown(ctx context.Context, r *run) (string, error) { return linkDown(ctx, r.host()) }

func linkDown(ctx context.Context, h *testhosts.Host) (string, error) {
	h.Cut()
	return "the link of " + h.Name + " is down", until(ctx, "the link is down", func() (bool, error) {
		out, err := h.Command(ctx, "cat", "/sys/class/net/eth0/operstate").CombinedOutput()
		return strings.TrimSpace(string(out)) != "up", err
	})
}

// muted waits until a packet has vanished: heartbeats go all the time.
func muted(ctx context.Context, r *run) (string, error) {
	r.host().Mute()
	return vanishing(ctx, func() (testhosts.Queued, error) {
		from, _, err := r.host().Queued()
		return from, err
	})
}

func deafened(ctx context.Context, r *run) (string, error) {
	r.host().Deafen()
	return vanishing(ctx, func() (testhosts.Queued, error) {
		_, to, err := r.host().Queued()
		return to, err
	})
}

func vanishing(ctx context.Context, look func() (testhosts.Queued, error)) (proof string, err error) {
	err = until(ctx, "a packet vanishes", func() (bool, error) {
		q, err := look()
		proof = "packets dropped"
		return q.Dropped > 0, err
	})
	return proof, err
}

func slowed(ctx context.Context, r *run) (string, error) {
	r.host().Shape(slowRate)
	return waiting(ctx, func() (testhosts.Queued, error) {
		from, to, err := r.host().Queued()
		return testhosts.Queued{Delayed: min(from.Delayed, to.Delayed)}, err
	})
}

// waiting waits until packets had to wait for others.
func waiting(ctx context.Context, look func() (testhosts.Queued, error)) (string, error) {
	err := until(ctx, "packets wait", func() (bool, error) {
		q, err := look()
		return q.Delayed > 0, err
	})
	return "packets had to wait", err
}

func healed(_ context.Context, r *run) error {
	r.host().Shape("")
	r.host().Heal()
	return nil
}

func poweredOff(_ context.Context, r *run) (string, error) {
	r.host().PowerOff()
	left, err := r.host().Processes()
	if err != nil || len(left) > 0 {
		return "", fmt.Errorf("host %s runs %v: %w", r.host().Name, left, err)
	}
	return "no process is left on " + r.host().Name, nil
}

func poweredOn(_ context.Context, r *run) error {
	r.host().PowerOn()
	return nil
}

// endConnections kills what serves SSH connections: on the agent's host, or on
// all of them where the launcher is the victim.
func endConnections(ctx context.Context, r *run) (string, error) {
	hosts := r.cluster.Hosts
	if r.cell.Victim != launching {
		hosts = []*testhosts.Host{r.host()}
	}
	var ended []testhosts.Process
	for _, h := range hosts {
		all, err := h.Processes()
		if err != nil {
			return "", err
		}
		var serving []testhosts.Process
		for _, p := range all {
			if p.Server && p.PID != 1 {
				serving = append(serving, p)
			}
		}
		for _, p := range serving {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				return "", fmt.Errorf("%v: %w", p, err)
			}
		}
		if err := inState(ctx, h, serving, 'X'); err != nil {
			return "", err
		}
		ended = append(ended, serving...)
	}
	if len(ended) == 0 {
		return "", errors.New("there was no SSH connection")
	}
	return fmt.Sprintf("%d SSH connections ended", len(ended)), nil
}

// signalled sends the launcher a signal.
func signalled(s syscall.Signal) strike {
	return func(ctx context.Context, r *run) (string, error) {
		if err := r.job.cmd.Process.Signal(s); err != nil {
			return "", fmt.Errorf("the launcher: %w", err)
		}
		return "plx was sent " + s.String(), r.job.inState(ctx, map[syscall.Signal]byte{syscall.SIGKILL: 'X', syscall.SIGSTOP: 'T'}[s])
	}
}

func signalledOn(_ context.Context, r *run) error { return r.job.cmd.Process.Signal(syscall.SIGCONT) }

func launcherStarved(ctx context.Context, r *run) (string, error) {
	if err := testhosts.OutOfMemory(r.job.cmd.Process.Pid); err != nil {
		return r.insteadOfMemory(ctx, err, signalled(syscall.SIGKILL))
	}
	return "plx killed by the kernel for its group's memory", r.job.inState(ctx, 'X')
}

// launcherPower is the loss of the launching machine: its connections are not
// even closed.
func launcherPower(ctx context.Context, r *run) (string, error) {
	proof, err := machineCut(ctx, r)
	if err != nil {
		return "", err
	}
	more, err := signalled(syscall.SIGKILL)(ctx, r)
	return proof + "; " + more, err
}

func machineCut(ctx context.Context, r *run) (string, error) {
	proof, err := machineDeafened(ctx, r)
	if err != nil {
		return "", err
	}
	more, err := machineMuted(ctx, r)
	return proof + "; " + more, err
}

func machineMuted(ctx context.Context, r *run) (string, error) {
	r.cluster.Mute()
	return vanishing(ctx, r.cluster.Queued)
}

func machineDeafened(ctx context.Context, r *run) (string, error) {
	r.cluster.Deafen()
	for _, h := range r.cluster.Hosts {
		out, err := h.Command(ctx, "ip", "neigh", "show", r.cluster.Gateway).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "PERMANENT") {
			return "", fmt.Errorf("host %s finds the machine: %w: %s", h.Name, err, out)
		}
	}
	return "the hosts send to nobody", nil
}

func machineSlowed(ctx context.Context, r *run) (string, error) {
	r.cluster.Shape(slowestRate) // what goes to the hosts is little
	return waiting(ctx, r.cluster.Queued)
}

func machineHealed(_ context.Context, r *run) error {
	r.cluster.Heal()
	return nil
}
