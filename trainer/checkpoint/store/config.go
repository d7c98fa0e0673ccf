package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// Config says who a task is, where the others are and where checkpoints lie.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // nil: this is the only task
	Cluster  cluster.Spec
	Dir      string // of all checkpoints of the job; Open makes it
	Keep     int    // number of checkpoints that stay; zero means 3
	// Start is how long Open waits for the other tasks. Zero means 2 minutes.
	Start time.Duration
	// Silence is how long a task may send nothing, or take nothing that it is
	// sent. Zero means 30 seconds.
	Silence time.Duration
	// Job is written into files, for people who find them.
	Job string
	// Host names a task's host in messages. nil: the host of its address.
	Host func(cluster.Task) string
	// Logf gets what is saved and restored, and what is wrong. Several
	// goroutines may call it. nil drops the lines.
	Logf func(level slog.Level, format string, args ...any)
}

func (c Config) withDefaults() Config {
	c.Keep = cmp.Or(c.Keep, 3)
	c.Start = cmp.Or(c.Start, 2*time.Minute)
	c.Silence = cmp.Or(c.Silence, 30*time.Second)
	return c
}

func (c Config) check() error {
	switch {
	case c.Dir == "":
		return errors.New("checkpoints: no folder is given")
	case c.Keep < 1:
		return fmt.Errorf("checkpoints: %d are to be kept, want at least 1", c.Keep)
	case c.Start < 0 || c.Silence < 0:
		return errors.New("checkpoints: a time to wait is negative")
	case c.Listener == nil && (len(c.tasks()) > 1 || !c.Peers.Self.IsChief()):
		return errors.New("checkpoints: no listener for the other tasks")
	}
	return nil
}

// tasks are all tasks of the job.
func (c Config) tasks() (all []cluster.Task) {
	for i := range c.Peers.Servers {
		all = append(all, cluster.Task{Role: cluster.PS, Index: i})
	}
	for i := range max(1, c.Peers.Workers) {
		all = append(all, cluster.Task{Role: cluster.Worker, Index: i})
	}
	return all
}

func (c Config) logf(level slog.Level, format string, args ...any) {
	if c.Logf != nil {
		c.Logf(level, format, args...)
	}
}

// host names the host of a task.
func (c Config) host(t cluster.Task) string {
	if c.Host != nil {
		return c.Host(t)
	}
	host, _, err := net.SplitHostPort(c.Cluster.Addr(t))
	if err != nil {
		return "this host"
	}
	return host
}

// name is a task and its host.
func (c Config) name(t cluster.Task) string { return t.String() + " on " + c.host(t) }

// self names this task.
func (c Config) self() string { return c.name(c.Peers.Self) }

// patience is how long a disk or a network may take for some bytes.
func (c Config) patience(bytes int64) time.Duration { return transfer.Patience(c.Silence, bytes) }

// blame makes a task the cause of an error.
func (c Config) blame(t cluster.Task, err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: t, Addr: c.Cluster.Addr(t), Err: fmt.Errorf("checkpoints: %w", peers.Lost(err))}
}
