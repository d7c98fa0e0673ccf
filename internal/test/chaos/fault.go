package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// fault is what befalls a victim.
type fault string

// The faults. Those of the network befall the victim's host. The last three are two
// faults, the second while the job recovers from the first.
const (
	kill    fault = "kill"
	stop    fault = "stop"
	exit    fault = "exit"
	oom     fault = "oom"
	cut     fault = "cut"
	mute    fault = "mute"
	deaf    fault = "deaf"
	slow    fault = "slow"
	reset   fault = "reset"
	corrupt fault = "corrupt"
	full    fault = "full"
	fsync   fault = "fsync"
	power   fault = "power"

	starting   fault = "starting"
	again      fault = "again"
	regrouping fault = "regrouping"
)

// faultRow is a fault, what the report calls it, and how it is brought about: on a
// host, and on the launching machine.
type faultRow struct {
	fault
	title   string    // name of the fault in the report
	host    injection // how the fault is brought about if the victim is on a host
	machine injection // the same if the victim is the launching machine; zero: there is no such cell
}

var faults = []faultRow{
	{kill, "SIGKILL", injection{strike: signalVictim(syscall.SIGKILL, "gone")}, injection{strike: signalPlx(syscall.SIGKILL)}},
	{stop, "SIGSTOP", injection{strike: signalVictim(syscall.SIGSTOP, "stopped"), after: wake}, injection{strike: signalPlx(syscall.SIGSTOP), after: wakePlx}},
	{exit, "exit status 0 in the middle of the run", injection{failpoint: "wire.send=exit", strike: fire}, injection{}},
	{oom, "killed by the kernel because memory has run out", injection{strike: starve}, injection{strike: starvePlx}},
	{cut, "network link down", injection{strike: cutHost, after: healHost}, injection{strike: cutMachine, after: healMachine}},
	{mute, "one-way cut: what it sends vanishes", injection{strike: muteHost, after: healHost}, injection{strike: muteMachine, after: healMachine}},
	{deaf, "one-way cut: what is sent to it vanishes", injection{strike: deafenHost, after: healHost}, injection{strike: deafenMachine, after: healMachine}},
	{slow, "slow link", injection{strike: slowHost, after: healHost}, injection{strike: slowMachine, after: healMachine}},
	{reset, "connection reset", injection{failpoint: "wire.send=error", strike: fire}, injection{strike: endConnections}},
	{corrupt, "a bit of what it sends is changed on its way", injection{failpoint: "channel.change=error", strike: fire}, injection{}},
	{full, "no space left on the disk of the checkpoints", injection{before: shrinkDisk, strike: fillDisk, after: freeDisk}, injection{}},
	{fsync, "fsync of a checkpoint's file fails", injection{failpoint: "checkpoint.sync=error", anyone: true, strike: fire}, injection{}},
	{power, "power off", injection{strike: powerOff, after: powerOn}, injection{strike: both(cutMachine, signalPlx(syscall.SIGKILL)), after: healMachine}},
	{starting, "SIGKILL, and again as soon as it runs anew", injection{strike: signalVictim(syscall.SIGKILL, "gone"), then: killAnew}, injection{}},
	{again, "SIGKILL, and again after the first step of the next generation", injection{strike: signalVictim(syscall.SIGKILL, "gone"), then: killAgain}, injection{}},
	{regrouping, "SIGKILL, and the link of the last host goes down before the next generation starts", injection{strike: signalVictim(syscall.SIGKILL, "gone"), then: cutLastHost, after: healLastHost}, injection{}},
}

func (f fault) row() faultRow {
	return faults[slices.IndexFunc(faults, func(r faultRow) bool { return r.fault == f })]
}

// injection is how a fault is brought about.
type injection struct {
	failpoint string                                  // place and action, such as "wire.send=exit"; "": none
	anyone    bool                                    // failpoint fires in whichever process of the victim's host reaches it first
	before    func(ctx context.Context, r *run) error // prepares the host before the launch; nil: nothing to prepare
	strike    strike                                  // brings the fault about and returns the proof that it came
	then      strike                                  // waits for its moment and brings a second fault about; nil: none
	after     func(ctx context.Context, r *run) error // takes the fault back; nil: it stays
}

type strike func(ctx context.Context, r *run) (proof string, err error)

// injection is the cell's.
func (c Cell) injection() injection {
	row := c.Fault.row()
	switch {
	case c.Victim == launching || c.Victim == departed:
		return row.machine
	case c.Victim == agent && c.Fault == reset:
		return injection{strike: endConnections}
	case c.Victim.scaled():
		row.host.strike = whileScaled(row.host.strike, c.Fault != kill)
	}
	return row.host
}

// both brings two faults about, one after the other.
func both(one, other strike) strike {
	return func(ctx context.Context, r *run) (string, error) {
		proof, err := one(ctx, r)
		if err != nil {
			return "", err
		}
		more, err := other(ctx, r)
		return proof + "; " + more, err
	}
}

