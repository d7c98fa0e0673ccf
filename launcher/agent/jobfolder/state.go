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

// ErrDamaged means that state.json exists but cannot be decoded.
var ErrDamaged = errors.New("the agent's state is damaged")

// ReadState reads state.json. If the error is ErrDamaged, the other files of
// the job may still be intact.
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

// StateAbandoned reports whether state.json is damaged and no running agent will
// rewrite it: a running agent does so every 30 seconds.
func (f Folder) StateAbandoned() bool {
	_, err := f.ReadState()
	info, gone := os.Stat(f.State())
	return errors.Is(err, ErrDamaged) && gone == nil && time.Since(info.ModTime()).Abs() > aliveLimit
}

// WriteState atomically replaces state.json.
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

// FirstState returns the state of a new agent, which has prepared no tasks.
// The field Binary is the path of this plx binary; later commands on the host
// run it.
func FirstState(spec protocol.Spec) protocol.State {
	return protocol.State{
		Job: spec.Job, Name: spec.Name, Host: spec.Host, HostIndex: spec.HostIndex, Detached: spec.Detached, Lease: spec.Lease,
		Folder: spec.Folder, Binary: envsync.BlobPath(ownSum()), Products: protocol.Products{Checkpoints: spec.Checkpoints, Outputs: spec.Outputs, Workdir: spec.Workdir},
		Phase: protocol.Idle, Processes: protocol.Processes{Machine: Machine(), Alive: time.Now()}, Started: time.Now(),
	}
}

// Failed returns the verdict of a job that ends because of a host, not because
// of a task.
func Failed(host, reason string) protocol.Verdict {
	return protocol.Verdict{Code: exit.CodePlx, Host: host, Reason: "host " + host + ": " + reason}
}

// Ended returns a copy of s that says: the job has ended on this host, because
// of a problem of the host.
func Ended(s protocol.State, reason string) protocol.State {
	v := Failed(s.Host, reason)
	s.Phase, s.Verdict = protocol.Over, &v
	return s
}

// RemoveSecret deletes the file with the job's secret. A missing file is no
// error.
func (f Folder) RemoveSecret() error {
	err := os.Remove(f.Secret())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// States returns the folders of all jobs under ~/.plx with their states. It
// omits folders whose state cannot be read.
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

// each returns the paths of all files with the given name in job folders.
func each(name string) ([]string, error) {
	dir, err := Root()
	if err != nil {
		return nil, err
	}
	literal := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
	return filepath.Glob(filepath.Join(literal, "jobs", "*", "*", name))
}

// Life describes whether the agent that wrote a state still runs.
type Life int

// Values of Life.
const (
	Dead    Life = iota // neither the agent's watchdog nor its supervisor runs
	Living              // at least one of the agent's two processes runs
	Unknown             // the agent belongs to another machine that shares this home folder, or to another pid namespace
)

// LifeOf reports whether the agent that wrote the state s still runs.
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
		return Dead // the machine or container has restarted since the agent wrote its state
	}
	return Unknown
}

const (
	// AliveEvery is the interval at which a running agent rewrites state.json
	// with the current time.
	AliveEvery = 30 * time.Second
	// aliveLimit is the age of state.json after which an agent in another pid
	// namespace of this host counts as dead. Such an agent may belong to a
	// restarted container, which has the same boot id as before.
	aliveLimit = 4 * AliveEvery
)

// Machine identifies the running machine and the pid namespace of this
// process: host name, boot id and namespace. After a reboot it is different.
var Machine = sync.OnceValue(func() string {
	name, _ := os.Hostname() // ignore an error: the name is then "" in every call
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	table, _ := os.Readlink("/proc/self/ns/pid")
	return name + " " + strings.TrimSpace(string(bootID)) + " " + table
})

// HostOf returns the host name in a result of Machine.
func HostOf(machine string) string {
	host, _, _ := strings.Cut(machine, " ")
	return host
}

func boot(machine string) string {
	_, rest, _ := strings.Cut(machine, " ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// Current returns s. If the agent that wrote s has died before it recorded how
// the job ended, Current changes two fields of the copy: the phase is Over,
// and the verdict names processes that the agent may have left.
func Current(s protocol.State) protocol.State {
	if s.Phase == protocol.Over || LifeOf(s) != Dead {
		return s
	}
	reason := "the agent is gone: it was killed or the host was restarted"
	if s.Machine == Machine() && s.Supervisor != 0 {
		reason += "; " + cmp.Or(LeftoverProcesses(s), "a process that has left its session and cleared its environment may still run there: ps -fu $USER lists all")
	}
	return Ended(s, reason)
}

// maxLeft is the maximum number of processes that LeftoverProcesses lists.
const maxLeft = 20

// LeftoverProcesses describes processes of a dead agent's job that may still
// run on this machine, and how the user can end them. plx does not kill them
// itself, because their environment lacks the variable that marks the job's
// processes. The result is "" if there are none.
func LeftoverProcesses(s protocol.State) string {
	f, err := Of(s.Job, s.Folder)
	if err != nil || s.Machine != Machine() {
		return ""
	}
	found, _ := process.UsersOf(string(f)) // ignore an error: no process is reported then
	var names, pids []string
	for _, p := range found[:min(len(found), maxLeft)] {
		names, pids = append(names, fmt.Sprintf("%d (%s)", p.PID, p.Name)), append(pids, strconv.Itoa(p.PID))
	}
	if len(found) == 0 {
		return ""
	}
	return fmt.Sprintf("processes that use the job's folder may be left of the job: %s; if so, end them: kill -9 %s",
		strings.Join(names, ", "), strings.Join(pids, " "))
}
