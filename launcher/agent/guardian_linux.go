package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/protocol"
)

// Descriptors that guardian and supervisor inherit behind the standard ones.
const (
	specFD  = 3 // the Spec, read to its end
	readyFD = 4 // takes one readiness
	lifeFD  = 5 // supervisor: read end of a pipe that the guardian holds
	beatFD  = 6 // supervisor: write end of a pipe that the guardian reads
)

// readiness is what the supervisor answers to whoever started it.
type readiness struct {
	Socket string `json:"socket,omitempty"`
	Error  string `json:"error,omitempty"`
}

// guardian is "agent guardian FOLDER": it starts the supervisor, and when that
// ends without a verdict it ends whatever the supervisor has left.
func guardian(_ context.Context, args []string, _ streams) error {
	if len(args) != 1 {
		return usage("guardian: want a folder")
	}
	g := &guard{folder: folder(args[0]), log: log.New(os.Stderr, "guardian: ", log.LstdFlags|log.Lmicroseconds)}
	return g.run()
}

type guard struct {
	folder     folder
	stuck      int // so many seconds without a beat end the supervisor
	log        *log.Logger
	kids       *children
	supervisor *child
	beats      chan struct{} // the supervisor is alive; closed when it is not
}

func (g *guard) run() (err error) {
	state, err := readState(g.folder)
	if err != nil {
		return err
	}
	g.stuck = stuckAfter(state.Lease)
	if g.kids, err = newChildren(); err != nil {
		return err
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT) // not ignored: tasks would inherit that
	life, err := g.start()
	if err != nil {
		return err
	}
	defer life.Close()
	g.watch(terms)
	return g.end()
}

// start starts the supervisor. The file returned is what the supervisor sees
// the end of when this process is gone.
func (g *guard) start() (life *os.File, err error) {
	lifeRead, life, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	defer lifeRead.Close()
	beatRead, beatWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close())
	}
	defer beatWrite.Close()
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
		Files: []uintptr{0, 1, 2, specFD, readyFD, lifeRead.Fd(), beatWrite.Fd()}}
	g.supervisor, err = g.kids.start(self, []string{"plx", "agent", "supervisor", string(g.folder)}, attr, nil)
	unix.Close(specFD) // the supervisor's now: their ends must be seen
	unix.Close(readyFD)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close(), beatRead.Close())
	}
	g.beats = make(chan struct{})
	go g.hear(beatRead)
	return life, nil
}

// self is this very program, also after its file was replaced or removed.
const self = "/proc/self/exe"

// hear passes the supervisor's beats on. It ends with the supervisor.
func (g *guard) hear(beats *os.File) {
	defer close(g.beats)
	defer beats.Close()
	buf := make([]byte, 64)
	for {
		if _, err := beats.Read(buf); err != nil {
			return
		}
		g.beats <- struct{}{}
	}
}

// Bounds on how many seconds without a beat make a supervisor that neither
// works nor ends. They are counted, not measured, so that a machine that was
// suspended does not count.
const (
	leastStuck = 3
	mostStuck  = 30
)

// stuckAfter is how many it is: a supervisor that is stuck does not look at the
// lease, at whose end nothing may be left.
func stuckAfter(lease time.Duration) int {
	if lease <= 0 {
		return mostStuck
	}
	return min(max(int(lease.Seconds()*0.6), leastStuck), mostStuck)
}

// watch waits until the supervisor has ended.
func (g *guard) watch(terms <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	missed := 0
	for {
		select {
		case <-g.supervisor.done:
			go drainBeats(g.beats)
			return
		case _, ok := <-g.beats:
			if missed = 0; !ok {
				g.beats = nil
			}
		case sig := <-terms:
			g.supervisor.signal(sig.(unix.Signal))
		case <-tick.C:
			if missed++; missed == g.stuck {
				g.log.Printf("the supervisor has not been alive for %d s: killed", g.stuck)
				g.supervisor.signal(unix.SIGKILL)
			}
		}
	}
}

func drainBeats(beats <-chan struct{}) {
	if beats != nil {
		for range beats {
		}
	}
}

// end kills what is left and makes sure that the state tells how it ended.
func (g *guard) end() error {
	state, err := readState(g.folder)
	known := err == nil && state.Phase == protocol.Over
	limit := killTime
	if known && len(state.Unkillable) > 0 {
		limit = 0 // waited for already
	}
	killed, left, err := g.kids.clear(limit)
	if removed := os.Remove(g.folder.secret()); removed != nil && !errors.Is(removed, os.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	if known {
		return err
	}
	how := fmt.Sprintf("the agent's supervisor was ended (%s)", describe(g.supervisor.status))
	g.log.Printf("%s; %d processes killed, %d left", how, killed, len(left))
	state.Phase, state.Unkillable = protocol.Over, left
	state.Verdict = &protocol.Verdict{Code: codePlx, Host: state.Host, Reason: "host " + state.Host + ": " + how}
	return errors.Join(err, writeState(g.folder, state))
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}

// signal signals the process itself while it is there.
func (ch *child) signal(sig unix.Signal) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if !ch.ended {
		unix.Kill(ch.pid, sig) // not reaped, so it is still this process
	}
}

// answer tells whoever started us, and closes the pipe to it.
func answer(r readiness) error {
	pipe := os.NewFile(readyFD, "ready")
	return errors.Join(json.NewEncoder(pipe).Encode(r), pipe.Close())
}

// receiveSpec reads the Spec from the pipe that the launcher's relay fills.
func receiveSpec() (protocol.Spec, error) {
	var spec protocol.Spec
	pipe := os.NewFile(specFD, "spec")
	defer pipe.Close() // only read
	text, err := io.ReadAll(io.LimitReader(pipe, protocol.MaxMessage+1))
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		return spec, fmt.Errorf("read the job's specification: %w", err)
	}
	return spec, nil
}
