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

// purpose is the name of connections from tasks to the store of the chief
// (worker 0). The chief's listener passes connections with this name to the
// store.
const purpose = "checkpoint"

// closeTimeout limits how long Close waits for other tasks to disconnect, and
// also how long it waits for its own goroutines to end.
const closeTimeout = 2 * time.Second

var (
	errClosed = errors.New("the task is ending")
	errChief  = errors.New("checkpoints: only the chief may do that")
)

// Store is one task's checkpoint store. Any goroutine may call its methods.
type Store struct {
	config   Config
	life     *lifetime.Lifetime
	hook     func(place string) error // called with an operation's name before it starts; tests return an error to make it fail
	folder   *checkpoint.Folder
	files    *transfer.Files
	parts    *parts
	decision decision
	chief    *chief        // makes the store's decisions; nil unless this task is the chief (worker 0)
	up       *mailbox      // messages to the chief
	joined   event         // happens when the chief has reported that all tasks are connected; fails if they are not
	gone     event         // happens when the connection to the chief has ended
	leaving  chan struct{} // closed when Wait is called, because this task is about to end
	leave    sync.Once     // makes sure that the channel leaving is closed only once
}

// Open creates the checkpoint folder if it is missing, and waits until all
// tasks of the job have opened their stores, at most for Config.Start. If a
// task is missing, a [*peers.PeerError] names it. Every task must call Open
// once, when it starts.
func Open(ctx context.Context, c Config) (*Store, error) {
	return open(ctx, c, func(string) error { return nil })
}

// open implements Open. Tests inject faults through hook.
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
		s.Close() // error ignored: err is the cause and is returned
		return nil, err
	}
	return s, nil
}

func newStore(c Config, folder *checkpoint.Folder, hook func(string) error) *Store {
	s := &Store{
		config: c, life: lifetime.New(), hook: hook, folder: folder, up: newMailbox(),
		decision: decision{event: newEvent()}, joined: newEvent(), gone: newEvent(), leaving: make(chan struct{}),
	}
	s.files = transfer.New(transfer.Config{Peers: c.Peers, Cluster: c.Cluster, Folder: folder, Silence: c.Silence, Name: c.name, Hook: hook}, s.life)
	s.parts = &parts{config: c, life: s.life, hook: hook, folder: folder, files: s.files, up: s.up, leaving: s.leaving}
	return s
}

// meet connects this task to the stores of the other tasks, and finds out
// which tasks share a checkpoint folder.
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

// Choose selects the checkpoint that all tasks resume from, by the rules of
// package choose, and returns its manifest. nil means that training begins
// from scratch. Only the chief (worker 0) may call Choose, once.
func (s *Store) Choose(ctx context.Context, fits func(*checkpoint.Manifest) error) (*checkpoint.Manifest, error) {
	if s.chief == nil {
		return nil, errChief
	}
	if err := s.chief.choose(ctx, fits); err != nil {
		return nil, err
	}
	return s.Chosen(ctx)
}

// Chosen waits until the chief has called Choose, and returns the manifest of
// the checkpoint to resume from. nil means that training begins from scratch.
// The caller must not change the manifest.
func (s *Store) Chosen(ctx context.Context) (*checkpoint.Manifest, error) {
	c, err := s.decision.await(ctx)
	return c.Manifest, err
}

// Restored reports to the chief (worker 0) that this task has read all it
// needs of the checkpoint from which the job resumes. Tasks that have files of
// the checkpoint do not end until all workers have called Restored.
func (s *Store) Restored() { s.up.post(message{Kind: restored}) }

// Busy reports whether a checkpoint is being written. In the chief it is true
// as long as any task writes; in another task, as long as that task takes
// part.
func (s *Store) Busy() bool {
	if s.chief == nil {
		return s.parts.busy() != ""
	}
	return s.chief.busy()
}

// Expect announces a save to all tasks and returns at once. Only the chief may
// call it. It must call Expect while Busy is false, right before the shard
// holders copy their values. The outcome of the save is logged, returned by
// Wait and counted in Summary.
func (s *Store) Expect(e Expected) error {
	if s.chief == nil {
		return errChief
	}
	return s.chief.expect(e)
}

