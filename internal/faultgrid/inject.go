package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/plx-run/plx/internal/testhosts"
)

// injection is how a fault is brought about.
type injection struct {
	// failpoint is a place and an action: it happens in the victim's process or,
	// where it is anyone's, in that of its host that comes there first.
	failpoint string
	anyone    bool
	// before is done before the launch.
	before func(ctx context.Context, r *run) error
	// strike brings the fault about and returns what proves that it came.
	strike strike
	// then brings a second one about. It waits for when that is to come.
	then strike
	// after undoes it, once the job has ended.
	after func(ctx context.Context, r *run) error
}

type strike func(ctx context.Context, r *run) (proof string, err error)

// slowRate is the rate of a slow link between tasks.
const slowRate = "2mbit"

// slowestRate is that of a link that carries orders alone.
const slowestRate = "16kbit"

// injection is the cell's.
func (c Cell) injection() injection {
	if c.Victim == launching || c.Victim == departed {
		return launcherFaults[c.Fault]
	}
	if c.Victim == agent && c.Fault == reset {
		return injection{strike: endConnections}
	}
	i := hostFaults[c.Fault]
	if c.Victim.scaled() {
		i.strike = whileScaled(i.strike, c.Fault != kill)
	}
	return i
}

// hostFaults befall a host or what runs there.
var hostFaults = map[fault]injection{
	kill:    {strike: killed},
	stop:    {strike: stopped, after: wakened},
	exit:    {failpoint: "wire.send=exit", strike: fired},
	oom:     {strike: starved},
	cut:     {strike: takenDown, after: healed},
	mute:    {strike: muted, after: healed},
	deaf:    {strike: deafened, after: healed},
	slow:    {strike: slowed, after: healed},
	reset:   {failpoint: "wire.send=error", strike: fired},
	corrupt: {failpoint: "wire.corrupt=error", strike: fired},
	full:    {before: smallDisk, strike: filled, after: wholeDisk},
	fsync:   {failpoint: "checkpoint.sync=error", anyone: true, strike: fired},
	power:   {strike: poweredOff, after: poweredOn},

	starting:   {strike: killed, then: killedAnew},
	again:      {strike: killed, then: killedAgain},
	regrouping: {strike: killed, then: lastHostCut, after: lastHostHealed},
}

// launcherFaults befall what runs on the launching machine.
var launcherFaults = map[fault]injection{
	kill:  {strike: signalled(syscall.SIGKILL)},
	stop:  {strike: signalled(syscall.SIGSTOP), after: signalledOn},
	oom:   {strike: launcherStarved},
	cut:   {strike: machineCut, after: machineHealed},
	mute:  {strike: machineMuted, after: machineHealed},
	deaf:  {strike: machineDeafened, after: machineHealed},
	slow:  {strike: machineSlowed, after: machineHealed},
	reset: {strike: endConnections},
	power: {strike: launcherPower, after: machineHealed},
}

func killed(ctx context.Context, r *run) (string, error) {
	return r.signal(ctx, syscall.SIGKILL, 'X', "gone")
}

func stopped(ctx context.Context, r *run) (string, error) {
	return r.signal(ctx, syscall.SIGSTOP, 'T', "stopped")
}

// signal sends a signal to the victim's processes and waits for what it does.
func (r *run) signal(ctx context.Context, s syscall.Signal, state byte, so string) (string, error) {
	ps, err := r.cell.processes(r.host())
	if err != nil {
		return "", err
	}
	// Stopped first, so that neither of two acts on the other's end.
	for _, s := range []syscall.Signal{syscall.SIGSTOP, s} {
		for _, p := range ps {
			if err := p.Signal(s); err != nil {
				return "", fmt.Errorf("%v: %w", p, err)
			}
		}
	}
	r.stopped = ps
	return pids(ps) + " " + so, inState(ctx, r.host(), ps, state)
}

