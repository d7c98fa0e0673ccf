package depot

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/plx-run/plx/internal/failpoint"
	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/owner"
	"github.com/plx-run/plx/trainer/peers"
)

// The purposes of connections between depots.
const (
	purpose     = "checkpoint"
	readPurpose = "checkpoint-read"
	copyPurpose = "checkpoint-copy"
)

// farewell bounds the end of a depot that has nothing left to do.
const farewell = 2 * time.Second

// Config says who a task is, where the others are and where checkpoints lie.
type Config struct {
	Peers   peers.Config
	Door    *peers.Door // nil: this is the only task
	Cluster cluster.Spec
	Dir     string // of all checkpoints of the job; it is made
	Keep    int    // how many stay; 0 means 3
	// Start bounds how long Open waits for the other tasks, 0 means 2 minutes;
	// Silence how long one may say nothing, or take nothing that it is sent, 0
	// means 30 seconds.
	Start   time.Duration
	Silence time.Duration
	// Job is written into files, for those who find them.
	Job string
	// Host names a task's host in messages; nil: by its address.
	Host func(cluster.Task) string
	// Logf is told what is saved and restored, and what is wrong. It may be
	// called by several goroutines and may be nil.
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
	case c.Door == nil && (len(c.tasks()) > 1 || !c.Peers.Self.IsChief()):
		return errors.New("checkpoints: no door to the other tasks")
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

// name is a task and where to look for it.
func (c Config) name(t cluster.Task) string { return t.String() + " on " + c.host(t) }

// patience is how long a disk or a network may take for so many bytes: what is
// slower than this is stuck.
func (c Config) patience(bytes int64) time.Duration {
	const slowest = 8 << 20 // bytes in a second
	return c.Silence + time.Duration(bytes/slowest)*time.Second
}

// blame makes a task the cause of an error.
func (c Config) blame(t cluster.Task, err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: t, Addr: c.Cluster.Addr(t), Err: fmt.Errorf("checkpoints: %w", peers.Lost(err))}
}

// Depot is a task's checkpoint folder. Its methods may be called by any
// goroutine.
type Depot struct {
	config  Config
	folder  *checkpoint.Folder
	chief   *chief   // nil: it is another task's
	up      *mailbox // to the chief
	library library  // what is read of the chosen checkpoint

	// during runs f unless the depot is closed, and start runs it on a goroutine
	// of its own. Close ends f's context and waits for f.
	during, start func(f func(ctx context.Context)) bool
	leave         context.CancelFunc
	hook          func(place string) error // where tests put faults

	joined, chosen turn // what the chief says, once
	gone           turn // it says nothing more

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
	leaving chan struct{} // closed: this task is about to end
	choice  choice
	part    *part // of the save that is under way, nil: none
	begun   chan struct{}
	early   *owner.Snapshot // of a save that this task has not heard of yet
	ahead   []state         // likewise, by step
}

// turn is something that happens once, well or badly.
type turn struct {
	once sync.Once
	done chan struct{}
	err  error // once done is closed
}

func newTurn() turn { return turn{done: make(chan struct{})} }

func (t *turn) take(err error) {
	t.once.Do(func() {
		t.err = err
		close(t.done)
	})
}

var errClosed = errors.New("the task is ending")

// Open makes the folder where it is missing and waits for the depots of all
// other tasks, at most for Start: a task that is not there is named, in a
// [*peers.PeerError]. Every task calls it once, early.
func Open(ctx context.Context, c Config) (*Depot, error) { return open(ctx, c, failpoint.Here) }

// open is Open with faults where hook wants them.
func open(ctx context.Context, c Config, hook func(place string) error) (*Depot, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	folder, err := checkpoint.OpenFolder(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoints of %s: %w", c.name(c.Peers.Self), err)
	}
	d := newDepot(c, folder, hook)
	late := fmt.Errorf("not there within %v", c.Start)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Start, late)
	defer cancel()
	if err := d.meet(ctx); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func newDepot(c Config, folder *checkpoint.Folder, hook func(string) error) *Depot {
	ctx, cancel := context.WithCancel(context.Background())
	d := &Depot{
		config: c, folder: folder, leave: cancel, hook: hook, up: newMailbox(),
		joined: newTurn(), chosen: newTurn(), gone: newTurn(),
		leaving: make(chan struct{}), begun: make(chan struct{}),
	}
	d.library.depot = d
	d.during = func(f func(context.Context)) bool {
		if !d.enter() {
			return false
		}
		defer d.running.Done()
		f(ctx)
		return true
	}
	d.start = func(f func(context.Context)) bool {
		if !d.enter() {
			return false
		}
		go func() {
			defer d.running.Done()
			f(ctx)
		}()
		return true
	}
	return d
}

// enter counts something that Close waits for.
func (d *Depot) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running.Add(1)
	return true
}

// meet announces what the folder holds and finds the other tasks.
func (d *Depot) meet(ctx context.Context) error {
	token := rand.Text()
	if err := d.folder.Probe(token); err != nil {
		return fmt.Errorf("checkpoints of %s: %w", d.self(), err)
	}
	defer func() {
		if err := d.folder.Unprobe(token); err != nil {
			d.config.logf(slog.LevelWarn, "checkpoints of %s: %v", d.self(), err)
		}
	}()
	holding, err := d.announce()
	if err != nil {
		return fmt.Errorf("checkpoints of %s: %w", d.self(), err)
	}
	first := message{Kind: hello, Token: token, Holding: holding}
	if door := d.config.Door; door != nil {
		door.Handle(readPurpose, d.serveReads)
		door.Handle(copyPurpose, d.receiveCopy)
	}
	if d.config.Peers.Self.IsChief() {
		return d.gather(ctx, first)
	}
	return d.join(ctx, first)
}

// self names this task.
func (d *Depot) self() string { return d.config.name(d.config.Peers.Self) }

// Close hangs up, in bounded time and whatever is under way: see Wait. A write
// that the operating system does not end is left behind.
func (d *Depot) Close() error {
	d.Dismiss()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.leave()
	d.gone.take(errClosed)
	d.chosen.take(errClosed)
	d.joined.take(errClosed)
	left := make(chan struct{})
	go func() {
		d.running.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-time.After(farewell):
		return fmt.Errorf("checkpoints of %s: a read or write goes on that does not end", d.self())
	}
}
