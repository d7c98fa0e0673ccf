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

// injection is how a fault is brought about.
type injection struct {
	failpoint string         // place and action, such as "wire.send=exit"; "": none
	anyone    bool           // failpoint fires in whichever process of the victim's host reaches it first
	before    func(r *trial) // prepares the host before the launch; nil: nothing to prepare
	strike    strike         // brings the fault about
	then      strike         // waits for its moment and brings a second fault about; nil: none
	after     func(r *trial) // takes the fault back; nil: it stays
}

// strike brings a fault about and returns the proof that it came.
type strike func(r *trial) (proof string)

// onHosts is how faults are brought about on a host, onMachine on the launching machine.
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

// injectionOf is the cell's; none for a run without a fault.
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

// both brings two faults about, one after the other.
func both(one, other strike) strike {
	return func(r *trial) string { return one(r) + "; " + other(r) }
}

// look returns the victim's processes, and whether they are all: those of a task, of the
// agent, or a part of the agent's.
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

// victim returns the victim's processes, which must be there.
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

// processes are those of a host.
func (r *trial) processes(h *testhosts.Host) []testhosts.Process {
	r.t.Helper()
	all, err := h.Processes()
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// effects are the states that processes come into by a signal: 'X' means gone.
var effects = map[syscall.Signal]byte{syscall.SIGKILL: 'X', syscall.SIGSTOP: 'T'}

// signalVictim sends the victim's processes a signal, waits for its effect, and notes them
// as those that wake is to wake.
func signalVictim(s syscall.Signal) strike {
	return func(r *trial) string {
		r.stopped = r.victim()
		// Stopped first, so that neither of two acts on the other's end.
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

// inState waits until processes are in a state; a zombie is gone.
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

// wake wakes the stopped processes that are still there.
func wake(r *trial) {
	for _, p := range r.stopped {
		if err := p.Signal(syscall.SIGCONT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			r.t.Errorf("%v: %v", p, err)
		}
	}
}

// signalPlx sends the launcher a signal and waits for its effect.
func signalPlx(s syscall.Signal) strike {
	return func(r *trial) string {
		if err := r.job.cmd.Process.Signal(s); err != nil {
			r.t.Fatal("the launcher: ", err)
		}
		r.plxInState(effects[s])
		return "plx was sent " + s.String()
	}
}

// plxInState waits for the state of the launcher's process.
func (r *trial) plxInState(state byte) {
	r.t.Helper()
	r.comes(fmt.Sprintf("plx in state %c", state), func() bool {
		is := byte('X')
		// The state follows the name, which is in parentheses.
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

// starve has the kernel kill the victim for its memory. On a machine without groups
// for memory a signal does that: it looks the same to everybody else.
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

// outOfMemory returns what was done instead, "" if the kernel kills the process.
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

// trigger is the file that a task's failpoint waits for.
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

// fire makes the victim's failpoint happen.
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

// shrinkDisk gives the host's checkpoints a file system of their own.
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

// killAnew kills the victim as soon as it runs again: while the next generation
// starts, or restores its checkpoint.
func killAnew(r *trial) string {
	first := r.stopped[0].OuterPID
	r.comes("the victim again", func() bool {
		ps, whole := r.look()
		return whole && ps[0].OuterPID != first
	})
	return signalVictim(syscall.SIGKILL)(r) + " as soon as it ran"
}

// killAgain kills the victim once more when the next generation has made a step.
func killAgain(r *trial) string {
	r.awaitLine("a step of another generation", chaos.Anew)
	return signalVictim(syscall.SIGKILL)(r) + " after a step of generation 1"
}

// cutLastHost cuts the last host off when plx has decided to restart.
func cutLastHost(r *trial) string {
	r.awaitLine("a restart", chaos.Restarts)
	return r.linkDown(r.lastHost())
}

func (r *trial) lastHost() *testhosts.Host { return r.Hosts[len(r.Hosts)-1] }

// whileScaled scales the job to all hosts and strikes meanwhile: as soon as there is an
// agent on the host that joins or, late, when the checkpoint is made and the generation ends.
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

// link changes the links of the victim's host, or of the launching machine, and waits until
// the kernel shows the effect.
func link(change func(*trial), effect string, shown func(from, to testhosts.Queued) bool) strike {
	return func(r *trial) string {
		change(r)
		r.comes(effect, func() bool { return shown(r.queued()) })
		return effect
	}
}

// queued is what has become of packets from and to the victim's host; the launching machine
// knows only of those from it.
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

// The rates of slow links: between tasks, and for a link that carries orders alone.
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

// endConnections kills what serves SSH connections on hosts.
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
