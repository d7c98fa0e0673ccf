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
	firstPause  = 20 * time.Millisecond // after a failed attempt; then twice as long
	longestWait = time.Second
	attemptTime = 10 * time.Second // for one attempt to connect
)

// Dial reaches a task for a purpose. It tries again, with growing pauses,
// until ctx ends: the task's process may not run yet. A proof that fails is
// final. The error is a [*PeerError].
func Dial(ctx context.Context, c Config, to cluster.Task, addr, purpose string) (net.Conn, error) {
	if err := checkPurpose(purpose); err != nil {
		return nil, &PeerError{Task: to, Addr: addr, Err: err}
	}
	var before error // what the last whole attempt came to
	for wait := firstPause; ; wait = min(2*wait, longestWait) {
		conn, err := attempt(ctx, c, to, addr, purpose)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, cluster.ErrProof) {
			return nil, &PeerError{Task: to, Addr: addr, Err: err}
		}
		if before == nil || !over(ctx) { // one that was cut short says less
			before = err
		}
		if !pause(ctx, wait) {
			return nil, &PeerError{Task: to, Addr: addr, Err: fmt.Errorf("%w: %w", context.Cause(ctx), before)}
		}
	}
}

// over reports whether ctx has ended, or is about to: a dialler may notice first.
func over(ctx context.Context) bool {
	deadline, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(deadline)
}

func attempt(ctx context.Context, c Config, to cluster.Task, addr, purpose string) (net.Conn, error) {
	dialler := net.Dialer{Timeout: attemptTime}
	conn, err := dialler.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	protected, err := channel.Dial(ctx, conn, c.channel(), name(c.Self, purpose), name(to, purpose))
	if err != nil {
		conn.Close() // the first error says it all
		return nil, err
	}
	return protected, nil
}

// pause reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (c Config) channel() channel.Config { return channel.Config{Key: c.Key, TLS: c.TLS} }

const maxPurpose = 32 // bytes

// name is what a task of the job is called in a proof.
func name(t cluster.Task, purpose string) string { return t.String() + "/" + purpose }

func checkPurpose(purpose string) error {
	if purpose == "" || len(purpose) > maxPurpose || strings.Trim(purpose, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return fmt.Errorf("purpose %q: want 1 to %d small letters", purpose, maxPurpose)
	}
	return nil
}

// admit returns the task of a proved name that came for purpose.
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

// gate lets diallers prove themselves to this task, for the purpose that they name.
func (c Config) gate() *channel.Gate {
	return channel.NewGate(c.channel(), func(dialler string) string { return name(c.Self, purposeOf(dialler)) })
}

// purposeOf returns the purpose in the name that a dialler gives itself.
func purposeOf(name string) string {
	_, purpose, _ := strings.Cut(name, "/")
	return purpose
}
