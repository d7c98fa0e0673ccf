//go:build long

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/test/chaos"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// injection describes how a trial causes a fault.
type injection struct {
	failpoint string         // place and action of a failpoint, such as "wire.send=exit"; "" if the fault uses no failpoint
	anyone    bool           // true if the failpoint may fire in any process of the victim's host, whichever reaches it first
	before    func(r *trial) // prepares the host before the launch; nil if nothing must be prepared
	strike    strike         // brings the fault about
	then      strike         // waits for the right moment and causes a second fault; nil if there is only one fault
	after     func(r *trial) // undoes the fault; nil if the fault is permanent
}

// strike causes a fault and returns a text that proves that the fault
// happened.
type strike func(r *trial) (proof string)

// onHosts says how to cause each fault on a host, and onMachine how to cause
// it on the launching machine.
var (
	onHosts = map[chaos.Fault]injection{
		chaos.Kill:       {strike: signalVictim(syscall.SIGKILL)},
		chaos.Stop:       {strike: signalVictim(syscall.SIGSTOP), after: wake},
		chaos.Exit:       {failpoint: "wire.send=exit", strike: fire},
		chaos.OOM:        {strike: starve},
		chaos.Cut:        {strike: func(r *trial) string { return r.linkDown(r.host()) }, after: healHost},
		chaos.Mute:       {strike: link(func(r *trial) { r.host().Mute() }, "packets dropped", dropsFrom), after: healHost},
		chaos.Deaf:       {strike: link(func(r *trial) { r.host().Deafen() }, "packets dropped", dropsTo), after: healHost},
		chaos.Slow:       {strike: link(func(r *trial) { r.host().Shape(slowRate) }, "packets had to wait", delays), after: healHost},
		chaos.Reset:      {failpoint: "wire.send=error", strike: fire},
		chaos.Corrupt:    {failpoint: "channel.change=error", strike: fire},
		chaos.Full:       {before: shrinkDisk, strike: fillDisk, after: freeDisk},
		chaos.Fsync:      {failpoint: "checkpoint.sync=error", anyone: true, strike: fire},
		chaos.Power:      {strike: powerOff, after: func(r *trial) { r.host().PowerOn() }},
		chaos.Starting:   {strike: signalVictim(syscall.SIGKILL), then: killAnew},
		chaos.Again:      {strike: signalVictim(syscall.SIGKILL), then: killAgain},
		chaos.Regrouping: {strike: signalVictim(syscall.SIGKILL), then: cutLastHost, after: func(r *trial) { r.lastHost().Heal() }},
	}
	onMachine = map[chaos.Fault]injection{
		chaos.Kill:  {strike: signalPlx(syscall.SIGKILL)},
		chaos.Stop:  {strike: signalPlx(syscall.SIGSTOP), after: wakePlx},
		chaos.OOM:   {strike: starvePlx},
		chaos.Cut:   {strike: both(deafenMachine, muteMachine), after: healMachine},
		chaos.Mute:  {strike: muteMachine, after: healMachine},
		chaos.Deaf:  {strike: deafenMachine, after: healMachine},
		chaos.Slow:  {strike: link(func(r *trial) { r.Shape(slowestRate) }, "packets had to wait", delays), after: healMachine},
		chaos.Reset: {strike: func(r *trial) string { return r.endConnections(r.Hosts...) }},
		chaos.Power: {strike: both(both(deafenMachine, muteMachine), signalPlx(syscall.SIGKILL)), after: healMachine},
	}
)

// injectionOf returns the injection for a cell of the grid; it is empty for a
// run without a fault.
func injectionOf(c chaos.Cell) injection {
	host := onHosts[c.Fault]
	switch {
	case c.Fault == "":
		return injection{}
	case c.Victim.Host() < 0:
		return onMachine[c.Fault]
	case c.Victim == chaos.Agent && c.Fault == chaos.Reset:
		return injection{strike: func(r *trial) string { return r.endConnections(r.host()) }}
	case c.Victim.Scaled():
		host.strike = whileScaled(host.strike, c.Fault != chaos.Kill)
	}
	return host
}

// both returns a strike that causes two faults, one after the other.
func both(one, other strike) strike {
	return func(r *trial) string { return one(r) + "; " + other(r) }
}