// Save writes a shard holder's snapshot of its pieces in the background. It
// implements transition.Checkpoints, through which servers and clients call
// it.
func (s *Store) Save(snapshot transition.Snapshot) { s.parts.save(snapshot) }

// SaveCarried writes a worker's recurrent state for the rows [lo, hi) of the
// global batch in the background. step is the number of steps made when the
// worker had that state. The caller must not change values afterwards.
func (s *Store) SaveCarried(step uint64, lo, hi int, values map[string]tensors.Carried) {
	s.parts.saveCarried(tensors.State{Step: step, Lo: lo, Hi: hi, Values: values})
}

// Summary counts the saves of this run. Only the chief has counts; other tasks
// get zeros.
func (s *Store) Summary() Summary {
	if s.chief == nil {
		return Summary{}
	}
	return s.chief.total()
}

// Close ends all connections and reads within a few seconds, even if a save or
// restore is under way. It returns an error if a read or write hangs in the
// operating system. Call Wait first to end in good order.
func (s *Store) Close() error {
	s.dismiss()
	s.life.End()
	s.gone.take(errClosed)
	s.decision.take(errClosed)
	s.joined.take(errClosed)
	if !s.life.Wait(closeTimeout) {
		return fmt.Errorf("checkpoints of %s: a read or write hangs", s.config.self())
	}
	return nil
}

// Wait must be called before a task ends in good order. In the chief, it waits
// until no save is under way, and returns the error of the last save. In
// another task, it waits until no other task needs this one, neither to save
// nor to read its files. Later saves then do without this task.
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

// dismiss allows all other tasks to end, and waits at most two seconds until
// they have disconnected. It gives up a save that is under way. Only the
// chief's store does this; in other tasks dismiss does nothing.
func (s *Store) dismiss() {
	if s.chief != nil {
		s.chief.dismissing.Do(s.chief.dismiss)
	}
}

// Config has this task's identity, the addresses of the other tasks, and the
// folder of checkpoints.
type Config struct {
	Peers    peers.Config
	Listener *peers.Listener // accepts connections of other tasks; nil if the job has only this task
	Cluster  cluster.Spec
	Dir      string // folder for all checkpoints of the job on this host; Open creates it
	Keep     int    // number of checkpoints to keep; zero means 3
	// Start is how long Open waits for the other tasks. 0 means 2 minutes.
	Start time.Duration
	// Silence is the timeout of connections: a task that sends or accepts
	// nothing for this long counts as lost. 0 means 30 seconds.
	Silence time.Duration
	// Job is the job's name. It is only stored in the files' metadata, for
	// human readers.
	Job string
	// Host returns the name of a task's host, for messages. If Host is nil,
	// messages have the host in the task's address.
	Host func(cluster.Task) string
	// Logf receives a log line for every save, restore and error. Several
	// goroutines may call it. If it is nil, the store logs nothing.
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

// tasks returns all tasks of the job: the servers, then the workers.
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

// host returns the name of a task's host, for messages.
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

// name returns a task and its host, for messages.
func (c Config) name(t cluster.Task) string { return t.String() + " on " + c.host(t) }

// self names this task.
func (c Config) self() string { return c.name(c.Peers.Self) }

// timeout returns the longest time that moving this many bytes over a disk or
// a network may take: Silence, and one second more for every 8 MiB.
func (c Config) timeout(bytes int64) time.Duration {
	const slowest = 8 << 20 // bytes per second; a disk or network that is slower counts as stuck
	return c.Silence + time.Duration(bytes/slowest)*time.Second
}

// blame returns err as a *peers.PeerError that names t as the cause. If err
// already names a task, blame returns err unchanged.
func (c Config) blame(t cluster.Task, err error) error {
	var known *peers.PeerError
	if errors.As(err, &known) {
		return err
	}
	return &peers.PeerError{Task: t, Addr: c.Cluster.Addr(t), Err: fmt.Errorf("checkpoints: %w", peers.Lost(err))}
}
