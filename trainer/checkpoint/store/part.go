package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/safetensors"
)

// parts writes this task's files of each checkpoint. It receives snapshots
// from the trainer and writes them to files when the chief (worker:0) says so.
type parts struct {
	config  Config
	life    *lifetime.Lifetime
	hook    func(place string) error // called with an operation's name before it starts; tests return an error to make it fail
	folder  *checkpoint.Folder
	files   *transfer.Files
	up      *mailbox        // messages to the chief
	leaving <-chan struct{} // closed when this task is about to end

	removing sync.Mutex // mutex that retain holds; two calls of retain at the same time could log one removal twice

	mu      sync.Mutex
	current *part                // this task's share of the checkpoint that is being saved; nil if none is
	early   *transition.Snapshot // snapshot of a save that the chief has not announced yet; nil if there is none
	ahead   []tensors.State      // recurrent states that arrived before the chief had announced their save, ascending by step
}

// part is this task's share of one checkpoint: the files that it writes, and
// the progress of writing them.
type part struct {
	id      string          // ID of the checkpoint
	step    uint64          // number of training steps after which the checkpoint is taken
	number  uint64          // number that the shard holders' snapshots for this save carry, see Expected.Number
	wanted  wanted          // says what this task writes in the save
	ctx     context.Context // ends when this task's work on the checkpoint is over
	cancel  context.CancelCauseFunc
	pieces  chan transition.Snapshot // receives the shard holder's snapshot; buffer of one
	state   chan tensors.State       // receives the worker's recurrent state; buffer of one
	running sync.WaitGroup           // running goroutines that write files of this checkpoint
}

// save receives the snapshot of this task's shard holder. The snapshot is for
// the current save, or for the next one, which the chief has not announced
// yet.
func (p *parts) save(s transition.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.current; c != nil && c.compare(s) <= 0 {
		give(c.pieces, s, c.compare(s) == 0 && c.wanted.Pieces)
		return
	}
	p.early = &s // keep the snapshot until the chief's announcement of its save arrives
}

// compare returns 0 if snapshot s belongs to this save. It returns a negative
// number if s belongs to an earlier save, and a positive number if s belongs
// to a later save.
func (p *part) compare(s transition.Snapshot) int {
	return cmp.Or(cmp.Compare(s.Step, p.step), cmp.Compare(s.Number, p.number))
}

// maxAhead is the maximal length of parts.ahead: one state for the next
// checkpoint, and the state after the last step, which a worker always sends.
const maxAhead = 2

// saveCarried receives the recurrent state of this task's worker. The state is
// for the current save or for a later one.
func (p *parts) saveCarried(s tensors.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.current; c != nil && c.step >= s.Step {
		give(c.state, s, c.step == s.Step && c.wanted.State)
		return
	}
	p.ahead = append(p.ahead, s)
	p.ahead = p.ahead[max(0, len(p.ahead)-maxAhead):]
}

// give sends x to the channel if wanted is true and the buffer is empty. It
// never blocks.
func give[T any](to chan T, x T, wanted bool) {
	if !wanted {
		return
	}
	select {
	case to <- x:
	default:
	}
}

