package store

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

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/peers"
)

// purpose is that of the connections to the chief's store.
const purpose = "checkpoint"

// farewell bounds the end of a store that has nothing left to do.
const farewell = 2 * time.Second

var (
	errClosed = errors.New("the task is ending")
	errChief  = errors.New("checkpoints: only the chief does that")
)

// Store is a task's checkpoint store. Any goroutine may call its methods.
type Store struct {
	config   Config
	life     *lifetime.Lifetime
	hook     func(place string) error // called at named places; tests make it return faults
	folder   *checkpoint.Folder
	files    *transfer.Files
	parts    *parts
	decision decision
	chief    *chief        // nil if another task is the chief
	up       *mailbox      // messages to the chief
	joined   turn          // over when the chief has reported that all tasks are there, or why not
	gone     turn          // over when the chief sends nothing more
	leaving  chan struct{} // closed when this task is about to end
	leave    sync.Once     // closes leaving
}

// Open makes the folder if it is missing and waits for the stores of all other
// tasks, but not longer than Start. A task that is not there is named, in a
// [*peers.PeerError]. Every task calls Open once, early.
func Open(ctx context.Context, c Config) (*Store, error) {
	return open(ctx, c, func(string) error { return nil })
}

// open is Open with faults at the places that hook knows.
func open(ctx context.Context, c Config, hook func(place string) error) (*Store, error) {
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return nil, err
	}
	folder, err := checkpoint.OpenFolder(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoints of %s: %w", c.self(), err)
	}
	s := newStore(c, folder, hook)
	late := fmt.Errorf("not there within %v", c.Start)
	ctx, cancel := context.WithTimeoutCause(ctx, c.Start, late)
	defer cancel()
	if err := s.meet(ctx); err != nil {
		s.Close() // the first error says more
		return nil, err
	}
	return s, nil
}

func newStore(c Config, folder *checkpoint.Folder, hook func(string) error) *Store {
	s := &Store{
		config: c, life: lifetime.New(), hook: hook, folder: folder, up: newMailbox(),
		decision: decision{turn: newTurn()}, joined: newTurn(), gone: newTurn(), leaving: make(chan struct{}),
	}
	s.files = transfer.New(transfer.Config{Peers: c.Peers, Cluster: c.Cluster, Folder: folder, Silence: c.Silence, Name: c.name, Hook: hook}, s.life)
	s.parts = &parts{config: c, life: s.life, hook: hook, folder: folder, files: s.files, up: s.up, leaving: s.leaving}
	return s
}

// meet finds the other tasks, and which of them share a folder.
func (s *Store) meet(ctx context.Context) error {
	c, folder := s.config, s.folder
	token := rand.Text()
	if err := folder.Probe(token); err != nil {
		return fmt.Errorf("checkpoints of %s: %w", c.self(), err)
	}
	defer func() {
		if err := folder.Unprobe(token); err != nil {
			c.logf(slog.LevelWarn, "checkpoints of %s: %v", c.self(), err)
		}
	}()
	first := message{Kind: hello, Token: token}
	if c.Listener != nil {
		s.files.Serve(c.Listener)
	}
	if !c.Peers.Self.IsChief() {
		return s.join(ctx, first)
	}
	s.chief = &chief{config: c, life: s.life, hook: s.hook, roster: newRoster(c)}
	return s.chief.gather(ctx, s, first)
}

// Choose decides what all tasks resume from: the newest good checkpoint, see
// package choose, or nil for nothing. The chief calls it once.
func (s *Store) Choose(ctx context.Context, fits func(*checkpoint.Manifest) error) (*checkpoint.Manifest, error) {
	if s.chief == nil {
		return nil, errChief
	}
	if err := s.chief.choose(ctx, fits); err != nil {
		return nil, err
	}
	return s.Chosen(ctx)
}

// Chosen waits until the chief has chosen and returns what to resume from, nil
// for nothing. The caller does not change the manifest.
func (s *Store) Chosen(ctx context.Context) (*checkpoint.Manifest, error) {
	c, err := s.decision.await(ctx)
	return c.Manifest, err
}

// Restored reports that this task will read no more of the chosen checkpoint.
// Tasks that hold files of it stay until all workers have reported that.
func (s *Store) Restored() { s.up.post(message{Kind: restored}) }

// Busy reports whether a save is under way. The chief asks.
func (s *Store) Busy() bool {
	if s.chief == nil {
		return s.parts.busy() != ""
	}
	return s.chief.busy()
}

// Expect announces a save to all tasks, right before the chief makes shard
// holders copy what they have. It does not wait. Only one save is under way at
// a time, see Busy. The outcome is in the log, in Wait's error and in the
// Summary.
func (s *Store) Expect(e Expected) error {
	if s.chief == nil {
		return errChief
	}
	return s.chief.expect(e)
}

// Save takes a shard holder's copy of its pieces and returns at once. It is
// the hook of server.Config and client.Config.
func (s *Store) Save(snapshot transition.Snapshot) { s.parts.save(snapshot) }

// SaveCarried takes what a worker carried over from so many steps for the rows
// [lo, hi) of the global batch, and returns at once. The Store owns the data
// from then on.
func (s *Store) SaveCarried(step uint64, lo, hi int, values map[string]tensors.Carried) {
	s.parts.saveCarried(tensors.State{Step: step, Lo: lo, Hi: hi, Values: values})
}

// Summary returns what was saved so far. The chief asks.
func (s *Store) Summary() Summary {
	if s.chief == nil {
		return Summary{}
	}
	return s.chief.total()
}

// Close hangs up in bounded time, whatever is under way: see Wait. It leaves
// behind a write that the operating system does not end.
func (s *Store) Close() error {
	s.dismiss()
	s.life.End()
	s.gone.take(errClosed)
	s.decision.take(errClosed)
	s.joined.take(errClosed)
	if !s.life.Wait(farewell) {
		return fmt.Errorf("checkpoints of %s: a read or write does not end", s.config.self())
	}
	return nil
}

// Wait waits until no save is under way and returns the last one's error. For
// a task other than the chief it is the end: Wait returns once no task needs
// this one any more, to save or to read what it holds, and later saves do
// without it. Every task calls Wait before it ends in good order.
func (s *Store) Wait(ctx context.Context) error {
	if s.chief != nil {
		return s.chief.wait(ctx)
	}
	s.leave.Do(func() {
		close(s.leaving)
		s.up.post(message{Kind: leave})
	})
	select {
	case <-s.gone.done:
		return s.gone.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// dismiss is the chief's first part of Close. It lets all other tasks go and
// waits in bounded time until they have hung up. No save is completed any more.
func (s *Store) dismiss() {
	if s.chief != nil {
		s.chief.dismissing.Do(s.chief.dismiss)
	}
}

// Config says who a task is, where the others are and where checkpoints lie.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // gets the connections of other tasks; nil means that this is the only task
	Cluster  cluster.Spec
	Dir      string // folder of all checkpoints of the job on this host; Open creates it
	Keep     int    // number of checkpoints to keep; zero means 3
	// Start is how long Open waits for the other tasks. Zero means 2 minutes.
	Start time.Duration
	// Silence is how long a task may send nothing, or accept nothing that other
	// tasks send it, before it counts as lost. Zero means 30 seconds.
	Silence time.Duration
	// Job is the job's name, which is written into files for people who find them.
	Job string
	// Host names a task's host in messages. nil means the host of its address.
	Host func(cluster.Task) string
	// Logf gets a line for everything that is saved, restored or wrong. Several
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

// patience is how long a disk or a network may take for some bytes. One that is
// slower is stuck.
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