// victims returns the victim's processes: those of a task, of the agent, or a part of
// the agent's.
func (r *run) victims() ([]testhosts.Process, error) {
	all, err := r.host().Processes()
	if err != nil {
		return nil, err
	}
	role, index, isTask := strings.Cut(r.cell.task(), ":")
	v, want := r.cell.Victim, 1
	if v == agent || v == seat {
		want = 2
	}
	found := slices.DeleteFunc(all, func(p testhosts.Process) bool {
		if isTask {
			return !slices.Contains(p.Environ, "PLX_ROLE="+role) || !slices.Contains(p.Environ, "PLX_TASK_INDEX="+index)
		}
		command := strings.Join(p.Args, " ")
		return (v == watchdog || !strings.Contains(command, "plx agent supervisor")) &&
			(v == supervisor || p.Name != "plx-watchdog")
	})
	if len(found) != want {
		return nil, fmt.Errorf("host %s: %d processes are the %s, not %d: %v", r.host().Name, len(found), v, want, found)
	}
	return found, nil
}

// effects are the states that processes come into by a signal.
var effects = map[syscall.Signal]byte{syscall.SIGKILL: 'X', syscall.SIGSTOP: 'T'}

// signalVictim sends the victim's processes a signal and waits for its effect.
func signalVictim(s syscall.Signal, so string) strike {
	return func(ctx context.Context, r *run) (string, error) {
		ps, err := r.signal(s)
		if err != nil {
			return "", err
		}
		return pids(ps) + " " + so, inState(ctx, r.host(), ps, effects[s])
	}
}

// signal sends the victim's processes a signal, and notes them as those that wake
// is to wake.
func (r *run) signal(s syscall.Signal) ([]testhosts.Process, error) {
	ps, err := r.victims()
	if err != nil {
		return nil, err
	}
	// Stopped first, so that neither of two acts on the other's end.
	for _, s := range []syscall.Signal{syscall.SIGSTOP, s} {
		for _, p := range ps {
			if err := p.Signal(s); err != nil {
				return nil, fmt.Errorf("%v: %w", p, err)
			}
		}
	}
	r.stopped = ps
	return ps, nil
}

func pids(ps []testhosts.Process) string {
	var text []string
	for _, p := range ps {
		text = append(text, fmt.Sprintf("process %d", p.PID))
	}
	return strings.Join(text, " and ")
}

