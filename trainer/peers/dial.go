package peers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/cluster/channel"
)

const (
	firstPause     = 20 * time.Millisecond // pause after the first failed attempt; each later pause is twice as long
	maxPause       = time.Second           // maximum pause between two attempts
	attemptTimeout = 10 * time.Second      // time limit of one attempt to connect
)

// Dial connects to a task for a purpose, such as "collective". It retries with
// growing pauses until ctx ends, because the task's process may not run yet.
// If the task does not accept the proof of the job's secret, Dial does not
// retry. The error is a [*PeerError].
func Dial(ctx context.Context, c Config, to cluster.Task, addr, purpose string) (net.Conn, error) {
	if err := checkPurpose(purpose); err != nil {
		return nil, &PeerError{Task: to, Addr: addr, Err: err}
	}
	var before error // error of the last attempt that ctx did not cut short; returned when Dial gives up
	for wait := firstPause; ; wait = min(2*wait, maxPause) {
		conn, err := attempt(ctx, c, to, addr, purpose)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, cluster.ErrProof) {
			return nil, &PeerError{Task: to, Addr: addr, Err: err}
		}
		// If the end of ctx stopped this attempt, its error says less than
		// that of an earlier attempt.
		if before == nil || !over(ctx) {
			before = err
		}
		if !pause(ctx, wait) {
			return nil, &PeerError{Task: to, Addr: addr, Err: fmt.Errorf("%w: %w", context.Cause(ctx), before)}
		}
	}
}

// over reports whether ctx has ended or its deadline has passed. The net
// package may notice the deadline before ctx does.
func over(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

func attempt(ctx context.Context, c Config, to cluster.Task, addr, purpose string) (net.Conn, error) {
	dialler := net.Dialer{Timeout: attemptTimeout}
	conn, err := dialler.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	protected, err := channel.Dial(ctx, conn, c.channel(), name(c.Self, purpose), name(to, purpose))
	if err != nil {
		conn.Close() // err says more than an error of Close
		return nil, err
	}
	return protected, nil
}

// pause waits for d. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (c Config) channel() channel.Config { return channel.Config{Key: c.Key, TLS: c.TLS} }

const maxPurpose = 32 // maximum length of a purpose in bytes

// name returns the name of a task in the proof of the job's secret, such as
// worker:3/collective.
func name(t cluster.Task, purpose string) string { return t.String() + "/" + purpose }

func checkPurpose(purpose string) error {
	if purpose == "" || len(purpose) > maxPurpose || strings.Trim(purpose, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return fmt.Errorf("purpose %q: want 1 to %d small letters", purpose, maxPurpose)
	}
	return nil
}

// admit returns the task whose name the dialling peer has proved. It returns
// an error if the job has no such task, or if the purpose is invalid.
func (c Config) admit(proved, purpose string) (cluster.Task, error) {
	if err := checkPurpose(purpose); err != nil {
		return cluster.Task{}, err
	}
	text, _ := strings.CutSuffix(proved, "/"+purpose)
	task, err := cluster.ParseTask(text)
	if err != nil || !c.has(task) {
		return cluster.Task{}, fmt.Errorf("%q is no task of this job", text)
	}
	return task, nil
}

// gate returns a Gate, which checks the proofs of connections to this task.
// This task's own name in a proof includes the purpose that the dialling peer
// asks for.
func (c Config) gate() *channel.Gate {
	return channel.NewGate(c.channel(), func(dialler string) string { return name(c.Self, purposeOf(dialler)) })
}

// purposeOf returns the purpose of the connection, which is the part of a
// dialler's name after the slash.
func purposeOf(name string) string {
	_, purpose, _ := strings.Cut(name, "/")
	return purpose
}