// begin starts to save this task's share of the checkpoint that message m
// announces. The chief (worker:0) announces a checkpoint only after the
// previous one has ended.
func (p *parts) begin(ctx context.Context, m message) {
	p.cancel(errors.New("the next save has begun"))
	ctx, cancel := context.WithCancelCause(ctx)
	c := &part{id: m.ID, step: m.Step, number: m.Number, wanted: m.Wanted, ctx: ctx, cancel: cancel,
		pieces: make(chan transition.Snapshot, 1), state: make(chan tensors.State, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = c
	if s := p.early; s != nil && c.compare(*s) <= 0 {
		give(c.pieces, *s, c.compare(*s) == 0)
		p.early = nil
	}
	for len(p.ahead) > 0 && p.ahead[0].Step <= c.step {
		give(c.state, p.ahead[0], p.ahead[0].Step == c.step)
		p.ahead = p.ahead[1:]
	}
	if c.wanted.Pieces {
		p.work(c, func() { p.report(c, p.writePieces(c)) })
	}
	if c.wanted.State {
		p.work(c, func() { p.report(c, p.writeState(c)) })
	}
}

// work runs f on a goroutine that c.running counts. It returns false without
// running f if this task is ending.
func (p *parts) work(c *part, f func()) bool {
	c.running.Add(1)
	started := p.life.Go(func(context.Context) {
		defer c.running.Done()
		f()
	})
	if !started {
		c.running.Done()
	}
	return started
}

// keep starts to copy a checkpoint file from the task that wrote it to this
// host, as a second copy. Message m is the chief's request for this.
func (p *parts) keep(m message) error {
	if m.File == nil {
		return errors.New("a keep message without a file")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.current; c != nil && c.id == m.ID {
		p.work(c, func() {
			err := p.fetch(c, *m.File)
			p.report(c, report{Copy: true, File: m.File, Err: failure(err)})
		})
	}
	return nil
}

// fetch copies a file from the task that wrote it. It fails if the size or
// checksum of the copy differs from what that task has reported.
func (p *parts) fetch(c *part, file checkpoint.File) error {
	from, err := cluster.ParseTask(file.Task)
	if err != nil {
		return err
	}
	got, err := p.write(c, file.Name, file.Size, func(w io.Writer) error {
		if err := p.hook("store.copy"); err != nil {
			return err
		}
		if err := p.files.Fetch(c.ctx, c.id, file, from, w); err != nil {
			return err
		}
		return p.hook("store.flush")
	})
	if err == nil && (got.Size != file.Size || got.Sum != file.Sum) {
		err = fmt.Errorf("the copy has %d bytes and checksum %.12s, the original %d bytes and %.12s", got.Size, got.Sum, file.Size, file.Sum)
	}
	return err
}

// cancel ends this task's work on the checkpoint that is being saved, if any.
// why is the reason.
func (p *parts) cancel(why error) {
	if c := p.drop(func(*part) bool { return true }); c != nil {
		c.cancel(why)
	}
}

// drop sets parts.current to nil and returns the old value, if meant returns
// true for it. Otherwise drop changes nothing and returns nil.
func (p *parts) drop(meant func(*part) bool) *part {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.current
	if c == nil || !meant(c) {
		return nil
	}
	p.current = nil
	return c
}

// busy returns the ID of the checkpoint that is being saved, or "" if none is.
func (p *parts) busy() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	return p.current.id
}

// finish ends this task's work on a checkpoint when the chief reports that the
// checkpoint is complete or has failed. If it has failed, finish deletes the
// files.
func (p *parts) finish(m message) {
	c := p.drop(func(c *part) bool { return c.id == m.ID })
	if c != nil {
		c.cancel(errors.New("the save has failed elsewhere"))
	}
	if !m.Remove {
		return
	}
	p.life.Go(func(context.Context) {
		if c != nil {
			c.running.Wait() // Wait for running writes: without the wait, a file could appear after Discard.
		}
		if err := p.folder.Discard(m.ID); err != nil {
			p.config.logf(slog.LevelDebug, "checkpoints of %s: %v", p.config.self(), err)
		}
	})
}

// commit writes the manifest of the current save to this task's folder.
func (p *parts) commit(m message) error {
	if p.busy() != m.ID {
		return fmt.Errorf("checkpoint %s is not being saved here", m.ID)
	}
	manifest, err := checkpoint.DecodeManifest(m.Body)
	if err != nil {
		return err
	}
	if manifest.ID != m.ID {
		return fmt.Errorf("the manifest is of checkpoint %s", manifest.ID)
	}
	if err := p.folder.WriteManifest(manifest); err != nil {
		return err
	}
	return p.hook("store.ack")
}

// retain deletes old checkpoints from the folder. It keeps the newest ones, as
// many as keep says, and the one that is being written.
func (p *parts) retain(keep int) {
	p.removing.Lock()
	defer p.removing.Unlock()
	removed, err := p.folder.Retain(max(1, keep), p.busy())
	if err != nil {
		p.config.logf(slog.LevelWarn, "checkpoints of %s: %v", p.config.self(), err)
	}
	for _, id := range removed {
		p.config.logf(slog.LevelDebug, "checkpoint %s: removed from %s, newer ones are there", id, p.config.host(p.config.Peers.Self))
	}
}

// report sends the chief the outcome of this task's work on a checkpoint, or
// of copying a file.
func (p *parts) report(c *part, r report) {
	if err := p.hook("store.report"); err != nil {
		r.Err = failure(err)
	}
	p.up.post(message{Kind: reported, ID: c.id, Report: &r})
}

// writePieces waits for the shard holder's snapshot and writes it to a file.
func (p *parts) writePieces(c *part) report {
	s, err := await(c.ctx, p.leaving, c.pieces, "the shard holder's values", p.config.Silence)
	if err != nil {
		return report{Err: failure(err)}
	}
	content, err := tensors.OfPieces(s)
	if err != nil {
		return report{Held: int64(s.Held), Err: failure(err)}
	}
	r := p.writeContent(c, false, content)
	r.Held = int64(s.Held)
	return r
}

// writeState waits for the worker's recurrent state and writes it to a file.
// The trainer sends this state only after the worker's next step.
func (p *parts) writeState(c *part) report {
	s, err := await(c.ctx, p.leaving, c.state, "the worker's state", 0)
	if err != nil {
		return report{State: true, Err: failure(err)}
	}
	return p.writeContent(c, true, tensors.OfState(s, tensors.FileName(p.config.Peers.Self, true)))
}

// await waits until the trainer sends a value on the channel from, but no
// longer than most (0 means no limit). It fails if ctx ends, or if this task
// is leaving.
func await[T any](ctx context.Context, leaving <-chan struct{}, from <-chan T, what string, most time.Duration) (x T, err error) {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("%s did not come within %v", what, most))
		defer cancel()
	}
	select {
	case x = <-from:
		return x, nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	case <-leaving:
	}
	select {
	case x = <-from:
		return x, nil
	default:
		return x, fmt.Errorf("%w, %s will not come", errClosed, what)
	}
}

