package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/internal/filelock"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/scratch"
	"github.com/plx-run/plx/launcher/submission"
)

// Launching is a launch whose job does not exist yet: plx still connects to
// hosts, waits for GPUs or sends files. The launching machine stores the
// launch in the file ~/.plx/launching/<pid>. While the launching process
// lives, it holds a lock on this file. An unlocked file belongs to a process
// that has died.
type Launching struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`           // host name of the launching machine
	Name    string    `json:"name,omitempty"` // the user's name for the job; empty if the user gave none
	Program string    `json:"program"`        // file name of the program
	Begun   time.Time `json:"begun"`

	path string
}

// launchingFolder returns ~/.plx/launching.
func launchingFolder() (string, error) {
	jobs, err := submission.Root()
	return filepath.Join(filepath.Dir(jobs), "launching"), err
}

// Announce writes a file about this launch, so that plx stop finds the launch
// before it has stored its job. The caller must call done after it has stored
// the job or has given up the launch.
func Announce(name, program string) (done func(), err error) {
	dir, err := launchingFolder()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	RemoveDeadLaunches()
	l := Launching{PID: os.Getpid(), Host: host, Name: name, Program: program, Begun: time.Now()}
	f, err := l.create(dir)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(f).Encode(l); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return func() {
		_ = os.Remove(f.Name()) // if Remove fails, the file stays, but an unlocked file counts as dead
		_ = f.Close()           // releases the lock
	}, nil
}

// create makes an empty file for the launch and locks it. If several machines
// share a home directory, two launches may have the same pid. In that case,
// create appends a number to the file's name.
func (l Launching) create(dir string) (*os.File, error) {
	path := filepath.Join(dir, strconv.Itoa(l.PID))
	for n := range 20 {
		// Try the name without a number several times. Another process may
		// hold the lock for a moment, to find out whether the launch is dead.
		if n >= 10 {
			path = filepath.Join(dir, fmt.Sprintf("%d.%d", l.PID, n))
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		// Lock fails if another launch holds the lock. It also fails if
		// another process has just removed the file, because it took the
		// launch for dead.
		if filelock.Lock(f, path) {
			return f, f.Truncate(0)
		}
		f.Close() // the error is ignored because nothing was written
	}
	return nil, fmt.Errorf("%s belongs to another launch", path)
}

// RemoveDeadLaunches removes the files that killed launches have left on this machine.
func RemoveDeadLaunches() {
	scratch.Tidy()
	_, _ = launchings() // called for its side effect: it removes the files of dead launches
}

// launchings returns the launches from this home directory that have no job
// yet. It removes the files of dead launches.
func launchings() (all []Launching, err error) {
	dir, err := launchingFolder()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		l := Launching{path: filepath.Join(dir, e.Name())}
		prepares, err := filelock.Locked(l.path)
		if err != nil {
			return nil, err
		}
		if !prepares {
			_ = os.Remove(l.path) // if Remove fails, the next call of launchings tries again
			continue
		}
		text, err := bounded.ReadFile(l.path, bounded.Words)
		if err == nil && json.Unmarshal(text, &l) == nil { // skip a file without valid JSON: its launch is just writing or removing it
			all = append(all, l)
		}
	}
	return all, nil
}

// label returns the name of the launch in messages: the name that the user
// gave, or the program's name.
func (l Launching) label() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Program
}

// launching returns the newest launch that matches the query and has not
// created its job yet.
func (q Query) launching() (newest Launching, found bool, err error) {
	if q.OnHosts {
		return newest, false, nil
	}
	all, err := launchings()
	for _, l := range all {
		if (q.Job == "" || q.Job == l.Name || q.Job == l.Program) && l.Begun.After(newest.Begun) {
			newest, found = l, true
		}
	}
	return newest, found, err
}

// launchEnds bounds how long plx stop waits for a launch to end after SIGTERM.
const launchEnds = time.Minute

// stop ends the launch with SIGTERM. If the launch has created its job
// meanwhile, stop returns the job's id, so that the caller can end the job
// too.
func (l Launching) stop(ctx context.Context) (job string, err error) {
	if here, err := os.Hostname(); err != nil || here != l.Host {
		return "", exit.Mistake(fmt.Errorf("%s is still being launched, by process %d on %s", l.label(), l.PID, l.Host), "plx stop on %s", l.Host)
	}
	if err := syscall.Kill(l.PID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return "", fmt.Errorf("stop the launch of %s, process %d: %w", l.label(), l.PID, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, launchEnds, fmt.Errorf("it has not ended within %v", launchEnds))
	defer cancel()
	for {
		prepares, err := filelock.Locked(l.path)
		if err != nil {
			return "", err
		}
		if !prepares {
			break
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("stop the launch of %s, process %d: %w", l.label(), l.PID, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
	rs, err := Records()
	for _, r := range rs {
		if r.Launcher == l.PID && !r.Created.Before(l.Begun.Add(-time.Second)) {
			job = r.Job
		}
	}
	return job, err
}
