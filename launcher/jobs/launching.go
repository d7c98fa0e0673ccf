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

// Launching is a launch that has no job yet: it connects to hosts, waits for GPUs or
// sends files. It is a file ~/.plx/launching/<pid> of the launching machine, which the
// launcher keeps locked as long as it prepares. One without a lock is a dead launch's.
type Launching struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`           // name of the launching machine
	Name    string    `json:"name,omitempty"` // the user's name for the job; empty: none
	Program string    `json:"program"`        // its file name
	Begun   time.Time `json:"begun"`

	path string
}

// launchingFolder returns ~/.plx/launching.
func launchingFolder() (string, error) {
	jobs, err := submission.Root()
	return filepath.Join(filepath.Dir(jobs), "launching"), err
}

// Announce lets plx stop find a launch before its job has a record. done is called after
// the record was written, or the launch was given up.
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
	Tidy()
	l := Launching{PID: os.Getpid(), Host: host, Name: name, Program: program, Begun: time.Now()}
	f, err := l.create(dir)
	if err != nil {
		return nil, err
	}
	if err := json.NewEncoder(f).Encode(l); err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return func() {
		_ = os.Remove(f.Name()) // a file that stays is without a lock
		_ = f.Close()           // releases the lock
	}, nil
}

// create makes an empty file of the launch, which it locks. Of machines that share the home, two
// may have processes of one number.
func (l Launching) create(dir string) (*os.File, error) {
	path := filepath.Join(dir, strconv.Itoa(l.PID))
	for n := range 20 {
		if n >= 10 { // in the tries before, somebody may just have looked whether it is dead
			path = filepath.Join(dir, fmt.Sprintf("%d.%d", l.PID, n))
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		if filelock.Lock(f, path) { // else it is another one's, or was taken for a dead one's in this moment
			return f, f.Truncate(0)
		}
		f.Close() // nothing was written
	}
	return nil, fmt.Errorf("%s belongs to another launch", path)
}

// Tidy removes what launches have left on this machine that were killed.
func Tidy() {
	scratch.Tidy()
	_, _ = launchings() // what cannot be removed stays
}

// launchings returns the launches of this home that have no job yet. It removes what dead
// ones have left.
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
			_ = os.Remove(l.path) // else the next one does
			continue
		}
		text, err := bounded.ReadFile(l.path, bounded.Words)
		if err == nil && json.Unmarshal(text, &l) == nil { // else it has just begun, or ended
			all = append(all, l)
		}
	}
	return all, nil
}

// label names the launch to the user.
func (l Launching) label() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Program
}

// launching returns the newest launch without a job that the query means.
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

// launchEnds bounds how long a launch takes to end after a signal.
const launchEnds = time.Minute

// stop ends the launch, and returns the id of its job if it has got one meanwhile.
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
