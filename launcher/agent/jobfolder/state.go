//go:build linux

package jobfolder

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// ErrDamaged says that state.json is not what an agent has written.
var ErrDamaged = errors.New("the agent's state is damaged")

// ReadState reads state.json. The error may be an ErrDamaged: what is beside it is there all the same.
func (f Folder) ReadState() (s protocol.State, err error) {
	text, err := bounded.ReadFile(f.State(), bounded.Record)
	if err != nil && !errors.Is(err, bounded.ErrTooLarge) {
		return s, fmt.Errorf("read the agent's state: %w", err)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return protocol.State{}, fmt.Errorf("%w: %s: %w", ErrDamaged, f.State(), err)
	}
	return s, nil
}

// Deserted reports whether state.json is damaged and no agent runs that would write it again.
func (f Folder) Deserted() bool {
	_, err := f.ReadState()
	info, gone := os.Stat(f.State())
	return errors.Is(err, ErrDamaged) && gone == nil && time.Since(info.ModTime()).Abs() > aliveLimit
}

// WriteState replaces state.json.
func (f Folder) WriteState(s protocol.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the agent's state: %w", err)
	}
	if err := replace(f.State(), append(text, '\n')); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	return nil
}

// FirstState is the state of an agent that has prepared nothing. Later commands start
// the agent's binary from where it says.
func FirstState(spec protocol.Spec) protocol.State {
	return protocol.State{
		Job: spec.Job, Name: spec.Name, Host: spec.Host, HostIndex: spec.HostIndex, Detached: spec.Detached, Lease: spec.Lease,
		Folder: spec.Folder, Binary: envsync.BlobPath(ownSum()), Products: protocol.Products{Checkpoints: spec.Checkpoints, Outputs: spec.Outputs, Workdir: spec.Workdir},
		Phase: protocol.Idle, Processes: protocol.Processes{Machine: Machine(), Alive: time.Now()}, Started: time.Now(),
	}
}

// Failed is the verdict of a job that ends because of something other than a task
// on a host.
func Failed(host, reason string) protocol.Verdict {
	return protocol.Verdict{Code: exit.CodePlx, Host: host, Reason: "host " + host + ": " + reason}
}

// Ended returns the state of a part of a job that ended for a reason of its host.
func Ended(s protocol.State, reason string) protocol.State {
	v := Failed(s.Host, reason)
	s.Phase, s.Verdict = protocol.Over, &v
	return s
}

// RemoveSecret deletes the job's secret. It is no error if there is none.
func (f Folder) RemoveSecret() error {
	err := os.Remove(f.Secret())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// States returns the folders of all jobs under ~/.plx with their states, without
// those whose state cannot be read.
func States() (map[Folder]protocol.State, error) {
	files, err := each("state.json")
	if err != nil {
		return nil, err
	}
	found := map[Folder]protocol.State{}
	for _, file := range files {
		f := Folder(filepath.Dir(file))
		if s, err := f.ReadState(); err == nil {
			found[f] = s
		}
	}
	return found, nil
}

// each returns the paths of the file of a name in all folders of jobs.
func each(name string) ([]string, error) {
	dir, err := Root()
	if err != nil {
		return nil, err
	}
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
	return filepath.Glob(filepath.Join(literal, "jobs", "*", "*", name))
}

// Life says whether the agent that wrote a state still runs.
type Life int

// What is known of an agent.
const (
	Dead    Life = iota // neither watchdog nor supervisor runs
	Living              // at least one of them runs
	Unknown             // it runs, if at all, on another machine that shares this home, or with another process table
)

// LifeOf tells from its state whether an agent runs.
func LifeOf(s protocol.State) Life {
	switch {
	case s.Machine == Machine():
		if process.Alive(s.Watchdog, s.WatchdogStart) || process.Alive(s.Supervisor, s.SupervisorStart) {
			return Living
		}
		return Dead
	case s.Phase == protocol.Over:
		return Dead
	case HostOf(s.Machine) != HostOf(Machine()):
		return Unknown
	case boot(s.Machine) != boot(Machine()), time.Since(s.Alive) > aliveLimit:
		return Dead // this machine, or the container that it is, was restarted since
	}
	return Unknown
}

const (
	// AliveEvery is how often an agent writes that it lives.
	AliveEvery = 30 * time.Second
	// aliveLimit is the silence after which an agent with another process table counts as
	// dead: a container that restarts keeps the boot id of its machine.
	aliveLimit = 4 * AliveEvery
)

// Machine names this machine, from its start to its end, and the process table
// that this process sees: host name, boot id and pid namespace.
var Machine = sync.OnceValue(func() string {
	name, _ := os.Hostname() // what cannot be read is the same every time
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	table, _ := os.Readlink("/proc/self/ns/pid")
	return name + " " + strings.TrimSpace(string(bootID)) + " " + table
})

// HostOf is the host name in what Machine has returned on some machine.
func HostOf(machine string) string {
	host, _, _ := strings.Cut(machine, " ")
	return host
}

func boot(machine string) string {
	_, rest, _ := strings.Cut(machine, " ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// Settled returns the state as it is now: the job part of an agent that is dead
// and recorded no verdict is over. The verdict names the processes that may be left.
func Settled(s protocol.State) protocol.State {
	if s.Phase == protocol.Over || LifeOf(s) != Dead {
		return s
	}
	reason := "the agent is gone: it was killed or the host was restarted"
	if s.Machine == Machine() && s.Supervisor != 0 {
		reason += "; " + cmp.Or(Left(s), "a process that has left its session and cleared its environment may still run there: ps -fu $USER lists all")
	}
	return Ended(s, reason)
}

// mostLeft is how many processes Left names.
const mostLeft = 20

// Left names the processes that a job of a dead agent may have left on this machine although its
// mark is not in their environment, and says how to end them. "": none is known.
func Left(s protocol.State) string {
	f, err := Of(s.Job, s.Folder)
	if err != nil || s.Machine != Machine() {
		return ""
	}
	found, _ := process.Using(string(f)) // what cannot be listed cannot be named
	var names, pids []string
	for _, p := range found[:min(len(found), mostLeft)] {
		names, pids = append(names, fmt.Sprintf("%d (%s)", p.PID, p.Name)), append(pids, strconv.Itoa(p.PID))
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("processes without its mark use its folder, and may be left of it: %s; if they are, end them: kill -9 %s",
		strings.Join(names, ", "), strings.Join(pids, " "))
}