// writeContent writes tensors to this task's file in the checkpoint. If there
// are no tensors, it writes no file.
func (p *parts) writeContent(c *part, state bool, content tensors.Content) report {
	r := report{State: state, Parts: content.Parts, Carried: content.Carried}
	if len(content.Tensors) == 0 {
		return r
	}
	self := p.config.Peers.Self
	metadata := map[string]string{"format": "plx", "job": p.config.Job, "checkpoint": c.id, "task": self.String()}
	file, err := p.write(c, tensors.FileName(self, state), content.Size(), func(w io.Writer) error {
		if err := p.hook("store.write"); err != nil {
			return err
		}
		_, err := safetensors.Write(w, metadata, content.Tensors)
		return err
	})
	file.Task = self.String()
	r.File, r.Err = &file, failure(err)
	return r
}

// write writes a file of about size bytes; the function fill writes the
// content. If the disk hangs longer than the timeout, write returns an error,
// and the goroutine that writes the file remains.
func (p *parts) write(c *part, name string, size int64, fill func(io.Writer) error) (checkpoint.File, error) {
	type written struct {
		file checkpoint.File
		err  error
	}
	most := p.config.timeout(size)
	ctx, cancel := context.WithCancelCause(c.ctx)
	defer cancel(nil)
	stuck := time.AfterFunc(most, func() { cancel(fmt.Errorf("nothing moved for %v", most)) })
	defer stuck.Stop()
	done := make(chan written, 1)
	started := p.work(c, func() {
		file := checkpoint.File{Name: name}
		var err error
		file.Size, file.Sum, err = p.folder.Write(c.id, name, func(w io.Writer) error {
			return fill(moving{ctx, w, stuck, most})
		})
		done <- written{file, err}
	})
	if !started {
		return checkpoint.File{}, errClosed
	}
	select {
	case w := <-done:
		return w.file, w.err
	case <-ctx.Done():
		return checkpoint.File{}, fmt.Errorf("write %s: %w", name, context.Cause(ctx))
	}
}

// moving is a writer that fails once ctx has ended. Every write restarts the
// timer; when the timer fires, it ends ctx.
type moving struct {
	ctx   context.Context
	w     io.Writer
	timer *time.Timer   // ends ctx if no byte was written for the duration in the field most
	most  time.Duration // longest time without a write before timer fires
}

func (m moving) Write(b []byte) (n int, err error) {
	const most = 1 << 20 // bytes to write before ctx is checked again
	for len(b) > 0 && err == nil {
		if m.ctx.Err() != nil {
			return n, context.Cause(m.ctx)
		}
		var wrote int
		wrote, err = m.w.Write(b[:min(len(b), most)])
		n, b = n+wrote, b[wrote:]
		if m.timer.Stop() {
			m.timer.Reset(m.most)
		}
	}
	return n, err
}