// wake wakes the stopped processes that are still there.
func wake(_ context.Context, r *run) error {
	for _, p := range r.stopped {
		if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	return nil
}

// signalPlx sends the launcher a signal and waits for its effect.
func signalPlx(s syscall.Signal) strike {
	return func(ctx context.Context, r *run) (string, error) {
		if err := r.job.cmd.Process.Signal(s); err != nil {
			return "", fmt.Errorf("the launcher: %w", err)
		}
		return "plx was sent " + s.String(), r.job.inState(ctx, effects[s])
	}
}

func wakePlx(_ context.Context, r *run) error { return r.job.cmd.Process.Signal(syscall.SIGCONT) }

// starve has the kernel kill the victim for its memory. On a machine without groups
// for memory a signal does that: it looks the same to everybody else.
func starve(ctx context.Context, r *run) (string, error) {
	ps, err := r.victims()
	if err != nil {
		return "", err
	}
	if err := testhosts.OutOfMemory(ps[0].OuterPID); err != nil {
		return r.insteadOfMemory(ctx, err, signalVictim(syscall.SIGKILL, "gone"))
	}
	return pids(ps) + " killed by the kernel for its group's memory", inState(ctx, r.host(), ps, 'X')
}

func starvePlx(ctx context.Context, r *run) (string, error) {
	if err := testhosts.OutOfMemory(r.job.cmd.Process.Pid); err != nil {
		return r.insteadOfMemory(ctx, err, signalPlx(syscall.SIGKILL))
	}
	return "plx killed by the kernel for its group's memory", r.job.inState(ctx, 'X')
}

func (r *run) insteadOfMemory(ctx context.Context, err error, kill strike) (string, error) {
	if !errors.Is(err, testhosts.ErrNoMemoryGroups) {
		return "", err
	}
	proof, err := kill(ctx, r)
	return proof + ", by SIGKILL: this machine has no groups for memory", err
}

// triggers begins the names of the files that failpoints wait for.
const triggers = "/tmp/plx-fault"

// trigger is the file that the victim's failpoint waits for.
func (r *run) trigger() string {
	if r.inject.anyone {
		return triggers
	}
	return triggers + "-" + strings.ReplaceAll(r.cell.task(), ":", "-")
}

// setup is the launcher's --setup: each task's failpoint waits for its file.
func (i injection) setup() string {
	file := triggers
	if !i.anyone {
		file += "-$PLX_ROLE-$PLX_TASK_INDEX"
	}
	return fmt.Sprintf(`export PLX_FAILPOINTS="%s@%s"`, i.failpoint, file)
}

// fire makes the victim's failpoint happen.
func fire(ctx context.Context, r *run) (string, error) {
	place, _, _ := strings.Cut(r.inject.failpoint, "=")
	if _, err := r.inside(ctx, "touch "+r.trigger()); err != nil {
		return "", err
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

// shrinkDisk gives the host's checkpoints a file system of their own.
func shrinkDisk(ctx context.Context, r *run) error {
	_, err := r.inside(ctx, "mkdir -p ~/.plx/ckpt && mount -t tmpfs -o size=4m,mode=700 tmpfs ~/.plx/ckpt")
	return err
}

// fillDisk leaves no room there.
func fillDisk(ctx context.Context, r *run) (string, error) {
	out, err := r.inside(ctx, "cat /dev/zero >~/.plx/ckpt/.filling; df --output=avail ~/.plx/ckpt | tail -1")
	if fields := strings.Fields(out); err != nil || !strings.Contains(out, "No space left") || fields[len(fields)-1] != "0" {
		return "", fmt.Errorf("the disk is not full: %v: %s", err, out)
	}
	return "0 bytes left of 4 MiB", nil
}

func freeDisk(ctx context.Context, r *run) error {
	_, err := r.inside(ctx, "umount --lazy ~/.plx/ckpt")
	return err
}

// inside runs a shell command on the victim's host.
func (r *run) inside(ctx context.Context, command string) (string, error) {
	out, err := r.host().Command(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return string(out), err
}

func powerOff(_ context.Context, r *run) (string, error) {
	r.host().PowerOff()
	left, err := r.host().Processes()
	if err != nil || len(left) > 0 {
		return "", fmt.Errorf("host %s runs %v: %w", r.host().Name, left, err)
	}
	return "no process is left on " + r.host().Name, nil
}

func powerOn(_ context.Context, r *run) error {
	r.host().PowerOn()
	return nil
}

// killAnew kills the victim as soon as it runs again: while the next generation
// starts, or restores its checkpoint.
func killAnew(ctx context.Context, r *run) (string, error) {
	first := r.stopped[0].OuterPID
	err := until(ctx, "the victim runs again", func() (bool, error) {
		ps, err := r.victims()
		return err == nil && ps[0].OuterPID != first, nil // with an error there is none yet
	})
	if err != nil {
		return "", err
	}
	return signalVictim(syscall.SIGKILL, "gone as soon as it ran")(ctx, r)
}

// killAgain kills the victim once more when the next generation has made a step.
func killAgain(ctx context.Context, r *run) (string, error) {
	next := func(text string) bool {
		generation, _, ok := stepOf(text)
		return ok && generation > 0
	}
	if !r.script.await(ctx, r.job.ended, next) {
		return "", errors.New("no other generation made a step")
	}
	return signalVictim(syscall.SIGKILL, "gone after a step of generation 1")(ctx, r)
}

// cutLastHost cuts the last host off when plx has decided to restart.
func cutLastHost(ctx context.Context, r *run) (string, error) {
	if !r.script.await(ctx, r.job.ended, restartLine.MatchString) {
		return "", errors.New("plx did not decide to restart")
	}
	return linkDown(ctx, r.lastHost())
}

func healLastHost(_ context.Context, r *run) error {
	r.lastHost().Heal()
	return nil
}

func (r *run) lastHost() *testhosts.Host { return r.lab.cluster.Hosts[len(r.lab.cluster.Hosts)-1] }

// whileScaled scales the job to all hosts and strikes meanwhile, early or late.
func whileScaled(second strike, late bool) strike {
	return func(ctx context.Context, r *run) (string, error) {
		if err := r.scale(ctx, late); err != nil {
			return "", err
		}
		return second(ctx, r)
	}
}

// scale scales the job to all hosts, and waits for the moment of the fault: as soon
// as there is an agent on the host that joins or, late, when the checkpoint is made
// and the generation ends.
func (r *run) scale(ctx context.Context, late bool) (err error) {
	if r.scaled, err = r.lab.openLog(r.cell.Name() + "-scale"); err != nil {
		return err
	}
	if r.scaling, err = r.lab.start(r.scaled, "scale", "--color", "never", "--hosts", r.lab.looseFile, r.name); err != nil {
		return err
	}
	if !late {
		err = until(ctx, "an agent on the host that joins", r.joined)
	} else if !r.script.await(ctx, r.job.ended, savedLine.MatchString) {
		err = errors.New("no checkpoint was made to resume with other hosts")
	}
	r.struck = time.Now()
	return err
}

// joined reports whether an agent runs on the host that joins.
func (r *run) joined() (bool, error) {
	ps, err := r.lastHost().Processes()
	return slices.ContainsFunc(ps, func(p testhosts.Process) bool {
		return strings.Contains(strings.Join(p.Args, " "), "plx agent supervisor")
	}), err
}