func pids(ps []testhosts.Process) string {
	var text []string
	for _, p := range ps {
		text = append(text, fmt.Sprintf("process %d", p.PID))
	}
	return strings.Join(text, " and ")
}

// wakened wakes what was stopped, where it is there still.
func wakened(_ context.Context, r *run) error {
	for _, p := range r.stopped {
		if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

// starved has the kernel kill the victim; where that is not possible, so that
// it looks the same.
func starved(ctx context.Context, r *run) (string, error) {
	ps, err := r.cell.processes(r.host())
	if err != nil {
		return "", err
	}
	if err := testhosts.OutOfMemory(ps[0].OuterPID); err != nil {
		return r.insteadOfMemory(ctx, err, killed)
	}
	return pids(ps) + " killed by the kernel for its group's memory", inState(ctx, r.host(), ps, 'X')
}

func (r *run) insteadOfMemory(ctx context.Context, err error, kill strike) (string, error) {
	if !errors.Is(err, testhosts.ErrNoMemoryGroups) {
		return "", err
	}
	proof, err := kill(ctx, r)
	return proof + ", by SIGKILL: this machine has no groups for memory", err
}

// fired makes the victim's failpoint happen.
func fired(ctx context.Context, r *run) (string, error) {
	place, _, _ := strings.Cut(r.inject.failpoint, "=")
	if out, err := r.inside(ctx, "touch "+r.trigger()); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var who, said string
	happened := r.script.await(ctx, r.job.ended, func(text string) bool {
		who, said, _ = strings.Cut(text, "failpoint ")
		return firedLine.MatchString(text) && strings.HasPrefix(said, place+": ")
	})
	if !happened {
		return "", fmt.Errorf("the failpoint %s never happened", place)
	}
	who = strings.Join(strings.Fields(strings.TrimRight(who, "! ")), " on ")
	if want := fmt.Sprintf("%s on %s", r.cell.task(), r.host().Name); who != want && !r.inject.anyone {
		return "", fmt.Errorf("the failpoint %s happened in %s, not in %s", place, who, want)
	}
	return fmt.Sprintf("failpoint %s in %s", said, who), nil
}

// trigger is the file that the victim's failpoint waits for.
func (r *run) trigger() string {
	if r.inject.anyone {
		return triggers
	}
	return triggers + "-" + strings.ReplaceAll(r.cell.task(), ":", "-")
}

const triggers = "/tmp/plx-fault"

// setup is what the launcher is told to do before the program, so that each
// task waits for its file.
func (i injection) setup() string {
	file := triggers
	if !i.anyone {
		file += "-$PLX_ROLE-$PLX_TASK_INDEX"
	}
	return fmt.Sprintf(`export PLX_FAILPOINTS="%s@%s"`, i.failpoint, file)
}

// smallDisk gives the host's checkpoints a file system of their own.
func smallDisk(ctx context.Context, r *run) error {
	out, err := r.inside(ctx, "mkdir -p ~/.plx/ckpt && mount -t tmpfs -o size=4m,mode=700 tmpfs ~/.plx/ckpt")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// filled leaves no room there.
func filled(ctx context.Context, r *run) (string, error) {
	out, err := r.inside(ctx, "cat /dev/zero >~/.plx/ckpt/.filling; df --output=avail ~/.plx/ckpt | tail -1")
	if err != nil || !strings.Contains(out, "No space left") || !strings.HasSuffix(strings.TrimSpace(out), " 0") && !strings.HasSuffix(strings.TrimSpace(out), "\n0") {
		return "", fmt.Errorf("the disk is not full: %v: %s", err, out)
	}
	return "0 bytes left of 4 MiB", nil
}

func wholeDisk(ctx context.Context, r *run) error {
	out, err := r.inside(ctx, "umount --lazy ~/.plx/ckpt")
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// inside runs a shell command on the victim's host.
func (r *run) inside(ctx context.Context, command string) (string, error) {
	out, err := r.host().Command(ctx, "sh", "-c", command).CombinedOutput()
	return string(out), err
}
