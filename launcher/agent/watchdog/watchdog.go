//go:build linux

package watchdog

import (
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/agent/process"
	"github.com/plx-run/plx/launcher/protocol"
)

// watchdog watches one supervisor.
type watchdog struct {
	folder     jobfolder.Folder
	stuck      int // seconds without a beat after which the supervisor is killed
	log        *log.Logger
	children   *process.Children
	supervisor *process.Child
	beats      chan struct{} // one value per beat; closed when no more can come
}

// Run starts the supervisor of a job. It returns after no process of the job is left on
// the host, or only processes that cannot be killed.
func Run(f jobfolder.Folder) error {
	state, err := f.ReadState()
	if err != nil {
		return err
	}
	w := &watchdog{folder: f, stuck: stuckAfter(state.Lease),
		log: log.New(os.Stderr, "watchdog: ", log.LstdFlags|log.Lmicroseconds), beats: make(chan struct{})}
	if w.children, err = process.NewChildren(); err != nil {
		return err
	}
	terms := make(chan os.Signal, 4)
	signal.Notify(terms, unix.SIGTERM, unix.SIGUSR1)
	ignored := make(chan os.Signal, 1)
	signal.Notify(ignored, unix.SIGHUP, unix.SIGINT, unix.SIGQUIT) // signal.Ignore would be inherited by tasks
	life, err := w.start()
	if err != nil {
		return err
	}
	defer life.Close() // nothing is written to it
	w.watch(terms)
	return w.end()
}

// start starts the supervisor. The supervisor reads from the other end of life,
// and so sees when this process has ended.
func (w *watchdog) start() (life *os.File, err error) {
	lifeRead, life, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	defer lifeRead.Close() // the supervisor has its own
	beatRead, beatWrite, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close())
	}
	defer beatWrite.Close() // the supervisor has its own
	attr := &syscall.ProcAttr{Dir: "/", Env: os.Environ(),
		Files: []uintptr{0, 1, 2, specFD, readyFD, lifeRead.Fd(), beatWrite.Fd()}}
	w.supervisor, err = w.children.Start(self, []string{"plx", "agent", "supervisor", string(w.folder)}, attr, nil)
	unix.Close(specFD) // only the supervisor may hold these: their other ends wait for the end
	unix.Close(readyFD)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start the supervisor: %w", err), life.Close(), beatRead.Close())
	}
	go w.hear(beatRead)
	return life, nil
}

// hear passes the supervisor's beats on. It ends with the supervisor.
func (w *watchdog) hear(beats *os.File) {
	defer close(w.beats)
	defer beats.Close() // only read
	buf := make([]byte, 64)
	for {
		if _, err := beats.Read(buf); err != nil {
			return
		}
		w.beats <- struct{}{}
	}
}

// Bounds of watchdog.stuck, in seconds. The watchdog counts ticks instead of
// measuring time, so that the time for which a machine was suspended does not
// count.
const (
	leastStuck = 3
	mostStuck  = 30
)

// stuckAfter returns after how many seconds without a beat a supervisor is killed.
// It is less than the lease: a stuck supervisor does not look at the lease, and
// after the lease nothing of the job may be left.
func stuckAfter(lease time.Duration) int {
	if lease <= 0 {
		return mostStuck
	}
	return min(max(int(lease.Seconds()*0.6), leastStuck), mostStuck)
}

// watch waits until the supervisor has ended. It passes the host's signals on and
// kills a supervisor that is stuck.
func (w *watchdog) watch(terms <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	beats, missed := w.beats, 0
	for {
		select {
		case <-w.supervisor.Done():
			go func() {
				for range w.beats { // hear may wait to pass one on
				}
			}()
			return
		case _, ok := <-beats:
			if missed = 0; !ok {
				beats = nil
			}
		case sig := <-terms:
			w.supervisor.Signal(sig.(unix.Signal))
		case <-tick.C:
			if missed++; missed == w.stuck {
				w.log.Printf("the supervisor has sent no beat for %d s: killing it", w.stuck)
				w.supervisor.Signal(unix.SIGKILL)
			}
		}
	}
}

// end kills what the supervisor has left and makes sure that state.json has a
// verdict.
func (w *watchdog) end() error {
	state, err := w.folder.ReadState()
	known := err == nil && state.Phase == protocol.Over
	limit := process.KillTime
	if known && len(state.Unkillable) > 0 {
		limit = 0 // the supervisor has waited for them
	}
	killed, left, err := w.children.Clear(limit)
	err = errors.Join(err, w.folder.RemoveSecret())
	if known {
		return err
	}
	how := fmt.Sprintf("the agent's supervisor was ended (%s)", describe(w.supervisor.Status()))
	w.log.Printf("%s; %d processes killed, %d left", how, killed, len(left))
	state.Unkillable = left
	return errors.Join(err, w.folder.WriteState(jobfolder.Ended(state, how)))
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit status %d", status.ExitStatus())
}