// look returns the processes of the trial's victim: those of a task, of an
// agent, or of one part of an agent. whole reports whether all of these
// processes exist.
func (r *trial) look() (found []testhosts.Process, whole bool) {
	role, index, isTask := strings.Cut(r.cell.Task(), ":")
	v, want := r.cell.Victim, 1
	if v == chaos.Agent || v == chaos.Seat {
		want = 2
	}
	found = slices.DeleteFunc(r.processes(r.host()), func(p testhosts.Process) bool {
		if isTask {
			return !slices.Contains(p.Environ, "PLX_ROLE="+role) || !slices.Contains(p.Environ, "PLX_TASK_INDEX="+index)
		}
		return (v == chaos.Watchdog || !supervises(p)) && (v == chaos.Supervisor || p.Name != "plx-watchdog")
	})
	return found, len(found) == want
}

// victim returns the processes of the trial's victim, and fails the test if
// any is missing.
func (r *trial) victim() []testhosts.Process {
	r.t.Helper()
	found, whole := r.look()
	if !whole {
		r.t.Fatalf("host %s: these processes are the %s: %v", r.host().Name, r.cell.Victim, found)
	}
	return found
}

func supervises(p testhosts.Process) bool {
	return strings.Contains(strings.Join(p.Args, " "), "plx agent supervisor")
}

// processes returns all processes of host h.
func (r *trial) processes(h *testhosts.Host) []testhosts.Process {
	r.t.Helper()
	all, err := h.Processes()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// effects maps each signal to the state of a process after the signal, as a
// letter of /proc/PID/stat. 'X' means that the process no longer exists.
var effects = map[syscall.Signal]byte{syscall.SIGKILL: 'X', syscall.SIGSTOP: 'T'}

// signalVictim sends a signal to the victim's processes and waits for its
// effect. It records the processes, so that wake can continue them later.
func signalVictim(s syscall.Signal) strike {
	return func(r *trial) string {
		r.stopped = r.victim()
		// Stop all processes first, so that none of them can react to the end
		// of another.
		for _, s := range []syscall.Signal{syscall.SIGSTOP, s} {
			r.signal(s, r.stopped)
		}
		r.inState(r.host(), r.stopped, effects[s])
		return fmt.Sprintf("%s: %v", pidsOf(r.stopped), s)
	}
}

func (r *trial) signal(s syscall.Signal, ps []testhosts.Process) {
	r.t.Helper()
	for _, p := range ps {
		if err := p.Signal(s); err != nil {
			r.t.Fatalf("%v: %v", p, err)
		}
	}
}

func pidsOf(ps []testhosts.Process) string {
	var text []string
	for _, p := range ps {
		text = append(text, fmt.Sprintf("process %d", p.PID))
	}
	return strings.Join(text, " and ")
}

// inState waits until the processes ps are in the given state. A zombie counts
// as a process that no longer exists.
func (r *trial) inState(h *testhosts.Host, ps []testhosts.Process, state byte) {
	r.t.Helper()
	r.comes(fmt.Sprintf("%v in state %c", ps, state), func() bool {
		now := r.processes(h)
		return !slices.ContainsFunc(ps, func(p testhosts.Process) bool {
			is := byte('X')
			if i := slices.IndexFunc(now, func(q testhosts.Process) bool { return q.OuterPID == p.OuterPID }); i >= 0 && now[i].State != 'Z' {
				is = now[i].State
			}
			return is != state
		})
	})
}

// wake continues the stopped processes that still exist.
func wake(r *trial) {
	for _, p := range r.stopped {
		if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			r.t.Errorf("%v: %v", p, err)
		}
	}
}

// signalPlx sends a signal to the launcher process and waits for its effect.
func signalPlx(s syscall.Signal) strike {
	return func(r *trial) string {
		if err := r.job.cmd.Process.Signal(s); err != nil {
			r.t.Fatal("the launcher: ", err)
		}
		r.plxInState(effects[s])
		return "plx was sent " + s.String()
	}
}

// plxInState waits until the launcher process is in the given state.
func (r *trial) plxInState(state byte) {
	r.t.Helper()
	r.comes(fmt.Sprintf("plx in state %c", state), func() bool {
		is := byte('X')
		// In /proc/PID/stat, the state follows the process name, which is in
		// parentheses.
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.job.cmd.Process.Pid)); err == nil {
			if _, rest, found := strings.Cut(string(stat), ") "); found && rest != "" && rest[0] != 'Z' {
				is = rest[0]
			}
		}
		return is == state
	})
}

