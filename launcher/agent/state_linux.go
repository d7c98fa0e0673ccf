package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// readState reads state.json.
func readState(f folder) (protocol.State, error) {
	var s protocol.State
	text, err := os.ReadFile(f.state())
	if err != nil {
		return s, fmt.Errorf("read the agent's state: %w", err)
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the agent's state: %s: %w", f.state(), err)
	}
	return s, nil
}

// writeState replaces state.json.
func writeState(f folder, s protocol.State) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the agent's state: %w", err)
	}
	if err := replace(f.state(), append(text, '\n')); err != nil {
		return fmt.Errorf("write the agent's state: %w", err)
	}
	return nil
}

// life says whether an agent is there.
type life int

const (
	dead    life = iota
	living       // one of its processes at least
	unknown      // it is on another machine that shares this home
)

// alive tells from its state whether an agent is there.
func alive(s protocol.State) life {
	if s.Machine != machine() {
		return elsewhere(s)
	}
	if exists(s.Guardian, s.GuardianStart) || exists(s.Supervisor, s.SupervisorStart) {
		return living
	}
	return dead
}

// elsewhere judges an agent that was not started by this machine as it is now.
func elsewhere(s protocol.State) life {
	host, _, _ := strings.Cut(s.Machine, " ")
	here, _, _ := strings.Cut(machine(), " ")
	if s.Phase == protocol.Over || host == here && boot(s.Machine) != boot(machine()) {
		return dead // the machine was restarted since
	}
	return unknown
}

func exists(pid int, start uint64) bool {
	if pid <= 0 {
		return false
	}
	p, err := readProcess(pid)
	return err == nil && p.start == start && !p.zombie
}

// machine names this machine since its start, and this process table: host
// name, boot and process namespace.
var machine = sync.OnceValue(func() string {
	name, _ := os.Hostname() // what cannot be read is the same every time
	bootID, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	table, _ := os.Readlink("/proc/self/ns/pid")
	return name + " " + strings.TrimSpace(string(bootID)) + " " + table
})

func boot(machine string) string {
	_, rest, _ := strings.Cut(machine, " ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

// settled returns the state as it is now: an agent that is gone without a
// verdict is over.
func settled(s protocol.State) protocol.State {
	if s.Phase == protocol.Over || alive(s) != dead {
		return s
	}
	s.Phase = protocol.Over
	s.Verdict = &protocol.Verdict{Code: 125, Host: s.Host,
		Reason: "host " + s.Host + ": the agent is gone: it was killed or the host was restarted"}
	return s
}

// states returns the folders of all jobs under ~/.plx with their states, those
// without a readable state left out.
func states() (map[folder]protocol.State, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(escape(dir), "jobs", "*", "*", "state.json"))
	if err != nil {
		return nil, err
	}
	found := map[folder]protocol.State{}
	for _, file := range files {
		f := folder(filepath.Dir(file))
		if s, err := readState(f); err == nil {
			found[f] = s
		}
	}
	return found, nil
}

// escape makes path literal in a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// saver writes a state in the background, so that a file system that hangs
// stops neither lease nor tasks. A newer state takes the place of one that is
// waiting.
type saver struct {
	next chan protocol.State
	done chan struct{}
	mu   sync.Mutex
	err  error
}

func newSaver(f folder) *saver {
	s := &saver{next: make(chan protocol.State, 1), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for state := range s.next {
			err := writeState(f, state)
			s.mu.Lock()
			s.err = err
			s.mu.Unlock()
		}
	}()
	return s
}

// save is called by one goroutine. The state must not be changed afterwards.
func (s *saver) save(state protocol.State) {
	select {
	case <-s.next:
	default:
	}
	s.next <- state
}

// close waits until the last state is on disk, at most d, and returns what
// went wrong with it.
func (s *saver) close(d time.Duration) error {
	close(s.next)
	if !within(d, s.done) {
		return errors.New("the disk did not take the agent's state in time")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