func wakePlx(r *trial) {
	if err := r.job.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		r.t.Error("the launcher: ", err)
	}
}

// starve makes the kernel kill the victim because it uses too much memory. If
// the machine has no control groups for memory, a signal kills the victim
// instead; other processes observe the same.
func starve(r *trial) string {
	ps := r.victim()
	if instead := r.outOfMemory(ps[0].OuterPID, signalVictim(syscall.SIGKILL)); instead != "" {
		return instead
	}
	r.inState(r.host(), ps, 'X')
	return pidsOf(ps) + " killed by the kernel for its group's memory"
}

func starvePlx(r *trial) string {
	if instead := r.outOfMemory(r.job.cmd.Process.Pid, signalPlx(syscall.SIGKILL)); instead != "" {
		return instead
	}
	r.plxInState('X')
	return "plx killed by the kernel for its group's memory"
}

// outOfMemory makes the kernel kill a process for its memory, and then returns
// "". If that is impossible, it kills the process by other means and returns
// what it did.
func (r *trial) outOfMemory(pid int, kill strike) (instead string) {
	err := testhosts.OutOfMemory(pid)
	if errors.Is(err, testhosts.ErrNoMemoryGroups) {
		return kill(r) + ": this machine has no groups for memory"
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return ""
}

// trigger returns the path of the file that makes a task's failpoint fire as
// soon as the file exists.
func (i injection) trigger(role, index string) string {
	if i.anyone {
		return triggers
	}
	return triggers + "-" + role + "-" + index
}

// setup is the launcher's --setup.
func (i injection) setup() string {
	return fmt.Sprintf(`export PLX_FAILPOINTS="%s@%s"`, i.failpoint, i.trigger("$PLX_ROLE", "$PLX_TASK_INDEX"))
}

// fire makes the failpoint of the victim fire.
func fire(r *trial) string {
	place, _, _ := strings.Cut(r.inject.failpoint, "=")
	role, index, _ := strings.Cut(r.cell.Task(), ":")
	r.shell(r.host(), "touch "+r.inject.trigger(role, index))
	var who, what string
	r.awaitLine("the failpoint "+place, func(text string) (ok bool) {
		who, what, ok = chaos.Fired(text)
		return ok && strings.HasPrefix(what, place+": ")
	})
	if want := r.cell.Task() + " on " + r.host().Name; who != want && !r.inject.anyone {
		r.t.Fatalf("the failpoint %s happened in %s, not in %s", place, who, want)
	}
	return fmt.Sprintf("failpoint %s in %s", what, who)
}

// shrinkDisk mounts a file system of 4 MiB for the checkpoints of the victim's
// host.
func shrinkDisk(r *trial) {
	r.shell(r.host(), "mkdir -p ~/.plx/ckpt && mount -t tmpfs -o size=4m,mode=700 tmpfs ~/.plx/ckpt")
}

// fillDisk leaves no room there.
func fillDisk(r *trial) string {
	out := r.shell(r.host(), "cat /dev/zero >~/.plx/ckpt/.filling; df --output=avail ~/.plx/ckpt | tail -1")
	if fields := strings.Fields(out); !strings.Contains(out, "No space left") || fields[len(fields)-1] != "0" {
		r.t.Fatal("the disk is not full: ", out)
	}
	return "0 bytes left of 4 MiB"
}

func freeDisk(r *trial) { r.shell(r.host(), "umount --lazy ~/.plx/ckpt") }

func powerOff(r *trial) string {
	r.host().PowerOff()
	if left := r.processes(r.host()); len(left) > 0 {
		r.t.Fatalf("host %s runs %v", r.host().Name, left)
	}
	return "no process is left on " + r.host().Name
}

// killAnew kills the victim again as soon as it runs again, while the next
// generation (the tasks after a restart) starts or restores its checkpoint.
func killAnew(r *trial) string {
	first := r.stopped[0].OuterPID
	r.comes("the victim again", func() bool {
		ps, whole := r.look()
		return whole && ps[0].OuterPID != first
	})
	return signalVictim(syscall.SIGKILL)(r) + " as soon as it ran"
}

// killAgain kills the victim again after the next generation (the tasks after
// a restart) has made a step.
func killAgain(r *trial) string {
	r.awaitLine("a step of another generation", chaos.Anew)
	return signalVictim(syscall.SIGKILL)(r) + " after a step of generation 1"
}

// cutLastHost disconnects the last host from the network after plx has decided
// to restart the job.
func cutLastHost(r *trial) string {
	r.awaitLine("a restart", chaos.Restarts)
	return r.linkDown(r.lastHost())
}

func (r *trial) lastHost() *testhosts.Host { return r.Hosts[len(r.Hosts)-1] }

// whileScaled scales the job to all hosts and causes a second fault meanwhile.
// If late is false, the fault comes as soon as the new host has an agent.
// Otherwise it comes when the checkpoint is complete and the old tasks end.
func whileScaled(second strike, late bool) strike {
	return func(r *trial) string {
		before := r.merged
		r.scaled = r.tap("scale")
		r.scaling = r.start("scale", "--color", "never", "--hosts", r.grid.looseFile, r.name)
		r.merged = before
		if late {
			r.awaitLine("a checkpoint to resume with other hosts", chaos.Saved)
		} else {
			r.comes("an agent on the host that joins", func() bool { return slices.ContainsFunc(r.processes(r.lastHost()), supervises) })
		}
		r.struck = time.Now()
		return second(r)
	}
}

// link returns a strike that changes the links of the victim's host or of the
// launching machine. It waits until the kernel's packet counters show the
// effect.
func link(change func(*trial), effect string, shown func(from, to testhosts.Queued) bool) strike {
	return func(r *trial) string {
		change(r)
		r.comes(effect, func() bool { return shown(r.queued()) })
		return effect
	}
}

// queued returns the kernel's counters of the packets from and to the victim's
// host. For the launching machine, only the packets that it sends are counted.
func (r *trial) queued() (from, to testhosts.Queued) {
	r.t.Helper()
	var err error
	if r.cell.Victim.Host() < 0 {
		from, err = r.Queued()
		to = from
	} else {
		from, to, err = r.host().Queued()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return from, to
}

func dropsFrom(from, _ testhosts.Queued) bool { return from.Dropped > 0 }

func dropsTo(_, to testhosts.Queued) bool { return to.Dropped > 0 }

func delays(from, to testhosts.Queued) bool { return from.Delayed > 0 && to.Delayed > 0 }

// Rates of slow links: slowRate for links between tasks, slowestRate for a
// link that carries only plx's own messages.
const (
	slowRate    = "2mbit"
	slowestRate = "16kbit"
)

func healHost(r *trial) {
	r.host().Shape("")
	r.host().Heal()
}

func (r *trial) linkDown(h *testhosts.Host) string {
	h.Cut()
	r.comes("a link that is down", func() bool {
		return strings.TrimSpace(r.shell(h, "cat /sys/class/net/eth0/operstate")) != "up"
	})
	return "the link of " + h.Name + " is down"
}

var muteMachine = link(func(r *trial) { r.Mute() }, "packets dropped", dropsFrom)

func deafenMachine(r *trial) string {
	r.Deafen()
	r.comes("hosts that send to nobody", func() bool {
		return !slices.ContainsFunc(r.Hosts, func(h *testhosts.Host) bool {
			return !strings.Contains(r.shell(h, "ip neigh show "+r.Gateway), "PERMANENT")
		})
	})
	return "the hosts send to nobody"
}

func healMachine(r *trial) { r.Heal() }

// endConnections kills the sshd processes that serve connections on the given
// hosts.
func (r *trial) endConnections(hosts ...*testhosts.Host) string {
	ended := 0
	for _, h := range hosts {
		serving := slices.DeleteFunc(r.processes(h), func(p testhosts.Process) bool { return !p.Server || p.PID == 1 })
		r.signal(syscall.SIGKILL, serving)
		r.inState(h, serving, 'X')
		ended += len(serving)
	}
	if ended == 0 {
		r.t.Fatal("there was no SSH connection")
	}
	return fmt.Sprintf("%d SSH connections ended", ended)
}

// shell runs a shell command on a host.
func (r *trial) shell(h *testhosts.Host, command string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience.Limit)
	defer cancel()
	out, err := h.Command(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		r.t.Errorf("host %s: %s: %v: %s", h.Name, command, err, out)
	}
	return string(out)
}
